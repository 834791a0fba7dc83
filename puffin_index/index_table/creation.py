"""Create an index table in a location that no other table ever has, and find the folders of dropped ones.

Iceberg knows nothing of segments, and leaves them behind. The name of a folder has digits of the data table's UUID. A
folder may belong to an index table of another catalog or of a branch of this one, which nobody sees from here. So
folders are only named, unless the user asks to delete them.
"""

import logging
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import load_file_io
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from requests.exceptions import RequestException

from puffin_index.display import format_bytes
from puffin_index.errors import CatalogError, PuffinIndexError
from puffin_index.index_table.stored_files import (
    StoredFile,
    delete_empty_folders,
    delete_files,
    has_other_metadata,
    list_folders,
    list_stored_files,
)
from puffin_index.index_table.table import (
    FORMAT_VERSION,
    PROPERTY_DATA_TABLE,
    PROPERTY_DATA_TABLE_UUID,
    PROPERTY_DEFINITION,
    PROPERTY_LOCATION,
    PROPERTY_VERSION,
    SCHEMA,
    SUFFIX,
    TableName,
    load_index_table,
)

_DIGITS = 16
_NEW = timedelta(minutes=1)
"""So old the files of a folder have to be: a table's first metadata is written before the catalog has the table."""

_BRANCHES = "nessie."
"""Begins the properties of catalogs that have branches."""


@dataclass(frozen=True, slots=True)
class AbandonedFolder:
    """A folder that no index table of the catalog uses."""

    location: str
    files: tuple[StoredFile, ...]

    def __str__(self) -> str:
        return f"{self.location} ({len(self.files)} files, {format_bytes(sum(file.size for file in self.files))})"


def new_location(default: str, data_table_uuid: uuid.UUID) -> str:
    """Return a location that no other table has, for an index table with this default location."""
    return f"{default}-{data_table_uuid.hex[:_DIGITS]}{uuid.uuid4().hex[:_DIGITS]}"


def abandoned_folders(catalog: Catalog, default: str, data_table_uuid: uuid.UUID) -> list[AbandonedFolder]:
    """Find folders of former index tables, beside the default location, that no table of the catalog uses.

    Raises PuffinIndexError if a table of the catalog cannot be read, so that nobody knows which folder it uses.
    """
    parent = default.rpartition("/")[0]
    io = load_file_io(catalog.properties, parent)
    digits = data_table_uuid.hex[:_DIGITS]
    own_name = re.compile(rf".*{SUFFIX}-{digits}[0-9a-f]{{{_DIGITS}}}")
    listed = [
        AbandonedFolder(f"{parent}/{name}", tuple(list_stored_files(io, f"{parent}/{name}")))
        for name in sorted(list_folders(io, parent))
        if own_name.fullmatch(name)
    ]
    if not listed:
        return []
    used = [_path(location) for location in _locations(catalog)]
    return [
        folder
        for folder in listed
        if any(file.is_ours for file in folder.files)
        and not any(f"{location}/".startswith(f"{_path(folder.location)}/") for location in used)
    ]


def delete_abandoned(catalog: Catalog, folders: Sequence[AbandonedFolder]) -> list[StoredFile]:
    """Delete what builds and commits of ours wrote into abandoned folders; return these files.

    Raises PuffinIndexError if another index table may use the folders.
    """
    if any(name.startswith(_BRANCHES) for name in catalog.properties):
        raise PuffinIndexError(
            f"catalog {catalog.name!r} has branches, whose index tables may use {_named(folders)}: delete by hand what "
            "no branch uses"
        )
    deleted: list[StoredFile] = []
    for folder in folders:
        if max(file.modified for file in folder.files) > datetime.now(UTC) - _NEW:
            raise PuffinIndexError(
                f"{folder.location} has files of the last minute, perhaps of a table that is being made"
            )
        io = load_file_io(catalog.properties, folder.location)
        ours = [file for file in folder.files if file.is_ours]
        delete_files(io, ours)
        delete_empty_folders(io, folder.location)
        deleted += ours
    return deleted


def abandoned_hint(folders: Sequence[AbandonedFolder]) -> str:
    """Say which folders were left behind, and how to delete them."""
    return (
        f"an index table that was dropped by hand has left {_named(folders)}: if no other catalog and no branch uses "
        "that, `puffin-index drop --abandoned` deletes it"
    )


def warn_of_abandoned(catalog: Catalog, location: str, data_table_uuid: uuid.UUID) -> None:
    """Log what earlier index tables of a data table have left behind, beside the location of the new one."""
    with suppress(OSError, PuffinIndexError, NotImplementedError):
        folders = abandoned_folders(catalog, location, data_table_uuid)
        if folders:
            _log.warning("%s", abandoned_hint(folders))


def _named(folders: Sequence[AbandonedFolder]) -> str:
    return ", ".join(map(str, folders))


