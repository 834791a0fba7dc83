"""What the measurements of kernels say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ssb_bench.report.document import Cell, Line, Part, Table, marked_if
from ssb_bench.results.statistics import summarize
from ssb_bench.studies.kernel_memory import MEMORY_LIMIT, MemoryResult
from ssb_bench.studies.kernel_sizes import ColumnSizes
from ssb_bench.studies.kernels import KernelResult

_SPEED_HEADINGS = ("column", "index", "against", "ms", "build", "ratio", "range", "limit", "sorted", "bytes")
_SIZE_HEADINGS = ("column", "distinct", "Parquet", "bitmap bitmaps", "bitmap postings", "bsi", "bloom")


@dataclass(frozen=True, slots=True)
class Kernels:
    """What building indexes in memory costs.

    Attributes:
        machine: Hardware and versions.
        kernels: Times.
        memory: Peaks; empty where the system does not tell them.
        sizes: Sizes of the columns of lineorder; empty without data.
    """

    FORMAT: ClassVar = "ssb-bench/kernels/2"

    machine: dict[str, str | int]
    kernels: Sequence[KernelResult]
    memory: Sequence[MemoryResult]
    sizes: Sequence[ColumnSizes]


def kernel_parts(measured: Kernels) -> Iterator[Part]:
    """Lay out times, memory and sizes; what is over its limit is marked, what `layout=auto` chooses has a star."""
    speeds = [_speed_row(result) for result in measured.kernels]
    yield Table(_SPEED_HEADINGS, speeds, "building an index of one row group, on one core", ("index", "against"))
    yield Line(
        "ms: medians; ratio: build to what it is against; limit: of it; sorted: the ratio for a column "
        "that is sorted already; bytes: of a value; *: what layout=auto chooses"
    )
    if measured.memory:
        kinds = list(measured.memory[0].peak_bytes)
        peaks = [_memory_row(result, kinds) for result in measured.memory]
        yield Table(("column", "MB", *kinds), peaks, "memory that building takes, in sizes of the Arrow column")
        yield Line(f"the peak of the process above what it had before; limit {MEMORY_LIMIT:g}")
    if measured.sizes:
        sizes = [_size_row(column) for column in measured.sizes]
        yield Table(_SIZE_HEADINGS, sizes, f"bytes a value, lineorder, {measured.sizes[0].row_count:,} rows")
    else:
        yield Line("sizes of lineorder's columns: run `ssb-bench generate` first")


def _speed_row(result: KernelResult) -> list[Cell]:
    return [
        result.column,
        f"{result.kind} {result.layout}{'*' if result.layout and result.chosen else ''}",
        result.reference,
        *(
            f"{summarize(times).median_seconds * 1000:.1f}"
            for times in (result.reference_seconds, result.build_seconds)
        ),
        marked_if(not result.within_limits, f"{result.ratio:.2f}"),
        f"{result.least_ratio:.1f}..{result.greatest_ratio:.1f}",
        "" if result.limit is None else f"{result.limit:g}",
        f"{result.shared_ratio:.2f}",
        f"{result.bytes_per_value:.2f}",
    ]


def _memory_row(result: MemoryResult, kinds: Sequence[str]) -> list[Cell]:
    ratios = [result.ratio(kind) for kind in kinds]
    marked = [marked_if(ratio > MEMORY_LIMIT, f"{ratio:.1f}") for ratio in ratios]
    return [result.column, f"{result.arrow_bytes / 1e6:.1f}", *marked]


def _size_row(column: ColumnSizes) -> list[Cell]:
    return [
        column.column,
        f"{column.distinct_count:,.0f}",
        f"{column.parquet:.2f}",
        f"{column.bitmaps:.2f}{'*' if column.chosen == 'bitmaps' else ' '}",
        f"{column.postings:.2f}{'*' if column.chosen == 'postings' else ' '}",
        f"{column.bsi:.2f}",
        f"{column.bloom:.2f}",
    ]
