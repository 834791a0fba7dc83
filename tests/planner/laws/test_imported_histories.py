"""Imported files, name mappings that change, restored tables, partition constants: scans find what Iceberg would read.

Which rows Iceberg reads says `tests.planner.laws.iceberg_reading`.
"""

from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.stateful import invariant, rule
from pyiceberg.table import Table

from planner.arrow.aggregate import count
from planner.arrow.arrow_scan import scan
from planner.arrow.plan import plan
from puffin_index.errors import PuffinIndexError
from puffin_index.storage.arrays import Rows
from tests.column_questions import Question, asked_columns, places, questions
from tests.conftest import amount
from tests.oracle import evaluate
from tests.planner.condition.where_text import Writer
from tests.planner.laws.doors import check_every_door
from tests.planner.laws.iceberg_reading import NAME_MAPPING, OddFileError, leaf_columns, live_files, schema_at
from tests.planner.laws.imported_history import ImportedHistory
from tests.planner.laws.table_history import history_settings
from tests.questions import batches

OUTDATED = "other column mappings"
CHANGES = ("rename", "map", "unmap", "restore")


class CheckedHistory(ImportedHistory):
    """Whatever happens, plans, scans, counts and look-ups find the rows that Iceberg reads."""

    @rule(rows=batches, place=places, names=st.lists(places, min_size=8, max_size=8), change=st.sampled_from(CHANGES))
    def change_what_was_indexed(self, rows: Rows, place: int, names: list[int], change: str) -> None:
        """Index all columns of a file without ids, then change what they are found by: every question is asked."""
        self.import_fields(self.stored_fields(rows, "none", 0, set()), 2, (False, True), (1, "a"))
        self.define([column.name for column in leaf_columns(self.table.schema().fields)], "postings")
        self.build()
        match change:
            case "rename":
                self.rename(place, is_replaced=True)
            case "map":
                self.map_names(names)
            case "unmap":
                self.unmap_names()
            case _:
                self.restore(place)
        for question in self.asked:
            self.step += 1
            self.compare(self.table, question, None)

    @invariant()
    def find_what_iceberg_reads(self) -> None:
        self.step += 1
        table = self.table
        references = sorted(reference.snapshot_id for reference in table.refs().values())
        for turn in range(2):
            self.compare(table, self.asked[(self.step + turn) % len(self.asked)], None)
        if references:
            self.compare(table, self.asked[self.step % len(self.asked)], references[self.step % len(references)])

    @invariant()
    def find_rows_by_key(self) -> None:
        check_every_door(self.index, self.table, None, self.step)

    def compare(self, table: Table, question: Question, snapshot_id: int | None) -> tuple[str, list[str]]:
        """Ask a question of a snapshot; return it as text, and the columns to read."""
        columns = list(leaf_columns(schema_at(table, snapshot_id).fields))
        predicate = question(columns)
        where = Writer(Random(self.step).choice).predicate(predicate)
        (row_name,) = (column.name for column in columns if column.field.field_id == 1)
        wanted = [column for column in columns if column.name in {row_name, *asked_columns(predicate)}]
        matches: dict[str, list[Any]] = {}
        found: Counter[tuple[Any, ...]] = Counter()
        is_odd = False
        for live in live_files(table, snapshot_id):
            try:
                rows = live.rows(wanted, table.properties.get(NAME_MAPPING))
            except OddFileError:
                is_odd = True
                continue
            hits = [at not in live.deleted and evaluate(predicate, row) is True for at, row in enumerate(rows)]
            matches[live.file.file_path] = [sum(hits[group.start : group.stop]) for group in live.row_groups]
            found.update(tuple(row.values()) for row, hit in zip(rows, hits, strict=True) if hit)
        # Wide tests are looked up among the rows of others, as where their rows are many.
        with patch("planner.prune.leaf_payloads._FEW_ROWS", (0, 2, 1000)[self.step % 3]):
            self.compare_plan(where, snapshot_id, matches)
            names = [column.name for column in wanted]
            if is_odd:
                with suppress(PuffinIndexError):
                    scan(self.index, where, names, snapshot_id).read_all()
                with suppress(PuffinIndexError):
                    count(self.index, where, snapshot_id)
                return where, names
            read = scan(self.index, where, names, snapshot_id).read_all().to_pylist()
            assert Counter(tuple(leaf_value(row, name) for name in names) for row in read) == found, (
                where,
                snapshot_id,
            )
            assert count(self.index, where, snapshot_id).rows == found.total(), (where, snapshot_id)
        return where, names

    def compare_plan(self, where: str, snapshot_id: int | None, matches: dict[str, list[Any]]) -> None:
        found = plan(self.index, where, snapshot_id, strict=True)
        assert all(OUTDATED in warning for warning in found.warnings), found.warnings
        for split in found.splits:
            if split.reason == "unindexed" or split.data_file not in matches:
                continue
            rows = matches[split.data_file][split.row_group]
            assert split.verdict == "kept" or not rows, f"{where}: {split} drops {rows} rows"
            assert split.rows is None or split.rows == rows, f"{where}: {split}, not {rows} rows"


@settings(max_examples=amount(1, 200), suppress_health_check=list(HealthCheck))
@given(
    rows=batches,
    asked=st.lists(questions, min_size=8, max_size=8),
    is_mapped=st.booleans(),
    place=places,
    names=st.lists(places, min_size=8, max_size=8),
    change=st.sampled_from(CHANGES),
)
def test_what_columns_are_found_by_changes_after_the_build(
    rows: Rows, asked: list[Question], is_mapped: bool, place: int, names: list[int], change: str
) -> None:
    history = CheckedHistory()
    try:
        history.begin(rows, asked, is_mapped, "none")
        history.change_what_was_indexed(rows, place, names, change)
    finally:
        history.teardown()


def leaf_value(row: dict[str, Any], name: str) -> Any:
    value: Any = row
    for part in name.split("."):
        value = None if value is None else value[part]
    return value


TestImportedHistories = CheckedHistory.TestCase
TestImportedHistories.settings = history_settings(2)
