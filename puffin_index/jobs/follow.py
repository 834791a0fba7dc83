"""Give a data table its index table: an existing one, one left behind when the data table was renamed, or a new one.

A new one gets a location that no other table ever has, so that every file below it is its own.
"""

import logging
import uuid
from contextlib import suppress
from dataclasses import replace

from pyiceberg import exceptions
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.io import load_file_io
from pyiceberg.table import Table
from requests.exceptions import RequestException

from puffin_index.errors import CatalogError, NotFoundError, PuffinIndexError
from puffin_index.index_table import stored_files, table as catalogue
from puffin_index.index_table.commit import set_properties
from puffin_index.index_table.entries import change_definition
from puffin_index.index_table.lookup import find_index_table, following_hint
from puffin_index.index_table.table import TableName
from puffin_index.jobs.drop import drop_index_table

_DIGITS = 16
_log = logging.getLogger(__name__)


def define_index_table(catalog: Catalog, data_table: Table, definition: str) -> Table:
    """Give the index table of a data table a definition, creating the index table if necessary.

    An index table left behind when the data table was renamed is renamed as well. An index table that has the required
    name but belongs to another data table is renamed after that table, or dropped if the namespace has no such table.
    Raises PuffinIndexError if this is impossible.
    """
    index_table = ensure_index_table(catalog, data_table, definition)
    if index_table.properties[catalogue.PROPERTY_DEFINITION] != definition:
        change_definition(data_table, index_table, lambda stored: replace(stored, definition=definition), drops=False)
    return index_table


def ensure_index_table(catalog: Catalog, data_table: Table, definition: str) -> Table:
    """Load the index table of a data table, or create one with this definition, or raise PuffinIndexError."""
    try:
        return follow(catalog, data_table)
    except NotFoundError:
        _make_room(catalog, data_table)
        return create_index_table(
            catalog, catalogue.index_table_name(TableName(data_table.name())), data_table, definition
        )


def follow(catalog: Catalog, data_table: Table) -> Table:
    """Load the index table of a data table; an index table left behind by a rename is renamed after the data table.

    If the catalog cannot rename tables, the index table stays in use under its old name. Raises NotFoundError if the
    data table has no index table.
    """
    index_table = find_index_table(catalog, data_table)
    name = TableName(data_table.name())
    if TableName(index_table.name()) != catalogue.index_table_name(name):
        _make_room(catalog, data_table)
        try:
            index_table = _rename(catalog, index_table, name)
        except (NotImplementedError, exceptions.RESTError) as error:
            hint = following_hint(catalog, name, TableName(index_table.name()))
            _log.warning("%s, but the catalog does not: %s", hint, error)
    set_properties(index_table, {catalogue.PROPERTY_DATA_TABLE: str(name)})
    return index_table


def _rename(catalog: Catalog, index_table: Table, data_table: TableName) -> Table:
    before, name = TableName(index_table.name()), catalogue.index_table_name(data_table)
    try:
        return catalog.rename_table(before, name)
    except (exceptions.NoSuchTableError, exceptions.TableAlreadyExistsError) as error:
        raise PuffinIndexError(f"index table {before} cannot be renamed to {name}: {error}") from error


def _make_room(catalog: Catalog, data_table: Table) -> None:
    """Free the name of a data table's index table, if the index table of another data table has it."""
    name = TableName(data_table.name())
    try:
        index_table = catalogue.load_index_table(catalog, catalogue.index_table_name(name))
    except NotFoundError:
        return
    if catalogue.is_bound_to(index_table, str(data_table.metadata.table_uuid)):
        return
    owner = _find_table(catalog, name.namespace, index_table.properties.get(catalogue.PROPERTY_DATA_TABLE_UUID, ""))
    if owner is None:
        # The data table was dropped and made anew, so the old index is useless.
        with suppress(NotFoundError):
            drop_index_table(catalog, index_table)
        return
    _log.warning("index table %s belongs to %s, and is renamed", TableName(index_table.name()), owner)
    set_properties(_rename(catalog, index_table, owner), {catalogue.PROPERTY_DATA_TABLE: str(owner)})


def _find_table(catalog: Catalog, namespace: tuple[str, ...], table_uuid: str) -> TableName | None:
    for identifier in catalog.list_tables(namespace):
        name = TableName((*namespace, identifier[-1]))
        if name[-1].endswith(catalogue.SUFFIX):
            continue
        # A table that PyIceberg cannot read, such as one with a VARIANT column, cannot have an index either.
        with suppress(exceptions.NoSuchTableError, exceptions.ValidationError, FileNotFoundError):
            if str(catalog.load_table(name).metadata.table_uuid) == table_uuid:
                return name
    return None


