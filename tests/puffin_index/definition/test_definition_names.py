"""Columns and keys of maps are found by their names, whatever characters these have."""

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, MapType, NestedField, StructType

from puffin_index.definition.index_definition import IndexDefinition, from_json, resolve, to_json
from puffin_index.errors import DefinitionError
from puffin_index.keys.map_key import MapKey

SCHEMA = Schema(
    NestedField(1, "id", "long"),
    NestedField(2, "m", MapType(3, "string", 4, "string")),
    NestedField(5, "n", MapType(6, "int", 7, "double")),
    NestedField(8, "days", MapType(9, "date", 10, "long")),
    NestedField(11, "s", StructType(NestedField(12, "m", MapType(13, "long", 14, "int")))),
    NestedField(15, "reals", MapType(16, "double", 17, "long")),
    NestedField(18, "nested", MapType(19, "string", 20, StructType(NestedField(21, "leaf", "long")))),
    NestedField(22, "odd#k#name", "long"),
    NestedField(23, "l", ListType(24, MapType(25, "string", 26, "long"))),
    NestedField(101, "a.b", "long"),
    NestedField(102, "x", StructType(NestedField(121, "c.d", "long"), NestedField(122, "e", "long"))),
    NestedField(103, "..", "string"),
    NestedField(104, "list.d", ListType(131, "long")),
    NestedField(105, "map.d", MapType(141, "string", 142, "long")),
    NestedField(106, "list", ListType(132, StructType(NestedField(133, "p.q", "long")))),
)


@pytest.mark.parametrize(
    ("name", "field_id", "found"),
    [("a.b", 101, "a.b"), ("A.B", 101, "a.b"), ("x.c.d", 121, "x.c.d"), ("x.e", 122, "x.e"), ("..", 103, "..")],
)
def test_a_name_may_have_dots(name: str, field_id: int, found: str) -> None:
    (column,) = resolve(IndexDefinition.of(bitmap=[name], options={f"{name}.layout": "postings"}), SCHEMA)

    assert (column.field_id, column.name) == (field_id, found)
    assert from_json(to_json((column,)), SCHEMA).columns == (column,)


def test_a_definition_names_keys_of_maps_and_is_stored_and_read_back() -> None:
    names = ["M#k#a b", "m#k#c#k#d", "n#k#007", "days#k#2024-02-29", "s.m#k#-5", "odd#k#name", "map.d#k#key"]

    columns = resolve(IndexDefinition.of(bitmap=names, options={"M#k#a b.layout": "bitmaps"}), SCHEMA)

    assert [(c.column_id, c.name, c.value_type.name) for c in columns] == [
        (MapKey(2, "a b"), "m#k#a b", "string"),
        (MapKey(2, "c#k#d"), "m#k#c#k#d", "string"),
        (MapKey(5, "7"), "n#k#7", "double"),
        (MapKey(8, "2024-02-29"), "days#k#2024-02-29", "long"),
        (MapKey(12, "-5"), "s.m#k#-5", "int"),
        (22, "odd#k#name", "long"),
        (MapKey(105, "key"), "map.d#k#key", "long"),
    ]
    assert columns[0].kinds == {"bitmap": {"layout": "bitmaps"}}
    assert from_json(to_json(columns), SCHEMA).columns == columns


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("list.d.element", "lies in a list"),
        ("list.element.p.q", "lies in a list"),
        ("map.d.value", "lies in a map"),
        ("a", "there is no column 'a'"),
        ("a.b.c", "there is no column 'a.b.c'"),
        ("a.", "there is no column 'a.'"),
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
def test_what_cannot_be_indexed_is_refused_by_name(name: str, said: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        resolve(IndexDefinition.of(bitmap=[name]), SCHEMA)

    assert said in str(caught.value)


def test_one_key_in_two_spellings_is_named_twice() -> None:
    with pytest.raises(DefinitionError, match="named twice: n#k#7, n#k#7"):
        resolve(IndexDefinition.of(bitmap=["n#k#7"], bsi=["n#k#07"]), SCHEMA)
