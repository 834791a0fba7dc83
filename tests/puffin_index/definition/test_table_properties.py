"""Table properties in Paimon's spelling define an index, alone or beside `create`."""

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import ListType, MapType, NestedField

from puffin_index import IndexDefinition, TableIndex
from puffin_index.definition.index_definition import read_properties, unite
from puffin_index.errors import NotFoundError
from puffin_index.keys.map_key import MapKey
from tests.conftest import create_table

SCHEMA = Schema(
    NestedField(1, "id", "long"),
    NestedField(2, "name", "string"),
    NestedField(3, "name.first", "string"),
    NestedField(4, "tags", ListType(5, "long")),
    NestedField(6, "notes", MapType(7, "string", 8, "string")),
)


def kinds_of(index: TableIndex) -> dict[str, dict[str, dict[str, str]]]:
    return {column.name: {kind: dict(options) for kind, options in column.kinds.items()} for column in index.columns}


def set_properties(table: Table, properties: dict[str, str]) -> None:
    table.refresh()
    table.transaction().set_properties(properties).commit_transaction()


@pytest.fixture
def table(local_catalog: SqlCatalog) -> Table:
    data = pa.table({"id": pa.array(range(100), pa.int64()), "name": [f"n{i % 7}" for i in range(100)]})
    return create_table(local_catalog, "t", data, 50)


def test_each_index_type_and_option_is_read() -> None:
    found = read_properties(
        {
            "file-index.bitmap.columns": " id , name,",
            "file-index.bsi.columns": "id",
            "file-index.bloom-filter.columns": "name",
            "file-index.bloom-filter.name.fpp": "0.02",
            "file-index.bloom-filter.name.items": "500",
            "file-index.in-manifest-threshold": "500 B",
            "write.format.default": "parquet",
        },
        SCHEMA,
    )

    assert found.warnings == ()
    assert [(c.field_id, c.name, dict(c.kinds)) for c in found.columns] == [
        (1, "id", {"bitmap": {}, "bsi": {}}),
        (2, "name", {"bitmap": {}, "bloom": {"fpp": "0.02", "items": "500"}}),
    ]


def test_keys_of_a_map_are_columns_of_their_own() -> None:
    found = read_properties(
        {
            "file-index.bitmap.columns": "notes#k#color,notes#k#size",
            "file-index.bloom-filter.columns": "notes#k#size",
            "file-index.bloom-filter.notes#k#size.fpp": "0.02",
        },
        SCHEMA,
    )

    assert found.warnings == ()
    assert [(c.column_id, dict(c.kinds)) for c in unite(found.columns[1:], found.columns)] == [
        (MapKey(6, "color"), {"bitmap": {}}),
        (MapKey(6, "size"), {"bitmap": {}, "bloom": {"fpp": "0.02"}}),
    ]


def test_a_longer_column_name_keeps_its_options() -> None:
    found = read_properties(
        {"file-index.bloom-filter.columns": "name", "file-index.bloom-filter.name.first.fpp": "0.5"}, SCHEMA
    )

    assert [dict(column.kinds) for column in found.columns] == [{"bloom": {}}]


@pytest.mark.parametrize(
    ("properties", "warning"),
    [
        ({"file-index.bitmap.columns": "nope,id"}, "there is no column 'nope'"),
        ({"file-index.bitmap.columns": "tags,id"}, "only leaves can be indexed"),
        ({"file-index.bitmap.columns": "name,id", "file-index.bitmap.name.colour": "red"}, "no option 'colour'"),
        ({"file-index.bitmap.columns": "id", "file-index.bsi.columns": "map[key]"}, "there is no column 'map[key]'"),
    ],
)
def test_what_cannot_be_used_is_left_out_with_a_warning(properties: dict[str, str], warning: str) -> None:
    found = read_properties(properties, SCHEMA)

    assert [column.name for column in found.columns] == ["id"]
    assert len(found.warnings) == 1
    assert warning in found.warnings[0]
    assert found.warnings[0].startswith("table property file-index.")


def test_properties_and_create_unite_and_create_wins_for_options(local_catalog: SqlCatalog, table: Table) -> None:
    definition = IndexDefinition.of(bloom=["name"], bsi=["id"], options={"name.fpp": "0.01"})
    index = TableIndex.create(local_catalog, "ns.t", definition)
    properties = {
        "file-index.bloom-filter.columns": "name,id",
        "file-index.bloom-filter.name.fpp": "0.3",
        "file-index.bloom-filter.name.items": "9",
    }
    set_properties(table, properties)
    index.refresh()

    assert kinds_of(index) == {"id": {"bsi": {}, "bloom": {}}, "name": {"bloom": {"fpp": "0.01"}}}


def test_a_table_with_properties_alone_gets_an_index_table(local_catalog: SqlCatalog, table: Table) -> None:
    with pytest.raises(NotFoundError):
        TableIndex.open_or_define(local_catalog, "ns.t")
    set_properties(table, {"file-index.bitmap.columns": "name"})

    assert TableIndex.open_or_define(local_catalog, "ns.t").build().files == 1
    status = TableIndex.open(local_catalog, "ns.t").status()
    assert (status.indexed_data_files, [c.name for c in status.columns]) == (1, ["name"])


def test_a_table_made_anew_with_properties_is_indexed_anew(local_catalog: SqlCatalog, table: Table) -> None:
    set_properties(table, {"file-index.bitmap.columns": "name"})
    TableIndex.open_or_define(local_catalog, "ns.t").build()
    local_catalog.drop_table("ns.t")
    again = create_table(local_catalog, "t", pa.table({"other": pa.array(range(10), pa.int64())}), 5)
    set_properties(again, {"file-index.bsi.columns": "other"})

    index = TableIndex.open_or_define(local_catalog, "ns.t")

    assert index.status().indexed_data_files == 0
    assert index.build().files == 1


def test_a_renamed_column_is_a_warning_for_properties_alone(local_catalog: SqlCatalog, table: Table) -> None:
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=["name"]))
    set_properties(table, {"file-index.bsi.columns": "id"})
    table.update_schema().rename_column("id", "number").rename_column("name", "title").commit()

    report = index.build()

    assert kinds_of(index) == {"title": {"bitmap": {}}}
    assert len(report.warnings) == 1
    assert "there is no column 'id'; the table has: number, title" in report.warnings[0]


def test_an_index_of_both_stays_with_its_entries_when_one_is_removed(local_catalog: SqlCatalog, table: Table) -> None:
    set_properties(table, {"file-index.bitmap.columns": "id"})
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=["id", "name"]))
    index.build(workers=1)

    index.remove_kinds(IndexDefinition.of(bitmap=["id"]))

    assert kinds_of(index) == {"id": {"bitmap": {}}, "name": {"bitmap": {}}}
    assert index.status().indexed_data_files == 1
