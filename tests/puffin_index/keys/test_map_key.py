"""Keys of maps: their names, their spelling, and each row's value for one."""

from datetime import date

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from puffin_index.definition.index_definition import IndexDefinition, from_json, resolve, to_json
from puffin_index.errors import DefinitionError, UnsupportedError
from puffin_index.keys.map_key import MapKey, split_kind, stored_kind, values_of_key

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "m", MapType(3, StringType(), 4, StringType())),
    NestedField(5, "n", MapType(6, IntegerType(), 7, DoubleType())),
    NestedField(8, "days", MapType(9, DateType(), 10, LongType())),
    NestedField(11, "s", StructType(NestedField(12, "m", MapType(13, LongType(), 14, IntegerType())))),
    NestedField(15, "reals", MapType(16, DoubleType(), 17, LongType())),
    NestedField(18, "nested", MapType(19, StringType(), 20, StructType(NestedField(21, "leaf", LongType())))),
    NestedField(22, "odd#k#name", LongType()),
    NestedField(23, "l", ListType(24, MapType(25, StringType(), 26, LongType()))),
)
MAPS = st.one_of(
    st.none(),
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "ä", "a.b", ""]), st.one_of(st.none(), st.integers(0, 9))), max_size=4
    ),
)
ARROW = pa.map_(pa.string(), pa.int64())


@given(rows=st.lists(MAPS, max_size=30), start=st.integers(0, 30), key=st.sampled_from(["a", "ä", "a.b", "", "none"]))
def test_a_rows_value_is_the_one_of_the_keys_first_entry(
    rows: list[list[tuple[str, int | None]] | None], start: int, key: str
) -> None:
    maps = pa.array(rows, ARROW).slice(start)

    found = values_of_key(maps, key)

    expected = [next((value for name, value in row or () if name == key), None) for row in rows[start:]]
    assert found.to_pylist() == expected


@given(st.lists(st.dictionaries(st.integers(-3, 3), st.text(max_size=2)), max_size=10))
def test_keys_may_be_numbers_of_any_width(rows: list[dict[int, str]]) -> None:
    for width in (pa.int32(), pa.int64()):
        maps = pa.array([list(row.items()) for row in rows], pa.map_(width, pa.string()))
        assert values_of_key(maps, "-2").to_pylist() == [row.get(-2) for row in rows]


def test_keys_may_be_dates() -> None:
    maps = pa.array([[(date(2024, 2, 29), 1.5)], [(date(2024, 3, 1), 2.5)]], pa.map_(pa.date32(), pa.float64()))

    assert values_of_key(maps, "2024-02-29").to_pylist() == [1.5, None]


def test_keys_of_other_types_in_a_file_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="Arrow double keys"):
        values_of_key(pa.array([[(1.0, 2)]], pa.map_(pa.float64(), pa.int64())), "1")


def test_a_definition_names_keys_of_maps_and_is_stored_and_read_back() -> None:
    names = ["M#k#a b", "m#k#c#k#d", "n#k#007", "days#k#2024-02-29", "s.m#k#-5", "odd#k#name"]

    columns = resolve(IndexDefinition.of(bitmap=names, options={"M#k#a b.layout": "bitmaps"}), SCHEMA)

    assert [(c.field_id, c.map_key, c.name, c.value_type.name) for c in columns] == [
        (2, "a b", "m#k#a b", "string"),
        (2, "c#k#d", "m#k#c#k#d", "string"),
        (5, "7", "n#k#7", "double"),
        (8, "2024-02-29", "days#k#2024-02-29", "long"),
        (12, "-5", "s.m#k#-5", "int"),
        (22, None, "odd#k#name", "long"),
    ]
    assert columns[0].kinds == {"bitmap": {"layout": "bitmaps"}}
    assert from_json(to_json(columns), SCHEMA).columns == columns


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("m", "column 'm' is a map<string, string>: name one of its keys: m#k#key"),
        ("m#k#", "column 'm#k#' should read `column#k#key`"),
        ("#k#a", "column '#k#a' should read `column#k#key`"),
        ("id#k#a", "column 'id#k#a' is a long: `#k#` names a key of a map"),
        ("n#k#red", "column 'n#k#red': 'red' is no int key"),
        ("n#k#2147483648", "column 'n#k#2147483648': '2147483648' is no int key"),
        ("days#k#today", "column 'days#k#today': 'today' is no date key"),
        (
            "reals#k#1.5",
            "column 'reals#k#1.5': a map with double keys cannot be indexed by key: string, int, long and date",
        ),
        ("nested#k#a", "only keys of primitive values can be indexed"),
        ("none#k#a", "there is no column 'none'"),
        ("l.element#k#a", "a row may have many values there"),
        ("m.value", "a row may have many values there"),
    ],
)
def test_what_cannot_be_indexed_is_refused_by_name(name: str, message: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        resolve(IndexDefinition.of(bitmap=[name]), SCHEMA)

    assert message in str(caught.value)


def test_one_key_in_two_spellings_is_named_twice() -> None:
    with pytest.raises(DefinitionError, match="named twice: n#k#7, n#k#7"):
        resolve(IndexDefinition.of(bitmap=["n#k#7"], bsi=["n#k#07"]), SCHEMA)


def test_a_stored_kind_tells_keys_of_one_map_apart() -> None:
    assert stored_kind("bitmap", None) == "bitmap"
    assert split_kind(2, "bitmap") == (2, "bitmap")
    assert split_kind(2, stored_kind("bitmap", "a#k#b")) == (MapKey(2, "a#k#b"), "bitmap")
