"""How fast an index of one row group is built, as a ratio to sorting or encoding the same column in the same run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from puffin_index.jobs.processor import environment_of_workers
from puffin_index.jobs.worker_pool import worker_pool
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.value_types import value_type_named
from puffin_index.kinds.base import Payload
from puffin_index.kinds.postings.build import PlacedColumn, build_postings, postings_pay
from puffin_index.kinds.registry import KINDS
from puffin_index.kinds.statistics import statistics_of
from ssb_bench.results.statistics import ratio
from ssb_bench.spark_runs.turns import seconds_of, time_in_turns

DEFAULT_VALUES: Final = 1_000_000
_SEED: Final = 20_260_101


@dataclass(frozen=True, slots=True, eq=False)
class KernelCase:
    """A column to index.

    Attributes:
        column: What the column holds, for people.
        values: The values: strings, which the builds are measured against encoding, or numbers, against sorting.
        limits: For each kind to build, how many times the reference the build may take.
    """

    column: str
    values: pa.Array
    limits: Mapping[str, float]


@dataclass(slots=True, eq=False)
class KernelResult:
    """What building one kind in one layout cost.

    Attributes:
        column: What the column holds.
        kind: The kind.
        layout: `bitmaps` or `postings` for the kind bitmap, else empty.
        chosen: Whether `layout=auto` chooses this layout.
        reference: What the build is compared with.
        reference_seconds: Each run of the reference.
        build_seconds: Each run of the build, from Arrow values to bytes.
        shared_seconds: Each run of the build of a column that the statistics have sorted already.
        limit: How many times the reference the build may take; None for a layout that is not chosen.
        bytes_per_value: The size of the index.
        ratio: The median of the build by the median of the reference.
        least_ratio: The least ratio of a build to the reference of the same round.
        greatest_ratio: The greatest one.
        shared_ratio: The ratio of the medians for a column that is sorted already.
        within_limits: Whether the build takes no longer than promised.
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
    ratio: float = field(init=False)
    least_ratio: float = field(init=False)
    greatest_ratio: float = field(init=False)
    shared_ratio: float = field(init=False)
    within_limits: bool = field(init=False)

    def __post_init__(self) -> None:
        pairs = [build / other for build, other in zip(self.build_seconds, self.reference_seconds, strict=True)]
        self.ratio = ratio(self.build_seconds, self.reference_seconds)
        self.least_ratio, self.greatest_ratio = min(pairs), max(pairs)
        self.shared_ratio = ratio(self.shared_seconds, self.reference_seconds)
        self.within_limits = self.limit is None or self.ratio <= self.limit


def kernel_cases(value_count: int = DEFAULT_VALUES) -> list[KernelCase]:
    """Make the columns: the same ones at every call."""
    random = np.random.default_rng(_SEED)
    wide = random.integers(0, 1 << 26, value_count)
    few = random.integers(0, 100, value_count)
    every = random.permutation(value_count)
    names = random.integers(0, max(1, value_count // 10), value_count)
    return [
        KernelCase("26-bit int", pa.array(wide), {"bsi": 3.0}),
        KernelCase("100 distinct", pa.array(few), {"bitmap": 3.0}),
        KernelCase("all distinct", pa.array(every), {"bitmap": 6.0, "bloom": 3.0}),
        KernelCase(
            "string, 10 %",
            pa.array([f"Customer#{number:09d}" for number in names]),
            {"bsi": 3.0, "bitmap": 3.0, "bloom": 3.0},
        ),
    ]


def measure_kernels(
    cases: Sequence[KernelCase], *, repeats: int, on_step: Callable[[str], None] = lambda _: None
) -> list[KernelResult]:
    """Build the indexes of all columns, in a process like those that builds run in, on one core.

    Args:
        cases: The columns.
        repeats: How many times each build runs, in turns with its reference, after one that warms up.
        on_step: Called with what is measured next.
    """
    results: list[KernelResult] = []
    with worker_pool(1, environment_of_workers()) as pool:
        for case in cases:
            for kind in case.limits:
                for layout in ("bitmaps", "postings") if kind == "bitmap" else ("",):
                    on_step(f"{case.column}: {kind} {layout}".rstrip())
                    results.append(pool.submit(_measure, case, kind, layout, repeats).result())
    return results


def chosen_layout(values: pa.Array, type_name: str) -> str:
    """Return the layout that the kind bitmap chooses for a column."""
    statistics = statistics_of(SortedColumn(column_of(values, value_type_named(type_name))))
    return "postings" if postings_pay([statistics.distinct_count], [statistics.row_count]) else "bitmaps"


def build_kind(column: SortedColumn, kind: str, layout: str) -> Payload:
    """Build one index of one row group."""
    return build_postings([PlacedColumn(0, column)]) if layout == "postings" else KINDS[kind].build(column, {})


def _measure(case: KernelCase, kind: str, layout: str, repeats: int) -> KernelResult:
    _stay_on_one_core()
    is_text = pa.types.is_string(case.values.type)
    type_name = "string" if is_text else "long"
    value_type = value_type_named(type_name)
    numbers = np.empty(0) if is_text else case.values.to_numpy()

    def build() -> Payload:
        return build_kind(SortedColumn(column_of(case.values, value_type)), kind, layout)

    def build_sorted() -> float:
        column = SortedColumn(column_of(case.values, value_type))
        _ = column.rows
        return seconds_of(lambda: build_kind(column, kind, layout))

    arms = {
        "reference": lambda: seconds_of(case.values.dictionary_encode if is_text else lambda: np.sort(numbers)),
        "build": lambda: seconds_of(build),
        "sorted": build_sorted,
    }
    times = {arm: tuple(seconds) for arm, seconds in time_in_turns(arms, repeats).items()}
    chosen = layout in ("", chosen_layout(case.values, type_name))
    return KernelResult(
        *(case.column, kind, layout, chosen, "dictionary_encode" if is_text else "np.sort"),
        *(times["reference"], times["build"], times["sorted"]),
        case.limits[kind] if chosen else None,
        len(build().data) / len(case.values),
    )


def _stay_on_one_core() -> None:
    """Keep this process on one core, where the system can; Arrow's threads too."""
    pa.set_cpu_count(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
