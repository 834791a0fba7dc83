"""Rows of the index table: choose the useful ones, change them by one commit, and find what a build has to do.

A row (entry) tells which (field, kind) a segment has for a data file. An entry is live if a retained snapshot of the
data table holds that very file, if scans read the column from the source that the index was built from, if the
definition has one of the entry's kinds, and if no earlier entry has the same kind.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.table import Table, Transaction

from puffin_index.data.column_source import FieldSource, Reading, reading_of
from puffin_index.data.data_table import DataFile, FileIdentity, refresh_table, retained_files
from puffin_index.data.row_groups import INDEXED_FORMATS
from puffin_index.definition.index_definition import ResolvedColumn, read_properties, without_indexes
from puffin_index.definition.names import StoredDefinition
from puffin_index.errors import NotFoundError
from puffin_index.index_table.commit import LOCK_SECONDS, commit
from puffin_index.index_table.table import PROPERTY_DEFINITION, PROPERTY_NAMES, is_bound_to, name_files, read_entries
from puffin_index.keys.map_key import FieldKind
from puffin_index.kinds.registry import kind_named
from puffin_index.segments.directory import is_statistics, statistics_key
from puffin_index.segments.segment import ROW_SPACE_ALIGNMENT
from puffin_index.segments.source_segment import IndexedFile, Part, SourceSegment, read_source
from puffin_index.storage.arrays import cut_in_order
from puffin_index.storage.files import most_open_files

_SOURCE = ["field_id", "source"]

EntryRow: TypeAlias = dict[str, Any]
"""One entry by the names of its columns."""


def rows_by_segment(entries: pa.Table) -> dict[str, list[EntryRow]]:
    """Return the entries of each segment by its location, oldest first."""
    rows: dict[str, list[EntryRow]] = {}
    for row in entries.to_pylist():
        rows.setdefault(row["segment"], []).append(row)
    return rows


def directories_of(rows: Iterable[EntryRow]) -> dict[FieldKind, dict[str, Any]]:
    """Return the places of all directories that entries of one segment name, statistics included."""
    return {(one["field_id"], one["kind"]): one for row in rows for one in row["directories"]}


def source_of(io: FileIO, rows: Sequence[EntryRow], *, with_statistics: bool = True) -> SourceSegment:
    """Read the segment of some entries, as `read_source` does."""
    places = [one for (_, kind), one in directories_of(rows).items() if with_statistics or not is_statistics(kind)]
    size, footer_size = rows[0]["segment_size_in_bytes"], rows[0]["segment_footer_size_in_bytes"]
    return read_source(io, rows[0]["segment"], size, footer_size, places)


def field_kinds(entries: pa.Table) -> list[set[FieldKind]]:
    """Return the (field, kind) pairs of each entry, without statistics."""
    every = entries["directories"].to_pylist()
    return [{(one["field_id"], one["kind"]) for one in own if not is_statistics(one["kind"])} for own in every]


def entry_files(entries: pa.Table) -> Iterator[FileIdentity]:
    """Yield the identity of each entry's data file."""
    names = ("data_file", "file_size_in_bytes", "record_count", "partition_constants")
    yield from zip(*(entries[name].to_pylist() for name in names), strict=True)


def entry_segments(entries: pa.Table) -> list[tuple[FileIdentity, str]]:
    """Return the data file and the segment of each entry."""
    return list(zip(entry_files(entries), entries["segment"].to_pylist(), strict=True))


