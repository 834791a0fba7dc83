"""The query log: bounded, in the background, and never in the way of a query; and its sums."""

import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyiceberg.catalog.sql import SqlCatalog

from planner.commands.main import main
from planner.query_log.benefits import sum_up
from planner.query_log.records import QueryLog, QueryRecord, read_log
from puffin_index import IndexDefinition
from tests.oracle import Compare
from tests.planner.spark.observed.hook_requests import AskedHook, condition_node
from tests.planner.spark.observed.wrong_index import planted


def _record(day: int, kept: int, column: str = "k", *, continues: bool = False) -> QueryRecord:
    return QueryRecord(
        time=datetime(2026, 11, day, 12, tzinfo=UTC),
        table="lake.ns.t",
        where="k = ?",
        row_groups=10,
        kept_without_index=8,
        kept=kept,
        bytes_without_index=8_000,
        bytes_read=kept * 1_000,
        index_bytes=50,
        planning_seconds=0.5,
        sources=("predicate",),
        columns=((column, "bitmap"),),
        answered=0,
        continues=continues,
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


def test_the_command_prints_what_the_log_has(local_catalog: SqlCatalog, tmp_path: Path) -> None:
    hook = AskedHook(
        planted(local_catalog, "ns.t", IndexDefinition.of(bitmap=["k"], bsi=["v"])),
        {"query-log": str(tmp_path / "log")},
    )
    hook.ask([condition_node(Compare("k", "=", 1), hook.schema)])
    hook.wait()
    opens = [f"--catalog-property={key}={hook.index.catalog.properties[key]}" for key in ("uri", "warehouse")]
    arguments = ["benefits", "local.ns.t", "--catalog-property=type=sql", *opens, "--query-log", str(tmp_path / "log")]

    printed = CliRunner().invoke(main, arguments, catch_exceptions=False)
    told = json.loads(CliRunner().invoke(main, [*arguments, "--json"], catch_exceptions=False).output)

    assert "no query used: v.bsi" in printed.output
    assert told["total"]["dropped_by_index"] == 8
    assert told["unused"] == [{"column": "v", "kind": "bsi"}]
    assert "MB of row groups a second" in told["assumption"]


def test_a_log_that_cannot_be_written_warns_once(
    local_catalog: SqlCatalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    hook = AskedHook(
        planted(local_catalog, "ns.t", IndexDefinition.of(bitmap=["k"])), {"query-log": str(tmp_path / "file" / "log")}
    )
    for key in range(3):
        asked = hook.ask([condition_node(Compare("k", "=", key), hook.schema)])
        assert asked.answer[:1] == b"D"
        hook.wait()
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


def test_lines_that_are_no_records_are_left_out(local_catalog: SqlCatalog, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    hook = AskedHook(planted(local_catalog, "ns.t", IndexDefinition.of(bitmap=["k"])), {"query-log": folder.as_uri()})
    hook.ask([condition_node(Compare("k", "=", 1), hook.schema)])
    hook.wait()
    (file,) = folder.glob("*.jsonl")
    file.write_text(f'{{"time": 1}}\nnothing\n{file.read_text()}')

    assert len(read_log(hook.index.data_table.io, str(folder)).queries) == 1
    assert read_log(hook.index.data_table.io, str(folder), "ns.another").queries == ()
    assert read_log(hook.index.data_table.io, str(tmp_path / "none")).queries == ()


def test_a_store_that_cannot_add_to_files_gets_a_new_one_each_time(
    local_catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "log"
    hook = AskedHook(planted(local_catalog, "ns.t", IndexDefinition.of(bitmap=["k"])), {"query-log": folder.as_uri()})
    # As for any URL of another scheme.
    monkeypatch.setattr("planner.spark.observed_query.local_path", lambda _: None)
    for key in range(2):
        hook.ask([condition_node(Compare("k", "=", key), hook.schema)])
        hook.wait()

    assert len(list(folder.glob("*.jsonl"))) == 2
    assert len(read_log(hook.index.data_table.io, str(folder)).queries) == 2


def test_a_line_has_what_was_agreed(local_catalog: SqlCatalog, tmp_path: Path) -> None:
    hook = AskedHook(
        planted(local_catalog, "ns.t", IndexDefinition.of(bitmap=["k"])), {"query-log": str(tmp_path / "log")}
    )
    hook.ask(filters=['{"type": "eq", "term": "k", "value": 1}'])
    hook.wait()
    (file,) = (tmp_path / "log").glob("*.jsonl")
    line: dict[str, Any] = json.loads(file.read_text())
    time = line.pop("time")
    assert time.endswith("Z")
    assert file.name == f"{time[:10]}-session.jsonl"
    assert line.pop("planning_seconds") > 0
    assert line.pop("index_bytes") > 0
    assert line.pop("bytes_without_index") > 0
    assert line == {
        "table": "lake.ns.t",
        "where": "k = ?",
        "row_groups": 8,
        "kept_without_index": 1,
        "kept": 0,
        "bytes_read": 0,
        "sources": ["predicate"],
        "columns": [["k", "bitmap"], ["k", "zone-map"]],
        "answered": 0,
        "continues": False,
        "not_trusted": False,
    }
