"""Predicates whose leaves are all answered by sorted postings: wide ones are looked for among what narrow ones left."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from pyiceberg.catalog.sql import SqlCatalog

import planner
from planner.arrow.plan import plan_scan
from planner.prune.gate import Limits
from puffin_index import IndexDefinition, TableIndex
from tests.conftest import amount, built, temporary_catalog
from tests.planner.ten_rows import build_index

APPENDS, APPEND_ROWS, ROW_GROUP_ROWS, KEYS = 3, 3000, 500, 1000
"""`a` and `b` are in no order, `up` ascends over all appends with nine rows a key; a tenth of `b` is NULL."""

COLUMNS, ASKED = st.sampled_from(["a", "b", "up"]), st.integers(-5, KEYS + 5)
LEAVES = st.one_of(
    st.builds("{} = {}".format, COLUMNS, ASKED),
    st.builds("{} {} {}".format, COLUMNS, st.sampled_from(["<", ">="]), ASKED),
    st.builds(
        lambda column, key, more: f"{column} BETWEEN {key} AND {key + more}", COLUMNS, ASKED, st.integers(0, 300)
    ),
    st.builds(
        lambda column, keys: f"{column} IN ({', '.join(map(str, keys))})",
        COLUMNS,
        st.lists(st.integers(0, KEYS), min_size=1, max_size=9),
    ),
    st.builds("{} IS {}NULL".format, COLUMNS, st.sampled_from(["", "NOT "])),
)
PREDICATES = st.recursive(
    LEAVES,
    lambda children: st.one_of(
        st.tuples(children, st.sampled_from(["AND", "AND", "OR"]), children).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        children.map(lambda child: f"NOT ({child})"),
    ),
    max_leaves=5,
)


def rows_of(number: int) -> pa.Table:
    chance = np.random.default_rng(number)
    first = number * APPEND_ROWS
    b = chance.integers(0, KEYS, APPEND_ROWS)
    return pa.table(
        {
            "a": chance.integers(0, KEYS, APPEND_ROWS),
            "b": pa.array(b, mask=chance.random(APPEND_ROWS) < 0.1),
            "up": np.arange(first, first + APPEND_ROWS) // 9,
        }
    )


LAYOUTS = {f"{column}.layout": "postings" for column in ("a", "b", "up")}


@contextmanager
def built_in_turn(definitions: Sequence[IndexDefinition]) -> Iterator[TableIndex]:
    """Append and build as often as there are definitions, each time by the next one."""
    with temporary_catalog() as catalog:
        properties = {"write.parquet.row-group-limit": str(ROW_GROUP_ROWS)}
        table = catalog.create_table("ns.t", rows_of(0).schema, properties=properties)
        for number, definition in enumerate(definitions):
            table.append(rows_of(number))
            index = built(catalog, "ns.t", definition)
        yield index


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return pa.concat_tables([rows_of(number) for number in range(APPENDS)])


def due(rows: pa.Table, where: str) -> pa.Table:
    with duckdb.connect() as connection:
        connection.register("data", rows)
        return connection.sql(f"SELECT * FROM data WHERE {where}").to_arrow_table()


@pytest.fixture(scope="module")
def sliced() -> Iterator[TableIndex]:
    """Postings and bit slices of `a` and `b`; of `up`, postings alone. Slices of the second append are merged."""
    definitions: list[IndexDefinition] = []
    for number in range(APPENDS):
        compression = {f"{column}.compression": "auto" if number == 1 else "none" for column in ("a", "b")}
        definitions.append(IndexDefinition.of(bitmap=["a", "b", "up"], bsi=["a", "b"], options=LAYOUTS | compression))
    with built_in_turn(definitions) as made:
        yield made


@settings(max_examples=amount(20, 1_500), deadline=None, suppress_health_check=list(HealthCheck))
@example(where="a BETWEEN 19 AND 38", weight=4)
@given(where=PREDICATES, weight=st.sampled_from([0, 1, 2, 4, 1000]))
def test_rows_are_the_same_whichever_kind_is_asked(sliced: TableIndex, rows: pa.Table, where: str, weight: int) -> None:
    with (
        patch("planner.prune.leaf_search._CHEAP_BYTES", 0),
        patch("planner.prune.leaf_search._DECODING_WEIGHT", weight),
    ):
        counted = planner.count(sliced, where)
        added = planner.aggregate(sliced, where, "count(*), sum(a), min(b), max(up)").to_pylist()
    expected = due(rows, where)

    assert (counted.rows, counted.row_groups_read) == (len(expected), 0), where
    ends = pc.min_max(expected["b"])["min"].as_py(), pc.max(expected["up"]).as_py()
    assert tuple(added[0].values()) == (len(expected), pc.sum(expected["a"]).as_py(), *ends), where


def test_candidates_lie_in_payloads_that_cover_a_part_of_a_segment(
    local_catalog: SqlCatalog, rows: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Postings may be several of a segment: the rows that are left in one are none of the others."""
    few = rows.append_column("few", pc.bit_wise_and(rows["a"], 7))
    layouts = {"a.layout": "postings", "few.layout": "bitmaps"}
    definition = IndexDefinition.of(bitmap=["a", "few"], options=layouts)
    index = build_index(local_catalog, few.slice(0, 4500), ROW_GROUP_ROWS, definition)
    index.data_table.append(few.slice(4500))
    index.build(workers=1)
    # As if all would take more bytes together.
    monkeypatch.setattr("puffin_index.kinds.base._BLOB_BYTES", -1_000_000)
    assert index.compact().segments == 1
    monkeypatch.setattr("planner.prune.leaf_payloads._FEW_ROWS", 0)

    for where in ("a BETWEEN 40 AND 44 AND few <= 4", "a BETWEEN 40 AND 60 AND few <> 3", "a < 9 AND few IN (1, 2, 3)"):
        counted = planner.count(index, where)
        assert (counted.rows, counted.row_groups_read) == (len(due(few, where)), 0), where


def test_few_candidates_need_few_bit_slices(local_catalog: SqlCatalog) -> None:
    chance = np.random.default_rng(3)
    data = pa.table({"key": chance.integers(0, 20_000, 60_000), "high": chance.integers(0, 1 << 40, 60_000)})
    definition = IndexDefinition.of(bitmap=["key"], bsi=["high"], options={"high.compression": "none"})
    index = build_index(local_catalog, data, 60_000, definition)
    every, among = (
        plan_scan(index, where, limits=Limits(rows_wanted=True)).plan.funnel[-1].bytes_read
        for where in ("high >= 500000000123", "key = 77 AND high >= 500000000123")
    )
    assert 0 < among < every / 4
