"""How much memory building an index of one row group takes, measured by the system in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from puffin_index.jobs.worker_pool import worker_pool
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.value_types import value_type_named
from ssb_bench.studies.kernels import build_kind, chosen_layout
from ssb_bench.studies.process_memory import peak_bytes, status_bytes

MEMORY_LIMIT: Final = 4.0
"""How many times the size of the Arrow column building may take."""

_CLEAR_REFS: Final = Path("/proc/self/clear_refs")
_RESET_PEAK: Final = "5"
# With these settings, the memory of every array goes back to the system when the array is freed, Arrow's included.
_ENVIRONMENT: Final = {"MALLOC_MMAP_THRESHOLD_": "131072", "ARROW_DEFAULT_MEMORY_POOL": "system"}
_WARM_UP_ROWS: Final = 2000
_SEED: Final = 20_260_102


@dataclass(frozen=True, slots=True)
class MemoryResult:
    """How much memory building the indexes of one column takes.

    Attributes:
        column: What the column holds.
        arrow_bytes: The size of the Arrow column.
        peak_bytes: By kind, in the layout that it chooses: how much more memory than before the process had at most.
            The Arrow column is not counted.
    """

    column: str
    arrow_bytes: int
    peak_bytes: Mapping[str, int]

    def ratio(self, kind: str) -> float:
        """What building a kind takes, in sizes of the Arrow column."""
        return self.peak_bytes[kind] / self.arrow_bytes


def _decimals(random: np.random.Generator, count: int, high: int, precision: int) -> pa.Array:
    unscaled = random.integers(0, high, count).tolist()
    return pa.array([Decimal(number).scaleb(-2) for number in unscaled], pa.decimal128(precision, 2))


def _uuids(random: np.random.Generator, count: int) -> pa.Array:
    rows = random.integers(0, 256, (count, 16), np.uint8)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), count, [None, pa.py_buffer(rows)])


# What the column holds: its Iceberg type, its values.
_COLUMNS: Final[dict[str, tuple[str, Callable[[np.random.Generator, int], object]]]] = {
    "boolean": ("boolean", lambda random, n: random.random(n) < 0.3),
    "int, 100 distinct": ("int", lambda random, n: random.integers(0, 100, n).astype(np.int32)),
    "int, 26 bits": ("int", lambda random, n: random.integers(0, 1 << 26, n).astype(np.int32)),
    "int, 32 bits, both signs": ("int", lambda random, n: random.integers(-(1 << 31), 1 << 31, n).astype(np.int32)),
    "date, 2,500 days": ("date", lambda random, n: random.integers(8000, 10_500, n).astype("datetime64[D]")),
    "long, 26 bits": ("long", lambda random, n: random.integers(0, 1 << 26, n)),
    "long, 60 bits": ("long", lambda random, n: random.integers(0, 1 << 60, n)),
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


def measure_memory(value_count: int, on_step: Callable[[str], None] = lambda _: None) -> list[MemoryResult]:
    """Build the indexes of columns of many types, each of so many rows.

    Args:
        value_count: The rows.
        on_step: Called with what is measured next.

    Returns:
        What was measured; nothing where the system does not tell a process its peak (only Linux does).
    """
    if not _CLEAR_REFS.exists():
        return []
    results: list[MemoryResult] = []
    with worker_pool(1, _ENVIRONMENT) as pool:
        for column in _COLUMNS:
            on_step(f"memory: {column}")
            results.append(pool.submit(_measure, column, value_count).result())
    return results


def _measure(column: str, value_count: int) -> MemoryResult:
    type_name, make = _COLUMNS[column]
    values = pa.array(make(np.random.default_rng(_SEED), value_count))
    peaks: dict[str, int] = {}
    for kind, layout in (("bsi", ""), ("bitmap", chosen_layout(values, type_name)), ("bloom", "")):
        _peak_of(values[:_WARM_UP_ROWS], type_name, kind, layout)
        peaks[kind] = _peak_of(values, type_name, kind, layout)
    return MemoryResult(column, values.nbytes, peaks)


def _peak_of(values: pa.Array, type_name: str, kind: str, layout: str) -> int:
    _CLEAR_REFS.write_text(_RESET_PEAK, encoding="ascii")
    before = status_bytes("VmRSS")
    build_kind(SortedColumn(column_of(values, value_type_named(type_name))), kind, layout)
    return max(0, peak_bytes() - before)
