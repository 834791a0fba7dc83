"""Find index tables by the UUID of their data table, which a renamed data table leaves behind under its old name."""

import logging

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, RESTError, ValidationError
from pyiceberg.table import Table

from puffin_index.errors import NotFoundError, PuffinIndexError
from puffin_index.index_table import table as catalogue
from puffin_index.index_table.table import TableName

_log = logging.getLogger(__name__)


def find_index_table(catalog: Catalog, data_table: Table) -> Table:
    """Load the index table of a data table, whatever its name, from the namespace of the data table.

    Raises NotFoundError without one, DamagedIndexError if that of the default name cannot be read, UnsupportedError if
    a later release made it.
    """
    name, data_uuid = TableName(data_table.name()), str(data_table.metadata.table_uuid)
    own_name = catalogue.index_table_name(name)
    try:
        index_table = catalogue.load_index_table(catalog, own_name)
        if catalogue.is_bound_to(index_table, data_uuid):
            return index_table
        absence = NotFoundError(
            f"the index of {name} belongs to an earlier table of that name: run `puffin-index create` again"
        )
    except NotFoundError as error:
        absence = error
    other_name = list_index_tables(catalog, name.namespace).get(data_uuid)
    left_behind = load_left_behind(catalog, other_name, data_uuid) if other_name is not None else None
    if left_behind is None:
        raise absence
    return left_behind


def load_left_behind(catalog: Catalog, index_name: TableName, data_uuid: str) -> Table | None:
    """Load an index table that a renamed data table may have left behind; None if it is none of it.

    The data table that its name stands for must have another UUID: a table registered twice has one UUID under two
    names, and the index table belongs to the name it stands for.
    """
    try:
        index_table = catalogue.load_index_table(catalog, index_name)
    except NotFoundError:
        return None
    if not catalogue.is_bound_to(index_table, data_uuid):
        return None
    owner = TableName((*index_name.namespace, index_name[-1].removesuffix(catalogue.SUFFIX)))
    try:
        is_owned = str(catalog.load_table(owner).metadata.table_uuid) == data_uuid
    except (NoSuchTableError, ValidationError, FileNotFoundError):
        is_owned = False
    return None if is_owned else index_table


def list_index_tables(
    catalog: Catalog, namespace: tuple[str, ...], *, only_left_behind: bool = False
) -> dict[str, TableName]:
    """Load a namespace's index tables (or those left behind), by UUID of data table; none if it cannot be listed."""
    try:
        names = {identifier[-1] for identifier in catalog.list_tables(namespace)}
    except (RESTError, NoSuchNamespaceError, NotImplementedError) as error:
        _log.debug("the tables of %s cannot be listed: %s", ".".join(namespace), error)
        return {}
    found: dict[str, TableName] = {}
    for name in sorted(names):
        if not name.endswith(catalogue.SUFFIX) or (only_left_behind and name.removesuffix(catalogue.SUFFIX) in names):
            continue
        index_name = TableName((*namespace, name))
        try:
            properties = catalogue.load_index_table(catalog, index_name).properties
        except (PuffinIndexError, OSError) as error:
            _log.debug("index table passed over: %s", error)
            continue
        found.setdefault(properties.get(catalogue.PROPERTY_DATA_TABLE_UUID, ""), index_name)
    return found


def following_hint(catalog: Catalog, data_table: TableName, index_table: TableName) -> str:
    """Return a sentence that says that a data table left its index table behind, and how to mend that."""
    return (
        f"the index of {data_table} is still called {index_table}: "
        f"`puffin-index follow {catalog.name}.{data_table}` renames it"
    )
