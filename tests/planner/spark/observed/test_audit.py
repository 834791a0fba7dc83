"""An audit finds what a wrong index has dropped or answered; the index is then used no more, and queries say so."""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyroaring import BitMap

from planner.condition.spark.nodes import Column
from planner.condition.spark.read import found_column
from planner.prune.pruned import Reason
from planner.query_log.benefits import sum_up
from planner.query_log.records import read_log
from planner.spark.requests.wire import KEEP_ALL
from planner.view.column_values import ColumnValues, values_to_try
from puffin_index import IndexDefinition
from puffin_index.data.data_table import list_data_files
from puffin_index.errors import PuffinIndexError
from tests.deletes_sample import commit_positional_deletes
from tests.oracle import Among, Compare
from tests.planner.spark.observed.hook_requests import AskedHook, column_node, condition_node
from tests.planner.spark.observed.wrong_index import NEW, OLD, Plant

_KINDS = {
    "bitmap": IndexDefinition.of(bitmap=["k"]),
    "bsi": IndexDefinition.of(bsi=["k"]),
    "bloom": IndexDefinition.of(bloom=["k"]),
}


def _hook(plant: Plant, definition: IndexDefinition, folder: Path | None = None, **settings: str) -> AskedHook:
    log = {} if folder is None else {"query-log": str(folder)}
    own = {name.replace("_", "-"): value for name, value in settings.items()}
    return AskedHook(plant(definition), {"audit": "1", "audit-row-groups": "100"} | log | own, strict=False)


