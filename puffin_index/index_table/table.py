"""The index table: an Iceberg table with a row per data file and segment, which lists the indexes in the segment.

The files of its newest snapshot are named in its metadata: a reader gets all of them from a store at once, where each
of manifest list, manifests and data files would be a round of requests that tells the next. The names are a hint: what
a snapshot consists of is still read from its manifest list.
"""

from __future__ import annotations

import json
import logging
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, ValidationError
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import (
    BooleanType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from requests.exceptions import RequestException

from puffin_index.data.data_table import refresh_table
from puffin_index.errors import DamagedIndexError, NotFoundError, UnsupportedError
from puffin_index.segments.segment import Segment
from puffin_index.storage.files import in_context, is_local
from puffin_index.storage.whole_files import held_in_memory, read_whole

_log = logging.getLogger(__name__)

PROPERTY: Final = "puffin-index.read-ahead"
_MOST_FILES = 128
_SNAPSHOT, _FILES = "snapshot-id", "files"


def name_files(index_table: Table, transaction: Transaction) -> None:
    """Name the files of the snapshot that a transaction has made, if they lie in a store and are few."""
    if is_local(index_table.location()):
        return
    snapshot = transaction.table_metadata.current_snapshot()
    folder = _folder(index_table)
    try:
        files = [] if snapshot is None else _files_of(snapshot, index_table)
    except OSError as error:
        # The names of the last snapshot stay, which nobody uses for this one.
        _log.info("the new files of %s are not named: %s", ".".join(index_table.name()), error)
        return
    if snapshot is not None and len(files) <= _MOST_FILES and all(file.startswith(folder) for file in files):
        names = {_SNAPSHOT: snapshot.snapshot_id, _FILES: [file.removeprefix(folder) for file in files]}
        transaction.set_properties({PROPERTY: json.dumps(names)})
    elif PROPERTY in index_table.properties:
        transaction.remove_properties(PROPERTY)


def _files_of(snapshot: Snapshot, index_table: Table) -> list[str]:
    manifests = snapshot.manifests(index_table.io)
    files = [manifest.manifest_path for manifest in manifests]
    with held_in_memory(index_table.io, files):
        every = [manifest.fetch_manifest_entry(index_table.io) for manifest in manifests]
    return files + [entry.data_file.file_path for entries in every for entry in entries]


def named_files(index_table: Table, snapshot: Snapshot) -> list[str]:
    """Return the manifests and data files of a snapshot, as far as the metadata of the index table names them."""
    try:
        names = json.loads(index_table.properties.get(PROPERTY, "{}"))
        is_current = isinstance(names, dict) and names.get(_SNAPSHOT) == snapshot.snapshot_id
        return [_folder(index_table) + file for file in names[_FILES]] if is_current else []
    except (ValueError, TypeError, LookupError):
        # Somebody has changed the hint, which costs a reader two rounds and nothing else.
        return []


def _folder(index_table: Table) -> str:
    return index_table.location().rstrip("/") + "/"


_BROKEN = (
    ArithmeticError,
    AssertionError,
    EOFError,
    LookupError,
    MemoryError,
    SystemError,
    TypeError,
    ValueError,
    ValidationError,
    pa.ArrowException,
    zlib.error,
)
"""The errors of PyIceberg's readers of JSON, Avro and Parquet for bytes that break their format."""

_LOCATION = re.compile(r"'([^']+)'|((?:\w[\w+.-]*:/|/).*)")


@contextmanager
def index_table_read(name: str) -> Iterator[None]:
    """Raise DamagedIndexError for what is missing or broken in a block, OSError for what cannot be reached."""
    try:
        yield
    except RequestException:
        raise
    except FileNotFoundError as error:
        # PyArrow quotes the location without its scheme.
        text = str(error.filename or error).splitlines()[0]
        found = _LOCATION.search(text)
        file = found[1] or found[2] if found else text
        raise DamagedIndexError(name, f"{file} is missing", file) from error
    except OSError as error:
        raise in_context(error, f"index table {name} cannot be read") from error
    except _BROKEN as error:
        reason = (str(error).splitlines() or [""])[0]
        raise DamagedIndexError(name, f"one of its files is broken ({type(error).__name__}: {reason})") from error


SUFFIX = "__puffin_index"
SEGMENTS_FOLDER = "_segments"
"""The folder of segments; with its underscore, Iceberg's listing of folders leaves the folder out."""

GUARD: Final = {"gc.enabled": "false"}
"""Has Iceberg refuse to delete files in the location of the index table, where it knows nothing of segments."""

FORMAT_VERSION = "4"
_commits: Counter[str] = Counter()
PROPERTY_VERSION = "puffin-index.version"
PROPERTY_DEFINITION = "puffin-index.definition"
PROPERTY_NAMES = "puffin-index.names"
"""The names that statements gave to indexes (`puffin_index.definition.names`)."""
PROPERTY_DATA_TABLE = "puffin-index.data-table"
PROPERTY_DATA_TABLE_UUID = "puffin-index.data-table-uuid"
PROPERTY_LOCATION = "puffin-index.location"
"""States the location that belongs to this table alone; without this property, other tables may share the location."""

SCHEMA = Schema(
    NestedField(1, "data_file", StringType(), required=True, doc="location of the data file"),
    NestedField(2, "file_size_in_bytes", LongType(), required=True),
    NestedField(3, "record_count", LongType(), required=True),
    NestedField(4, "split_offsets", ListType(5, LongType(), element_required=True), required=True),
    NestedField(6, "row_counts", ListType(7, LongType(), element_required=True), required=True),
    NestedField(8, "segment", StringType(), required=True, doc="location of the Puffin file"),
    NestedField(9, "segment_size_in_bytes", LongType(), required=True),
    NestedField(10, "segment_footer_size_in_bytes", LongType(), required=True),
    NestedField(11, "first_row_group", IntegerType(), required=True, doc="ordinal in the segment"),
    NestedField(12, "first_base", LongType(), required=True, doc="first row in the segment's row space"),
    NestedField(
        13,
        "directories",
        ListType(
            14,
            StructType(
                NestedField(15, "field_id", IntegerType(), required=True),
                NestedField(16, "kind", StringType(), required=True),
                NestedField(17, "offset", LongType(), required=True),
                NestedField(18, "length", LongType(), required=True),
                NestedField(20, "xxh64", StringType(), required=True, doc="checksum of the directory's bytes"),
                NestedField(
                    22, "source", StringType(), required=True, doc="how the column was found in the data file, as JSON"
                ),
            ),
            element_required=True,
        ),
        required=True,
    ),
    NestedField(19, "added_at", TimestamptzType(), required=True),
    NestedField(21, "partition_constants", StringType(), required=True, doc="what identity partitions fix in the file"),
    NestedField(23, "has_pages", BooleanType(), required=True, doc="whether the data file has an offset index"),
)


def _with_short_offsets(field: pa.Field) -> pa.Field:
    """Return a field whose strings and lists have offsets of 32 bits: Arrow groups such strings in half the time."""
    if pa.types.is_large_list(field.type):
        return field.with_type(pa.list_(_with_short_offsets(field.type.value_field)))
    if pa.types.is_struct(field.type):
        return field.with_type(pa.struct(list(map(_with_short_offsets, field.type))))
    return field.with_type(pa.string()) if pa.types.is_large_string(field.type) else field


_ARROW_SCHEMA = pa.schema(map(_with_short_offsets, schema_to_pyarrow(SCHEMA, include_field_ids=False)))


class TableName(tuple[str, ...]):
    """A table's name without its catalog, as PyIceberg takes it; as text, with dots."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Read `namespace.table`, or raise NotFoundError if the text has another form."""
        name = cls(text.split("."))
        if len(name) < 2 or not all(name):
            raise NotFoundError(f"{text!r} is not a table name: it should read namespace.table")
        return name

    @property
    def namespace(self) -> tuple[str, ...]:
        """The name without its last part."""
        return self[:-1]

    def __str__(self) -> str:
        return ".".join(self)


def index_table_name(data_table: TableName) -> TableName:
    """Return the default name of a data table's index table."""
    return TableName((*data_table.namespace, data_table[-1] + SUFFIX))


def load_index_table(catalog: Catalog, name: TableName) -> Table:
    """Load the index table, or raise NotFoundError, DamagedIndexError, or UnsupportedError for another version."""
    try:
        with index_table_read(str(name)):
            table = read_whole(catalog.load_table(name), with_data=True)
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise NotFoundError(f"there is no index table {name}: run `puffin-index create` first") from error
    version = table.properties.get(PROPERTY_VERSION)
    if version != FORMAT_VERSION:
        raise UnsupportedError(
            f"index table {name} has version {version!r}, this release reads {FORMAT_VERSION!r}: "
            "drop the index with `puffin-index drop` and build it anew"
        )
    return table


def is_bound_to(index_table: Table, data_table_uuid: str) -> bool:
    """Return whether the index table belongs to this very data table, not to a dropped table of the same name."""
    return index_table.properties.get(PROPERTY_DATA_TABLE_UUID) == data_table_uuid


def refresh_index_table(index_table: Table) -> None:
    """Load the newest state of an index table, or raise NotFoundError or DamagedIndexError."""
    with index_table_read(".".join(index_table.name())):
        refresh_table(index_table, with_data=True)


def note_commit(index_table: Table) -> None:
    """Count a commit of this process to an index table, so that caches can tell that their state is outdated."""
    _commits[index_table.properties.get(PROPERTY_DATA_TABLE_UUID, "")] += 1


def count_commits(data_table_uuid: str) -> int:
    """Return the number of commits that this process has made to the index table of a data table."""
    return _commits[data_table_uuid]


def segments_folder(index_table: Table) -> str:
    """Return the folder of the index table's segments."""
    return f"{index_table.location().rstrip('/')}/{SEGMENTS_FOLDER}"


def read_entries(index_table: Table) -> pa.Table:
    """Read the rows of the index table, as in `SCHEMA`, oldest first, or raise DamagedIndexError."""
    if index_table.current_snapshot() is None:
        return _ARROW_SCHEMA.empty_table()
    with index_table_read(".".join(index_table.name())):
        entries = _scan(index_table, index_table.scan())
    return (
        entries.select(_ARROW_SCHEMA.names)
        .cast(_ARROW_SCHEMA)
        .sort_by([("added_at", "ascending"), ("data_file", "ascending")])
    )


def _scan(index_table: Table, scan: DataScan) -> pa.Table:
    """Read the rows of a scan: in a store, all files at once if their names are known, otherwise level by level."""
    snapshot, io = scan.snapshot(), index_table.io
    with ExitStack() as held:

        def hold(files: Iterable[str]) -> None:
            held.enter_context(held_in_memory(io, files))

        if snapshot is not None:
            # A hint that names other files only costs time; what is missing of the snapshot is found out below.
            with suppress(FileNotFoundError):
                hold([snapshot.manifest_list, *named_files(index_table, snapshot)])
            hold(manifest.manifest_path for manifest in snapshot.manifests(io))
        tasks = list(scan.plan_files())
        hold(task.file.file_path for task in tasks)
        return ArrowScan(index_table.metadata, io, scan.projection(), scan.row_filter).to_table(tasks)


def entries_of(segments: Sequence[Segment]) -> pa.Table:
    """Make the rows of new segments."""
    now = datetime.now(UTC)
    rows = [
        {
            "data_file": covered.file.path,
            "file_size_in_bytes": covered.file.file_size,
            "record_count": covered.file.record_count,
            "split_offsets": list(covered.row_group_offsets),
            "row_counts": list(covered.row_counts),
            "segment": segment.location,
            "segment_size_in_bytes": segment.size,
            "segment_footer_size_in_bytes": segment.footer_size,
            "first_row_group": covered.first_row_group,
            "first_base": covered.first_base,
            "directories": [one | {"source": covered.sources[int(one["field_id"])]} for one in segment.directories],
            "added_at": now,
            "partition_constants": covered.file.constants_text,
            "has_pages": covered.has_pages,
        }
        for segment in segments
        for covered in segment.covered
    ]
    return pa.Table.from_pylist(rows, schema=_ARROW_SCHEMA)
