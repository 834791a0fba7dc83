"""Columns are found by their names, whatever characters these have."""

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from puffin_index.definition.index_definition import IndexDefinition, from_json, resolve, to_json
from puffin_index.errors import DefinitionError
from tests.shell import Shell

INNER = StructType(NestedField(21, "c.d", LongType()), NestedField(22, "e", LongType()))
SCHEMA = Schema(
    NestedField(1, "a.b", LongType()),
    NestedField(2, "x", INNER),
    NestedField(3, "..", StringType()),
    NestedField(4, "list.d", ListType(31, LongType())),
    NestedField(5, "map.d", MapType(41, StringType(), 42, LongType())),
    NestedField(6, "list", ListType(32, StructType(NestedField(33, "p.q", LongType())))),
)


@pytest.mark.parametrize(
    ("name", "field_id", "found"),
    [("a.b", 1, "a.b"), ("A.B", 1, "a.b"), ("x.c.d", 21, "x.c.d"), ("x.e", 22, "x.e"), ("..", 3, "..")],
)
def test_a_name_may_have_dots(name: str, field_id: int, found: str) -> None:
    (column,) = resolve(IndexDefinition.of(bitmap=[name], options={f"{name}.layout": "postings"}), SCHEMA)

    assert (column.field_id, column.name) == (field_id, found)
    assert from_json(to_json((column,)), SCHEMA).columns == (column,)


def test_a_key_of_a_map_with_a_dot_in_its_name() -> None:
    (column,) = resolve(IndexDefinition.of(bitmap=["map.d#k#key"]), SCHEMA)

    assert (column.field_id, column.name, column.map_key) == (5, "map.d#k#key", "key")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("list.d.element", "lies in a list"),
        ("list.element.p.q", "lies in a list"),
        ("map.d.value", "lies in a map"),
        ("a", "there is no column 'a'"),
        ("a.b.c", "there is no column 'a.b.c'"),
        ("a.", "there is no column 'a.'"),
    ],
)
def test_what_is_no_column_is_refused(name: str, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        resolve(IndexDefinition.of(bitmap=[name]), SCHEMA)


def test_create_takes_a_name_with_dots(local_catalog: SqlCatalog, shell: Shell) -> None:
    local_catalog.create_table("ns.t", pa.schema([("a.b", pa.int64()), ("a", pa.int64())]))

    result = shell("create", "--bsi", "a.b,a")

    assert result.exit_code == 0, result.stderr
    assert "a.b: bsi; a: bsi" in result.stdout
