"""Exchange containers with Paimon, data file by data file: export what the index has, import what proves right.

A container of Paimon's is about one data file and says nothing of row groups, so an import takes data files of one row
group. It reads the data and proves each index before it commits: nothing in a container tells which file it is of.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pyiceberg.table import Table

from puffin_index.data.column_source import reading_of
from puffin_index.data.data_table import DataFile, retained_files
from puffin_index.data.row_groups import OpenDataFile, open_data_file, read_keys
from puffin_index.definition.index_definition import ResolvedColumn
from puffin_index.errors import BuildError, NotFoundError, UnsupportedError
from puffin_index.formats.paimon_container import Container, map_key_column
from puffin_index.formats.puffin import read_footer
from puffin_index.index_table.entries import append_entries, field_kinds, indexed_files, readable_entries
from puffin_index.index_table.table import entries_of, read_entries, segments_folder
from puffin_index.jobs.job_segments import JobSegments
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.map_key import MapKey, split_kind
from puffin_index.kinds.base import MergedPayload, Payload
from puffin_index.kinds.registry import KINDS
from puffin_index.kinds.statistics import ColumnStatistics, statistics_of
from puffin_index.segments.exchange import ExportedContainer, import_blob, take_payloads, write_exported
from puffin_index.segments.segment import SegmentTask, write_files
from puffin_index.segments.source_segment import IndexedFile
from puffin_index.storage.files import FileReader
from puffin_index.storage.ranged import Blob


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The imported columns with the kinds of each, and the parts that were left out, with the reasons."""

    data_file: str
    imported: Mapping[str, tuple[str, ...]]
    left_out: tuple[str, ...]
    segment: str
    index_bytes: int


def export_indexes(
    data_table: Table,
    index_table: Table,
    columns: Sequence[ResolvedColumn],
    data_file: str,
    row_group: int | None = None,
) -> ExportedContainer:
    """Put the indexes of one row group of a data file (its location, or the last parts) into a container.

    The row group is that at a place from 0, or the only one. Raises NotFoundError without such a file or index,
    UnsupportedError if the row group is open or Paimon can read nothing.
    """
    file = _find_file(data_table, data_file)
    indexed = _indexed(data_table, index_table, file)
    if row_group is None and len(indexed.row_counts) != 1:
        raise UnsupportedError(f"{file.path} has {len(indexed.row_counts)} row groups: say which one, from 0")
    at = row_group or 0
    if not 0 <= at < len(indexed.row_counts):
        raise NotFoundError(f"{file.path} has no row group {at}: it has {len(indexed.row_counts)}")
    names = {column.column_id: _container_name(column) for column in columns}
    parts = {part for key, part in indexed.parts.items() if split_kind(*key)[0] in names}
    taken = []
    for part in sorted(parts, key=lambda part: part.segment):
        here = {split_kind(*key)[0] for key, own in indexed.parts.items() if own == part}
        with FileReader(index_table.io, part.segment) as reader:
            own_names = {column: name for column, name in names.items() if column in here}
            taken.append(take_payloads(reader, read_footer(reader), part.first_row_group + at, own_names))
    if not taken:
        raise NotFoundError(f"the index has nothing of {file.path}: run `puffin-index build` first")
    return write_exported(taken)


