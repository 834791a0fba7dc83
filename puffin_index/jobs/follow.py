"""Give a data table its index table: an existing one, one left behind when the data table was renamed, or a new one."""

import logging
from contextlib import suppress

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, RESTError, TableAlreadyExistsError, ValidationError
from pyiceberg.table import Table

from puffin_index.errors import NotFoundError, PuffinIndexError
from puffin_index.index_table.commit import set_properties
from puffin_index.index_table.creation import create_index_table
from puffin_index.index_table.lookup import find_index_table, following_hint
from puffin_index.index_table.table import (
    PROPERTY_DATA_TABLE,
    PROPERTY_DATA_TABLE_UUID,
    PROPERTY_DEFINITION,
    SUFFIX,
    TableName,
    index_table_name,
    is_bound_to,
    load_index_table,
)
from puffin_index.jobs.drop import drop_index_table

_log = logging.getLogger(__name__)


def define_index_table(catalog: Catalog, data_table: Table, definition: str) -> Table:
    """Give the index table of a data table a definition, creating the index table if necessary.

    An index table left behind when the data table was renamed is renamed as well. An index table that has the required
    name but belongs to another data table is renamed after that table, or dropped if the namespace has no such table.
    Raises PuffinIndexError if this is impossible.
    """
    index_table = ensure_index_table(catalog, data_table, definition)
    set_properties(index_table, {PROPERTY_DEFINITION: definition})
    return index_table


def ensure_index_table(catalog: Catalog, data_table: Table, definition: str) -> Table:
    """Load the index table of a data table; create one with this definition if the table has no index.

    Raises PuffinIndexError if this is impossible.
    """
    try:
        return follow(catalog, data_table)
    except NotFoundError:
        _make_room(catalog, data_table)
        return create_index_table(catalog, index_table_name(TableName.of(data_table)), data_table, definition)


def follow(catalog: Catalog, data_table: Table) -> Table:
    """Load the index table of a data table; an index table left behind by a rename is renamed after the data table.

    If the catalog cannot rename tables, the index table stays in use under its old name. Raises NotFoundError if the
    data table has no index table.
    """
    index_table = find_index_table(catalog, data_table)
    name = TableName.of(data_table)
    if TableName.of(index_table) != index_table_name(name):
        _make_room(catalog, data_table)
        try:
            index_table = _rename(catalog, index_table, name)
        except (NotImplementedError, RESTError) as error:
            _log.warning(
                "%s, but the catalog does not: %s", following_hint(catalog, name, TableName.of(index_table)), error
            )
    set_properties(index_table, {PROPERTY_DATA_TABLE: str(name)})
    return index_table


def _rename(catalog: Catalog, index_table: Table, data_table: TableName) -> Table:
    name = index_table_name(data_table)
    try:
        return catalog.rename_table(index_table.name(), name.identifier)
    except (NoSuchTableError, TableAlreadyExistsError) as error:
        raise PuffinIndexError(
            f"index table {TableName.of(index_table)} cannot be renamed to {name}: {error}"
        ) from error


def _make_room(catalog: Catalog, data_table: Table) -> None:
    """Free the name of a data table's index table, if the index table of another data table has it."""
    name = TableName.of(data_table)
    try:
        index_table = load_index_table(catalog, index_table_name(name))
    except NotFoundError:
        return
    if is_bound_to(index_table, str(data_table.metadata.table_uuid)):
        return
    owner = _find_table(catalog, name.namespace, index_table.properties.get(PROPERTY_DATA_TABLE_UUID, ""))
    if owner is None:
        # The data table was dropped and made anew, so the old index is useless.
        with suppress(NotFoundError):
            drop_index_table(catalog, index_table)
        return
    _log.warning("index table %s belongs to %s, and is renamed", TableName.of(index_table), owner)
    set_properties(_rename(catalog, index_table, owner), {PROPERTY_DATA_TABLE: str(owner)})


def _find_table(catalog: Catalog, namespace: tuple[str, ...], table_uuid: str) -> TableName | None:
    for identifier in catalog.list_tables(namespace):
        name = TableName(namespace, identifier[-1])
        if name.name.endswith(SUFFIX):
            continue
        # A table that PyIceberg cannot read, such as one with a VARIANT column, cannot have an index either.
        with suppress(NoSuchTableError, ValidationError, OSError):
            if str(catalog.load_table(name.identifier).metadata.table_uuid) == table_uuid:
                return name
    return None
