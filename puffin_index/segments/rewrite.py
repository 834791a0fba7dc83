"""Write one segment from the contents of others: each kind merges its payloads (`puffin_index.kinds.kind`).

Statistics are copied row by row. All reads are checked against the checksums in the footers of the old segments.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from puffin_index.errors import CorruptFileError
from puffin_index.kinds.base import DROPPED, MergePart
from puffin_index.kinds.kind import Options
from puffin_index.segments.directory import FieldKind, index_kind, serialize_batch, statistics_key
from puffin_index.segments.segment import Segment, SegmentWriter, align, place_files
from puffin_index.segments.source_segment import IndexedFile, SourceSegment, in_memory
from puffin_index.storage.files import NewFile
from puffin_index.storage.parallel import in_parallel, requests_at_once
from puffin_index.storage.ranged import Blob, BytesReader


class MergeJob:
    """The data files of one new segment, of one shape, and the segments to copy from, by location.

    Files of one shape have the same indexes, of the same value types and forms.
    """

    def __init__(
        self,
        files: Sequence[IndexedFile],
        sources: Mapping[str, SourceSegment],
        options: Mapping[FieldKind, Options],
        io: FileIO,
    ) -> None:
        self.files = files
        self.options = options
        self.covered = place_files(files, [file.sources for file in files])
        self.io = io
        self._sources = sources
        self._readers: dict[str, BytesReader] = {}

    def source(self, file: IndexedFile, key: FieldKind) -> SourceSegment:
        """Return the segment that has an index of a file."""
        return self._sources[file.parts[key].segment]

    def reader(self, source: SourceSegment) -> BytesReader:
        """Return a reader of a segment; all segments are read at the first time, in a store side by side."""
        if not self._readers:
            names = sorted({part.segment for file in self.files for part in file.parts.values()})
            at_once = requests_at_once(self.io, source.location)
            readers = in_parallel(lambda name: in_memory(self.io, self._sources[name]), names, at_once)
            self._readers = dict(zip(names, readers, strict=True))
        return self._readers[source.location]


def write_merged(job: MergeJob, location: str) -> Segment:
    """Write a merged segment, or raise CorruptFileError if an old segment is damaged."""
    keys = sorted(job.files[0].parts)
    with NewFile(job.io, location) as stream:
        segment = SegmentWriter(stream)
        for statistics in dict.fromkeys(map(statistics_key, keys)):
            kinds = [key for key in keys if statistics_key(key) == statistics]
            # A column's statistics are the same with whichever of its kinds they were written.
            of_first = job.source(job.files[0], kinds[0]).directories[kinds[0]].type_name
            rows = _rows_of(job, kinds[0], statistics)
            segment.add_statistics(statistics, serialize_batch(rows, {"value-type": of_first}))
            for key in kinds:
                value_type = job.source(job.files[0], key).directories[key].value_type
                segment.add_index(key, value_type, index_kind(key[1]).merge(_parts(job, key), job.options[key]))
        return segment.finish(location, job.covered)


def _rows_of(job: MergeJob, key: FieldKind, directory: FieldKind) -> pa.RecordBatch:
    """Return the rows of all files from directories that have one row per row group."""
    slices: list[pa.RecordBatch] = []
    for file in job.files:
        source, first = job.source(file, key), file.parts[key].first_row_group
        batch = source.statistics[directory]
        if first < 0 or first + len(file.row_counts) > len(batch):
            raise CorruptFileError("a directory with too few entries", location=source.location)
        slices.append(batch.slice(first, len(file.row_counts)).replace_schema_metadata(None))
    return pa.Table.from_batches(slices).combine_chunks().to_batches()[0]


def _parts(job: MergeJob, key: FieldKind) -> list[MergePart]:
    """Return the payloads of one index in the order of the new segment, each with the row groups it contributes.

    A payload appears several times if the new segment has its row groups in another order.
    """
    parts: list[MergePart] = []
    last: tuple[str, int, int] | None = None
    for file, place in zip(job.files, job.covered, strict=True):
        source, first = job.source(file, key), file.parts[key].first_row_group
        rows = source.payload_rows[key][first : first + len(file.row_counts)]
        spaces = align(np.array(file.row_counts, np.int64))
        new_bases = place.first_base + np.cumsum(spaces) - spaces
        for row in np.unique(rows).tolist():
            taken = first + np.flatnonzero(rows == row)
            if last is None or last[:2] != (source.location, row) or last[2] > int(taken[0]):
                parts.append(_part(job, source, key, row))
            inside = taken - source.directories[key].covered(row).start
            parts[-1].new_bases[inside] = new_bases[rows == row]
            last = source.location, row, int(taken[-1])
    return parts


def _part(job: MergeJob, source: SourceSegment, key: FieldKind, row: int) -> MergePart:
    """Return a payload that contributes no row group yet."""
    _, data = source.read_payload(job.reader(source), key, row)
    blob = Blob(BytesReader.of(data, source.location), 0, len(data))
    payload = replace(source.payload(key, row, job.reader(source)), blob=blob)
    return MergePart(payload, np.full(len(payload.spans), DROPPED, np.int64))
