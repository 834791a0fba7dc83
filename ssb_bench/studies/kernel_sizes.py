"""How many bytes a value each index of each lineorder column takes, beside the Parquet column's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.value_types import ValueType, value_type_named
from puffin_index.kinds.postings.build import PlacedColumn, build_postings, postings_pay
from puffin_index.kinds.registry import KINDS
from puffin_index.kinds.statistics import ColumnStatistics, statistics_of
from puffin_index.segments.segment import align
from ssb_bench.errors import BenchError

MOST_ROWS: Final = 750_000
"""Files are read until they have so many rows: as many as a segment, in seconds."""

_TYPES: Final = {pa.int32(): "int", pa.int64(): "long", pa.string(): "string", pa.date32(): "date"}


@dataclass(frozen=True, slots=True)
class ColumnSizes:
    """Bytes a value of one column.

    Attributes:
        column: Its name.
        row_count: How many rows were looked at.
        distinct_count: The distinct values of a row group, on average.
        parquet: Its column chunks as they lie in the file, compressed.
        bitmaps: Bitmap V2.
        postings: Sorted postings.
        bsi: Bit slices, or a dictionary with the slices of its codes.
        bloom: The bloom filter.
        chosen: The layout that `layout=auto` chooses.
    """

    column: str
    row_count: int
    distinct_count: float
    parquet: float
    bitmaps: float
    postings: float
    bsi: float
    bloom: float
    chosen: str


def measure_sizes(files: Sequence[Path], on_step: Callable[[str], None] = lambda _: None) -> list[ColumnSizes]:
    """Index the columns of a table's first rows in memory, with the row groups of the files.

    Args:
        files: Parquet files, of one schema.
        on_step: Called with what is measured next.

    Raises:
        BenchError: If no sizes are measured for the type of a column.
    """
    used: list[Path] = []
    rows = 0
    for file in files:
        if rows < MOST_ROWS:
            used.append(file)
            rows += pq.read_metadata(file).num_rows
    return list(_sizes(used, on_step))


def _sizes(files: Sequence[Path], on_step: Callable[[str], None]) -> Iterator[ColumnSizes]:
    for position, field in enumerate(pq.read_schema(files[0])):
        on_step(field.name)
        if field.type not in _TYPES:
            raise BenchError(f"column {field.name} has the type {field.type}, of which no sizes are measured")
        yield _measure_column(files, position, field.name, value_type_named(_TYPES[field.type]))


def _measure_column(files: Sequence[Path], position: int, name: str, value_type: ValueType) -> ColumnSizes:
    placed: list[PlacedColumn] = []
    statistics: list[ColumnStatistics] = []
    built = dict.fromkeys(KINDS, 0)
    base = parquet_bytes = 0
    for file in files:
        with pq.ParquetFile(file) as opened:
            for ordinal in range(opened.num_row_groups):
                parquet_bytes += opened.metadata.row_group(ordinal).column(position).total_compressed_size
                column = column_of(opened.read_row_group(ordinal, columns=[name]).column(0), value_type)
                ordered = SortedColumn(column)
                for kind in KINDS:
                    built[kind] += len(KINDS[kind].build(ordered, {}).data)
                statistics.append(statistics_of(ordered))
                # Another sorted form, of which nothing is sorted yet: the columns of a segment stay small.
                placed.append(PlacedColumn(base, SortedColumn(column)))
                base += align(column.row_count)
    rows = sum(of_group.row_count for of_group in statistics)
    distinct_counts = [of_group.distinct_count for of_group in statistics]
    # A segment decides by its first row group.
    pays = postings_pay(distinct_counts[:1], [statistics[0].row_count - statistics[0].null_count])
    return ColumnSizes(
        column=name,
        row_count=rows,
        distinct_count=sum(distinct_counts) / len(distinct_counts),
        parquet=parquet_bytes / rows,
        bitmaps=built["bitmap"] / rows,
        postings=len(build_postings(placed).data) / rows,
        bsi=built["bsi"] / rows,
        bloom=built["bloom"] / rows,
        chosen="postings" if pays else "bitmaps",
    )
