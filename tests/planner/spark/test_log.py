"""The query log: bounded, in the background, and never in the way of a query; and its sums."""

import json
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyroaring import BitMap

from planner.query_log import QueryLog, QueryRecord, read_log, sum_up
from planner.spark.callback import PlannerCallback
from planner.spark.read_index import Reports
from puffin_index import IndexDefinition
from tests.planner.query_log_sample import RECORD
from tests.planner.spark.requests.jvm_messages import REQUEST, column, comparison, literal
from tests.planner.ten_rows import build_index
from tests.shell import Shell


def _record(day: int, kept: int, column: str = "k", *, continues: bool = False) -> QueryRecord:
    return RECORD.model_copy(
        update={
            "time": RECORD.time + timedelta(days=day),
            "kept": kept,
            "bytes_read": kept * 1_000,
            "columns": ((column, "bitmap"),),
            "continues": continues,
        }
    )


def test_sums_are_by_day_and_by_index() -> None:
    log = QueryLog((_record(1, 3), _record(1, 8, "v"), _record(2, 0)), ())
    found = sum_up(log, "ns.t", [("k", "bitmap"), ("k", "bsi")], 1_000)

    assert (found.total.scans, found.total.row_groups, found.total.dropped_by_default) == (3, 30, 6)
    assert (found.total.dropped_by_index, found.total.bytes_saved) == (5 + 0 + 8, 13_000)
    assert found.total.seconds_saved == 13 - 1.5
    assert [sums.scans for sums in found.by_day.values()] == [2, 1]
    assert found.by_index["k", "bitmap"].dropped_by_index == 13
    assert found.unused == (("k", "bsi"),)


def test_a_scan_that_keys_narrow_once_more_counts_once() -> None:
    found = sum_up(QueryLog((_record(1, 8), _record(1, 2, continues=True)), ()), "ns.t", [])
    assert (found.total.scans, found.total.bytes_without_index, found.total.bytes_saved) == (1, 8_000, 6_000)


class Hook:
    """The planner's side of a hook, asked without a JVM about a table of 8 row groups; it logs to a folder.

    Minima and maxima of row groups tell nothing of `k`; `v` ascends.
    """

    def __init__(self, catalog: SqlCatalog, log: str) -> None:
        keys = [row * 7919 % 400 * 2 for row in range(400)]
        data = pa.table({"k": keys, "v": range(400)})
        self._index = build_index(catalog, data, 50, IndexDefinition.of(bitmap=["k"], bsi=["v"]))
        self._log = log
        # Only planning on executors would need a Spark context.
        self._callback = PlannerCallback({"lake": catalog}, cast(Any, None), "session", Reports(), strict=True)

    def ask(self, *more: dict[str, Any]) -> bytes:
        """Ask for rows that there are not, by more filters if there are, and wait until the log is written."""
        table, version = self._index.data_table, self._index.index_table.refresh().snapshots()[-1]
        request = REQUEST | {
            "uuid": str(table.metadata.table_uuid),
            "filters": [comparison(column(1, "long"), "=", literal(401, "long")), *more],
            "columns": table.schema().model_dump_json(),
            "settings": {"spark.puffin-index.query-log": self._log},
            "session": "session",
            "version": str(version.snapshot_id),
        }
        answer = self._callback.apply(json.dumps(request), BitMap(range(8)).serialize())
        assert self._callback.observers.wait(60)
        return bytes(answer)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_the_command_prints_what_the_log_has(local_catalog: SqlCatalog, tmp_path: Path, folder: Path) -> None:
    shell = Shell(tmp_path)
    Hook(local_catalog, str(folder)).ask()
    arguments = ("benefits", "--catalog-property=type=sql", "--query-log", str(folder))

    printed, told = shell(*arguments), shell.json(*arguments)

    assert "no query used: v.bsi" in printed.output
    assert told["total"]["dropped_by_index"] == 8
    assert told["unused"] == [{"column": "v", "kind": "bsi"}]
    assert "MB of row groups a second" in told["assumption"]


def test_a_full_log_warns_once(local_catalog: SqlCatalog, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.write_text("")
    hook = Hook(local_catalog, str(folder / "log"))
    assert [hook.ask()[:1] for _ in range(3)] == [b"D"] * 3
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


def test_lines_that_are_no_records_are_left_out(folder: Path) -> None:
    folder.mkdir()
    (folder / "log.jsonl").write_text(f'{{"time": 1}}\nnothing\n{RECORD.model_dump_json()}')

    assert read_log(PyArrowFileIO(), str(folder)).queries == (RECORD,)
    assert read_log(PyArrowFileIO(), str(folder), "ns.another").queries == ()
    assert read_log(PyArrowFileIO(), str(folder / "none")).queries == ()


def test_stores_may_get_a_file_each_time(
    local_catalog: SqlCatalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = Hook(local_catalog, folder.as_uri())
    # As for any URL of another scheme.
    monkeypatch.setattr("planner.spark.observers.local_path", lambda _: None)
    for _ in range(2):
        hook.ask()

    assert len(list(folder.glob("*.jsonl"))) == 2
    assert len(read_log(PyArrowFileIO(), str(folder)).queries) == 2


def test_a_line_has_what_was_agreed(local_catalog: SqlCatalog, folder: Path) -> None:
    Hook(local_catalog, folder.as_uri()).ask(comparison(column(2, "long"), "<", literal(100, "long")))
    (file,) = folder.glob("*.jsonl")
    line: dict[str, Any] = json.loads(file.read_text())
    time = line.pop("time")
    assert time.endswith("Z")
    assert file.name == f"{time[:10]}-session.jsonl"
    assert line.pop("planning_seconds") > 0
    assert line.pop("index_bytes") > 0
    assert line.pop("bytes_without_index") > 0
    assert line == {
        "table": "lake.ns.t",
        "where": "k = ? AND v < ?",
        "row_groups": 8,
        "kept_without_index": 2,
        "kept": 0,
        "bytes_read": 0,
        "sources": ["predicate"],
        "columns": [["k", "bitmap"], ["v", "zone-map"]],
        "answered": 0,
        "continues": False,
        "not_trusted": False,
    }
