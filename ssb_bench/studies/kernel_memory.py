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
from puffin_index.keys.values import column_of, value_type_named
from ssb_bench.studies.kernels import build_kind, chosen_layout

MEMORY_LIMIT: Final = 4.0
"""How many times the size of the Arrow column building may take."""

_CLEAR_REFS: Final = Path("/proc/self/clear_refs")
_STATUS: Final = Path("/proc/self/status")
_RESET_PEAK: Final = "5"
# Every array is given back to the system when it is freed, and Arrow's arrays are no exception.
_ENVIRONMENT: Final = {"MALLOC_MMAP_THRESHOLD_": "131072", "ARROW_DEFAULT_MEMORY_POOL": "system"}
_WARM_UP_ROWS: Final = 2000
_SEED: Final = 20_260_102
_KINDS: Final = ("bsi", "bitmap", "bloom")


@dataclass(frozen=True, slots=True)
class MemoryResult:
    """How much memory building the indexes of one column takes.

    Attributes:
        column: What the column holds.
        arrow_bytes: The size of the Arrow column.
        peak_bytes: The most that the process had more than before, for each kind in the layout that it chooses; the
            Arrow column is not in it.
    """

    column: str
    arrow_bytes: int
    peak_bytes: Mapping[str, int]

    def ratio(self, kind: str) -> float:
        """What building a kind takes, in sizes of the Arrow column."""
        return self.peak_bytes[kind] / self.arrow_bytes


def _integers(low: int, high: int, dtype: type[np.signedinteger]) -> Callable[[int], pa.Array]:
    return lambda count: pa.array(np.random.default_rng(_SEED).integers(low, high, count).astype(dtype))


def _decimals(low: int, high: int, precision: int) -> Callable[[int], pa.Array]:
    def make(count: int) -> pa.Array:
        unscaled = np.random.default_rng(_SEED).integers(low, high, count).tolist()
        return pa.array([Decimal(number).scaleb(-2) for number in unscaled], pa.decimal128(precision, 2))

    return make


def _texts(template: str, share: float) -> Callable[[int], pa.Array]:
    def make(count: int) -> pa.Array:
        generator, distinct = np.random.default_rng(_SEED), max(1, round(count * share))
        numbers = generator.permutation(count) if share == 1 else generator.integers(0, distinct, count)
        return pa.array([template.format(number) for number in numbers.tolist()])

    return make


def _uuids(count: int) -> pa.Array:
    rows = np.random.default_rng(_SEED).integers(0, 256, (count, 16), np.uint8)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), count, [None, pa.py_buffer(rows)])


def _floats(dtype: type[np.floating]) -> Callable[[int], pa.Array]:
    return lambda count: pa.array(np.random.default_rng(_SEED).random(count).astype(dtype))


# What the column holds, its Iceberg type, its values.
_COLUMNS: Final[tuple[tuple[str, str, Callable[[int], pa.Array]], ...]] = (
    ("boolean", "boolean", lambda count: pa.array(np.random.default_rng(_SEED).random(count) < 0.3)),
    ("int, 100 distinct", "int", _integers(0, 100, np.int32)),
    ("int, 26 bits", "int", _integers(0, 1 << 26, np.int32)),
    ("int, 32 bits, both signs", "int", _integers(-(1 << 31), 1 << 31, np.int32)),
    ("date, 2,500 days", "date", lambda count: _integers(8000, 10_500, np.int32)(count).cast(pa.date32())),
    ("long, 26 bits", "long", _integers(0, 1 << 26, np.int64)),
    ("long, 60 bits", "long", _integers(0, 1 << 60, np.int64)),
    ("float, random", "float", _floats(np.float32)),
    ("double, random", "double", _floats(np.float64)),
    ("decimal(9, 2)", "decimal(9, 2)", _decimals(0, 10**9, 9)),
    ("decimal(30, 2)", "decimal(30, 2)", _decimals(0, 10**18, 30)),
    ("uuid", "uuid", _uuids),
    ("string, 10 % distinct", "string", _texts("Customer#{:09d}", 0.1)),
    ("string, all distinct", "string", _texts("{:018d}", 1)),
)


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
        for number, (column, _, _) in enumerate(_COLUMNS):
            on_step(f"memory: {column}")
            arrow_bytes, peaks = pool.submit(_measure, number, value_count).result()
            results.append(MemoryResult(column, arrow_bytes, peaks))
    return results


def _measure(number: int, value_count: int) -> tuple[int, dict[str, int]]:
    _, type_name, make = _COLUMNS[number]
    values = make(value_count)
    peaks: dict[str, int] = {}
    for kind in _KINDS:
        layout = chosen_layout(values, type_name) if kind == "bitmap" else ""
        _peak_of(values[:_WARM_UP_ROWS], type_name, kind, layout)
        peaks[kind] = _peak_of(values, type_name, kind, layout)
    return values.nbytes, peaks


def _peak_of(values: pa.Array, type_name: str, kind: str, layout: str) -> int:
    _CLEAR_REFS.write_text(_RESET_PEAK, encoding="ascii")
    before = _status_bytes("VmRSS")
    build_kind(column_of(values, value_type_named(type_name)), kind, layout)
    return max(0, _status_bytes("VmHWM") - before)


def _status_bytes(name: str) -> int:
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024
