"""Tests of one key of a map, by indexes of all keys and all values of the map."""

from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import planner
from puffin_index import IndexDefinition, TableIndex

ROWS, GROUP = 1_000, 100
KEYS = ("m#c#keys", "m#c#values")


def index_of(catalog: SqlCatalog, maps: list[Any], columns: tuple[str, ...], key_type: pa.DataType) -> TableIndex:
    schema = pa.schema([("id", pa.int64()), ("m", pa.map_(key_type, pa.int32()))])
    table = catalog.create_table("ns.t", schema, properties={"write.parquet.row-group-limit": str(GROUP)})
    table.append(pa.table({"id": [*range(len(maps))], "m": maps}, schema))
    index = TableIndex.create(catalog, "ns.t", IndexDefinition.of(bitmap=columns))
    index.build(workers=1)
    return index


@pytest.fixture
def index(local_catalog: SqlCatalog) -> TableIndex:
    """Rows of row group n have the key `k<n>` with 0 to 9, the key `all` with n, and the key `none` with NULL."""
    maps: list[Any] = [{f"k{n // GROUP}": n % 10, "all": n // GROUP, "none": None} for n in range(ROWS)]
    maps[50], maps[51] = None, {}
    return index_of(local_catalog, maps, KEYS, pa.string())


@pytest.mark.parametrize(
    ("where", "kept", "rows"),
    [
        ("m['k7'] = 3", 1, 10),
        ("m.k7 IN (3, 4)", 1, 20),
        ("m['k7'] BETWEEN 3 AND 5", 1, 30),
        ("m['k7'] = 300", 0, 0),
        ("m['k7'] > 300 OR m['k7'] < -5", 0, 0),
        ("m['k7'] <> 3", 1, 90),
        ("NOT m['k7'] IN (3, 4)", 1, 80),
        ("m['k7'] IS NOT NULL", 1, 100),
        ("m['k7'] IS NULL", 10, 900),
        ("m['none'] IS NULL", 10, 1000),
        ("map_contains_key(m, 'k7')", 1, 100),
        ("m['k7'] = 3 OR m['k8'] = 3", 2, 20),
        ("m['all'] = 12", 0, 0),
        ("m['none'] = 3", 10, 0),
        ("m['k7'] <=> 3", 1, 10),
    ],
)
def test_a_key_and_its_value_are_looked_up_among_all(index: TableIndex, where: str, kept: int, rows: int) -> None:
    assert planner.plan(index, where, strict=True).kept == kept
    assert planner.count(index, where).rows == planner.scan(index, where, ["id"]).read_all().num_rows == rows


@pytest.mark.parametrize(
    ("key_type", "key", "other", "text"),
    [
        (pa.int32(), -5, 7, "-5"),
        (pa.date32(), date(1969, 12, 30), date(2024, 2, 29), "DATE'1969-12-30'"),
        (pa.string(), "é'#", "é", "'é\\'#'"),
    ],
)
def test_keys_of_all_types_are_found(
    local_catalog: SqlCatalog, key_type: pa.DataType, key: Any, other: Any, text: str
) -> None:
    maps = [{key if n == 333 else other: n} for n in range(ROWS)]
    index = index_of(local_catalog, maps, KEYS, key_type)
    assert planner.plan(index, f"m[{text}] >= 0", strict=True).kept == 1
    assert planner.scan(index, f"m[{text}] >= 0", ["id"]).read_all()["id"].to_pylist() == [333]


def test_a_key_with_an_index_of_its_own_is_asked_of_that(local_catalog: SqlCatalog) -> None:
    maps = [{"k": n % 500} for n in range(ROWS)]
    index = index_of(local_catalog, maps, (*KEYS, "m#k#k"), pa.string())
    plan = planner.plan(index, "m['k'] = 3", strict=True)
    assert plan.kept == 2
    # The rows are counted without reading data: nothing but the key's own index was asked.
    assert planner.count(index, "m['k'] = 3").row_groups_read == 0
