"""Aggregates where an index is damaged or does not say enough: the row groups are read, and a warning says so."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import planner
from planner.aggregates.question import AggregateSyntaxError
from planner.arrow.aggregate import aggregate_with_plan
from puffin_index import IndexDefinition, TableIndex
from puffin_index.errors import NotFoundError, UnsupportedError
from puffin_index.storage.caches import clear_caches
from tests.conftest import amount, create_table
from tests.planner.ten_rows import build_index
from tests.puffin_index.indexed_table import segment_files

ROWS, ROW_GROUP_ROWS = 400, 100


def data() -> pa.Table:
    chooser = np.random.default_rng(7)
    return pa.table(
        {
            "k": pa.array(chooser.integers(-1_000, 1_000, ROWS), pa.int64(), mask=chooser.random(ROWS) < 0.1),
            "g": pa.array([f"group {n}" for n in chooser.integers(0, 5, ROWS)], pa.string()),
        }
    )


QUESTIONS = [
    (None, "count(*), count(k), sum(k), min(k), max(k)", ""),
    ("k > 100", "count(*), sum(k), max(g), count(DISTINCT g)", ""),
    ("k BETWEEN -500 AND 500", "count(*), sum(k), min(k)", "g"),
    (None, "count(*)", "g"),
]


@pytest.mark.parametrize(
    "definition",
    [
        IndexDefinition.of(bsi=["k", "g"]),
        IndexDefinition.of(bitmap=["k", "g"], options={"k.layout": "postings", "g.layout": "bitmaps"}),
        IndexDefinition.of(bsi=["k"], bitmap=["g"], options={"k.compression": "none"}),
    ],
    ids=["slices", "bitmaps", "both"],
)
def test_a_flipped_byte_never_changes_an_answer(local_catalog: SqlCatalog, definition: IndexDefinition) -> None:
    index = build_index(local_catalog, data(), ROW_GROUP_ROWS, definition)
    answers = [aggregate_with_plan(index, *question) for question in QUESTIONS]
    assert [found.row_groups_read for found in answers] == [0] * len(QUESTIONS)
    (segment,) = (Path(location.removeprefix("file://")) for location in segment_files(index))
    original = segment.read_bytes()
    chooser = random.Random(11)
    read = warned = 0
    for _ in range(amount(8, 240)):
        damaged = bytearray(original)
        damaged[chooser.randrange(len(original))] ^= 1 << chooser.randrange(8)
        segment.write_bytes(damaged)
        clear_caches()
        for question, right in zip(QUESTIONS, answers, strict=True):
            found = aggregate_with_plan(index, *question, refresh=False)
            assert found.table.equals(right.table)
            read += found.row_groups_read > 0
            warned += bool(found.plan.warnings)
            assert found.plan.warnings or not found.row_groups_read
    assert read
    assert warned >= read


def test_trouble_with_a_segment_is_one_line_an_hour(
    local_catalog: SqlCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    table = create_table(local_catalog, "t", data(), ROW_GROUP_ROWS)
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bsi=["k"], bitmap=["g"]))
    for _ in range(2):
        index.build(workers=1)
        table.append(data())
    (segment, _) = (Path(location.removeprefix("file://")) for location in segment_files(index))
    segment.write_bytes(bytes(len(segment.read_bytes())))
    clear_caches()

    for where in ("k > 5", "g = 'group 1'", "k > 900"):
        assert planner.aggregate(index, where, "sum(k)") is not None
        planner.count(index, where)
    index.compact()

    assert [str(segment) in record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [True]


@pytest.mark.parametrize(
    ("aggregates", "group_by", "error", "said"),
    [
        ("median(k)", "", AggregateSyntaxError, "there is no aggregate 'median' here; there are avg, bool_and"),
        ("sum k", "", AggregateSyntaxError, "expected aggregates such as"),
        ("", "", AggregateSyntaxError, "expected aggregates such as"),
        ([], "", AggregateSyntaxError, "no aggregate is wanted"),
        ("count(*),", "", AggregateSyntaxError, "and not ''"),
        ("sum(*)", "", AggregateSyntaxError, "only count takes"),
        ("sum(DISTINCT k)", "", AggregateSyntaxError, "is not answered here"),
        ("count(*), count(*)", "", AggregateSyntaxError, "two columns of the result are named 'count(*)'"),
        ("count(*)", "k + 1", AggregateSyntaxError, "expected names of columns"),
        ("sum(nowhere)", "", NotFoundError, "there is no column 'nowhere'"),
        ("count(*)", "nowhere", NotFoundError, "there is no column 'nowhere'"),
        ("sum(g)", "", UnsupportedError, "sum takes numbers, and g is string"),
        ("bool_and(k)", "", UnsupportedError, "bool_and takes booleans, and k is long"),
    ],
)
def test_what_cannot_be_asked_is_told(
    local_catalog: SqlCatalog, aggregates: str | list[str], group_by: str, error: type[Exception], said: str
) -> None:
    create_table(local_catalog, "t", data(), ROW_GROUP_ROWS)
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bsi=["k"]))
    with pytest.raises(error) as raised:
        aggregate_with_plan(index, None, aggregates, group_by)
    assert said in str(raised.value)


def test_names_may_be_quoted_nested_and_of_any_case(local_catalog: SqlCatalog) -> None:
    nested = pa.table({"a b": [1, 2], "u": pa.array([{"v": 5}, {"v": None}], pa.struct([("v", pa.int64())]))})
    index = build_index(local_catalog, nested, ROW_GROUP_ROWS, IndexDefinition.of(bsi=["a b", "u.v"]))
    found = aggregate_with_plan(
        index, None, "SUM(`A B`) as `the sum`, count( u.V ), count( distinct `u.v` )", ["`a b`"]
    )
    assert found.table.to_pylist() == [
        {"a b": 1, "the sum": 1, "count(u.v)": 1, "count(DISTINCT u.v)": 1},
        {"a b": 2, "the sum": 2, "count(u.v)": 0, "count(DISTINCT u.v)": 0},
    ]
    assert found.row_groups_read == 0
