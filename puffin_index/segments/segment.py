"""A segment: one Puffin file of index blobs that covers whole data files.

Order of the blobs: for each column, for each kind, the payloads of all row groups; then all directories, side by side
so that a planner gets all of them with one read; then the list of row groups.
"""

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
from pyiceberg.io import FileIO

from puffin_index.data.column_source import Reading
from puffin_index.data.data_table import DataFile, FileIdentity
from puffin_index.data.row_groups import OpenDataFile, open_data_file, read_sorted
from puffin_index.definition.index_definition import ResolvedColumn
from puffin_index.errors import BuildError, UnsupportedError
from puffin_index.formats.puffin import BLOB_CHECKSUM, PuffinWriter
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.map_key import FieldKind, index_of
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import Payload
from puffin_index.kinds.registry import KINDS
from puffin_index.kinds.statistics import ColumnStatistics, statistics_of
from puffin_index.segments import directory
from puffin_index.segments.source_segment import IndexedFile
from puffin_index.storage.arrays import Ints
from puffin_index.storage.files import NewFile
from puffin_index.storage.parallel import in_parallel, requests_at_once

ROW_SPACE_ALIGNMENT = 65_536
"""Bases are multiples of this number, the span of a roaring container, so that merging only renumbers containers."""

_FILES_AHEAD = 8
_MOST_FOOTERS_AT_ONCE = 64

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CoveredFile:
    """A data file that a segment covers, and the ordinal and base of its first row group in the segment's row space.

    `row_group_offsets` are those of `puffin_index.data.row_groups`; `sources` are of each indexed column, by field id.
    """

    file: DataFile
    row_counts: tuple[int, ...]
    row_group_offsets: tuple[int, ...]
    first_row_group: int
    first_base: int
    sources: Mapping[int, str]
    has_pages: bool


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A data file that could not be indexed as a whole, which scans simply read, and the columns without trouble."""

    path: str
    reason: str
    others: tuple[ResolvedColumn, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """A written segment, not yet committed, and the data files that could not be indexed.

    `directories` has the place of each index's directory, and of columns' `statistics`, as the index table has them:
    planners read no footer.
    """

    location: str
    size: int
    footer_size: int
    covered: tuple[CoveredFile, ...]
    directories: tuple[dict[str, Any], ...]
    skipped: tuple[SkippedFile, ...]


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """Everything that a worker needs to write one segment; pickled to executors and processes.

    `folder` is that of the new segment. Each run of the task chooses a new file name, which begins with `job_id`: Spark
    reruns tasks of lost executors and runs slow tasks twice, and the file of another run may still exist. `row_groups`
    are those to cover in some of the files; of other files, all.
    """

    files: tuple[DataFile, ...]
    columns: tuple[ResolvedColumn, ...]
    io: FileIO
    index_io: FileIO
    folder: str
    reading: Reading
    job_id: str = ""
    row_groups: Mapping[FileIdentity, tuple[int, ...]] = field(default_factory=dict)


_Rows = TypeVar("_Rows", int, Ints)


def new_segment_location(folder: str, job_id: str = "") -> str:
    """Return a new file location; its name has 32 hexadecimal digits and begins with the digits of the job."""
    return f"{folder}/{job_id}{uuid.uuid4().hex[len(job_id) :]}.puffin"


def align(row: _Rows) -> _Rows:
    """Round up to the next base of the row space."""
    return -(-row // ROW_SPACE_ALIGNMENT) * ROW_SPACE_ALIGNMENT


def place_files(
    files: Sequence[OpenDataFile | IndexedFile], sources: Sequence[Mapping[int, str]]
) -> tuple[CoveredFile, ...]:
    """Number the row groups and rows of data files with the sources of their indexed columns."""
    covered: list[CoveredFile] = []
    row_group = base = 0
    for opened, own in zip(files, sources, strict=True):
        place = opened.row_counts, opened.row_group_offsets, row_group, base
        covered.append(CoveredFile(opened.file, *place, own, opened.has_pages))
        row_group += len(opened.row_counts)
        base += sum(align(rows) for rows in opened.row_counts)
    return tuple(covered)


class SegmentWriter:
    """Writes a segment: payloads as they come, then directories, then the list of row groups."""

    def __init__(self, stream: NewFile) -> None:
        self._writer = PuffinWriter(stream, created_by="puffin-index")
        self._directories: list[tuple[FieldKind, str, bytes]] = []

    def add_statistics(self, key: FieldKind, data: bytes) -> None:
        """Add serialised statistics of a column."""
        self._directories.append((key, directory.STATISTICS_BLOB, data))

    def add_index(self, key: FieldKind, value_type: ValueType, payloads: Iterable[Payload]) -> None:
        """Add an index. Its payloads lie side by side, so that one request reads neighbours."""
        field_id, kind = key
        rows: list[dict[str, object]] = []
        first = 0
        for one in payloads:
            properties = {"kind": kind, "row-group": str(first), "value-type": value_type.name}
            blob = self._writer.add(one.blob_type, one.data, fields=(field_id,), properties=properties)
            place = {"offset": blob.offset, "length": blob.length, "blob_type": blob.type, "layout": one.layout}
            rows.append({"first_row_group": first, "row_groups": one.row_groups, **place})
            first += one.row_groups
        batch = pa.RecordBatch.from_pylist(rows, directory.DIRECTORY)
        data = directory.serialize_batch(batch, {"kind": kind, "value-type": value_type.name})
        self._directories.append((key, directory.DIRECTORY_BLOB, data))

    def finish(self, location: str, covered: tuple[CoveredFile, ...], skipped: Sequence[SkippedFile] = ()) -> Segment:
        """Write the rest; return the segment of the data files whose indexes were added."""
        places: list[dict[str, Any]] = []
        for (field_id, kind), blob_type, data in self._directories:
            blob = self._writer.add(blob_type, data, fields=(field_id,), properties={"kind": kind})
            place = {"offset": blob.offset, "length": blob.length, "xxh64": blob.properties[BLOB_CHECKSUM]}
            places.append({"field_id": field_id, "kind": kind, **place})
        rows = [row for file in covered for row in _row_groups(file)]
        batch = pa.RecordBatch.from_pylist(rows, directory.ROW_GROUPS)
        self._writer.add(directory.ROW_GROUPS_BLOB, directory.serialize_batch(batch, {}))
        summary = self._writer.finish()
        return Segment(location, summary.file_size, summary.footer_size, covered, tuple(places), tuple(skipped))


def _row_groups(covered: CoveredFile) -> Iterator[dict[str, object]]:
    base = covered.first_base
    for ordinal, (offset, rows) in enumerate(zip(covered.row_group_offsets, covered.row_counts, strict=True)):
        place = {"data_file": covered.file.path, "ordinal": ordinal, "offset": offset}
        yield place | {"row_count": rows, "base": base}
        base += align(rows)


def write_segment(task: SegmentTask, listener: Callable[[int], None] = lambda _: None) -> Segment:
    """Build the indexes of a batch as one segment, without a location if no data file could be read.

    `listener` is told how many columns are written.
    """
    skipped: list[SkippedFile] = []
    with ExitStack() as stack:
        opened = _open_files(task, stack, skipped)
        while opened:
            location = new_segment_location(task.folder, task.job_id)
            try:
                with NewFile(task.index_io, location) as stream:
                    segment = SegmentWriter(stream)
                    for written, column in enumerate(task.columns, 1):
                        _write_column(segment, column, opened)
                        listener(written)
                    sources = [
                        {column.field_id: one.locate(column.field_id).source.to_text() for column in task.columns}
                        for one in opened
                    ]
                    return segment.finish(location, place_files(opened, sources), skipped)
            except _UnreadableFileError as error:
                # One bad data file must not prevent indexes of the others: the segment is rewritten without the file.
                _log.warning("not indexed: %s", error)
                skipped.append(SkippedFile(error.path, str(error), _others(task.columns, [error.column])))
                opened = [other for other in opened if other.file.path != error.path]
    return Segment("", 0, 0, (), (), tuple(skipped))


class _UnreadableFileError(BuildError):
    def __init__(self, path: str, column: ResolvedColumn, reason: str) -> None:
        self.path = path
        self.column = column
        super().__init__(reason)


def _open_files(task: SegmentTask, stack: ExitStack, left_out: list[SkippedFile]) -> list[OpenDataFile]:
    def open_file(file: DataFile) -> tuple[ExitStack, OpenDataFile] | SkippedFile:
        with ExitStack() as context:
            try:
                candidate = context.enter_context(open_data_file(task.io, file, task.reading))
                if file.identity in task.row_groups:
                    candidate = candidate.choose(task.row_groups[file.identity])
                objections = _objections(candidate, task.columns)
                if not objections:
                    return context.pop_all(), candidate
                skipped = SkippedFile(file.path, _sentence(objections), _others(task.columns, objections))
            except (BuildError, UnsupportedError, UnicodeDecodeError) as error:
                skipped = SkippedFile(file.path, str(error))
        _log.warning("not indexed: %s", skipped.reason)
        return skipped

    opened: list[OpenDataFile] = []
    at_once = requests_at_once(task.io, task.files[0].path) if task.files else 1
    for result in in_parallel(open_file, task.files, min(at_once, _MOST_FOOTERS_AT_ONCE)):
        if isinstance(result, SkippedFile):
            left_out.append(result)
        else:
            stack.push(result[0])
            opened.append(result[1])
    return opened


def _objections(opened: OpenDataFile, columns: Sequence[ResolvedColumn]) -> dict[ResolvedColumn, str]:
    """Return why columns of a data file cannot be indexed, as far as its footer tells."""
    objections: dict[ResolvedColumn, str] = {}
    for column in columns:
        try:
            opened.check_type(column.column_id, column.value_type)
        except (BuildError, UnsupportedError) as error:
            objections[column] = str(error)
    return objections


def _sentence(objections: Mapping[ResolvedColumn, str]) -> str:
    """Join objections; those to several keys of one map are the same."""
    return "; ".join(dict.fromkeys(objections.values()))


def _others(columns: Sequence[ResolvedColumn], bad: Collection[ResolvedColumn]) -> tuple[ResolvedColumn, ...]:
    return tuple(column for column in columns if column not in bad)


def objection(io: FileIO, file: DataFile, reading: Reading, columns: Sequence[ResolvedColumn]) -> str | None:
    """Return why a build would leave columns of a data file out, as far as its footer tells; None if it would not."""
    try:
        with open_data_file(io, file, reading) as opened:
            return _sentence(_objections(opened, columns)) or None
    except (BuildError, UnsupportedError) as error:
        return str(error)


def _write_column(segment: SegmentWriter, column: ResolvedColumn, files: Sequence[OpenDataFile]) -> None:
    """Build the indexes of one column; memory holds the keys of one row group and those that a builder gathers."""
    statistics: list[ColumnStatistics] = []
    builders = {name: kind.builder(column.kinds[name]) for name, kind in KINDS.items() if name in column.kinds}
    payloads: dict[str, list[Payload]] = {kind: [] for kind in column.kinds}
    base = 0
    for ordered in _read_row_groups(column, files):
        for kind, builder in builders.items():
            payloads[kind] += builder.add(ordered, base)
        statistics.append(statistics_of(ordered))
        base += align(ordered.row_count)
        # Keys and their sorted forms are freed before the next row group is read.
        del ordered
    segment.add_statistics(
        index_of(column.column_id, directory.STATISTICS), directory.serialize_statistics(statistics, column.value_type)
    )
    for kind in column.kinds:
        payloads[kind] += builders[kind].finish()
        segment.add_index(index_of(column.column_id, kind), column.value_type, payloads[kind])


def _read_row_groups(column: ResolvedColumn, files: Sequence[OpenDataFile]) -> Iterator[SortedColumn]:
    for number, opened in enumerate(files):
        path, ordinal = opened.file.path, 0
        try:
            # A store sends the next row groups and files while this one is indexed.
            for other in files[number + 1 : number + 1 + _FILES_AHEAD]:
                other.fetch(range(len(other.row_counts)), column.field_id)
            for ordinal in range(len(opened.row_counts)):
                opened.fetch(range(ordinal, len(opened.row_counts)), column.field_id)
                yield read_sorted(opened, ordinal, column.column_id, column.value_type, column.block_rows)
        except (UnsupportedError, BuildError) as error:
            reason = f"data file {path}, row group {ordinal}, column {column.name!r}: {error}"
            raise _UnreadableFileError(path, column, reason) from error
        opened.fetch((), column.field_id)
