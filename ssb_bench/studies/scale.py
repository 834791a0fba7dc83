"""How planning grows with the number of row groups: simulated indexes of 10^3 to 10^6 of them, one process a probe."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import pyarrow as pa

from puffin_index.jobs.worker_pool import worker_pool
from ssb_bench.studies.scale_probe import SCENARIOS, Probe, probe_file
from ssb_bench.studies.simulate import segment_multiple, simulate

DEFAULT_SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
TARGET_ROW_GROUPS: Final = 1_000_000
TARGET_SECONDS: Final = 0.3
_LINEAR_SLACK: Final = 1.5
_SHORTEST_SECONDS: Final = 0.01
"""Shorter plans are taken as this long: their times are noise."""

_PROBE_TIMEOUT_SECONDS: Final = 600
_MOST_SECONDS: Final = 5.0
"""A scenario whose plan takes longer is not tried with more row groups."""


@dataclass(frozen=True, slots=True)
class ScalePoint:
    """One scenario over one simulated index.

    Attributes:
        scenario: Its name in `SCENARIOS`.
        row_groups: N.
        index_bytes: Bytes of the simulated segments.
        simulate_seconds: Time to write the segments.
        probe: What planning took; None if it was not measured.
        failure: What went wrong, or None.
        left_out: Why the scenario was not tried, which is no failure; None if it was tried.
    """

    scenario: str
    row_groups: int
    index_bytes: int
    simulate_seconds: float
    probe: Probe | None
    failure: str | None
    left_out: str | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """The points of a measurement.

    Attributes:
        machine: Hardware and versions.
        points: The points, smallest indexes first.
    """

    FORMAT: ClassVar = "ssb-bench/scale/2"

    machine: dict[str, str | int]
    points: tuple[ScalePoint, ...]


def measure_scale(
    scratch: Path,
    sizes: Sequence[int] = DEFAULT_SIZES,
    *,
    repeats: int = 5,
    on_step: Callable[[str], None] = lambda _: None,
) -> list[ScalePoint]:
    """Measure every scenario over simulated indexes of these sizes.

    Args:
        scratch: A directory on the disk to measure on; what is put there is deleted again.
        sizes: Numbers of row groups, ascending.
        repeats: Warm plans of each.
        on_step: Called with what comes next.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    points: list[ScalePoint] = []
    for size in sorted({segment_multiple(size) for size in sizes}):
        left_out = {name: too_slow(points, name, size) for name in SCENARIOS}
        points += [ScalePoint(name, size, 0, 0.0, None, None, why) for name, why in left_out.items() if why]
        tried = [name for name, why in left_out.items() if why is None]
        if not tried:
            continue
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            on_step(f"{size:,} row groups: writing segments")
            started = time.perf_counter()
            simulated = simulate(Path(folder) / "segments", size)
            seconds = time.perf_counter() - started
            entries = Path(folder) / "entries.arrow"
            with pa.OSFile(str(entries), "wb") as sink, pa.ipc.new_file(sink, simulated.entries.schema) as writer:
                writer.write_table(simulated.entries)
            for scenario in tried:
                on_step(f"{size:,} row groups: {scenario}")
                probe, failure = _run_probe(entries, scenario, repeats)
                points.append(ScalePoint(scenario, size, simulated.index_bytes, seconds, probe, failure))
    return points


def too_slow(points: Sequence[ScalePoint], scenario: str, row_groups: int) -> str | None:
    """Say which smaller index took too long, if one did."""
    for point in points:
        if (
            point.scenario == scenario
            and point.row_groups < row_groups
            and point.probe is not None
            and point.probe.cold_seconds > _MOST_SECONDS
        ):
            return f"left out: {point.row_groups:,} row groups took {point.probe.cold_seconds:.1f} s"
    return None


def _run_probe(entries: Path, scenario: str, repeats: int) -> tuple[Probe | None, str | None]:
    """Probe in a process of its own, so that nothing else is in its memory; give the probe or what went wrong."""
    with worker_pool(1, {}) as pool:
        future = pool.submit(probe_file, entries, scenario, repeats)
        try:
            error = future.exception(_PROBE_TIMEOUT_SECONDS)
        except TimeoutError:
            pool.shutdown(kill_workers=True)
            return None, f"took longer than {_PROBE_TIMEOUT_SECONDS} s"
    return (future.result(), None) if error is None else (None, f"{type(error).__name__}: {error}")


def grows_linearly(points: Sequence[ScalePoint], scenario: str) -> bool | None:
    """Whether warm planning grows no faster than the row groups, from the largest index to the one before it.

    None if fewer than two sizes were measured.
    """
    measured = [(p.row_groups, p.probe.warm_median_seconds) for p in points if p.scenario == scenario and p.probe]
    if len(measured) < 2:
        return None
    (less, less_seconds), (more, more_seconds) = sorted(measured)[-2:]
    return more_seconds <= _LINEAR_SLACK * more / less * max(less_seconds, _SHORTEST_SECONDS)


def scale_failures(points: Sequence[ScalePoint]) -> list[str]:
    """List what is wrong: probes that failed, and needles that were not found."""
    failures = [f"{p.scenario}, {p.row_groups:,} row groups: {p.failure}" for p in points if p.failure is not None]
    lost = [p for p in points if p.probe is not None and not p.probe.needle_kept]
    return failures + [f"{p.scenario}, {p.row_groups:,} row groups: the matching row group was dropped" for p in lost]
