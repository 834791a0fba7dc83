"""Located rows are the live rows that have the keys, whatever the index says of them, or does not say."""

import logging
import math
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings, strategies as st
from pyiceberg.catalog.sql import SqlCatalog

import planner
from planner.arrow.row_group_columns import DataRead
from planner.arrow.wanted_keys import KeysError
from planner.view.directories import IndexReads
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.data_table import list_data_files
from puffin_index.errors import NotFoundError, UnsupportedError
from puffin_index.storage.caches import clear_caches
from puffin_index.storage.files import ReadCount
from tests.conftest import amount, create_table, temporary_catalog
from tests.oracle import compare
from tests.planner.laws.random_tables import COLUMNS, KEY_COLUMNS, TYPES, RandomTable, sayable
from tests.planner.ten_rows import build_index
from tests.puffin_index.indexed_table import segment_files

NAN = math.nan
NAMES = {column: f"m.{key}" for column, key in KEY_COLUMNS.items()}
ROWS = pa.table(
    {
        "i": pa.array([5, 1, None, 9, 7, 3, 5, 2], pa.int64()),
        "f": pa.array([NAN, -0.0, 1.5, None, 0.0, NAN, 2.5, -7.0], pa.float64()),
        "s": pa.array(["b", "a", None, "d", "é", "a", "c", "B"]),
    }
)
DEFINITION = IndexDefinition.of(bitmap=["i", "s"], bsi=["f"])


def expected(table: RandomTable, columns: Sequence[str], keys: Sequence[Sequence[Any]]) -> list[tuple[str, int]]:
    """Where the rows are, file by file in the order of a plan."""
    found = []
    for path in planner.plan(table.index).data_files:
        rows = zip(*(table.appends[path].columns[column].rows for column in columns), strict=True)
        found += [
            (path, at)
            for at, row in enumerate(rows)
            if not table.deleted[path][at]
            and any(all(compare(own, "=", other) for own, other in zip(row, key, strict=True)) for key in keys)
        ]
    return found


def damage(index: TableIndex, random: Random) -> None:
    """Change a byte of some segments, or take them away."""
    for location in segment_files(index):
        segment = Path(location.removeprefix("file://"))
        match random.randrange(3):
            case 0:
                segment.unlink()
            case 1:
                held = bytearray(segment.read_bytes())
                held[random.randrange(len(held))] ^= 1 << random.randrange(8)
                segment.write_bytes(held)
    clear_caches()


def asked(table: RandomTable, random: Random) -> tuple[list[str], list[list[Any]]]:
    """Some columns, and rows of keys: mostly those of rows, or near to these."""
    columns = random.sample(COLUMNS, random.choice([1, 1, 2, 3]))
    appends = list(table.appends.values())
    keys = []
    for _ in range(random.choice([0, 1, 3, 30])):
        append = random.choice(appends)
        at = random.randrange(append.count)
        row = [append.columns[column].rows[at] for column in columns]
        keys.append(
            [
                own if random.random() < 0.8 else sayable(column, random)
                for column, own in zip(columns, row, strict=True)
            ]
        )
    return columns, keys


@settings(max_examples=amount(1, 150), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_located_rows_are_the_live_rows_with_the_keys(seed: int) -> None:
    random = Random(seed)
    with temporary_catalog() as catalog:
        table = RandomTable.make(seed, catalog)
        if random.random() < 0.3:
            damage(table.index, random)
        for _ in range(amount(8, 30)):
            columns, keys = asked(table, random)
            note(f"{columns} {keys}")
            types = [TYPES.get(column, pa.int64() if column == "u.v" else pa.string()) for column in columns]
            values = {
                NAMES.get(column, column): pa.array([key[at] for key in keys], own)
                for at, (column, own) in enumerate(zip(columns, types, strict=True))
            }
            with (
                patch("planner.arrow.locate._ROWS_AT_ONCE", random.choice([1, 1 << 20])),
                patch("planner.aggregates.payloads._FEW_ROWS", random.choice([0, 64])),
                patch("planner.aggregates.answer._ROW_GROUP_OVERHEAD_BYTES", random.choice([-(2**20), 2**20])),
            ):
                found = planner.locate(table.index, values)
            where = expected(table, columns, keys)
            assert list(zip(found["_file"].to_pylist(), found["_pos"].to_pylist(), strict=True)) == where
            for name, column in zip(values, columns, strict=True):
                rows = {path: append.columns[column].rows for path, append in table.appends.items()}
                kind = values[name].type
                assert found.schema.field(name).type == (pa.large_string() if kind == pa.string() else kind)
                # As text, which tells NaN and both zeros.
                assert str(found[name].to_pylist()) == str(
                    pa.array([rows[path][at] for path, at in where], found.schema.field(name).type).to_pylist()
                )


@pytest.fixture
def index(local_catalog: SqlCatalog) -> TableIndex:
    return build_index(local_catalog, ROWS, 2, DEFINITION)


def rows_of(found: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values())[1:] for row in found.to_pylist()]


