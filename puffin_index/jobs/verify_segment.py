"""Check a segment by itself: every checksum, every place in a directory, and all numbers that must agree.

Check indexes against the data: a row group's values are read again, and no value may be missed.

Statistics must be equal; the kind of an index decides how to prove a payload (`puffin_index.kinds.kind`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from puffin_index.data.row_groups import OpenDataFile, read_keys
from puffin_index.errors import CorruptFileError, NotFoundError, PuffinIndexError, UnsupportedError, reason_at
from puffin_index.formats.puffin import BLOB_CHECKSUM, PuffinFile, check_head, read_blob, read_footer
from puffin_index.index_table.entries import EntryRow, directories_of
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import SetTest
from puffin_index.keys.map_key import split_kind
from puffin_index.kinds.kind import Proof
from puffin_index.kinds.statistics import statistics_of
from puffin_index.segments.directory import FieldKind, index_kind, int64_column, statistics_key
from puffin_index.segments.segment import ROW_SPACE_ALIGNMENT, align
from puffin_index.segments.source_segment import IndexedFile, SourceSegment, read_source
from puffin_index.storage.files import FileReader
from puffin_index.storage.ranged import RangedReader, run


@dataclass(frozen=True, slots=True)
class Finding:
    """One error in an index, at a byte of a file; the blob is its type, or field and kind, or empty."""

    file: str
    blob: str
    offset: int
    what: str

    def __str__(self) -> str:
        place = f", byte {self.offset}" if self.blob or self.offset else ""
        return ": ".join(filter(None, (f"{self.file}{place}", self.blob, self.what)))


def check_segment(
    io: FileIO, location: str, rows: Sequence[EntryRow]
) -> tuple[list[Finding], SourceSegment | None, int]:
    """Check a segment against its entries; return errors, the segment if readable, and the number of blobs read."""
    size, footer_size = rows[0]["segment_size_in_bytes"], rows[0]["segment_footer_size_in_bytes"]
    findings: list[Finding] = []
    try:
        with FileReader(io, location) as reader:
            if reader.size != size:
                return [Finding(location, "", 0, f"a file of {reader.size} bytes, not {size}")], None, 0
            check_head(reader)
            footer = read_footer(reader, footer_size, require_checksum=True)
            findings += _check_blobs(reader, footer)
            source = read_source(io, location, size, footer_size, directories_of(rows).values())
            findings += [Finding(location, "row groups", 0, what) for what in _check_rows(source, rows)]
            checks = {key: _check_statistics(batch, source) for key, batch in source.statistics.items()}
            checks |= {key: _check_places(source, reader, key) for key in source.directories}
            for key, wrong in checks.items():
                name = f"field {key[0]} {key[1]}"
                findings += [Finding(location, name, offset, what) for offset, what in wrong]
    except (PuffinIndexError, OSError) as error:
        return [*findings, _finding(location, error)], None, 0
    return findings, source, len(footer.blobs)


def _finding(location: str, error: Exception) -> Finding:
    if isinstance(error, CorruptFileError):
        return Finding(location, "", error.offset, error.reason)
    return Finding(location, "", 0, reason_at(location, error))


def _check_blobs(reader: RangedReader, footer: PuffinFile) -> Iterator[Finding]:
    for blob in footer.blobs:
        if BLOB_CHECKSUM not in blob.properties:
            yield Finding(reader.location, blob.type, blob.offset, "a blob without a checksum")
            continue
        try:
            read_blob(reader, blob)
        except (CorruptFileError, UnsupportedError) as error:
            yield Finding(reader.location, blob.type, blob.offset, _finding(reader.location, error).what)


def _check_rows(source: SourceSegment, rows: Sequence[EntryRow]) -> Iterator[str]:
    """Compare the segment's own list of row groups with its entries."""
    bases, counts = source.spans[:, 0], source.spans[:, 1]
    if not np.array_equal(bases[1:], np.cumsum(align(counts))[:-1]) or bool((bases % ROW_SPACE_ALIGNMENT).any()):
        yield "bases that do not follow from the row counts"
    for row in rows:
        first, counts_wanted = row["first_row_group"], row["row_counts"]
        own = source.row_groups.slice(first, len(counts_wanted))
        if first < 0 or len(own) != len(counts_wanted) or not len(own):
            yield f"row groups of {row['data_file']} that the segment does not have"
        elif (
            set(own.column("data_file").to_pylist()) != {row["data_file"]}
            or own.column("row_count").to_pylist() != counts_wanted
            or own.column("offset").to_pylist() != row["split_offsets"]
            or own.column("ordinal").to_pylist() != list(range(len(own)))
            or own.column("base")[0].as_py() != row["first_base"]
        ):
            yield f"row groups of {row['data_file']} that are not those of its entry"


