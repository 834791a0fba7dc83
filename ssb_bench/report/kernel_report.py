"""The measurements of kernels as tables for people and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ssb_bench.results.statistics import summarize
from ssb_bench.studies.kernel_memory import MEMORY_LIMIT, MemoryResult
from ssb_bench.studies.kernel_sizes import ColumnSizes
from ssb_bench.studies.kernels import KernelResult

FORMAT: Final = "ssb-bench/kernels/2"


def render_kernels(
    results: Sequence[KernelResult], memory: Sequence[MemoryResult], sizes: Sequence[ColumnSizes]
) -> RenderableType:
    """Draw the tables; what is over its limit is red, what `layout=auto` chooses has a star."""
    tables = [_speed_table(results)]
    tables += [_memory_table(memory)] if memory else []
    tables += [_size_table(sizes)] if sizes else []
    return Group(*tables)


def kernels_json(
    results: Sequence[KernelResult],
    memory: Sequence[MemoryResult],
    sizes: Sequence[ColumnSizes],
    machine: dict[str, str | int],
) -> dict[str, object]:
    """Put all that was measured into plain data."""
    return {
        "format": FORMAT,
        "machine": machine,
        "kernels": [_result_json(result) for result in results],
        "memory": [asdict(result) for result in memory],
        "sizes": [asdict(column) for column in sizes],
    }


def _result_json(result: KernelResult) -> dict[str, object]:
    least, greatest = result.ratio_range
    derived = {
        "ratio": result.ratio,
        "least_ratio": least,
        "greatest_ratio": greatest,
        "shared_ratio": result.shared_ratio,
        "within_limits": not result.is_slow,
    }
    return asdict(result) | derived


def _speed_table(results: Sequence[KernelResult]) -> Table:
    table = Table(
        title="building an index of one row group, on one core",
        caption="ms: medians; ratio: build to what it is against; limit: of it; sorted: the ratio for a column "
        "that is sorted already; bytes: of a value; *: what layout=auto chooses",
    )
    for header in ("column", "index", "against"):
        table.add_column(header, no_wrap=header != "against")
    for header in ("ms", "build", "ratio", "range", "limit", "sorted", "bytes"):
        table.add_column(header, justify="right", no_wrap=True)
    for result in results:
        least, greatest = result.ratio_range
        table.add_row(
            result.column,
            f"{result.kind} {result.layout}{'*' if result.layout and result.chosen else ''}",
            result.reference,
            _milliseconds(result.reference_seconds),
            _milliseconds(result.build_seconds),
            _marked(f"{result.ratio:.2f}", result.is_slow),
            f"{least:.1f}..{greatest:.1f}",
            "" if result.limit is None else f"{result.limit:g}",
            f"{result.shared_ratio:.2f}",
            f"{result.bytes_per_value:.2f}",
        )
    return table


def _memory_table(memory: Sequence[MemoryResult]) -> Table:
    table = Table(
        title="memory that building takes, in sizes of the Arrow column",
        caption=f"the peak of the process above what it had before; limit {MEMORY_LIMIT:g}",
    )
    table.add_column("column", no_wrap=True)
    kinds = list(memory[0].peak_bytes)
    for header in ("MB", *kinds):
        table.add_column(header, justify="right", no_wrap=True)
    for result in memory:
        ratios = [result.ratio(kind) for kind in kinds]
        marked = [_marked(f"{ratio:.1f}", ratio > MEMORY_LIMIT) for ratio in ratios]
        table.add_row(result.column, f"{result.arrow_bytes / 1e6:.1f}", *marked)
    return table


def _size_table(sizes: Sequence[ColumnSizes]) -> Table:
    table = Table(title=f"bytes a value, lineorder, {sizes[0].row_count:,} rows")
    table.add_column("column")
    for header in ("distinct", "Parquet", "bitmap bitmaps", "bitmap postings", "bsi", "bloom"):
        table.add_column(header, justify="right")
    for column in sizes:
        table.add_row(
            column.column,
            f"{column.distinct_count:,.0f}",
            f"{column.parquet:.2f}",
            f"{column.bitmaps:.2f}{'*' if column.chosen == 'bitmaps' else ' '}",
            f"{column.postings:.2f}{'*' if column.chosen == 'postings' else ' '}",
            f"{column.bsi:.2f}",
            f"{column.bloom:.2f}",
        )
    return table


def _milliseconds(seconds: Sequence[float]) -> str:
    return f"{summarize(seconds).median_seconds * 1000:.1f}"


def _marked(text: str, is_over: bool) -> Text:
    return Text(text, style="bold red" if is_over else "")
