"""Simulated indexes of up to a million row groups, without data: real segments by the project's own writers.

A segment covers 1,000 row groups of 1,000 rows in 50 data files that do not exist. Its columns are numbers:

| field | column | kinds |
| --- | --- | --- |
| 1 | `sorted`: in the order of the row groups, within a segment | bloom |
| 2 | `scattered`: drawn from 2^24 | bitmap, as sorted postings |
| 3 | `filtered`: drawn from 2^24 | bloom |
| 4 | the same as `filtered` | bloom, merged as compaction does: one matrix |
| 5 | `few`: drawn from 100 | bitmap, merged as compaction does: one blob |

A few segments are written. All others are hard links to these, so that a million row groups take seconds and little
disk. The needle, one key of each column, lies in one row group of the first segment, which has no links.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_index.data.column_source import ColumnSource
from puffin_index.data.data_table import DataFile
from puffin_index.data.file_fields import Rule
from puffin_index.index_table.table import entries_of
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.value_types import value_type_named
from puffin_index.kinds.base import MergedPayload, MergePart, StoredPayload
from puffin_index.kinds.registry import KINDS
from puffin_index.kinds.statistics import statistics_of
from puffin_index.segments.directory import STATISTICS, serialize_statistics
from puffin_index.segments.segment import ROW_SPACE_ALIGNMENT, CoveredFile, Segment, SegmentWriter
from puffin_index.storage.arrays import Ints
from puffin_index.storage.files import NewFile
from puffin_index.storage.ranged import Blob, BytesReader

SEGMENT_ROW_GROUPS: Final = 1000
ROW_GROUP_ROWS: Final = 1000
FILE_ROW_GROUPS: Final = 20
ROW_GROUP_BYTES: Final = 8 << 20
VALUE_TYPE: Final = "long"
SORTED, SCATTERED, FILTERED, MATRIX, FEW = 1, 2, 3, 4, 5
NEEDLE: Final[Mapping[int, int]] = {SORTED: 500_001, SCATTERED: 1 << 23, FILTERED: 1 << 23, MATRIX: 1 << 23, FEW: 50}
"""The key of each column that one row group of the first segment has."""

NEEDLE_ROW_GROUP: Final[Mapping[object, int]] = {SORTED: 250, SCATTERED: 500, FILTERED: 500, MATRIX: 500, FEW: 500}

_KEYS: Final = 1 << 24
_FEW_KEYS: Final = 100
_TYPE: Final = value_type_named(VALUE_TYPE)
_BASES: Final = np.arange(SEGMENT_ROW_GROUPS, dtype=np.int64) * ROW_SPACE_ALIGNMENT
_INDEXES: Final[Mapping[int, tuple[str, Mapping[str, str]]]] = {
    SORTED: ("bloom", {}),
    SCATTERED: ("bitmap", {"layout": "postings"}),
    FILTERED: ("bloom", {}),
    MATRIX: ("bloom", {}),
    FEW: ("bitmap", {"layout": "bitmaps"}),
}


@dataclass(frozen=True, slots=True)
class Simulated:
    """A simulated index; links count as files."""

    entries: pa.Table
    row_groups: int
    index_bytes: int


def segment_multiple(row_groups: int) -> int:
    """Round up to whole segments."""
    return -(-row_groups // SEGMENT_ROW_GROUPS) * SEGMENT_ROW_GROUPS


def simulate(folder: Path, row_groups: int, *, different: int = 2) -> Simulated:
    """Write the index of `row_groups` row groups, rounded up to thousands, into a folder of its own.

    Segments are links to `different` written ones, beside the one with the needle.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    count = segment_multiple(row_groups) // SEGMENT_ROW_GROUPS
    written = [_write_segment(folder, number) for number in range(min(count, 1 + different))]
    segments = [_place(folder, written, number) for number in range(count)]
    return Simulated(entries_of(segments), count * SEGMENT_ROW_GROUPS, sum(segment.size for segment in segments))