def _check_statistics(batch: pa.RecordBatch, source: SourceSegment) -> Iterator[tuple[int, str]]:
    if len(batch) != len(source.spans):
        yield 0, f"statistics of {len(batch)} row groups, not {len(source.spans)}"
        return
    rows, nulls, distinct, nans = (
        int64_column(batch, name) for name in ("row_count", "null_count", "distinct_count", "nan_count")
    )
    fits = (rows == source.spans[:, 1]) & (nulls >= 0) & (nulls <= rows) & (nans >= 0) & (nans <= rows - nulls)
    fits &= (distinct >= 0) & (distinct <= rows - nulls) & ((distinct > 0) == (nulls < rows))
    bounds = (batch.column(name).to_pylist() for name in ("minimum", "maximum", "quantiles"))
    for row_group, (fit, low, high, quantiles) in enumerate(zip(fits.tolist(), *bounds, strict=True)):
        if not fit:
            yield 0, f"row group {row_group}: counts that do not fit each other"
        # A row group of NULLs alone has neither quantiles nor bounds.
        ends = [quantiles[0], quantiles[-1]] if quantiles else [None, None]
        if (
            ends != [low, high]
            or quantiles != sorted(quantiles)
            or (low is None) != (nulls[row_group] == rows[row_group])
        ):
            yield 0, f"row group {row_group}: minimum, quantiles and maximum do not ascend"


def _check_places(source: SourceSegment, reader: RangedReader, key: FieldKind) -> Iterator[tuple[int, str]]:
    directory = source.directories[key]
    offsets, lengths = (directory.numbers(name).tolist() for name in ("offset", "length"))
    blob_types = directory.blob_types.to_pylist()
    for row, (offset, length, blob_type) in enumerate(zip(offsets, lengths, blob_types, strict=True)):
        blob = source.blobs.get((offset, *key))
        if blob is None or (blob.length, blob.type, blob.fields) != (length, blob_type, (key[0],)):
            yield offset, "a payload that the footer does not have"
            continue
        try:
            # Only the layout has the checksum of a payload's directory, so the directory is read as a planner reads it.
            run(source.open(key, row, reader).prepare(AskedTest(SetTest(()))))
        except (CorruptFileError, UnsupportedError, NotFoundError) as error:
            yield offset, _finding(source.location, error).what


_MOST_DECODED = 4
_COMPARED_STATISTICS = ("row_count", "null_count", "nan_count", "distinct_count", "minimum", "maximum")

ProofOf: TypeAlias = Callable[[FieldKind, int], Proof]
"""The proof of a payload of one segment, by its row in a directory."""


def proofs_of(source: SourceSegment, reader: RangedReader) -> ProofOf:
    """Return the proofs of a segment's payloads; the last ones are kept, decoded, for the next row groups."""

    @lru_cache(_MOST_DECODED)
    def proof(key: FieldKind, row: int) -> Proof:
        row_counts = source.spans[source.directories[key].covered(row), 1]
        return index_kind(key[1]).proof(source.open(key, row, reader), row_counts)

    return proof


def check_row_group(
    opened: OpenDataFile,
    file: IndexedFile,
    ordinal: int,
    key: FieldKind,
    source: SourceSegment,
    proof: ProofOf,
) -> Iterator[Finding]:
    """Compare the index of a row group, at a place of its data file, with the data."""
    name = f"field {key[0]} {key[1]}, row group {ordinal} of {file.file.path}"
    try:
        directory = source.directories[key]
        column = SortedColumn(read_keys(opened, ordinal, split_kind(*key)[0], directory.value_type))
        row_group = file.parts[key].first_row_group + ordinal
        row = int(source.payload_rows[key][row_group])
        stored = source.statistics[statistics_key(key)].slice(row_group, 1).to_pylist()[0]
        statistics = statistics_of(column)
        found = {name: getattr(statistics, name) for name in _COMPARED_STATISTICS}
        differing = [name for name in found if stored[name] != found[name]]
        wrong = [f"{name} is {stored[name]!r}, the data has {found[name]!r}" for name in differing]
        wrong += proof(key, row)(row_group - directory.covered(row).start, column)
    except (CorruptFileError, UnsupportedError) as error:
        wrong = [error.reason if isinstance(error, CorruptFileError) else str(error)]
    for what in wrong:
        yield Finding(source.location, name, 0, what)
