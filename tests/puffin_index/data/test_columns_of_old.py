"""Columns that the table has lost, or has with another type: older snapshots keep their index, builds go on."""

from datetime import timedelta

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, MapType, NestedField, StringType, StructType

from planner.arrow.plan import plan
from puffin_index.definition.index_definition import IndexDefinition, from_json, resolve, stored_kinds, to_json
from tests.puffin_index.indexed_table import indexed, rows


def test_a_dropped_column_keeps_its_index_for_the_snapshots_that_have_it(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 2)
    old = index.data_table.snapshots()[-1]
    before = plan(index, "k = 77", old.snapshot_id)
    index.data_table.update_schema().delete_column("k").commit()
    index.data_table.overwrite(rows(7).drop_columns(["k"]))

    assert index.build(workers=1).skipped == ()
    index.compact()
    index.expire(timedelta(0))

    assert before.dropped == plan(index, "k = 77", old.snapshot_id, strict=True).dropped > 0
    assert index.verify(None).findings == ()


@pytest.mark.parametrize(
    ("column", "of_type", "reason"),
    [
        ("k", StructType(NestedField(5, "x", "int")), "only leaves can be indexed"),
        ("k", MapType(5, "string", 6, "long"), "name one of its keys"),
        ("m#k#1", StringType(), "names a key of a map"),
    ],
)
def test_a_column_that_lost_its_index_is_told_and_others_go_on(column: str, of_type: IcebergType, reason: str) -> None:
    map_type = MapType(3, "int", 4, "long")
    other = NestedField(9, "other", "long")
    first = Schema(NestedField(1, "k", "long"), NestedField(2, "m", map_type), other)
    text = to_json(resolve(IndexDefinition.of(bsi=[column, "other"]), first))
    assert from_json(text, first).warnings == ()

    name = column.partition("#")[0]
    now = Schema(NestedField(first.find_field(name).field_id, name, of_type), other)

    bound = from_json(text, now)
    assert [found.name for found in bound.columns] == ["other"]
    (warning,) = bound.warnings
    assert reason in warning
    assert len(stored_kinds(text)) == 2