def test_columns_are_file_position_and_keys_in_the_order_given(index: TableIndex) -> None:
    read = DataRead()
    found = planner.locate(index, {"S": np.array(["c", "b", "a"], object), "i": [5, 5, 3]}, data_read=read)

    assert found.schema == pa.schema(
        {"_file": pa.string(), "_pos": pa.int64(), "S": pa.large_string(), "i": pa.int64()}
    )
    assert rows_of(found) == [(0, "b", 5), (5, "a", 3), (6, "c", 5)]
    assert set(found["_file"].to_pylist()) == {file.path for file in list_data_files(index.data_table)}
    assert planner.locate(index, {"f": [NAN, 2.5]}, data_read=read).num_rows == 3
    assert read.bytes_read == 0, "the indexes are exact"


def test_trouble_is_read_around_and_logged(index: TableIndex, caplog: pytest.LogCaptureFixture) -> None:
    (segment,) = (Path(location.removeprefix("file://")) for location in segment_files(index))
    segment.unlink()
    clear_caches()

    with caplog.at_level(logging.WARNING):
        assert rows_of(planner.locate(index, {"i": [9, 2]})) == [(3, 9), (7, 2)]
    assert str(segment) in caplog.text


def test_many_keys_are_found_one_by_one(local_catalog: SqlCatalog) -> None:
    values = np.random.default_rng(3).permutation(300_000)
    index = build_index(local_catalog, pa.table({"k": values}), 50_000, IndexDefinition.of(bitmap=["k"]))
    keys = np.arange(0, 300_000, 2)

    found = planner.locate(index, {"k": keys})
    assert np.array_equal(found["_pos"], np.flatnonzero(values % 2 == 0))
    assert np.array_equal(found["k"], values[values % 2 == 0])


def test_keys_of_uuids_and_fixed_bytes_keep_their_types(local_catalog: SqlCatalog) -> None:
    ids = [UUID(int=n).bytes for n in range(4)]
    data = pa.table({"u": pa.array(ids, pa.binary(16)).cast(pa.uuid()), "x": pa.array(ids, pa.binary(16))})
    index = build_index(local_catalog, data, 2, IndexDefinition.of(bitmap=["u", "x"]))

    assert rows_of(planner.locate(index, {"x": pa.array([ids[2]], pa.binary_view())})) == [(2, ids[2])]
    found = planner.locate(index, {"u": data["u"].take([1, 3]), "x": data["x"].take([1, 2])})
    assert rows_of(found) == [(1, UUID(int=1), ids[1])]
    assert found.schema.types[2:] == data.schema.types


@pytest.mark.parametrize(
    ("keys", "error", "said"),
    [
        ({}, KeysError, "no column"),
        ({"i": [1, 2], "s": ["a"]}, KeysError, "i has 2, s has 1"),
        ({"i": 1}, KeysError, "keys of i: 'int' object is not iterable"),
        ({"s": "ab"}, KeysError, "keys of s: 'ab' is one value, and not a list of values"),
        ({"i": [1, "a"]}, KeysError, "keys of i: Could not convert 'a'"),
        ({"i": [2**70]}, KeysError, "keys of i: Python int too large"),
        ({"i": [1], "_pos": [1]}, KeysError, "_file and _pos are the place of a row"),
        ({"nowhere": [1]}, NotFoundError, "there is no column 'nowhere'"),
        ({"i": ["a"]}, UnsupportedError, "keys of i: a long column cannot hold Arrow string values"),
        ({"i": [1.5]}, UnsupportedError, "keys of i: a long column cannot hold Arrow double values"),
        ({"s": [b"a"]}, UnsupportedError, "keys of s: a string column cannot hold Arrow binary values"),
    ],
)
def test_what_cannot_be_located_is_told(index: TableIndex, keys: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as raised:
        planner.locate(index, keys)
    assert said in str(raised.value)


def test_keys_that_do_not_fit_their_column_are_refused(local_catalog: SqlCatalog) -> None:
    types = {"d": pa.decimal128(9, 2), "j": pa.int32(), "t": pa.timestamp("us"), "z": pa.timestamp("us", "UTC")}
    create_table(local_catalog, "t", pa.schema(types).empty_table(), 1)
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=list(types)))

    assert planner.locate(index, {"d": [Decimal("1.5")]}).schema.field("d").type == types["d"]
    # More digits than the column has, or another number of bits.
    for name, values in (
        ("d", pa.array([Decimal("1.005")])),
        ("d", pa.array([Decimal(2**64)])),
        ("j", [2**40]),
        ("t", pa.array([0], types["z"])),
        ("z", pa.array([0], types["t"])),
    ):
        with pytest.raises(UnsupportedError, match=f"keys of {name}: "):
            planner.locate(index, {name: values})


def test_rows_and_their_keys_are_read_once(local_catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.random.default_rng(5).permutation(20_000)
    rows = pa.table({"id": pa.array(ids, pa.int64())})
    index = build_index(
        local_catalog, rows, 1_000, IndexDefinition.of(bitmap=["id"], options={"id.layout": "postings"})
    )
    keys = {"id": [3, 777, 19_000]}
    planner.locate(index, keys)  # reads directories
    after_planning = ReadCount()
    monkeypatch.setattr("planner.arrow.locate.IndexReads", partial(IndexReads, after_planning))
    found = planner.locate(index, keys)
    assert sorted(found["id"].to_pylist()) == keys["id"]
    assert [int(ids[at]) for at in found["_pos"].to_pylist()] == found["id"].to_pylist()
    assert after_planning.bytes == 0
