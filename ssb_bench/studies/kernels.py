"""What an index of one row group takes: the time of its build and of a look-up, its memory and its bytes.

No Spark and no table. Each build is timed in turns with a reference on the same values, on one core, in a process like
those that builds run in. Its memory is measured in another process, where each array that is freed leaves the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from puffin_index.jobs.processor import environment_of_workers
from puffin_index.jobs.worker_pool import worker_pool
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import SetTest
from puffin_index.keys.value_types import value_type_named
from puffin_index.kinds.base import MergedFilter, MergedIndex, Payload, StoredPayload
from puffin_index.kinds.registry import KINDS
from puffin_index.kinds.statistics import statistics_of
from puffin_index.storage.ranged import Blob, BytesReader
from ssb_bench.results.statistics import ratio
from ssb_bench.spark_runs.turns import seconds_of, time_in_turns
from ssb_bench.studies.process_memory import peak_bytes, status_bytes

DEFAULT_VALUES: Final = 1_000_000
MEMORY_LIMIT: Final = 4.0
"""How many times the size of the Arrow column building may take."""

_CLEAR_REFS: Final = Path("/proc/self/clear_refs")
_RESET_PEAK: Final = "5"
# With these settings, the memory of every array goes back to the system when the array is freed, Arrow's included.
_ENVIRONMENT_OF_PEAKS: Final = {"MALLOC_MMAP_THRESHOLD_": "131072", "ARROW_DEFAULT_MEMORY_POOL": "system"}
_WARM_UP_ROWS: Final = 2000
_SEED: Final = 20_260_101


def _decimals(random: np.random.Generator, count: int, high: int, precision: int) -> pa.Array:
    unscaled = random.integers(0, high, count).tolist()
    return pa.array([Decimal(number).scaleb(-2) for number in unscaled], pa.decimal128(precision, 2))


def _uuids(random: np.random.Generator, count: int) -> pa.Array:
    rows = random.integers(0, 256, (count, 16), np.uint8)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), count, [None, pa.py_buffer(rows)])


# What the column holds: its Iceberg type, its values.
COLUMNS: Final[dict[str, tuple[str, Callable[[np.random.Generator, int], object]]]] = {
    "boolean": ("boolean", lambda random, n: random.random(n) < 0.3),
    "int, 100 distinct": ("int", lambda random, n: random.integers(0, 100, n).astype(np.int32)),
    "int, 26 bits": ("int", lambda random, n: random.integers(0, 1 << 26, n).astype(np.int32)),
    "int, 32 bits, both signs": ("int", lambda random, n: random.integers(-(1 << 31), 1 << 31, n).astype(np.int32)),
    "date, 2,500 days": ("date", lambda random, n: random.integers(8000, 10_500, n).astype("datetime64[D]")),
    "long, 100 distinct": ("long", lambda random, n: random.integers(0, 100, n)),
    "long, 26 bits": ("long", lambda random, n: random.integers(0, 1 << 26, n)),
    "long, 60 bits": ("long", lambda random, n: random.integers(0, 1 << 60, n)),
    "long, all distinct": ("long", lambda random, n: random.permutation(n)),
    "float, random": ("float", lambda random, n: random.random(n).astype(np.float32)),
    "double, random": ("double", lambda random, n: random.random(n)),
    "decimal(9, 2)": ("decimal(9, 2)", lambda random, n: _decimals(random, n, 10**9, 9)),
    "decimal(30, 2)": ("decimal(30, 2)", lambda random, n: _decimals(random, n, 10**18, 30)),
    "uuid": ("uuid", _uuids),
    "string, 10 % distinct": (
        "string",
        lambda random, n: [f"Customer#{number:09d}" for number in random.integers(0, max(1, n // 10), n)],
    ),
    "string, all distinct": ("string", lambda random, n: [f"{number:018d}" for number in random.permutation(n)]),
}

# How many times its reference a build may take.
_LIMITS: Final = {
    ("long, 26 bits", "bsi"): 3.0,
    ("long, 100 distinct", "bitmap"): 3.0,
    ("long, all distinct", "bitmap"): 6.0,
    ("long, all distinct", "bloom"): 3.0,
    ("string, 10 % distinct", "bsi"): 3.0,
    ("string, 10 % distinct", "bitmap"): 3.0,
    ("string, 10 % distinct", "bloom"): 3.0,
}


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kind of index of one column.

    Attributes:
        column: What the column holds.
        kind: The kind, in the layout that it chooses.
        rows: Rows of the column.
        arrow_bytes: Size of the Arrow column.
        index_bytes: Size of the index.
        reference_seconds: Each run of `np.sort`, or of `dictionary_encode` where the values are no numbers.
        build_seconds: Each build, from Arrow values to bytes.
        look_up_seconds: Each look-up of one key, from bytes to rows.
        peak_bytes: The memory of the build beyond the Arrow column; None where the system does not tell (only Linux
            does).
    """

    column: str
    kind: str
    rows: int
    arrow_bytes: int
    index_bytes: int
    reference_seconds: tuple[float, ...]
    build_seconds: tuple[float, ...]
    look_up_seconds: tuple[float, ...]
    peak_bytes: int | None

    @property
    def limit(self) -> float | None:
        """How many times the reference the build may take; None where nothing is promised."""
        return _LIMITS.get((self.column, self.kind))

    @property
    def ratio(self) -> float:
        """How many times the reference the build takes, by medians."""
        return ratio(self.build_seconds, self.reference_seconds)

    @property
    def memory_ratio(self) -> float | None:
        """The memory of the build in sizes of the Arrow column; None where the system does not tell."""
        return None if self.peak_bytes is None else self.peak_bytes / self.arrow_bytes


