"""Drop an index: its table, its segments, and nothing else."""

import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.table import Table
from requests.exceptions import RequestException

from puffin_index.display import Cell, Described, Report, format_bytes
from puffin_index.errors import DamagedIndexError, NotFoundError, PuffinIndexError
from puffin_index.index_table import stored_files, table as catalogue
from puffin_index.index_table.entries import replace_entries
from puffin_index.index_table.lookup import list_index_tables
from puffin_index.index_table.table import TableName

_OWN_LOCATION = re.compile(rf"(.*{catalogue.SUFFIX}-[0-9a-f]{{32}})/metadata/[^/]*")
"""Matches the metadata of an index table whose location has a unique id, so that no other table's files lie there."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DropReport(Described):
    """The result of a drop; `kept` are files of others below the index table's location."""

    index_table: str
    segments: int
    bytes: int
    kept: tuple[str, ...]

    def describe(self) -> Report:
        """Describe what was dropped."""
        facts: dict[str, Cell] = {"segments": self.segments, "size": format_bytes(self.bytes)}
        return Report(f"dropped {self.index_table}", facts, warnings=[f"not ours, kept: {file}" for file in self.kept])


def drop_index(catalog: Catalog, table: str) -> DropReport:
    """Drop an index, by the name of its data table or its own. Of a damaged one, drop all that surely belongs to it.

    Raises NotFoundError if the index does not exist, PuffinIndexError if the table is not an index table, or belongs to
    another data table.
    """
    try:
        return drop_index_table(catalog, _find(catalog, TableName.parse(table)))
    except DamagedIndexError as error:
        return _drop_damaged(catalog, error)


def drop_index_table(catalog: Catalog, index_table: Table) -> DropReport:
    """Drop an index table with its segments, or raise NotFoundError if the index table is gone."""
    io, location = index_table.io, index_table.location()
    try:
        # Entries go first: without them no planner asks for segments, and an interrupted drop can be run again.
        replace_entries(index_table, lambda entries: entries.slice(0, 0))
    except RequestException:
        raise
    except (DamagedIndexError, OSError) as error:
        _log.warning("dropped with its entries: %s", error)
    listed = stored_files.list_stored_files(io, location)
    own = stored_files.own_files(index_table, listed)
    stored_files.delete_files(io, [file for file in own if file.is_segment])
    _drop_entry(catalog, index_table.name())
    stored_files.delete_files(io, [file for file in own if not file.is_segment])
    stored_files.delete_empty_folders(io, location)
    kept = {file.location for file in listed} - {file.location for file in own}
    return _report(TableName(index_table.name()), own, tuple(sorted(kept)))


def _drop_damaged(catalog: Catalog, error: DamagedIndexError) -> DropReport:
    """Drop an index table with unreadable metadata, and its files if their location shows that they belong to it."""
    name = TableName.parse(error.index_table)
    location = _own_location(catalog, error)
    if location is None:
        _log.warning("files of index table %s are left behind in its location: %s", name, error.reason)
        _drop_entry(catalog, name)
        return _report(name, (), ())
    io = load_file_io(catalog.properties, location)
    listed = stored_files.list_stored_files(io, location)
    files = [file for file in listed if file.is_ours]
    # Files go before the catalog's entry: as long as the catalog names the table, a drop can be run again.
    stored_files.delete_files(io, files)
    stored_files.delete_empty_folders(io, location)
    _drop_entry(catalog, name)
    return _report(name, files, tuple(sorted(file.location for file in listed if not file.is_ours)))


def _drop_entry(catalog: Catalog, name: tuple[str, ...]) -> None:
    # Another drop may be faster.
    with suppress(NoSuchTableError):
        catalog.drop_table(name)


def _own_location(catalog: Catalog, error: DamagedIndexError) -> str | None:
    """Return the location of the index table, if it is known and belongs to no other table."""
    own = _OWN_LOCATION.fullmatch(error.file or "")
    if own is None or own[1].startswith("/") or "://" in own[1]:
        return own[1] if own is not None else None
    # Errors of object stores name bucket and key alone.
    scheme, separator, _ = catalog.properties.get("warehouse", "").partition("://")
    return f"{scheme}://{own[1]}" if separator else None


def _report(name: TableName, deleted: Sequence[stored_files.StoredFile], kept: tuple[str, ...]) -> DropReport:
    segments, size = sum(file.is_segment for file in deleted), sum(file.size for file in deleted)
    return DropReport(str(name), segments, size, kept)


def _find(catalog: Catalog, name: TableName) -> Table:
    named = _load(catalog, name)
    if named is not None and catalogue.PROPERTY_DATA_TABLE_UUID in named.properties:
        return named
    own_name = catalogue.index_table_name(name)
    index_table = _load(catalog, own_name)
    uuid = str(named.metadata.table_uuid) if named is not None else ""
    if named is not None and (index_table is None or not catalogue.is_bound_to(index_table, uuid)):
        left_behind = list_index_tables(catalog, name.namespace).get(uuid)
        index_table = index_table if left_behind is None else _load(catalog, left_behind)
    if index_table is None:
        raise NotFoundError(f"there is no index table {own_name}: nothing to drop")
    if catalogue.PROPERTY_DATA_TABLE_UUID not in index_table.properties:
        raise PuffinIndexError(f"{own_name} is no index table: it is left alone")
    owner = index_table.properties.get(catalogue.PROPERTY_DATA_TABLE)
    if named is None and owner != str(name):
        raise PuffinIndexError(f"{own_name} is the index of {owner}: name {own_name} itself to drop it")
    if named is not None and not catalogue.is_bound_to(index_table, uuid):
        raise PuffinIndexError(f"{own_name} is the index of an earlier table {name}: name {own_name} itself to drop it")
    return index_table


def _load(catalog: Catalog, name: TableName) -> Table | None:
    try:
        if not name[-1].endswith(catalogue.SUFFIX):
            return catalog.load_table(name)
        with catalogue.index_table_read(str(name)):
            return catalog.load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