def indexed_files(entries: pa.Table) -> list[IndexedFile]:
    """Return the data files of entries, which do not overlap, with the places of their indexes, by location."""
    by_file: dict[FileIdentity, list[EntryRow]] = {}
    for identity, row in zip(entry_files(entries), entries.to_pylist(), strict=True):
        by_file.setdefault(identity, []).append(row)
    found: list[IndexedFile] = []
    for (path, size, records, constants), rows in sorted(by_file.items()):
        offsets, counts = tuple(rows[0]["split_offsets"]), tuple(rows[0]["row_counts"])
        parts: dict[FieldKind, Part] = {}
        sources: dict[int, str] = {}
        for row in rows:
            part = Part(row["segment"], row["first_row_group"])
            parts.update((key, part) for key in directories_of([row]) if not is_statistics(key[1]))
            sources.update((one["field_id"], one["source"]) for one in row["directories"])
        file = DataFile(path, size, records, offsets, constants_text=constants)
        found.append(IndexedFile(file, counts, offsets, parts, sources, rows[-1]["has_pages"]))
    return found


def sources_of(entries: pa.Table) -> frozenset[FieldSource]:
    """Return the distinct sources of indexed columns."""
    directories = pc.list_flatten(entries["directories"]).combine_chunks()
    pairs = pa.table([pc.struct_field(directories, name) for name in _SOURCE], _SOURCE).group_by(_SOURCE).aggregate([])
    return frozenset(zip(*(pairs[name].to_pylist() for name in _SOURCE), strict=True))


def without_sources(entries: pa.Table, rejected: Collection[FieldSource]) -> pa.Table:
    """Leave out the directories of columns with rejected sources; all entries stay."""
    if not rejected:
        return entries
    every = entries["directories"].to_pylist()
    return _with_directories(
        entries, [[one for one in own if (one["field_id"], one["source"]) not in rejected] for own in every]
    )


def _with_directories(entries: pa.Table, directories: Sequence[Sequence[dict[str, Any]]]) -> pa.Table:
    place = entries.schema.get_field_index("directories")
    field = entries.schema.field(place)
    return entries.set_column(place, field, pa.array(directories, field.type))


def readable_entries(entries: pa.Table, reading: Reading) -> pa.Table:
    """Leave out directories built from other sources than a scan reads."""
    rejected = reading.rejects(sources_of(entries))
    if not rejected:
        return entries
    left = without_sources(entries, rejected)
    return left.filter(pc.greater(pc.list_value_length(left["directories"]), 0))


def live_entries(entries: pa.Table, retained: Collection[FileIdentity], wanted: Collection[FieldKind]) -> pa.Table:
    """Leave out entries, oldest first, and directories that no retained data file or wanted (field, kind) needs."""
    taken: dict[FileIdentity, set[FieldKind]] = {}
    kept: list[set[FieldKind]] = []
    for file, own in zip(entry_files(entries), field_kinds(entries), strict=True):
        here = taken.setdefault(file, set())
        kept.append({kind for kind in own if kind in wanted} - here if file in retained else set())
        here |= kept[-1]
    return with_kinds(entries, kept)


def needed_entries(
    data_table: Table, index_table: Table, wanted: Callable[[], Collection[FieldKind]], entries: pa.Table
) -> pa.Table:
    """Leave out what nothing needs, or raise NotFoundError if the data table is gone or was replaced.

    The data table is loaded after the entries were read, so that files added meanwhile count as retained. `wanted` is
    asked after that, as the definition may have changed as well.
    """
    refresh_table(data_table)
    if not is_bound_to(index_table, str(data_table.metadata.table_uuid)):
        raise NotFoundError(f"the index of {'.'.join(data_table.name())} belongs to an earlier table of that name")
    return live_entries(readable_entries(entries, reading_of(data_table)), retained_files(data_table), wanted())


def with_kinds(entries: pa.Table, kept: list[set[FieldKind]]) -> pa.Table:
    """Keep some (field, kind) of each entry, and the statistics of their fields; leave out entries without any."""
    directories: list[list[dict[str, Any]]] = []
    for own, kinds in zip(entries["directories"].to_pylist(), kept, strict=True):
        # Merged blobs need the statistics of their column: statistics stay as long as any kind of the column.
        wanted = kinds | {statistics_key(key) for key in kinds}
        directories.append([one for one in own if (one["field_id"], one["kind"]) in wanted])
    return _with_directories(entries, directories).filter(pa.array([bool(kinds) for kinds in kept], pa.bool_()))