def _place(folder: Path, written: list[Segment], number: int) -> Segment:
    """Give segment `number`: a written one, or a link to a written one without the needle."""
    if number < len(written):
        source, location = written[number], Path(written[number].location)
    else:
        source = written[1 + number % (len(written) - 1)]
        location = folder / f"{number:06d}.puffin"
        os.link(source.location, location)
    covered = tuple(
        replace(file, file=replace(file.file, path=f"file:///simulated/{number:06d}/{at:04d}.parquet"))
        for at, file in enumerate(source.covered)
    )
    return replace(source, location=str(location), covered=covered)


def _write_segment(folder: Path, number: int) -> Segment:
    location, files = str(folder / f"{number:06d}.puffin"), _covered_files()
    with NewFile(PyArrowFileIO(), location) as stream:
        segment = SegmentWriter(stream)
        for field, values in _columns(number).items():
            _write_column(segment, field, values)
        return segment.finish(location, files)


def _columns(number: int) -> dict[int, Ints]:
    """Draw the values of a segment, one row of the array a row group; the first segment has the needle."""
    random = np.random.default_rng(number)
    shape = (SEGMENT_ROW_GROUPS, ROW_GROUP_ROWS)
    scattered = [random.integers(0, _KEYS, shape, dtype=np.int64) for _ in range(2)]
    for values in scattered:
        values[values == NEEDLE[SCATTERED]] += 1
    # Even keys only: the needle is odd.
    ordered = np.arange(SEGMENT_ROW_GROUPS * ROW_GROUP_ROWS, dtype=np.int64).reshape(shape) * 2
    few = random.integers(0, _FEW_KEYS, shape, dtype=np.int64)
    few[few == NEEDLE[FEW]] += 1
    columns = {SORTED: ordered, SCATTERED: scattered[0], FILTERED: scattered[1], MATRIX: scattered[1], FEW: few}
    if number == 0:
        ordered[NEEDLE[SORTED] // (2 * ROW_GROUP_ROWS), NEEDLE[SORTED] // 2 % ROW_GROUP_ROWS] += 1
        for field in (SCATTERED, FILTERED, FEW):
            columns[field][SEGMENT_ROW_GROUPS // 2, 7] = NEEDLE[field]
    return columns


def _write_column(segment: SegmentWriter, field: int, values: Ints) -> None:
    columns = [SortedColumn(column_of(pa.array(row), _TYPE)) for row in values]
    kind, options = _INDEXES[field]
    builder = KINDS[kind].builder(options)
    payloads = [one for column, base in zip(columns, _BASES, strict=True) for one in builder.add(column, int(base))]
    payloads += builder.finish()
    if field in (MATRIX, FEW):
        payloads = _merge(kind, payloads)
    statistics = serialize_statistics([statistics_of(column) for column in columns], _TYPE)
    segment.add_statistics((field, STATISTICS), statistics)
    segment.add_index((field, kind), _TYPE, payloads)


def _merge(kind: str, payloads: Sequence[MergedPayload]) -> list[MergedPayload]:
    """Give what compaction makes of the payloads of all row groups."""
    parts: list[MergePart] = []
    for own, base in zip((one.payload for one in payloads), _BASES.reshape(-1, 1), strict=True):
        blob = Blob(BytesReader.of(own.data), 0, len(own.data))
        stored = StoredPayload(blob, own.blob_type, own.layout, _TYPE, np.array([[0, ROW_GROUP_ROWS]]))
        parts.append(MergePart(stored, base))
    return list(KINDS[kind].merge(parts, {}))


def _covered_files() -> tuple[CoveredFile, ...]:
    offsets = tuple(4 + at * ROW_GROUP_BYTES for at in range(FILE_ROW_GROUPS))
    rows = FILE_ROW_GROUPS * ROW_GROUP_ROWS
    sources = {field_id: ColumnSource(Rule.FIELD_IDS, (field_id,)).to_text() for field_id in NEEDLE}
    return tuple(
        CoveredFile(
            DataFile(f"file:///simulated/{first:06d}.parquet", FILE_ROW_GROUPS * ROW_GROUP_BYTES, rows, offsets),
            (ROW_GROUP_ROWS,) * FILE_ROW_GROUPS,
            offsets,
            first,
            int(_BASES[first]),
            sources,
        )
        for first in range(0, SEGMENT_ROW_GROUPS, FILE_ROW_GROUPS)
    )
