"""An index table has a location of its own; one that shares the place of its catalog keeps the other's files."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.table import Table

from puffin_index import TableIndex
from puffin_index.definition.index_definition import resolve, to_json
from puffin_index.errors import CatalogError, UnsupportedError
from puffin_index.index_table.table import (
    FORMAT_VERSION,
    PROPERTY_LOCATION,
    PROPERTY_VERSION,
    SCHEMA,
    TableName,
    load_index_table,
    read_entries,
)
from puffin_index.jobs.drop import drop_index
from puffin_index.jobs.follow import create_index_table
from tests.conftest import built
from tests.puffin_index import indexed_table

NOW = timedelta(0)
INDEX = TableName(("ns", "t__puffin_index"))


class PlacingCatalog(SqlCatalog):
    """A catalog that places its tables itself, as S3 Tables does."""

    def create_table(self, *arguments: object, **named: object) -> Table:
        if len(arguments) > 2 or named.get("location"):
            raise ValueError("Cannot specify a location")
        return super().create_table(*arguments, **named)


@pytest.fixture
def placing_catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = PlacingCatalog("local", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=tmp_path.as_uri())
    yield catalog
    catalog.close()


def folder_of(index: TableIndex) -> Path:
    return Path(index.index_table.location().removeprefix("file://"))


def placed_anywhere(catalog: SqlCatalog) -> TableIndex:
    """An index of `ns.t` where the catalog places it, whatever lies there."""
    table = catalog.load_table("ns.t")
    properties = {
        "puffin-index.version": FORMAT_VERSION,
        "puffin-index.definition": to_json(resolve(indexed_table.DEFINITION, table.schema())),
        "puffin-index.data-table": "ns.t",
        "puffin-index.data-table-uuid": str(table.metadata.table_uuid),
        "write.metadata.delete-after-commit.enabled": "true",
        "commit.retry.num-retries": "0",
    }
    catalog.create_table(INDEX, SCHEMA, properties=properties)
    index = TableIndex.open(catalog, "ns.t")
    index.build(workers=1)
    return index


def sharing(catalog: SqlCatalog) -> tuple[TableIndex, TableIndex]:
    """Indexes of `ns.h` and of a new `ns.t` in one location."""
    indexed_table.make_table(catalog).append(indexed_table.rows(2))
    placed_anywhere(catalog)
    catalog.rename_table("ns.t", "ns.h")
    catalog.rename_table("ns.t__puffin_index", "ns.h__puffin_index")
    # The name is free again; its files would lie where those of `h` do.
    table = catalog.create_table(
        "ns.t", indexed_table.rows(0).schema, location=catalog.load_table("ns.h").location() + "-new"
    )
    table.append(indexed_table.rows(3))
    second = placed_anywhere(catalog)
    first = TableIndex.open(catalog, "ns.h")
    assert folder_of(first) == folder_of(second)
    return first, second


def test_a_location_is_never_another_tables(local_catalog: SqlCatalog) -> None:
    first = indexed_table.indexed(local_catalog, 1)
    local_catalog.rename_table("ns.t", "ns.h")
    local_catalog.rename_table("ns.t__puffin_index", "ns.h__puffin_index")
    local_catalog.create_table(
        "ns.t", indexed_table.rows(0).schema, location=first.data_table.location() + "-new"
    ).append(indexed_table.rows(5))

    second = built(local_catalog, "ns.t", indexed_table.DEFINITION)
    first = TableIndex.open(local_catalog, "ns.h")

    assert folder_of(first) != folder_of(second)
    assert first.index_table.properties[PROPERTY_LOCATION] == first.index_table.location()
    second.expire(NOW)
    drop_index(local_catalog, "ns.t")
    indexed_table.check_index(first)


@pytest.mark.parametrize("action", ["drop", "expire"])
def test_upkeep_of_a_shared_location_leaves_the_others_files_alone(local_catalog: SqlCatalog, action: str) -> None:
    first, second = sharing(local_catalog)
    leftover = folder_of(first) / "_segments" / f"{'0' * 32}.puffin"
    leftover.write_bytes(b"PFA1")
    own = indexed_table.named_segments(second)

    if action == "drop":
        report = second.drop()
        assert report.segments == 1
        assert leftover.as_uri() in report.kept
        assert not own & indexed_table.segment_files(first)
    else:
        second.data_table.overwrite(indexed_table.rows(8))
        second.build(workers=1)
        indexed_table.forget_history(second)
        assert second.expire(NOW).segments == 1
        assert not own & indexed_table.segment_files(first)
        indexed_table.check_index(second)

    assert leftover.exists()
    indexed_table.check_index(first)


def test_a_catalog_that_places_tables_itself_is_followed(placing_catalog: SqlCatalog) -> None:
    placing_catalog.create_namespace("ns")
    index = indexed_table.indexed(placing_catalog, 1)

    assert PROPERTY_LOCATION not in index.index_table.properties
    location = folder_of(index)
    (location / "_segments" / f"{'0' * 32}.puffin").write_bytes(b"PFA1")
    assert index.expire(NOW).leftovers == 1
    indexed_table.check_entries(index)
    report = index.drop()
    assert (report.segments, report.kept, location.exists()) == (1, (), False)


def test_a_place_where_anothers_files_lie_is_refused(placing_catalog: SqlCatalog) -> None:
    placing_catalog.create_namespace("ns")
    first = indexed_table.indexed(placing_catalog, 1)
    placing_catalog.rename_table("ns.t", "ns.h")
    placing_catalog.rename_table("ns.t__puffin_index", "ns.h__puffin_index")
    # PlacingCatalog would put the table itself where `h` lies as well, which is of no matter here.
    placing_catalog.create_table("ns.t", indexed_table.rows(0).schema)

    with pytest.raises(CatalogError, match="files of another table lie in"):
        TableIndex.create(placing_catalog, "ns.t", indexed_table.DEFINITION)

    assert not placing_catalog.table_exists("ns.t__puffin_index")
    indexed_table.check_entries(TableIndex.open(placing_catalog, "ns.h"))
    assert (
        first.index_table.location()
        == load_index_table(placing_catalog, TableName(("ns", "h__puffin_index"))).location()
    )


def test_who_comes_second_leaves_no_files(local_catalog: SqlCatalog) -> None:
    """Another process makes the index table between our look at the catalog and our commit to it."""
    index = indexed_table.indexed(local_catalog, 1)
    before = set(folder_of(index).parent.rglob("*"))

    late = create_index_table(local_catalog, INDEX, index.data_table, "[]")

    assert late.location() == index.index_table.location()
    assert set(folder_of(index).parent.rglob("*")) == before
    with pytest.raises(TableAlreadyExistsError):
        local_catalog.create_table(INDEX, SCHEMA)
    assert len(read_entries(late)) == 1


def test_an_index_in_a_nested_namespace_has_a_location_of_its_own(local_catalog: SqlCatalog) -> None:
    local_catalog.create_namespace("ns.inner")
    local_catalog.create_table("ns.inner.t", indexed_table.rows(0).schema).append(indexed_table.rows(0))

    index = TableIndex.create(local_catalog, "ns.inner.t", indexed_table.DEFINITION)

    assert index.index_table.properties[PROPERTY_LOCATION] == index.index_table.location()


def test_a_catalog_without_a_place_is_told_of_a_warehouse(placing_catalog: SqlCatalog) -> None:
    placing_catalog.create_namespace("ns")
    indexed_table.make_table(placing_catalog)
    homeless = SqlCatalog("local", uri=placing_catalog.properties["uri"])
    with pytest.raises(CatalogError, match=r"has no place for index table ns\.t__puffin_index, as a `warehouse`"):
        TableIndex.create(homeless, "ns.t", indexed_table.DEFINITION)
    assert not homeless.table_exists(INDEX)
    homeless.close()


def test_an_index_table_of_another_version_has_to_be_built_anew(local_catalog: SqlCatalog) -> None:
    index = indexed_table.indexed(local_catalog, 1)
    index.index_table.transaction().set_properties({PROPERTY_VERSION: "1"}).commit_transaction()
    with pytest.raises(UnsupportedError, match=r"has version '1'.* build it anew"):
        TableIndex.open(local_catalog, "ns.t")
    drop_index(local_catalog, "ns.t")
    TableIndex.create(local_catalog, "ns.t", indexed_table.DEFINITION)