def import_indexes(
    data_table: Table, index_table: Table, columns: Sequence[ResolvedColumn], data_file: str, container: Container
) -> ImportReport:
    """Take the indexes of a container over, as far as the definition has them, once they are proven to be right.

    The data file is named by its location or the last parts of it. Raises NotFoundError without such a file or such an
    index, UnsupportedError if the file has several row groups or an index an unknown version, BuildError if an index
    does not agree with the data or the index has them all, CorruptFileError if an index breaks its format.
    """
    file = _find_file(data_table, data_file)
    found, left_out = _matching_indexes(columns, container)
    with JobSegments(index_table) as segments:
        task = SegmentTask(
            (file,),
            tuple(replace(column, kinds={kind: column.kinds[kind] for kind in found[column]}) for column in found),
            data_table.io,
            index_table.io,
            segments_folder(index_table),
            reading_of(data_table),
            segments.job_id,
        )
        blobs = {_container_name(column): kinds for column, kinds in found.items()}
        with open_data_file(task.io, file, task.reading) as opened:
            if len(opened.row_counts) != 1:
                reason = f"{file.path} has {len(opened.row_counts)} row groups: a container has no place for them"
                raise UnsupportedError(reason)
            segment = write_files(
                task,
                segments.new_location(),
                [opened],
                build=lambda column, files: _proven(column, files[0], blobs[_container_name(column)]),
            )
        with segments.committing([segment.location]):
            added = append_entries(index_table, entries_of([segment]), task.reading)
        taken = {key for keys in field_kinds(added) for key in keys}
        imported: dict[str, tuple[str, ...]] = {}
        for column, kinds in found.items():
            own = tuple(kind for kind in kinds if (column.field_id, column.stored_kind(kind)) in taken)
            imported |= {column.name: own} if own else {}
            left_out += tuple(f"{kind} of {column.name}: the index has it" for kind in kinds if kind not in own)
        if not imported:
            raise BuildError(f"nothing imported for {file.path}: {'; '.join(left_out)}")
    return ImportReport(file.path, imported, left_out, segment.location, segment.size)


def _find_file(data_table: Table, name: str) -> DataFile:
    files = [file for file in retained_files(data_table).values() if f"/{file.path}".endswith(f"/{name}")]
    if len(files) == 1:
        return files[0]
    what = f"{len(files)} data files" if files else "no data file"
    raise NotFoundError(f"table {'.'.join(data_table.name())} has {what} {name}; `explain --all` lists the data files")


def _indexed(data_table: Table, index_table: Table, file: DataFile) -> IndexedFile:
    entries = readable_entries(read_entries(index_table), reading_of(data_table))
    for indexed in indexed_files(entries):
        if indexed.file.identity == file.identity:
            return indexed
    raise NotFoundError(f"the index has nothing of {file.path}: run `puffin-index build` first")


def _container_name(column: ResolvedColumn) -> str:
    if isinstance(column.column_id, MapKey):
        return map_key_column(column.name.removesuffix(column.column_id.key)[:-3], column.column_id.key)
    return column.name


def _matching_indexes(
    columns: Sequence[ResolvedColumn], container: Container
) -> tuple[dict[ResolvedColumn, dict[str, Blob]], tuple[str, ...]]:
    """Match the indexes of a container with the definition."""
    by_name = {_container_name(column): column for column in columns}
    kind_of = {kind.paimon_name: name for name, kind in KINDS.items() if kind.paimon_name}
    found: dict[ResolvedColumn, dict[str, Blob]] = {}
    left_out: list[str] = []
    for name, bodies in container.indexes.items():
        for index_name, blob in bodies.items():
            column, kind = by_name.get(name), kind_of.get(index_name)
            if blob is None:
                left_out.append(f"{index_name} of {name}: it has no bytes")
            elif column is None or kind is None or kind not in column.kinds:
                left_out.append(f"{index_name} of {name}: the index definition has none")
            else:
                found.setdefault(column, {})[kind] = blob
    if not found:
        raise NotFoundError(f"nothing to import: {'; '.join(left_out) or 'the container is empty'}")
    return found, tuple(left_out)


def _proven(
    column: ResolvedColumn, opened: OpenDataFile, blobs: Mapping[str, Blob]
) -> tuple[list[ColumnStatistics], dict[str, list[MergedPayload]]]:
    """Return the payloads of a column, each compared with the data."""
    values = SortedColumn(read_keys(opened, 0, column.column_id, column.value_type))
    rows = opened.row_counts[0]
    payloads: dict[str, list[MergedPayload]] = {}
    for kind, blob in blobs.items():
        index = import_blob(blob, kind, column.value_type, rows)
        wrong = next(iter(KINDS[kind].proof(index, np.array([rows]))(0, values)), None)
        if wrong is not None:
            raise BuildError(f"{kind} of {column.name!r} is not an index of {opened.file.path}: {wrong}")
        payload = Payload(KINDS[kind].paimon_type(blob), blob.read(0, blob.length), np.empty(0, np.int64))
        payloads[kind] = [MergedPayload(payload, 1)]
    return [statistics_of(values)], payloads
