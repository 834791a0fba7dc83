"""Verification: check the index table against the data table, each segment by itself, and indexes against the data."""

import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from puffin_index.data.column_source import reading_of
from puffin_index.data.data_table import DataFile, FileIdentity, list_data_files, refresh_table, retained_files
from puffin_index.data.row_groups import OpenDataFile, open_data_file, read_sorted
from puffin_index.display import Cell, Described, Report, share_of
from puffin_index.errors import CorruptFileError, NotFoundError, PuffinIndexError, UnsupportedError, reason_at
from puffin_index.formats.puffin import BLOB_CHECKSUM, PuffinFile, check_head, read_blob, read_footer
from puffin_index.index_table import entries as index_rows
from puffin_index.index_table.table import read_entries
from puffin_index.jobs.log_lines import log_line
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.contents import LEAST_BLOCK_ROWS
from puffin_index.keys.leaf import SetTest
from puffin_index.keys.map_key import Contents, FieldKind, split_kind
from puffin_index.kinds.kind import Proof
from puffin_index.kinds.statistics import statistics_of
from puffin_index.segments.directory import index_kind, int64_column, statistics_key
from puffin_index.segments.segment import ROW_SPACE_ALIGNMENT, align
from puffin_index.segments.source_segment import IndexedFile, SourceSegment
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