def _path(location: str) -> str:
    return location.partition("://")[2].rstrip("/") or location.removeprefix("file:").rstrip("/")


def _locations(catalog: Catalog) -> Iterator[str]:
    """The locations of all tables of a catalog, and of their metadata."""
    for name in _tables(catalog, ()):
        try:
            table = catalog.load_table(name)
        except NoSuchTableError:
            continue
        except Exception as error:
            raise PuffinIndexError(f"table {'.'.join(name)} cannot be read, and may use a folder: {error}") from error
        yield table.location()
        yield table.metadata_location


def _tables(catalog: Catalog, namespace: Identifier) -> Iterator[Identifier]:
    for child in catalog.list_namespaces(namespace):
        yield from catalog.list_tables(child)
        yield from _tables(catalog, child)


_log = logging.getLogger(__name__)


def create_index_table(catalog: Catalog, name: TableName, data_table: Table, definition: str) -> Table:
    """Create the index table of a data table, bound to its UUID, or load it if it exists already.

    Raises CatalogError if the catalog has no location for it, or only one with files of another table; OSError if its
    metadata cannot be written.
    """
    properties = {
        PROPERTY_VERSION: FORMAT_VERSION,
        PROPERTY_DEFINITION: definition,
        PROPERTY_DATA_TABLE: ".".join(data_table.name()),
        PROPERTY_DATA_TABLE_UUID: str(data_table.metadata.table_uuid),
        # The table is small and rewritten rarely: keep its metadata from growing without end.
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "20",
        # Entries depend on each other: `puffin_index.index_table.entries` decides anew instead of repeating a commit.
        "commit.retry.num-retries": "0",
    }
    # Two builders may race here; the namespace of either builder will do.
    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace_if_not_exists(name.namespace)
    try:
        location = new_location(default_location(catalog, name), data_table.metadata.table_uuid)
    except TableAlreadyExistsError:
        return load_index_table(catalog, name)
    except ValueError as error:
        _log.debug("no default location of %s is known: %s", name, error)
        return _create_where_catalog_says(catalog, name, properties)
    try:
        index_table = _create_at(catalog, name, properties, location)
    except (ValueError, BadRequestError, ForbiddenError) as error:
        _log.info("catalog %s places tables itself: %s", catalog.name, error)
        return _create_where_catalog_says(catalog, name, properties)
    if index_table.location() == location:
        warn_of_abandoned(catalog, location, data_table.metadata.table_uuid)
    return index_table


def default_location(catalog: Catalog, name: TableName) -> str:
    """Return where the catalog would place a new index table.

    Raises TableAlreadyExistsError if a service has the table already, ValueError if the catalog has no place for it.
    """
    if isinstance(catalog, MetastoreCatalog):
        namespace = catalog.namespace_to_string(name.namespace)
        return catalog._resolve_table_location(None, namespace, name.name)
    # Only the service knows the location. A staged table already has it, and is not in the catalog yet.
    staged = catalog.create_table_transaction(name.identifier, SCHEMA)
    return staged.table_metadata.location.rstrip("/")


def _create_at(catalog: Catalog, name: TableName, properties: dict[str, str], location: str) -> Table:
    try:
        return catalog.create_table(
            name.identifier, SCHEMA, location, properties={**properties, PROPERTY_LOCATION: location}
        )
    except TableAlreadyExistsError:
        index_table = load_index_table(catalog, name)
        if index_table.location() != location:
            _delete_own(catalog, location)
        return index_table
    except RequestException:
        raise
    except OSError:
        with suppress(OSError):
            # Metadata is written before the catalog is asked: metadata cut short by a full disk belongs to no table.
            if not catalog.table_exists(name.identifier):
                _delete_own(catalog, location)
        raise


def _create_where_catalog_says(catalog: Catalog, name: TableName, properties: dict[str, str]) -> Table:
    try:
        index_table = catalog.create_table(name.identifier, SCHEMA, properties=properties)
    except TableAlreadyExistsError:
        return load_index_table(catalog, name)
    except ValueError as error:
        raise CatalogError(
            f"catalog {catalog.name!r} has no place for index table {name}, as a `warehouse` would be: {error}"
        ) from error
    # A store may be unable to list its files. Each upkeep then looks for files of other tables again.
    with suppress(OSError):
        files = list_stored_files(index_table.io, index_table.location())
        if has_other_metadata(index_table, files):
            catalog.drop_table(name.identifier)
            delete_files(index_table.io, [file for file in files if file.location == index_table.metadata_location])
            raise CatalogError(
                f"files of another table lie in {index_table.location()}, where catalog {catalog.name!r} places index "
                f"table {name}: delete them if they are of no use"
            )
    return index_table


def _delete_own(catalog: Catalog, location: str) -> None:
    """Delete the files in a location that no table got."""
    io = load_file_io(catalog.properties, location)
    delete_files(io, [file for file in list_stored_files(io, location) if file.is_ours])
    delete_empty_folders(io, location)
