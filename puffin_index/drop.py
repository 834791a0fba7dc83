"""Dropping an index: its table, its segments, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from puffin_index.entries import replace_entries
from puffin_index.errors import NotFoundError, PuffinIndexError
from puffin_index.index_table import (
    PROPERTY_DATA_TABLE,
    PROPERTY_DATA_TABLE_UUID,
    TableName,
    index_table_name,
    is_bound_to,
)
from puffin_index.stored_files import delete_empty_folders, delete_files, list_stored_files


@dataclass(frozen=True, slots=True)
class DropReport:
    """What was dropped.

    Attributes:
        index_table: The index table.
        segments: Segments deleted.
        bytes: Size of all files deleted.
        kept: Files below the table's location that no build or commit wrote.
    """

    index_table: str
    segments: int
    bytes: int
    kept: tuple[str, ...]


def drop_index(catalog: Catalog, table: str) -> DropReport:
    """Drop an index.

    Args:
        catalog: Its catalog.
        table: `namespace.table` of the data table, or of the index table itself.

    Raises:
        NotFoundError: If there is no such index.
        PuffinIndexError: If the table is no index table, or that of another data table.
    """
    index_table = _find(catalog, TableName.parse(table))
    # Without entries no planner asks for segments; a drop that is cut short here can be run again.
    replace_entries(index_table, lambda entries: entries.slice(0, 0))
    segments = [file for file in list_stored_files(index_table) if file.is_segment]
    delete_files(index_table, segments)
    others = list_stored_files(index_table)
    table_files = [file for file in others if file.is_ours]
    catalog.drop_table(index_table.name())
    delete_files(index_table, table_files)
    delete_empty_folders(index_table)
    return DropReport(
        index_table=".".join(index_table.name()),
        segments=len(segments),
        bytes=sum(file.size for file in [*segments, *table_files]),
        kept=tuple(file.location for file in others if not file.is_ours),
    )


def _find(catalog: Catalog, name: TableName) -> Table:
    named = _load(catalog, name)
    if named is not None and PROPERTY_DATA_TABLE_UUID in named.properties:
        return named
    own_name = index_table_name(name)
    index_table = _load(catalog, own_name)
    if index_table is None:
        raise NotFoundError(f"there is no index table {own_name}: nothing to drop")
    if PROPERTY_DATA_TABLE_UUID not in index_table.properties:
        raise PuffinIndexError(f"{own_name} is no index table: it is left alone")
    owner = index_table.properties.get(PROPERTY_DATA_TABLE)
    if named is None and owner != str(name):
        raise PuffinIndexError(f"{own_name} is the index of {owner}: name {own_name} itself to drop it")
    if named is not None and not is_bound_to(index_table, str(named.metadata.table_uuid)):
        raise PuffinIndexError(f"{own_name} is the index of an earlier table {name}: name {own_name} itself to drop it")
    return index_table


def _load(catalog: Catalog, name: TableName) -> Table | None:
    try:
        return catalog.load_table(name.identifier)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
