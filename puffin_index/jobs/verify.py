"""Verification: check the index table against the data table, each segment by itself, and indexes against the data."""

import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TypeAlias

import pyarrow as pa
from pyiceberg.table import Table

from puffin_index.data.column_source import reading_of
from puffin_index.data.data_table import DataFile, FileIdentity, list_data_files, refresh_table, retained_files
from puffin_index.data.row_groups import OpenDataFile, open_data_file
from puffin_index.display import Cell, Described, Report, share_of
from puffin_index.errors import PuffinIndexError, reason_at
from puffin_index.index_table.entries import (
    entry_files,
    field_kinds,
    indexed_files,
    indexed_kinds,
    live_entries,
    readable_entries,
    replace_entries,
    rows_by_segment,
)
from puffin_index.index_table.table import read_entries
from puffin_index.jobs.log_lines import log_line
from puffin_index.jobs.verify_segment import Finding, ProofOf, check_row_group, check_segment, proofs_of
from puffin_index.segments.directory import FieldKind
from puffin_index.segments.source_segment import IndexedFile, SourceSegment
from puffin_index.storage.files import FileReader

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
    data_table: Table,
    index_table: Table,
    wanted: Collection[FieldKind],
    sample: int | None = DEFAULT_SAMPLE,
) -> VerifyReport:
    """Check an index, and compare a random sample of row groups (None: all) with the data."""
    started = time.monotonic()
    entries = read_entries(index_table)
    refresh_table(data_table)
    reading = reading_of(data_table)
    readable = readable_entries(entries, reading)
    live, retained = list_data_files(data_table), retained_files(data_table)
    findings = [*_check_entries(readable, retained)]
    by_segment = rows_by_segment(entries)
    sources: dict[str, SourceSegment] = {}
    blobs = 0
    for done, (location, rows) in enumerate(by_segment.items(), 1):
        found, source, count = check_segment(index_table.io, location, rows)
        findings += found
        blobs += count
        if source is not None and not found:
            sources[location] = source
        _log.info("%s", log_line("segment checked", done=done, of=len(by_segment), findings=len(findings)))
    files = indexed_files(live_entries(readable, retained, wanted))
    readable_files = [file for file in files if file.origins <= sources.keys()]
    row_groups = [(file, ordinal) for file in readable_files for ordinal in range(len(file.row_counts))]
    if sample is not None and sample < len(row_groups):
        row_groups = [row_groups[place] for place in sorted(random.sample(range(len(row_groups)), sample))]
    # A data file that several segments index is opened for each of them, so its own trouble is found as often.
    open_file = partial(open_data_file, data_table.io, reading=reading)
    findings += dict.fromkeys(_check_data(index_table, row_groups, sources, retained, open_file))
    indexed = indexed_kinds(readable, {file.identity for file in live})
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
        rows = list(zip(entries["data_file"].to_pylist(), entries["segment"].to_pylist(), strict=True))
        is_good = [path not in bad and segment not in bad for path, segment in rows]
        dropped.clear()
        dropped.update(path for (path, _), good in zip(rows, is_good, strict=True) if not good)
        return entries.filter(pa.array(is_good, pa.bool_()))

    replace_entries(index_table, change)
    return len(dropped)


def _check_entries(entries: pa.Table, retained: Mapping[FileIdentity, DataFile]) -> Iterator[Finding]:
    taken: dict[FileIdentity, set[FieldKind]] = {}
    by_path = {file.path: file for file in retained.values()}
    columns = (entries[name].to_pylist() for name in ("row_counts", "split_offsets"))
    for file, counts, offsets, own in zip(entry_files(entries), *columns, field_kinds(entries), strict=True):
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
                proof = proofs_of(source, reader)
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
                yield from check_row_group(opened, file, ordinal, key, source, proof)
    except (PuffinIndexError, OSError) as error:
        yield Finding(path, "", 0, f"cannot be compared with its index: {error}")