def append_entries(index_table: Table, new: pa.Table, reading: Reading, lock_seconds: float = LOCK_SECONDS) -> pa.Table:
    """Add entries (of `entries_of`), except indexes that another builder has added meanwhile; return those added.

    The same commit drops entries that scans of the data table can no longer use. Entries that are there already count
    as added: they are those of a commit of which the catalog did not say whether it succeeded.
    """

    def attempt() -> pa.Table:
        every = read_entries(index_table)
        entries = readable_entries(every, reading)
        known = set(entry_segments(entries))
        added_before = new.filter(pa.array([pair in known for pair in entry_segments(new)], pa.bool_()))
        found = indexed_kinds(entries, set(entry_files(new)))
        of_files = zip(entry_files(new), field_kinds(new), strict=True)
        added = with_kinds(new, [kinds - found.get(file, set()) for file, kinds in of_files])
        if entries is not every:
            with index_table.transaction() as transaction:
                write_entries(index_table, transaction, pa.concat_tables([entries, added]))
        elif len(added):
            with index_table.transaction() as transaction:
                transaction.append(added)
                name_files(index_table, transaction)
        return pa.concat_tables([added_before, added])

    return commit(index_table, attempt, lock_seconds)


def write_entries(index_table: Table, transaction: Transaction, entries: pa.Table) -> None:
    """Put entries in the place of all others."""
    if len(entries):
        transaction.overwrite(entries, AlwaysTrue())
    else:
        transaction.delete(AlwaysTrue())
    name_files(index_table, transaction)


def replace_entries(index_table: Table, change: Callable[[pa.Table], pa.Table]) -> pa.Table:
    """Change the entries by one commit that succeeds only on top of the entries that `change` saw; return the new ones.

    `change` gets all entries, oldest first, and is called again if another commit comes in between.
    """

    def attempt() -> pa.Table:
        entries = read_entries(index_table)
        changed = change(entries)
        if changed.equals(entries):
            return entries
        with index_table.transaction() as transaction:
            write_entries(index_table, transaction, changed)
        return changed

    return commit(index_table, attempt)


def stored_definition(data_table: Table, index_table: Table) -> StoredDefinition:
    """Return the definition of an index with its names."""
    return StoredDefinition(
        index_table.properties[PROPERTY_DEFINITION],
        index_table.properties.get(PROPERTY_NAMES),
        read_properties(data_table.properties, data_table.schema()).columns,
    )


def change_definition(
    data_table: Table, index_table: Table, change: Callable[[StoredDefinition], StoredDefinition], *, drops: bool = True
) -> frozenset[FieldKind]:
    """Change a definition by one commit that succeeds only on top of the definition that `change` saw.

    The indexes that the definition loses are returned. With `drops`, they leave all entries by the same commit, and no
    query uses them from now on. `expire` deletes their bytes. `change` is called again if another commit comes first.
    """

    def attempt() -> frozenset[FieldKind]:
        stored = stored_definition(data_table, index_table)
        changed = change(stored)
        gone = stored.kinds - changed.kinds
        left: pa.Table | None = None
        if gone and drops:
            entries = read_entries(index_table)
            kinds = field_kinds(entries)
            if any(own & gone for own in kinds):
                left = with_kinds(entries, [own - gone for own in kinds])
        properties = {PROPERTY_DEFINITION: changed.definition}
        if changed.names is not None:
            properties[PROPERTY_NAMES] = changed.names
        # Catalogs merge changes of properties made at the same time, and reject only snapshots on top of another than
        # the current one. So each change of the definition makes a snapshot, be it of the same entries.
        with index_table.transaction() as transaction:
            transaction.set_properties(properties)
            if left is None:
                with transaction.update_snapshot().fast_append():
                    pass
            else:
                write_entries(index_table, transaction, left)
        return gone

    return commit(index_table, attempt)


