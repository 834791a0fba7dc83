"""Writing one segment from the contents of others: payloads are copied byte by byte, sorted postings are merged.

How the payloads of an index become those of the new segment depends on their layout (`_WRITERS`): one payload a row
group is copied, one payload of all row groups is decoded and built anew over the new row space.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from puffin_index.directory import (
    DIRECTORY_BLOB,
    ROW_GROUPS_BLOB,
    STATISTICS_BLOB,
    PlacedPayload,
    serialize_batch,
    serialize_directory,
    serialize_row_groups,
)
from puffin_index.entries import FieldKind, statistics_key
from puffin_index.errors import CorruptFileError
from puffin_index.kinds.postings import PlacedColumn, Postings, build_postings
from puffin_index.puffin import PuffinWriter
from puffin_index.ranged import Blob, BytesReader
from puffin_index.segment import (
    Segment,
    WrittenDirectory,
    align,
    place_files,
    row_group_entries,
    write_directories,
)
from puffin_index.source_segment import EACH, MERGED, IndexedFile, SourceSegment, in_memory
from puffin_index.storage import create_file
from puffin_index.values import Column, value_type_named


class MergeJob:
    """The files of one new segment, and what they are copied from.

    Args:
        files: Data files of one shape: the same indexes of the same value types and layouts.
        sources: The segments that they are in, by location.
        io: The FileIO of the index table.
    """

    def __init__(self, files: Sequence[IndexedFile], sources: Mapping[str, SourceSegment], io: FileIO) -> None:
        self.files = files
        self.covered = place_files(files)
        self.io = io
        self._sources = sources
        self._readers: dict[str, BytesReader] = {}

    def source(self, file: IndexedFile, key: FieldKind) -> SourceSegment:
        """The segment that has an index of a file."""
        return self._sources[file.parts[key].segment]

    def reader(self, source: SourceSegment) -> BytesReader:
        """The bytes of a segment, read once."""
        if source.location not in self._readers:
            self._readers[source.location] = in_memory(self.io, source)
        return self._readers[source.location]


def write_merged(job: MergeJob, location: str) -> Segment:
    """Write a segment.

    Args:
        job: What to write.
        location: Where.

    Raises:
        CorruptFileError: If a source is not what was written. What was written by then is left behind.
    """
    keys = sorted(job.files[0].parts)
    with create_file(job.io, location) as stream:
        writer = PuffinWriter(stream, created_by="puffin-index")
        directories: list[WrittenDirectory] = []
        for statistics in dict.fromkeys(map(statistics_key, keys)):
            kinds = [key for key in keys if statistics_key(key) == statistics]
            directories.append(_statistics(job, kinds[0]))
            directories += [_write_payloads(writer, job, key) for key in kinds]
        locations = write_directories(writer, directories)
        writer.add(ROW_GROUPS_BLOB, serialize_row_groups(row_group_entries(job.covered)))
        summary = writer.finish()
    return Segment(location, summary.file_size, summary.footer_size, job.covered, locations, ())


def _statistics(job: MergeJob, key: FieldKind) -> WrittenDirectory:
    """The statistics of a column, whichever of its kinds they came with."""
    statistics = statistics_key(key)
    rows = _rows_of(job, key, statistics)
    value_type = job.source(job.files[0], key).value_type(key)
    return WrittenDirectory(*statistics, STATISTICS_BLOB, serialize_batch(rows, {"value-type": value_type}))


def _rows_of(job: MergeJob, key: FieldKind, directory: FieldKind) -> pa.RecordBatch:
    """The rows of a directory with a row for each row group, of all files."""
    slices: list[pa.RecordBatch] = []
    for file in job.files:
        source, first = job.source(file, key), file.parts[key].first_row_group
        batch = source.directories[directory]
        if first < 0 or first + len(file.row_counts) > len(batch):
            raise CorruptFileError("a directory with too few entries", location=source.location)
        slices.append(batch.slice(first, len(file.row_counts)).replace_schema_metadata(None))
    return pa.Table.from_batches(slices).combine_chunks().to_batches()[0]


def _write_payloads(writer: PuffinWriter, job: MergeJob, key: FieldKind) -> WrittenDirectory:
    source = job.source(job.files[0], key)
    layout = source.layout(key)
    assert layout is not None, "files of unknown layouts are not merged"
    data = _WRITERS[layout](writer, job, key)
    return WrittenDirectory(*key, DIRECTORY_BLOB, data)


def _copy(writer: PuffinWriter, job: MergeJob, key: FieldKind) -> bytes:
    """Copy the payloads of each row group as they are; return the directory."""
    offsets: list[int] = []
    for file in job.files:
        source, first = job.source(file, key), file.parts[key].first_row_group
        for ordinal in range(len(file.row_counts)):
            blob, data = source.read_payload(job.reader(source), key, first + ordinal)
            properties = {"kind": key[1], "row-group": str(len(offsets)), "value-type": source.value_type(key)}
            offsets.append(writer.add(blob.type, data, fields=blob.fields, properties=properties).offset)
    rows = _rows_of(job, key, key)
    changed: dict[str, pa.Array] = {name: rows.column(name) for name in rows.schema.names}
    changed["first_row_group"] = pa.array(np.arange(len(offsets)), pa.int32())
    changed["offset"] = pa.array(offsets, pa.int64())
    value_type = job.source(job.files[0], key).value_type(key)
    return serialize_batch(pa.record_batch(changed), {"kind": key[1], "value-type": value_type})


def _merge_postings(writer: PuffinWriter, job: MergeJob, key: FieldKind) -> bytes:
    """Build the postings of all files anew from those of the sources; return the directory."""
    value_type = value_type_named(job.source(job.files[0], key).value_type(key))
    opened: dict[str, list[Column]] = {}
    placed: list[PlacedColumn] = []
    for file, place in zip(job.files, job.covered, strict=True):
        source, first = job.source(file, key), file.parts[key].first_row_group
        if source.location not in opened:
            _, data = source.read_payload(job.reader(source), key, 0)
            layout = np.asarray(source.directories[key].column("layout")[0].values.to_numpy(), np.int64)
            blob = Blob(BytesReader.of(data, source.location), 0, len(data))
            opened[source.location] = Postings.open(blob, layout, value_type, source.spans).columns()
        base = place.first_base
        for column in opened[source.location][first : first + len(file.row_counts)]:
            placed.append(PlacedColumn(base, column))
            base += align(column.row_count)
    payload = build_postings(placed)
    properties = {"kind": key[1], "row-group": "0", "value-type": value_type.name}
    offset = writer.add(payload.blob_type, payload.data, fields=(key[0],), properties=properties).offset
    return serialize_directory([PlacedPayload(0, len(placed), offset, payload)], key[1], value_type)


_Writer = Callable[[PuffinWriter, MergeJob, FieldKind], bytes]
_WRITERS: dict[str, _Writer] = {EACH: _copy, MERGED: _merge_postings}
