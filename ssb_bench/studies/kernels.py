"""How fast an index of one row group is built, as a ratio to sorting or encoding the same column in the same run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from puffin_index.jobs.processor import environment_of_workers
from puffin_index.jobs.worker_pool import worker_pool
from puffin_index.keys.values import Column, SortedColumn, column_of, value_type_named
from puffin_index.kinds.base import Payload
from puffin_index.kinds.postings.look_up import PlacedColumn, build_postings, postings_pay
from puffin_index.kinds.registry import KINDS
from puffin_index.kinds.statistics import statistics_of
from puffin_index.storage.arrays import Ints
from ssb_bench.results.statistics import summarize

DEFAULT_VALUES: Final = 1_000_000
_SEED: Final = 20_260_101
_BITMAPS: Final = ("bitmaps", "postings")


@dataclass(frozen=True, slots=True, eq=False)
class KernelCase:
    """A column to index, and what its indexes are measured against.

    Attributes:
        column: What it holds, for people.
        values: The values.
        value_type: Their Iceberg type.
        reference: What `run_reference` does, for people.
        run_reference: Sorts or encodes the values.
        limits: For each kind to build how many times the reference it may take; None where nothing was promised.
    """

    column: str
    values: pa.Array
    value_type: str
    reference: str
    run_reference: Callable[[], object]
    limits: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class KernelResult:
    """What building one kind in one layout cost.

    Attributes:
        column: What the column holds.
        kind: The kind.
        layout: `bitmaps` or `postings` for the kind bitmap, else empty.
        chosen: Whether `layout=auto` chooses this layout.
        reference: What it is compared with.
        reference_seconds: Each run of the reference.
        build_seconds: Each run of the build, from Arrow values to bytes.
        shared_seconds: Each run of the build of a column that the statistics have sorted already.
        limit: How many times the reference it may take; None where nothing was promised.
        bytes_per_value: The size of the index.
    """

    column: str
    kind: str
    layout: str
    chosen: bool
    reference: str
    reference_seconds: tuple[float, ...]
    build_seconds: tuple[float, ...]
    shared_seconds: tuple[float, ...]
    limit: float | None
    bytes_per_value: float

    @property
    def ratio(self) -> float:
        """The median of the build over the median of the reference."""
        return _medians(self.build_seconds, self.reference_seconds)

    @property
    def shared_ratio(self) -> float:
        """The same for a column that is sorted already."""
        return _medians(self.shared_seconds, self.reference_seconds)

    @property
    def ratio_range(self) -> tuple[float, float]:
        """The least and the greatest ratio of a build to the reference that ran just before it."""
        ratios = [built / other for built, other in zip(self.build_seconds, self.reference_seconds, strict=True)]
        return min(ratios), max(ratios)

    @property
    def is_slow(self) -> bool:
        """Whether it takes longer than promised."""
        return self.limit is not None and self.ratio > self.limit


def _medians(one: Sequence[float], other: Sequence[float]) -> float:
    return summarize(one).median_seconds / summarize(other).median_seconds


def kernel_cases(value_count: int = DEFAULT_VALUES) -> list[KernelCase]:
    """Make the columns: the same ones at every call."""
    random = np.random.default_rng(_SEED)
    wide = random.integers(0, 1 << 26, value_count)
    few = random.integers(0, 100, value_count)
    every = random.permutation(value_count)
    names = pa.array(
        [f"Customer#{number:09d}" for number in random.integers(0, max(1, value_count // 10), value_count)]
    )
    return [
        _sorted_case("26-bit int", wide, {"bsi": 3.0}),
        _sorted_case("100 distinct", few, {"bitmap": 3.0}),
        _sorted_case("all distinct", every, {"bitmap": 6.0, "bloom": 3.0}),
        KernelCase(
            "string, 10 %",
            names,
            "string",
            "dictionary_encode",
            names.dictionary_encode,
            {"bsi": 3.0, "bitmap": 3.0, "bloom": 3.0},
        ),
    ]


def _sorted_case(column: str, numbers: Ints, limits: Mapping[str, float]) -> KernelCase:
    return KernelCase(column, pa.array(numbers), "long", "np.sort", lambda: np.sort(numbers), limits)


def measure_kernels(
    cases: Sequence[KernelCase], *, repeats: int, on_step: Callable[[str], None] = lambda _: None
) -> list[KernelResult]:
    """Build the indexes of all columns, in a process like those that builds run in, on one core.

    Args:
        cases: The columns.
        repeats: How many times each build runs, interleaved with its reference, after one that warms up.
        on_step: Called with what is measured next.
    """
    results: list[KernelResult] = []
    with worker_pool(1, environment_of_workers()) as pool:
        for case in cases:
            for kind, limit in case.limits.items():
                for layout in _BITMAPS if kind == "bitmap" else ("",):
                    on_step(f"{case.column}: {kind} {layout}".rstrip())
                    results.append(pool.submit(_measure, case, kind, layout, limit, repeats).result())
    return results


def chosen_layout(values: pa.Array, type_name: str) -> str:
    """Return the layout that the kind bitmap chooses for a column."""
    statistics = statistics_of(SortedColumn(column_of(values, value_type_named(type_name))))
    return "postings" if postings_pay([statistics.distinct_count], [statistics.row_count]) else "bitmaps"


def build_kind(column: Column, kind: str, layout: str) -> Payload:
    """Build one index of one row group."""
    return (
        build_postings([PlacedColumn(0, SortedColumn(column))])
        if layout == "postings"
        else KINDS[kind].build(SortedColumn(column), {})
    )


def _measure(case: KernelCase, kind: str, layout: str, limit: float | None, repeats: int) -> KernelResult:
    _stay_on_one_core()
    value_type = value_type_named(case.value_type)
    reference: list[float] = []
    builds: list[float] = []
    shared: list[float] = []
    for _ in range(repeats + 1):
        reference.append(_seconds(case.run_reference))
        builds.append(_seconds(lambda: build_kind(column_of(case.values, value_type), kind, layout)))
        column = column_of(case.values, value_type)
        _ = SortedColumn(column).rows
        shared.append(_seconds(partial(build_kind, column, kind, layout)))
    chosen = layout in ("", chosen_layout(case.values, case.value_type))
    return KernelResult(
        case.column,
        kind,
        layout,
        chosen,
        case.reference,
        tuple(reference[1:]),
        tuple(builds[1:]),
        tuple(shared[1:]),
        limit if chosen else None,
        len(build_kind(column, kind, layout).data) / len(case.values),
    )


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _stay_on_one_core() -> None:
    """Keep this process on one core, where the system can; Arrow's threads too."""
    pa.set_cpu_count(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