def new_location(default: str, data_table_uuid: uuid.UUID) -> str:
    """Return a location that no other table has, for an index table with this default location."""
    folder, _, name = default.rpartition("/")
    # Of a given list, `remove_orphan_files` takes all files for a table's whose locations begin like its own. With the
    # underscore, this location does not begin like that of the data table.
    return f"{folder}/_{name}-{data_table_uuid.hex[:_DIGITS]}{uuid.uuid4().hex[:_DIGITS]}"


def create_index_table(catalog: Catalog, name: TableName, data_table: Table, definition: str) -> Table:
    """Create the index table of a data table, bound to its UUID, or load it if it exists already.

    Raises CatalogError if the catalog has no location for it, or only one with files of another table; OSError if its
    metadata cannot be written.
    """
    properties = catalogue.GUARD | {
        catalogue.PROPERTY_VERSION: catalogue.FORMAT_VERSION,
        catalogue.PROPERTY_DEFINITION: definition,
        catalogue.PROPERTY_DATA_TABLE: ".".join(data_table.name()),
        catalogue.PROPERTY_DATA_TABLE_UUID: str(data_table.metadata.table_uuid),
        # The table is small and rewritten rarely: keep its metadata from growing without end.
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "20",
        # Entries depend on each other: `puffin_index.index_table.entries` decides anew instead of repeating a commit.
        "commit.retry.num-retries": "0",
    }
    # Two builders may race here; the namespace of either builder will do.
    with suppress(exceptions.NamespaceAlreadyExistsError):
        catalog.create_namespace_if_not_exists(name.namespace)
    try:
        location = new_location(default_location(catalog, name), data_table.metadata.table_uuid)
    except exceptions.TableAlreadyExistsError:
        return catalogue.load_index_table(catalog, name)
    except ValueError as error:
        _log.debug("no default location of %s is known: %s", name, error)
        return _create_where_catalog_says(catalog, name, properties)
    try:
        return _create_at(catalog, name, properties, location)
    except (ValueError, exceptions.BadRequestError, exceptions.ForbiddenError) as error:
        _log.info("catalog %s places tables itself: %s", catalog.name, error)
        return _create_where_catalog_says(catalog, name, properties)


def default_location(catalog: Catalog, name: TableName) -> str:
    """Return where the catalog would place a new index table.

    Raises TableAlreadyExistsError if a service has the table already, ValueError if the catalog has no place for it.
    """
    if isinstance(catalog, MetastoreCatalog):
        namespace = catalog.namespace_to_string(name.namespace)
        return catalog._resolve_table_location(None, namespace, name[-1])
    # Only the service knows the location. A staged table already has it, and is not in the catalog yet.
    staged = catalog.create_table_transaction(name, catalogue.SCHEMA)
    return staged.table_metadata.location.rstrip("/")


def _create_at(catalog: Catalog, name: TableName, properties: dict[str, str], location: str) -> Table:
    try:
        return catalog.create_table(
            name, catalogue.SCHEMA, location, properties={**properties, catalogue.PROPERTY_LOCATION: location}
        )
    except exceptions.TableAlreadyExistsError:
        index_table = catalogue.load_index_table(catalog, name)
        if index_table.location() != location:
            _delete_own(catalog, location)
        return index_table
    except RequestException:
        raise
    except OSError:
        with suppress(OSError):
            # Metadata is written before the catalog is asked: metadata cut short by a full disk belongs to no table.
            if not catalog.table_exists(name):
                _delete_own(catalog, location)
        raise


def _create_where_catalog_says(catalog: Catalog, name: TableName, properties: dict[str, str]) -> Table:
    try:
        index_table = catalog.create_table(name, catalogue.SCHEMA, properties=properties)
    except exceptions.TableAlreadyExistsError:
        return catalogue.load_index_table(catalog, name)
    except ValueError as error:
        raise CatalogError(
            f"catalog {catalog.name!r} has no place for index table {name}, as a `warehouse` would be: {error}"
        ) from error
    # A store may be unable to list its files. Each upkeep then looks for files of other tables again.
    with suppress(OSError):
        files = stored_files.list_stored_files(index_table.io, index_table.location())
        if stored_files.has_other_metadata(index_table, files):
            catalog.drop_table(name)
            stored_files.delete_files(
                index_table.io, [file for file in files if file.location == index_table.metadata_location]
            )
            raise CatalogError(
                f"files of another table lie in {index_table.location()}, where catalog {catalog.name!r} places index "
                f"table {name}: delete them if they are of no use"
            )
    return index_table


def _delete_own(catalog: Catalog, location: str) -> None:
    io = load_file_io(catalog.properties, location)
    stored_files.delete_files(io, [file for file in stored_files.list_stored_files(io, location) if file.is_ours])
    stored_files.delete_empty_folders(io, location)