@pytest.mark.parametrize("kind", _KINDS)
def test_a_row_that_the_index_does_not_know_is_found(
    plant: Plant, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = _hook(plant, _KINDS[kind], tmp_path / "log")
    asked = hook.ask([condition_node(Compare("k", "=", NEW), hook.schema)])
    assert asked.plan is not None
    assert asked.plan.kept == 0

    with caplog.at_level(logging.ERROR):
        hook.wait()

    (record,) = [record.message for record in caplog.records]
    snapshot = hook.index.data_table.current_snapshot()
    assert snapshot is not None
    for part in (
        "lake.ns.t",
        str(snapshot.snapshot_id),
        ".parquet",
        "row group 2",
        "rows [20]",
        f"k = {NEW}",
        ".puffin",
    ):
        assert part in record
    log = read_log(hook.index.data_table.io, str(tmp_path / "log"), "ns.t")
    (audit,) = log.audits
    (miss,) = audit.misses
    assert miss.row_group == 2
    assert {column for column, _ in miss.columns} == {"k"}
    assert miss.segments
    assert sum_up(log, "ns.t", [("k", kind)]).misses


def test_the_index_is_used_no_more_and_queries_say_so(plant: Plant) -> None:
    hook = _hook(plant, _KINDS["bitmap"])
    hook.ask([condition_node(Compare("k", "=", NEW), hook.schema)])
    hook.wait()

    asked = hook.ask([condition_node(Compare("k", "=", 1), hook.schema)])

    assert asked.answer == KEEP_ALL
    assert asked.plan is not None
    assert asked.plan.kept == asked.plan.row_groups == 8
    assert asked.plan.reason_counts() == {Reason.NOT_TRUSTED.code: 8}
    assert "is wrong" in asked.plan.warnings[0]
    # Other sessions still use it.
    other = hook.ask([condition_node(Compare("k", "=", 1), hook.schema)], session="another")
    assert other.plan is not None
    assert other.plan.kept == 0


def test_a_strict_session_fails_at_the_next_query(plant: Plant) -> None:
    hook = _hook(plant, _KINDS["bitmap"], strict="true")
    hook.ask([condition_node(Compare("k", "=", NEW), hook.schema)])
    hook.wait()

    with pytest.raises(PuffinIndexError, match="is wrong"):
        hook.ask([condition_node(Compare("k", "=", 1), hook.schema)])


def test_a_wrong_answer_is_found(plant: Plant, caplog: pytest.LogCaptureFixture) -> None:
    hook = _hook(plant, IndexDefinition.of(bsi=["k"], bitmap=["v"]))
    wanted = {"column": column_node("k", hook.schema), "sum": True, "double": False, "least": False, "greatest": False}
    asked = hook.ask(
        [condition_node(Compare("v", "=", 0), hook.schema)],
        aggregates={"columns": [wanted], "groups": [], "text": "sum(k)"},
    )
    assert asked.answer[:1] == b"G"

    with caplog.at_level(logging.ERROR):
        hook.wait()

    assert "sum(k)" in caplog.text
    assert hook.ask([condition_node(Compare("v", "=", 3), hook.schema)]).plan.reason_counts() == {"not-trusted": 8}  # type: ignore[union-attr]


def test_too_few_rows_for_a_limit_are_found(plant: Plant, caplog: pytest.LogCaptureFixture) -> None:
    hook = _hook(plant, _KINDS["bitmap"])
    later = hook.index.data_table.scan(row_filter="v = 7").to_arrow()["k"][20].as_py()
    condition = condition_node(Among("k", (OLD, later)), hook.schema)

    asked = hook.ask([condition], wanted={"rows": 1, "order": None})
    assert asked.plan is not None
    assert [split.row_group for split in asked.plan.splits if split.verdict == "kept"] == [2]
    with caplog.at_level(logging.ERROR):
        hook.wait()

    assert "at least 1 rows" in caplog.text


def test_a_value_for_which_no_function_was_evaluated_is_found(plant: Plant, caplog: pytest.LogCaptureFixture) -> None:
    hook = _hook(plant, _KINDS["bitmap"])
    node = column_node("k", hook.schema)
    found = found_column(Column.model_validate(node), hook.schema)
    assert found is not None
    assert found.value_type is not None
    values = values_to_try(hook.view, found.column, found.value_type.name, np.arange(8), 1 << 20)
    assert isinstance(values, ColumnValues)
    first = b64encode(BitMap([0]).serialize()).decode()
    matches = {"positions": first, "between": None, "null": False, "exact": True, "microseconds": 1}
    function = {"node": "function", "number": 0, "name": "(k % 1000 = 0)", "column": node, "matches": matches}

    asked = hook.ask([function | {"values": values.fingerprint}])
    assert asked.plan is not None
    assert asked.plan.kept == 1
    with caplog.at_level(logging.ERROR):
        hook.wait()

    assert "row group 2" in caplog.text


def test_a_row_that_was_deleted_is_no_miss(plant: Plant, caplog: pytest.LogCaptureFixture) -> None:
    hook = _hook(plant, _KINDS["bitmap"])
    (file,) = list_data_files(hook.index.data_table)
    commit_positional_deletes(hook.index.data_table, {file.path: [120]})

    hook.ask([condition_node(Compare("k", "=", NEW), hook.schema)])
    with caplog.at_level(logging.ERROR):
        hook.wait()

    assert not caplog.records


def test_no_share_no_audit(plant: Plant, caplog: pytest.LogCaptureFixture) -> None:
    hook = _hook(plant, _KINDS["bitmap"], audit="0")
    hook.ask([condition_node(Compare("k", "=", NEW), hook.schema)])
    with caplog.at_level(logging.ERROR):
        hook.wait()
    assert not caplog.records


def test_only_as_many_row_groups_are_read_as_the_settings_say(plant: Plant, tmp_path: Path) -> None:
    hook = _hook(plant, _KINDS["bitmap"], tmp_path / "log")
    for bounds in ({"audit-row-groups": "3"}, {"audit-bytes": "1"}):
        hook.settings = {**hook.settings, **bounds}
        hook.ask([condition_node(Compare("k", "=", 1), hook.schema)])
        hook.wait()
    audits = read_log(hook.index.data_table.io, str(tmp_path / "log")).audits
    assert [audit.row_groups for audit in audits] == [3, 1]


def test_a_line_has_what_was_agreed(plant: Plant, tmp_path: Path) -> None:
    hook = _hook(plant, _KINDS["bitmap"], tmp_path / "log")
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
