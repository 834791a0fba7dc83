"""How many bytes a value each index of each lineorder column takes, beside the Parquet column's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.values import ValueType, column_of, value_type_named
from puffin_index.kinds.postings.look_up import PlacedColumn, build_postings, postings_pay
from puffin_index.kinds.registry import KINDS
from puffin_index.kinds.statistics import ColumnStatistics, statistics_of
from puffin_index.segments.segment import align
from ssb_bench.errors import BenchError

MOST_ROWS: Final = 750_000
"""So many rows and the rest of the file that they end in are read: a segment's worth, in seconds."""


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
    """Index the columns of a table's first rows in memory, a row group of the files being one of the index.

    Args:
        files: Parquet files, of one schema.
        on_step: Called with what is measured next.

    Raises:
        BenchError: If a column has a type that this does not know.
    """
    used = _first_files(files)
    schema = pq.read_schema(used[0])
    sizes: list[ColumnSizes] = []
    for position, field in enumerate(schema):
        on_step(field.name)
        sizes.append(_measure_column(used, position, field.name, _value_type(field)))
    return sizes


def _first_files(files: Sequence[Path]) -> list[Path]:
    used: list[Path] = []
    rows = 0
    for file in files:
        if rows >= MOST_ROWS:
            break
        used.append(file)
        rows += pq.read_metadata(file).num_rows
    return used


def _value_type(field: pa.Field) -> ValueType:
    known = {pa.int32(): "int", pa.int64(): "long", pa.string(): "string", pa.date32(): "date", pa.float64(): "double"}
    name = known.get(field.type)
    if name is None and pa.types.is_decimal(field.type):
        name = f"decimal({field.type.precision},{field.type.scale})"
    if name is None:
        raise BenchError(f"column {field.name} has the type {field.type}, of which no sizes are measured")
    return value_type_named(name)


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
                # What was sorted is not kept with the column, so that the columns of a segment stay small.
                placed.append(PlacedColumn(base, SortedColumn(column)))
                base += align(column.row_count)
    rows = sum(of_group.row_count for of_group in statistics)
    distinct_counts = [of_group.distinct_count for of_group in statistics]
    # A segment decides by its first row group.
    chosen = postings_pay(distinct_counts[:1], [statistics[0].row_count - statistics[0].null_count])
    return ColumnSizes(
        name,
        rows,
        sum(distinct_counts) / len(distinct_counts),
        parquet_bytes / rows,
        built["bitmap"] / rows,
        len(build_postings(placed).data) / rows,
        built["bsi"] / rows,
        built["bloom"] / rows,
        "postings" if chosen else "bitmaps",
    )