def _check_segment(
    io: FileIO, location: str, rows: Sequence[index_rows.EntryRow]
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
            source = index_rows.source_of(io, rows)
            findings += [Finding(location, "row groups", 0, what) for what in _check_rows(source, rows)]
            checks = {key: _check_statistics(batch, source, key) for key, batch in source.statistics.items()}
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


def _check_rows(source: SourceSegment, rows: Sequence[index_rows.EntryRow]) -> Iterator[str]:
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


def _check_statistics(batch: pa.RecordBatch, source: SourceSegment, key: FieldKind) -> Iterator[tuple[int, str]]:
    if len(batch) != len(source.spans):
        yield 0, f"statistics of {len(batch)} row groups, not {len(source.spans)}"
        return
    rows, nulls, distinct, nans = (
        int64_column(batch, name) for name in ("row_count", "null_count", "distinct_count", "nan_count")
    )
    fits = (rows == source.spans[:, 1]) & (nulls >= 0) & (nulls <= rows) & (nans >= 0) & (distinct >= 0)
    if isinstance(split_kind(*key)[0], Contents):
        is_empty = distinct == 0
    else:
        is_empty = nulls == rows
        fits &= (nans <= rows - nulls) & (distinct <= rows - nulls) & ((distinct > 0) == (nulls < rows))
    bounds = (batch.column(name).to_pylist() for name in ("minimum", "maximum", "quantiles"))
    for row_group, (fit, low, high, quantiles) in enumerate(zip(fits.tolist(), *bounds, strict=True)):
        if not fit:
            yield 0, f"row group {row_group}: counts that do not fit each other"
        # A row group without a key has neither quantiles nor bounds.
        ends = [quantiles[0], quantiles[-1]] if quantiles else [None, None]
        if ends != [low, high] or quantiles != sorted(quantiles) or (low is None) != bool(is_empty[row_group]):
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
            run(index_kind(key[1]).open(source.payload(key, row, reader)).prepare(AskedTest(SetTest(()))))
        except (CorruptFileError, UnsupportedError, NotFoundError) as error:
            yield offset, _finding(source.location, error).what


_MOST_DECODED = 4
_COMPARED_STATISTICS = ("row_count", "null_count", "nan_count", "distinct_count", "minimum", "maximum")

ProofOf: TypeAlias = Callable[[FieldKind, int], Proof]
"""The proof of a payload of one segment, by its row in a directory."""


def _proof(source: SourceSegment, reader: RangedReader, key: FieldKind, row: int) -> Proof:
    kind, payload = index_kind(key[1]), source.payload(key, row, reader)
    return kind.proof(kind.open(payload), payload.spans[:, 1])


def _check_row_group(
    opened: OpenDataFile, file: IndexedFile, ordinal: int, key: FieldKind, source: SourceSegment, proof: ProofOf
) -> Iterator[Finding]:
    """Compare the index of a row group, at a place of its data file, with the data."""
    name = f"field {key[0]} {key[1]}, row group {ordinal} of {file.file.path}"
    try:
        directory = source.directories[key]
        column = read_sorted(opened, ordinal, split_kind(*key)[0], directory.value_type, LEAST_BLOCK_ROWS)
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


DEFAULT_SAMPLE = 16

OpenFile: TypeAlias = Callable[[DataFile], AbstractContextManager[OpenDataFile]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VerifyReport(Described):
    """The result of a verification: files and row groups, blobs by checksum, row groups by data, and what was repaired.

    Repaired data files were indexed anew after their bad entries were dropped.
    """

    table: str
    data_files: int
    indexed_data_files: int
    segments: int
    blobs: int
    row_groups: int
    findings: tuple[Finding, ...]
    repaired_data_files: int
    seconds: float

    def describe(self) -> Report:
        """Describe the verification."""
        facts: dict[str, Cell] = {
            "indexed data files": share_of(self.indexed_data_files, self.data_files),
            "segments read": self.segments,
            "blobs read": self.blobs,
            "row groups recomputed": self.row_groups,
            "findings": len(self.findings),
            "data files indexed anew": self.repaired_data_files or "",
        }
        return Report(f"verification of {self.table}", facts, warnings=[str(finding) for finding in self.findings])


def verify(
    data_table: Table, index_table: Table, wanted: Collection[FieldKind], sample: int | None = DEFAULT_SAMPLE
) -> VerifyReport:
    """Check an index, and compare a random sample of row groups (None: all) with the data."""
    started = time.monotonic()
    entries = read_entries(index_table)
    refresh_table(data_table)
    reading = reading_of(data_table)
    readable = index_rows.readable_entries(entries, reading)
    live, retained = list_data_files(data_table), retained_files(data_table)
    findings = [*_check_entries(readable, retained)]
    by_segment = index_rows.rows_by_segment(entries)
    sources: dict[str, SourceSegment] = {}
    blobs = 0
    for done, (location, rows) in enumerate(by_segment.items(), 1):
        found, source, count = _check_segment(index_table.io, location, rows)
        findings += found
        blobs += count
        if source is not None and not found:
            sources[location] = source
        _log.info("%s", log_line("segment checked", done=done, of=len(by_segment), findings=len(findings)))
    files = index_rows.indexed_files(index_rows.live_entries(readable, retained, wanted))
    readable_files = [file for file in files if file.origins <= sources.keys()]
    row_groups = [(file, ordinal) for file in readable_files for ordinal in range(len(file.row_counts))]
    if sample is not None and sample < len(row_groups):
        row_groups = [row_groups[place] for place in sorted(random.sample(range(len(row_groups)), sample))]
    # A data file that several segments index is opened for each of them, so its own trouble is found as often.
    open_file = partial(open_data_file, data_table.io, reading=reading)
    findings += dict.fromkeys(_check_data(index_table, row_groups, sources, retained, open_file))
    indexed = index_rows.indexed_kinds(readable, {file.identity for file in live})
    return VerifyReport(
        table=".".join(data_table.name()),
        data_files=len(live),
        indexed_data_files=sum(set(wanted) <= indexed.get(file.identity, set()) for file in live),
        segments=len(by_segment),
        blobs=blobs,
        row_groups=len(row_groups),
        findings=tuple(findings),
        repaired_data_files=0,
        seconds=time.monotonic() - started,
    )


def drop_bad_entries(index_table: Table, findings: Sequence[Finding]) -> int:
    """Drop the entries of bad segments and data files from the index table; return the number of their data files."""
    bad = {finding.file for finding in findings}
    dropped: set[str] = set()

    def change(entries: pa.Table) -> pa.Table:
        rows = index_rows.entry_segments(entries)
        is_good = [path not in bad and segment not in bad for (path, *_), segment in rows]
        dropped.clear()
        dropped.update(path for ((path, *_), _), good in zip(rows, is_good, strict=True) if not good)
        return entries.filter(pa.array(is_good, pa.bool_()))

    index_rows.replace_entries(index_table, change)
    return len(dropped)


def _check_entries(entries: pa.Table, retained: Mapping[FileIdentity, DataFile]) -> Iterator[Finding]:
    taken: dict[FileIdentity, set[FieldKind]] = {}
    by_path = {file.path: file for file in retained.values()}
    columns = (entries[name].to_pylist() for name in ("row_counts", "split_offsets"))
    for file, counts, offsets, own in zip(
        index_rows.entry_files(entries), *columns, index_rows.field_kinds(entries), strict=True
    ):
        path, size, records, _ = file
        found = by_path.get(path)
        if found is not None and (found.file_size, found.record_count) != (size, records):
            told = f"it has {found.file_size} and {found.record_count}"
            yield Finding(path, "", 0, f"indexed as a file of {size} bytes and {records} rows, {told}")
        if sum(counts) != records or len(offsets) != len(counts):
            yield Finding(path, "", 0, f"row groups of {sum(counts)} rows, a file of {records}")
        here = taken.setdefault(file, set())
        if here & own:
            yield Finding(path, "", 0, f"indexed twice: {sorted(here & own)}")
        here |= own


def _check_data(
    index_table: Table,
    row_groups: Sequence[tuple[IndexedFile, int]],
    sources: Mapping[str, SourceSegment],
    retained: Mapping[FileIdentity, DataFile],
    open_file: OpenFile,
) -> Iterator[Finding]:
    """Compare row groups with the data, segment by segment, of which one is open at a time."""
    by_segment: dict[str, dict[FileIdentity, tuple[IndexedFile, list[int]]]] = {}
    for file, ordinal in row_groups:
        for segment in file.origins:
            by_segment.setdefault(segment, {}).setdefault(file.file.identity, (file, []))[1].append(ordinal)
    for segment, files in by_segment.items():
        source = sources[segment]
        try:
            with FileReader(index_table.io, segment, source.size) as reader:
                # The last payloads are kept, decoded, for the next row groups.
                proof = lru_cache(_MOST_DECODED)(partial(_proof, source, reader))
                for identity, (file, ordinals) in files.items():
                    yield from _check_file(open_file(retained[identity]), file, ordinals, source, proof)
        except (PuffinIndexError, OSError) as error:
            yield Finding(segment, "", 0, f"cannot be read again: {reason_at(segment, error)}")


def _check_file(
    opening: AbstractContextManager[OpenDataFile],
    file: IndexedFile,
    ordinals: Sequence[int],
    source: SourceSegment,
    proof: ProofOf,
) -> Iterator[Finding]:
    path = file.file.path
    try:
        with opening as opened:
            if opened.row_counts != file.row_counts:
                yield Finding(path, "", 0, f"row groups of {opened.row_counts} rows, indexed as {file.row_counts}")
                return
            here = [key for key, part in file.parts.items() if part.segment == source.location]
            for key, ordinal in product(here, ordinals):
                yield from _check_row_group(opened, file, ordinal, key, source, proof)
    except (PuffinIndexError, OSError) as error:
        yield Finding(path, "", 0, f"cannot be compared with its index: {error}")
