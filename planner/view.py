"""The index view: the row groups that one version of an index table knows, numbered and laid out as arrays.

Row groups are numbered 0 … N-1, data file by data file. Every array here has one element per row group, so that a
stage of the planner is a few array operations however many row groups there are. Directories are read on first use,
per column and kind, and kept: segments are immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from planner.directories import (
    DIRECTORY_COLUMNS,
    STATISTICS_COLUMNS,
    FieldStatistics,
    IndexReads,
    IndexTrouble,
    Int64Array,
    KindDirectory,
    Placement,
    gather_directory,
    gather_statistics,
    int64_chunks,
    rows_of_row_groups,
)
from puffin_index.data_table import DataFile
from puffin_index.directory import STATISTICS, int64_column, read_directory
from puffin_index.errors import CorruptFileError, NotFoundError, UnsupportedError
from puffin_index.kinds import KINDS
from puffin_index.kinds.base import BlobIndex
from puffin_index.kinds.postings import Postings
from puffin_index.ranged import Blob, RangedReader
from puffin_index.segment import align
from puffin_index.storage import CountingReader, FileReader

_READ_THREADS = 8


class IndexView:
    """One version of an index table, read for planning.

    Args:
        version: Names the version (the index table's snapshot id).
        entries: The rows of the index table, oldest first.
        io: The FileIO of the index table.
    """

    def __init__(self, version: str, entries: pa.Table, io: FileIO) -> None:
        self.version = version
        self.io = io
        self._entries = entries
        self._readers: dict[int, FileReader] = {}
        self._statistics: dict[int, FieldStatistics | None] = {}
        self._directories: dict[tuple[int, str], KindDirectory | None] = {}
        self._postings: dict[tuple[int, int], Postings] = {}
        self._number_row_groups()

    def _number_row_groups(self) -> None:
        """Number row groups by data file. A file that was indexed in parts has several entries but one number range."""
        paths = self._entries["data_file"].to_pylist()
        first_entry: dict[str, int] = {}
        for entry, path in enumerate(paths):
            first_entry.setdefault(path, entry)
        self.paths: tuple[str, ...] = tuple(first_entry)
        entry_of_file = np.fromiter(first_entry.values(), np.int64, len(first_entry))
        file_number = {path: number for number, path in enumerate(first_entry)}
        self._file_of_entry = np.fromiter((file_number[path] for path in paths), np.int64, len(paths))
        own = self._entries.take(pa.array(entry_of_file))
        self.file_sizes: Int64Array = int64_chunks(own, "file_size_in_bytes")
        self.record_counts: Int64Array = int64_chunks(own, "record_count")
        counts = np.asarray(pc.list_value_length(own["row_counts"]).to_numpy(), np.int64)
        self.row_group_counts: Int64Array = counts
        self.first_row_groups: Int64Array = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64)[
            : len(counts)
        ]
        self.row_counts: Int64Array = np.asarray(pc.list_flatten(own["row_counts"]).to_numpy(), np.int64)
        self.file_of: Int64Array = np.repeat(np.arange(len(counts)), counts)

    @cached_property
    def file_numbers(self) -> dict[str, int]:
        """The number of each data file, by location."""
        return {path: number for number, path in enumerate(self.paths)}

    @cached_property
    def segments(self) -> tuple[tuple[str, int], ...]:
        """Location and size of every segment."""
        rows = zip(
            self._entries["segment"].to_pylist(), self._entries["segment_size_in_bytes"].to_pylist(), strict=True
        )
        return tuple(dict.fromkeys(rows))

    @property
    def row_group_count(self) -> int:
        """N."""
        return len(self.row_counts)

    def row_groups_of(self, file: DataFile) -> range | None:
        """The row groups of a data file; None if it is not indexed or is not the file that was indexed."""
        number = self.file_numbers.get(file.path)
        if number is None:
            return None
        if (file.file_size, file.record_count) != (self.file_sizes[number], self.record_counts[number]):
            return None
        first, count = int(self.first_row_groups[number]), int(self.row_group_counts[number])
        if file.split_offsets and len(file.split_offsets) != count:
            return None
        return range(first, first + count)

    def row_group_bytes(self) -> Int64Array:
        """About how many bytes each row group has in its data file."""
        share = self.row_counts / np.maximum(self.record_counts[self.file_of], 1)
        return np.asarray(share * self.file_sizes[self.file_of], np.int64)

    @cached_property
    def _placements(self) -> dict[tuple[int, str], Placement]:
        """For each (field, kind), the segment and directory entry of every row group."""
        directories = pc.list_flatten(self._entries["directories"]).combine_chunks()
        entry = np.repeat(
            np.arange(len(self._entries)),
            np.asarray(pc.list_value_length(self._entries["directories"]).to_numpy(), np.int64),
        )
        fields, kinds, offsets, lengths, checksums = (
            pc.struct_field(directories, name).to_pylist() for name in ("field_id", "kind", "offset", "length", "xxh64")
        )
        rows_of: dict[tuple[int, str], list[int]] = {}
        for row, key in enumerate(zip(fields, kinds, strict=True)):
            rows_of.setdefault(key, []).append(row)
        numbers = {location: number for number, (location, _) in enumerate(self.segments)}
        segment_of_entry = np.array([numbers[s] for s in self._entries["segment"].to_pylist()], np.int32)
        first_in_segment = int64_chunks(self._entries, "first_row_group")
        first_base = int64_chunks(self._entries, "first_base")
        # Rows of a segment's row space that the row groups before it in the same data file take up.
        space = np.concatenate(([0], np.cumsum(align(self.row_counts)))).astype(np.int64)
        rows_before = space[:-1] - space[self.first_row_groups][self.file_of]
        placements: dict[tuple[int, str], Placement] = {}
        for key, rows in rows_of.items():
            # Files have one entry a build; where two builders raced, either is right: the last one wins.
            entry_of_file = np.full(len(self.paths), -1, np.int64)
            entry_of_file[self._file_of_entry[entry[rows]]] = entry[rows]
            of_row_group = entry_of_file[self.file_of]
            ordinal = np.arange(self.row_group_count) - self.first_row_groups[self.file_of]
            placements[key] = Placement(
                segment=np.where(of_row_group >= 0, segment_of_entry[of_row_group], -1).astype(np.int32),
                row_group=(first_in_segment[of_row_group] + ordinal).astype(np.int32),
                base=first_base[of_row_group] + rows_before,
                locations={
                    int(segment_of_entry[entry[row]]): (offsets[row], lengths[row], checksums[row]) for row in rows
                },
            )
        return placements

    def statistics(self, field_id: int, reads: IndexReads) -> FieldStatistics | None:
        """The statistics of a column; None if no row group has any."""
        if field_id in self._statistics:
            return self._statistics[field_id]
        troubles = len(reads.troubles)
        statistics = self._read_statistics(field_id, reads)
        # What could not be read today may be readable in a minute.
        if len(reads.troubles) == troubles:
            self._statistics[field_id] = statistics
        return statistics

    def directory(self, field_id: int, kind: str, reads: IndexReads) -> KindDirectory | None:
        """Where the payloads of a column and kind lie; None if there are none."""
        key = (field_id, kind)
        if key in self._directories:
            return self._directories[key]
        troubles = len(reads.troubles)
        directory = self._read_directory(field_id, kind, reads)
        if len(reads.troubles) == troubles:
            self._directories[key] = directory
        return directory

    def open_blob(self, directory: KindDirectory, row_group: int, reads: IndexReads) -> BlobIndex:
        """Open the payload of one row group; nothing is read yet."""
        reader = CountingReader(self._reader(int(directory.segment[row_group])), reads.count)
        return KINDS[directory.kind].open(
            Blob(reader, int(directory.offset[row_group]), int(directory.length[row_group])),
            directory.blob_type[row_group].as_py(),
            np.asarray(directory.layout[row_group].values.to_numpy(), np.int64),
            directory.value_type,
            int(self.row_counts[row_group]),
        )

    def open_postings(self, field_id: int, directory: KindDirectory, segment: int) -> Postings:
        """Open the sorted postings of a column in one segment; what it reads of its directory stays with the view."""
        key = (field_id, segment)
        if key not in self._postings:
            row_group = int(np.flatnonzero(directory.segment == segment)[0])
            self._postings[key] = Postings.open(
                Blob(
                    CountingReader(self._reader(segment)),
                    int(directory.offset[row_group]),
                    int(directory.length[row_group]),
                ),
                np.asarray(directory.layout[row_group].values.to_numpy(), np.int64),
                directory.value_type,
                self._spans(field_id, segment),
            )
        return self._postings[key]

    def _spans(self, field_id: int, segment: int) -> Int64Array:
        """Base and row count of every row group of a segment, also of those whose data files the table has lost."""
        offset, length, checksum = self._placements[(field_id, STATISTICS)].locations[segment]
        batch = read_directory(CountingReader(self._reader(segment)), offset, length, checksum, ["row_count"])
        rows = int64_column(batch, "row_count")
        ends = np.cumsum(align(rows))
        return np.column_stack((ends - align(rows), rows))

    def _reader(self, segment: int) -> FileReader:
        if segment not in self._readers:
            location, size = self.segments[segment]
            self._readers[segment] = FileReader(self.io, location, size)
        return self._readers[segment]

    def _read_batches(
        self, placement: Placement, columns: Sequence[str], reads: IndexReads
    ) -> dict[int, pa.RecordBatch]:
        """Read the directories of a (field, kind) from all segments; segments in trouble are left out."""

        def read(segment: int) -> pa.RecordBatch | IndexTrouble:
            location = self.segments[segment][0]
            offset, length, checksum = placement.locations[segment]
            try:
                reader: RangedReader = CountingReader(self._reader(segment), reads.count)
                batch = read_directory(reader, offset, length, checksum, columns)
                covered = len(rows_of_row_groups(batch))
                if int(placement.row_group[placement.segment == segment].max(initial=0)) >= covered:
                    raise CorruptFileError("directory with too few entries", location=location, offset=offset)
                return batch
            except (CorruptFileError, UnsupportedError, NotFoundError, OSError) as error:
                return IndexTrouble(location, str(error))

        used = [int(s) for s in np.unique(placement.segment) if s >= 0]
        batches: dict[int, pa.RecordBatch] = {}
        for segment, result in zip(used, _in_parallel(read, used), strict=True):
            if isinstance(result, IndexTrouble):
                reads.troubles.append(result)
            else:
                batches[segment] = result
        return batches

    def _read_statistics(self, field_id: int, reads: IndexReads) -> FieldStatistics | None:
        placement = self._placements.get((field_id, STATISTICS))
        if placement is None:
            return None
        return gather_statistics(placement, self._read_batches(placement, STATISTICS_COLUMNS, reads))

    def _read_directory(self, field_id: int, kind: str, reads: IndexReads) -> KindDirectory | None:
        placement = self._placements.get((field_id, kind))
        if placement is None:
            return None
        return gather_directory(kind, placement, self._read_batches(placement, DIRECTORY_COLUMNS, reads))


def _in_parallel(
    read: Callable[[int], pa.RecordBatch | IndexTrouble], segments: Sequence[int]
) -> Iterable[pa.RecordBatch | IndexTrouble]:
    if len(segments) < 2:
        return [read(segment) for segment in segments]
    with ThreadPoolExecutor(min(_READ_THREADS, len(segments))) as threads:
        return list(threads.map(read, segments))
