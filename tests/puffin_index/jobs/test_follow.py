"""A renamed table keeps its index: found by UUID whatever it is called, renamed by `follow` and `create`."""

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from puffin_index import IndexDefinition, TableIndex
from puffin_index.definition.names import StoredDefinition
from puffin_index.errors import NotFoundError
from puffin_index.index_table.table import PROPERTY_DATA_TABLE
from puffin_index.jobs.drop import drop_index
from tests.conftest import built
from tests.puffin_index.indexed_table import DEFINITION, check_index, indexed, make_table, rows
from tests.shell import Shell

COMMAND = "puffin-index follow local.ns.h"


class FixedNames(SqlCatalog):
    """A catalog that renames no index table, as some services do not."""

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        if "__puffin_index" in str(from_identifier):
            raise NotImplementedError("this catalog does not rename")
        return super().rename_table(from_identifier, to_identifier)


def renamed(catalog: SqlCatalog) -> TableIndex:
    """An index whose table was called `ns.t` and is `ns.h` now."""
    index = indexed(catalog, 2)
    catalog.rename_table("ns.t", "ns.h")
    return index


def with_a_new_table(index: TableIndex) -> None:
    """Give the old name of a renamed table to a new one."""
    index.catalog.create_table("ns.t", rows(0).schema, location=index.data_table.location() + "-new")


def refuse(catalog: SqlCatalog, name: str, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a catalog fail to load one table."""
    load = catalog.load_table

    def load_others(identifier: str | Identifier) -> Table:
        if tuple(identifier) == ("ns", name):
            raise error
        return load(identifier)

    monkeypatch.setattr(catalog, "load_table", load_others)


def names(catalog: SqlCatalog) -> set[str]:
    return {identifier[-1] for identifier in catalog.list_tables("ns")}


def test_follow_renames_the_index(local_catalog: SqlCatalog, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    defined = renamed(local_catalog).columns
    shell = Shell(tmp_path, "local.ns.h")

    assert "ns.t__puffin_index" in shell("status").stdout
    assert COMMAND in caplog.text
    caplog.clear()
    columns = [{"name": one.name, "field_id": one.field_id, "kinds": sorted(one.kinds)} for one in defined]
    assert shell.json("follow") == {"table": "ns.h", "index_table": "ns.h__puffin_index", "columns": columns}
    assert names(local_catalog) == {"h", "h__puffin_index"}
    assert shell.json("status")["indexed_data_files"] == 2
    assert caplog.text == ""
    index = TableIndex.open(local_catalog, "ns.h")
    assert index.index_table.properties[PROPERTY_DATA_TABLE] == "ns.h"
    check_index(index)
    assert shell("follow").exit_code == 0, "once more changes nothing"
    assert shell("drop").exit_code == 0
    assert names(local_catalog) == {"h"}


def test_create_adopts_what_was_left_behind(local_catalog: SqlCatalog) -> None:
    renamed(local_catalog)

    index = TableIndex.create(local_catalog, "ns.h", DEFINITION)

    assert names(local_catalog) == {"h", "h__puffin_index"}
    assert index.build(workers=1).files == 0
    check_index(index)


def test_a_new_table_of_the_old_name_takes_nothing_from_the_renamed_one(local_catalog: SqlCatalog) -> None:
    first = renamed(local_catalog)
    local_catalog.create_table("ns.t", rows(0).schema, location=first.data_table.location() + "-new").append(rows(9))

    with pytest.raises(NotFoundError, match="earlier table"):
        TableIndex.open(local_catalog, "ns.t")
    built(local_catalog, "ns.t", bsi=["k"])

    assert names(local_catalog) == {"h", "h__puffin_index", "t", "t__puffin_index"}
    for index in (TableIndex.open(local_catalog, "ns.h"), TableIndex.open(local_catalog, "ns.t")):
        check_index(index)
    assert TableIndex.open(local_catalog, "ns.h").build(workers=1).files == 0


def test_tables_that_change_names_keep_their_indexes(local_catalog: SqlCatalog) -> None:
    first = indexed(local_catalog, 2)
    local_catalog.create_table("ns.new", rows(0).schema).append(rows(9))
    TableIndex.create(local_catalog, "ns.new", IndexDefinition.of(bsi=["k"])).build(workers=1)
    local_catalog.rename_table("ns.t", "ns.old")
    local_catalog.rename_table("ns.new", "ns.t")

    swapped = TableIndex.follow(local_catalog, "ns.t")

    assert names(local_catalog) == {"t", "t__puffin_index", "old", "old__puffin_index"}
    assert swapped.build(workers=1).files == 0
    assert (
        first.data_table.metadata.table_uuid == TableIndex.open(local_catalog, "ns.old").data_table.metadata.table_uuid
    )
    check_index(TableIndex.open(local_catalog, "ns.old"))


def test_a_table_that_was_dropped_and_made_anew_leaves_no_file_of_its_index(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 2)
    location = Path(index.index_table.location().removeprefix("file://"))
    local_catalog.drop_table("ns.t")
    make_table(local_catalog)

    TableIndex.create(local_catalog, "ns.t", DEFINITION)

    assert not location.exists()
    assert names(local_catalog) == {"t", "t__puffin_index"}


def test_drop_finds_the_index_by_the_new_name(local_catalog: SqlCatalog) -> None:
    renamed(local_catalog)

    assert drop_index(local_catalog, "ns.h").segments == 2
    assert names(local_catalog) == {"h"}


def test_a_catalog_that_does_not_rename_loses_nothing(
    local_catalog: SqlCatalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    renamed(local_catalog)
    fixed = FixedNames("local", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=tmp_path.as_uri())

    index = TableIndex.create(fixed, "ns.h", DEFINITION)

    assert "does not rename" in caplog.text
    assert names(fixed) == {"h", "t__puffin_index"}
    assert index.build(workers=1).files == 0
    index.data_table.append(rows(7))
    assert index.build(workers=1).files == 1
    check_index(index)
    fixed.close()


def test_an_index_stays_while_its_table_cannot_be_read(
    local_catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_a_new_table(renamed(local_catalog))

    with monkeypatch.context() as patched:
        refuse(local_catalog, "h", OSError("the store does not answer"), patched)
        with pytest.raises(OSError, match="does not answer"):
            TableIndex.create(local_catalog, "ns.t", DEFINITION)

    check_index(TableIndex.open(local_catalog, "ns.h"))
    TableIndex.create(local_catalog, "ns.t", DEFINITION)
    check_index(TableIndex.open(local_catalog, "ns.h"))


def test_an_index_is_found_though_the_new_table_of_the_old_name_cannot_be_read(
    local_catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_a_new_table(renamed(local_catalog))

    refuse(local_catalog, "t", ValidationError("a type that this release does not know"), monkeypatch)
    check_index(TableIndex.open(local_catalog, "ns.h"))


def test_of_two_changes_of_a_definition_at_once_none_is_lost(
    local_catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = indexed(local_catalog, 0, IndexDefinition.of(bitmap=["k"]))
    with_kinds = StoredDefinition.with_index

    def create_first(stored: StoredDefinition, *index_of: Any) -> StoredDefinition:
        changed = with_kinds(stored, *index_of)
        monkeypatch.undo()
        TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=["b"]))
        return changed

    monkeypatch.setattr(StoredDefinition, "with_index", create_first)
    TableIndex.add(local_catalog, "ns.t", "of_s", IndexDefinition.of(bloom=["s"]))

    index.refresh()
    assert {column.name: [*column.kinds] for column in index.columns} == {"s": ["bloom"], "b": ["bitmap"]}
