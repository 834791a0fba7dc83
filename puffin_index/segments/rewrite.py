"""Write one segment from the contents of others: each kind merges its payloads (`puffin_index.kinds.kind`).

Statistics are copied row by row. All reads are checked against the checksums in the footers of the old segments.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from puffin_index.errors import CorruptFileError
from puffin_index.keys.map_key import FieldKind
from puffin_index.kinds.base import DROPPED, MergePart
from puffin_index.kinds.kind import Options
from puffin_index.segments.directory import index_kind, serialize_batch, statistics_key
from puffin_index.segments.segment import CoveredFile, Segment, SegmentWriter, align, place_files
from puffin_index.segments.source_segment import IndexedFile, SourceSegment, in_memory
from puffin_index.storage.files import NewFile
from puffin_index.storage.parallel import in_parallel, requests_at_once
from puffin_index.storage.ranged import Blob, BytesReader


def write_merged(
    files: Sequence[IndexedFile],
    sources: Mapping[str, SourceSegment],
    options: Mapping[FieldKind, Options],
    io: FileIO,
    location: str,
) -> Segment:
    """Write one segment of data files that have the same indexes, of the same value types and forms.

    `sources` are the segments to copy from, by location. Raises CorruptFileError if one is damaged.
    """
    covered = place_files(files, [file.sources for file in files])
    names = sorted({part.segment for file in files for part in file.parts.values()})
    read = in_parallel(lambda name: in_memory(io, sources[name]), names, requests_at_once(io, location))
    readers = dict(zip(names, read, strict=True))
    keys = sorted(files[0].parts)
    with NewFile(io, location) as stream:
        segment = SegmentWriter(stream)
        for statistics in dict.fromkeys(map(statistics_key, keys)):
            kinds = [key for key in keys if statistics_key(key) == statistics]
            directories = {key: sources[files[0].parts[key].segment].directories[key] for key in kinds}
            # A column's statistics are the same with whichever of its kinds they were written.
            rows = _rows_of(kinds[0], statistics, files, sources)
            segment.add_statistics(statistics, serialize_batch(rows, {"value-type": directories[kinds[0]].type_name}))
            for key in kinds:
                merged = index_kind(key[1]).merge(_parts(key, files, covered, sources, readers), options[key])
                segment.add_index(key, directories[key].value_type, merged)
        return segment.finish(location, covered)


def _rows_of(
    key: FieldKind, statistics: FieldKind, files: Sequence[IndexedFile], sources: Mapping[str, SourceSegment]
) -> pa.RecordBatch:
    slices: list[pa.RecordBatch] = []
    for file in files:
        source, first = sources[file.parts[key].segment], file.parts[key].first_row_group
        batch = source.statistics[statistics]
        if first < 0 or first + len(file.row_counts) > len(batch):
            raise CorruptFileError("a directory with too few entries", location=source.location)
        slices.append(batch.slice(first, len(file.row_counts)).replace_schema_metadata(None))
    return pa.Table.from_batches(slices).combine_chunks().to_batches()[0]


def _parts(
    key: FieldKind,
    files: Sequence[IndexedFile],
    covered: Sequence[CoveredFile],
    sources: Mapping[str, SourceSegment],
    readers: Mapping[str, BytesReader],
) -> list[MergePart]:
    """Return the payloads of one index in the order of the new segment, each with the row groups it contributes.

    A payload appears several times if the new segment has its row groups in another order.
    """
    parts: list[MergePart] = []
    last: tuple[str, int, int] | None = None
    for file, place in zip(files, covered, strict=True):
        source, first = sources[file.parts[key].segment], file.parts[key].first_row_group
        rows = source.payload_rows[key][first : first + len(file.row_counts)]
        spaces = align(np.array(file.row_counts, np.int64))
        new_bases = place.first_base + np.cumsum(spaces) - spaces
        for row in np.unique(rows).tolist():
            taken = first + np.flatnonzero(rows == row)
            if last is None or last[:2] != (source.location, row) or last[2] > int(taken[0]):
                reader = readers[source.location]
                data = source.read_payload(reader, key, row)
                blob = Blob(BytesReader.of(data, source.location), 0, len(data))
                payload = source.payload(key, row, reader)
                parts.append(MergePart(replace(payload, blob=blob), np.full(len(payload.spans), DROPPED, np.int64)))
            inside = taken - source.directories[key].covered(row).start
            parts[-1].new_bases[inside] = new_bases[rows == row]
            last = source.location, row, int(taken[-1])
    return parts