@dataclass(frozen=True, slots=True)
class Kernels:
    """What indexes of one row group take, and the machine."""

    FORMAT: ClassVar = "ssb-bench/kernels/3"

    machine: dict[str, str | int]
    kernels: tuple[Kernel, ...]


def measure_kernels(
    columns: Iterable[str], rows: int, *, repeats: int, on_step: Callable[[str], None] = lambda _: None
) -> list[Kernel]:
    """Measure the indexes of some columns.

    Args:
        columns: Names of `COLUMNS`.
        rows: Rows of each column.
        repeats: How many times each build runs, after one that warms up.
        on_step: Called with the next column.
    """
    kernels: list[Kernel] = []
    environments = environment_of_workers(), _ENVIRONMENT_OF_PEAKS
    with worker_pool(1, environments[0]) as timing, worker_pool(1, environments[1]) as peaks:
        for column in columns:
            on_step(column)
            peak_of = peaks.submit(_peaks, column, rows).result()
            kernels += timing.submit(_time, column, rows, repeats, peak_of).result()
    return kernels


def _time(column: str, rows: int, repeats: int, peaks: dict[str, int]) -> list[Kernel]:
    _stay_on_one_core()
    values = _values(column, rows)
    return [_time_kind(values, column, kind, repeats, peaks.get(kind)) for kind in KINDS]


def _time_kind(values: pa.Array, column: str, kind: str, repeats: int, peak: int | None) -> Kernel:
    is_number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    numbers = values.to_numpy() if is_number else np.empty(0)
    reference = partial(np.sort, numbers) if is_number else values.dictionary_encode
    payload = _build(values, column, kind)
    # Any: the keys of a column are all of one type, which its statistics do not tell.
    least: Any = statistics_of(_sorted(values, column)).minimum
    actions: dict[str, Callable[[], object]] = {
        "reference": reference,
        "build": partial(_build, values, column, kind),
        "look-up": partial(_find, payload, column, kind, len(values), SetTest((least,))),
    }
    times = time_in_turns({name: partial(seconds_of, action) for name, action in actions.items()}, repeats)
    reference_seconds, build_seconds, look_up_seconds = (tuple(times[name]) for name in actions)
    return Kernel(
        *(column, kind, len(values), values.nbytes, len(payload.data)),
        *(reference_seconds, build_seconds, look_up_seconds, peak),
    )


def _peaks(column: str, rows: int) -> dict[str, int]:
    """Give the memory of each build by kind; nothing where the system does not tell a process its peak."""
    if not _CLEAR_REFS.exists():
        return {}
    values, peaks = _values(column, rows), {}
    for kind in KINDS:
        _build(values[:_WARM_UP_ROWS], column, kind)
        _CLEAR_REFS.write_text(_RESET_PEAK, encoding="ascii")
        before = status_bytes("VmRSS")
        _build(values, column, kind)
        peaks[kind] = max(0, peak_bytes() - before)
    return peaks


def _values(column: str, rows: int) -> pa.Array:
    """Make a column: the same one at every call."""
    return pa.array(COLUMNS[column][1](np.random.default_rng(_SEED), rows))


def _sorted(values: pa.Array, column: str) -> SortedColumn:
    return SortedColumn(column_of(values, value_type_named(COLUMNS[column][0])))


def _build(values: pa.Array, column: str, kind: str) -> Payload:
    """Build the only payload of a segment of one row group."""
    builder = KINDS[kind].builder({})
    [built] = [*builder.add(_sorted(values, column), 0), *builder.finish()]
    return built.payload


def _find(payload: Payload, column: str, kind: str, rows: int, test: SetTest) -> object:
    """Open a payload and look for a key, as the planner does."""
    blob, value_type = Blob(BytesReader.of(payload.data), 0, len(payload.data)), value_type_named(COLUMNS[column][0])
    opened = KINDS[kind].open(StoredPayload.of_row_group(blob, payload.blob_type, payload.layout, value_type, rows))
    match opened:
        case MergedIndex():
            return opened.rows(test)
        case MergedFilter():
            raise TypeError(f"kind {kind} builds no filter of several row groups")
        case _:
            return opened.evaluate(test)


def _stay_on_one_core() -> None:
    """Keep this process on one core, where the system can; Arrow's threads too."""
    pa.set_cpu_count(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