TARGET_SEGMENT_BYTES = 256 * 1024 * 1024
ROW_SPACE = 2**32
"""Rows of a segment are numbered in 32 bits, the gaps between row groups included."""


@dataclass(frozen=True, slots=True)
class FileBatch:
    """Data files for one segment, and the columns and kinds to build."""

    files: tuple[DataFile, ...]
    columns: tuple[ResolvedColumn, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """The data files that lack indexes, a batch per segment, those of no indexable format, and those left for later."""

    batches: tuple[FileBatch, ...]
    unsupported: tuple[DataFile, ...]
    left: int


def indexed_kinds(entries: pa.Table, files: Collection[FileIdentity]) -> dict[FileIdentity, set[FieldKind]]:
    """Return the (field id, stored kind) pairs that usable rows of the index table have for each data file."""
    found: dict[FileIdentity, set[FieldKind]] = {}
    for file, directories in zip(entry_files(entries), entries["directories"].to_pylist(), strict=True):
        if file in files:
            found.setdefault(file, set()).update((d["field_id"], d["kind"]) for d in directories)
    return found


def find_missing(
    live: Sequence[DataFile],
    columns: tuple[ResolvedColumn, ...],
    entries: pa.Table,
    parallelism: int,
    *,
    max_files: int | None = None,
    target_bytes: int = TARGET_SEGMENT_BYTES,
) -> Missing:
    """Find the live data files that lack indexes, at most `max_files` by location, and cut them into segments.

    Segments have about `target_bytes`; a large build has at least `parallelism` of them.
    """
    found = indexed_kinds(entries, {file.identity for file in live})
    needs: list[tuple[DataFile, tuple[ResolvedColumn, ...]]] = []
    unsupported: list[DataFile] = []
    # A snapshot may have a data file twice.
    for file in sorted({file.identity: file for file in live}.values(), key=lambda file: file.identity):
        need = without_indexes(columns, found.get(file.identity, set()))
        if not need or not file.record_count:
            continue
        if file.format in INDEXED_FORMATS:
            needs.append((file, need))
        else:
            unsupported.append(file)
    by_need: dict[tuple[ResolvedColumn, ...], list[DataFile]] = {}
    for file, need in needs[:max_files]:
        by_need.setdefault(need, []).append(file)
    batches = (batch for need, files in by_need.items() for batch in _cut(files, need, parallelism, target_bytes))
    return Missing(tuple(batches), tuple(unsupported), max(0, len(needs) - (max_files or len(needs))))


def _cut(
    files: Sequence[DataFile], columns: tuple[ResolvedColumn, ...], parallelism: int, target_bytes: int
) -> list[FileBatch]:
    bytes_per_row = sum(kind_named(kind).bytes_per_row for column in columns for kind in column.kinds)
    rows = sum(file.record_count for file in files)
    # Two rounds of tasks keep cores from idling behind the largest task; the minimum prevents tiny segments. One worker
    # does a single task itself, so that a service starts no process for seconds of work.
    rows_for_parallelism = max(4_000_000 if parallelism == 1 else 1_000_000, rows // max(1, 2 * parallelism))
    rows_per_batch = min(target_bytes // bytes_per_row, rows_for_parallelism)

    def sizes(file: DataFile) -> tuple[int, int, int]:
        return file.record_count, file.record_count + ROW_SPACE_ALIGNMENT * max(1, len(file.split_offsets)), 1

    limits = (rows_per_batch, ROW_SPACE, most_open_files())
    return [FileBatch(tuple(some), columns) for some in cut_in_order(files, sizes, limits)]


def segment_sizes(entries: pa.Table) -> dict[str, int]:
    """Return the size of each segment of some entries, in bytes."""
    return dict(zip(entries["segment"].to_pylist(), entries["segment_size_in_bytes"].to_pylist(), strict=True))
