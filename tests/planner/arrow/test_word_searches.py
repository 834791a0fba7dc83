"""Searches of texts by an index of their words: row groups dropped, words read for the row groups of the scan alone."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import StringType

import planner
from planner.clock import Clock
from planner.condition.sql.parser import read_where
from planner.condition.tree.nodes import Leaf, Predicate
from planner.condition.tree.simplify import simplified
from planner.prune.gate import Limits
from planner.prune.search import prune
from planner.view.column_values import TriedValues
from planner.view.views import view_of
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.column_source import reading_of
from puffin_index.errors import DefinitionError
from puffin_index.keys.leaf import SetTest
from puffin_index.keys.map_key import Contents
from puffin_index.segments.directory import STATISTICS
from puffin_index.storage.caches import clear_caches

ROWS, ROW_GROUP_ROWS = 12_000, 2_000


@pytest.fixture
def index(local_catalog: SqlCatalog) -> TableIndex:
    """Four data files with a segment of each; three lines of the third one have the word Panic."""
    schema = pa.schema([("id", pa.int64()), ("day", pa.int32()), ("message", pa.string())])
    properties = {"write.parquet.row-group-limit": str(ROW_GROUP_ROWS)}
    table = local_catalog.create_table("ns.t", schema, properties=properties)
    for day in range(4):
        ids = range(day * ROWS, (day + 1) * ROWS)
        lines = [f"request {one * 7919 % 999_983:x} of user u{one % 777} took {one % 97} ms" for one in ids]
        if day == 2:
            lines[5000:5003] = ["kernel Panic: not syncing"] * 3
        table.append(pa.table({"id": [*ids], "day": pa.array([day] * ROWS, pa.int32()), "message": lines}, schema))
        definition = IndexDefinition.of(bitmap=["message"], options={"message.content": "words"})
        built = TableIndex.create(local_catalog, "ns.t", definition)
        built.build(workers=1)
    return built


SEARCHES = ("LIKE '%Pani%'", "LIKE '%kernel Panic%'", "ILIKE '% panic%'", "RLIKE 'el Pa'")


@pytest.mark.parametrize("where", [*(f"message {one}" for one in SEARCHES), "contains(message, 'el Pa')"])
def test_a_row_group_without_the_words_is_dropped(index: TableIndex, where: str) -> None:
    plan = planner.plan(index, where, strict=True)

    assert plan.kept == 1
    assert [row["id"] for row in planner.scan(index, where, ["id"]).read_all().to_pylist()] == [29_000, 29_001, 29_002]
    assert planner.count(index, where).rows == 3


@pytest.mark.parametrize(
    ("where", "kept", "rows"),
    [
        ("message = 'kernel Panic: not syncing'", 1, 3),
        ("message IN ('kernel Panic: not syncing', 'no such line')", 1, 3),
        ("message IN ('not syncing: Panic', 'no such line')", 1, 0),
        ("message = 'kernel panic: not syncing'", 0, 0),
        ("message IN ('kernel Panic: not syncing', '--')", 6, 3),
        ("message = '--'", 0, 0),
        ("message <> 'kernel Panic: not syncing'", 24, 47_997),
        ("message IN ('kernel Panic: not syncing', NULL)", 1, 3),
    ],
)
def test_equal_texts_have_the_same_words(index: TableIndex, where: str, kept: int, rows: int) -> None:
    assert planner.plan(index, where, strict=True).kept == kept
    assert planner.count(index, where).rows == rows


def test_words_of_other_data_files_are_not_read(index: TableIndex) -> None:
    """Bounds of files say their days."""
    clear_caches()
    of_a_day = planner.plan(index, "message LIKE '%Pani%' AND day = 2", strict=True)
    clear_caches()
    every = planner.plan(index, "message LIKE '%Pani%'", strict=True)

    assert of_a_day.kept == every.kept == 1
    assert 3 * of_a_day.implied[-1].bytes_read < every.implied[-1].bytes_read
    # Now they are known.
    assert planner.plan(index, "message LIKE '%Panic%'", strict=True).implied[-1].bytes_read == 0


def test_words_are_not_used_where_those_of_a_segment_could_not_be_listed(index: TableIndex) -> None:
    schema, view = index.data_table.schema(), view_of(index.index_table, reading_of(index.data_table))
    condition, every = read_where("message LIKE '%Pani%'", schema), np.arange(view.row_group_count)

    def with_words() -> tuple[Predicate, str]:
        clear_caches()
        tried = TriedValues(schema, view, every, 1 << 30, Clock(np.inf))
        return simplified(condition, tried.decide), tried.implied[-1].text

    (with_panic,) = np.flatnonzero(prune(view, with_words()[0], every).kept)
    placement = view.placements[Contents(3, "words"), STATISTICS]
    segment = int(placement.segment[with_panic])
    path, place = Path(view.segments[segment][0].removeprefix("file://")), placement.locations[segment][0]
    original = path.read_bytes()
    path.write_bytes(original[:place] + bytes([original[place] ^ 1]) + original[place + 1 :])
    predicate, said = with_words()
    path.write_bytes(original)

    assert said.endswith("not used, a part of the index cannot be read")
    assert prune(view, predicate, every).kept[with_panic]


def test_what_rows_lack_is_not_said_by_words(index: TableIndex) -> None:
    assert planner.plan(index, "message NOT LIKE '%request%'", strict=True).dropped == 0
    assert planner.count(index, "message NOT LIKE '%request%'").rows == 3


def test_a_search_that_most_words_satisfy_drops_nothing(index: TableIndex) -> None:
    plan = planner.plan(index, "message LIKE '%1%'", strict=True)

    assert plan.dropped == 0
    assert " words of " in str(plan.implied[-1])


def test_data_files_from_before_a_column_have_no_words(local_catalog: SqlCatalog) -> None:
    old, new = pa.schema([("id", pa.int64())]), pa.schema([("id", pa.int64()), ("message", pa.string())])
    table = local_catalog.create_table("ns.t", old)
    table.append(pa.table({"id": [1, 2]}, old))
    with table.update_schema() as update:
        update.add_column("message", StringType())
    table.append(pa.table({"id": [3, 4], "message": ["kernel panic", None]}, new))
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=["message#c#words"]))

    assert index.build(workers=1).rows == 4
    assert planner.plan(index, "message LIKE '% panic'", strict=True).kept == 1
    assert planner.count(index, "message IS NULL").rows == 3


def test_the_text_of_a_partition_has_its_words(local_catalog: SqlCatalog) -> None:
    schema = pa.schema([("id", pa.int64()), ("message", pa.string())])
    table = local_catalog.create_table("ns.t", schema)
    with table.update_spec() as update:
        update.add_identity("message")
    table.append(pa.table({"id": [1, 2, 3], "message": ["kernel panic", "all well", None]}, schema))
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=["message#c#words"]))

    assert index.build(workers=1).rows == 3
    assert planner.count(index, "message LIKE '% panic'").rows == 1
    assert planner.plan(index, "message RLIKE 'l panic'", strict=True).kept == 1


def test_smaller_blocks_leave_fewer_rows(local_catalog: SqlCatalog) -> None:
    schema = pa.schema([("id", pa.int64()), ("message", pa.string())])
    table = local_catalog.create_table("ns.t", schema)
    lines = [f"line {number % 97}{' panic' if number in (7, 40_007) else ''}" for number in range(50_000)]
    for block_rows in ("1024", "16384"):
        table.append(pa.table({"id": [*range(50_000)], "message": lines}, schema))
        options = {"message.content": "words", "message.block-rows": block_rows}
        index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=["message"], options=options))
        index.build(workers=1)
    for _ in range(2):
        view = view_of(index.index_table, reading_of(index.data_table))
        leaf = Leaf(Contents(2, "words"), SetTest((b"panic",)), "string")
        found = prune(view, leaf, np.arange(2), Limits(rows_wanted=True)).row_sets
        # Blocks 0 and 39 of 1,024 rows, and blocks 0 and 2 of 16,384.
        assert sorted(len(rows.rows) for number in range(2) if (rows := found.of(number))) == [2048, 32_768]
        assert planner.count(index, "message LIKE '% panic'").rows == 4
        assert index.verify(None).findings == ()
        assert index.compact().segments_after == 1
        index.refresh()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"message.content": "words", "message.block-rows": "1000"}, "is not one of 1024, 2048, 4096, 8192, 16384"),
        ({"message.block-rows": "1024"}, "option block-rows is for indexes of words"),
    ],
)
def test_other_blocks_are_refused(local_catalog: SqlCatalog, options: dict[str, str], said: str) -> None:
    local_catalog.create_table("ns.t", pa.schema([("message", pa.string())]))
    with pytest.raises(DefinitionError, match=said):
        TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=["message"], options=options))
