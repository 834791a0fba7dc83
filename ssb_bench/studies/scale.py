"""How planning grows with the number of row groups: simulated indexes of 10^3 to 10^6 of them, one process a probe."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ssb_bench.errors import BenchError
from ssb_bench.studies.scale_probe import SCENARIOS, Probe
from ssb_bench.studies.simulate import segment_multiple, simulate

FORMAT: Final = "ssb-bench/scale/1"
DEFAULT_SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
TARGET_ROW_GROUPS: Final = 1_000_000
TARGET_SECONDS: Final = 0.3
TARGET_BYTES: Final = 1 << 30
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
        simulate_seconds: Time to write them.
        probe: What planning took; None if it was not measured.
        failure: What went wrong, or None.
        left_out: Why it was not tried, or None: no failure.
    """

    scenario: str
    row_groups: int
    index_bytes: int
    simulate_seconds: float
    probe: Probe | None
    failure: str | None
    left_out: str | None = None


def measure_scale(
    scratch: Path,
    sizes: Sequence[int] = DEFAULT_SIZES,
    *,
    repeats: int = 5,
    known: Sequence[ScalePoint] = (),
    on_step: Callable[[str], None] = lambda _: None,
    on_points: Callable[[Sequence[ScalePoint]], None] = lambda _: None,
) -> list[ScalePoint]:
    """Measure every scenario over simulated indexes of these sizes.

    Args:
        scratch: A directory on the disk to measure on; what is put there is deleted again.
        sizes: Numbers of row groups, ascending.
        repeats: Warm plans of each.
        known: Points that were measured before; they are not measured again.
        on_step: Called with what comes next.
        on_points: Called after each point, with all so far.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    points = [point for point in known if point.failure is None]
    for size in sorted({segment_multiple(size) for size in sizes}):
        missing = [name for name in SCENARIOS if not any(p.scenario == name and p.row_groups == size for p in points)]
        left_out = {name: _too_slow(points, name, size) for name in missing}
        points += [ScalePoint(name, size, 0, 0.0, None, None, why) for name, why in left_out.items() if why]
        missing = [name for name in missing if left_out[name] is None]
        if not missing:
            continue
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            on_step(f"{size:,} row groups: writing segments")
            started = time.perf_counter()
            simulated = simulate(Path(folder) / "segments", size)
            seconds = time.perf_counter() - started
            entries = Path(folder) / "entries.arrow"
            with pa.OSFile(str(entries), "wb") as sink, pa.ipc.new_file(sink, simulated.entries.schema) as writer:
                writer.write_table(simulated.entries)
            for scenario in missing:
                on_step(f"{size:,} row groups: {scenario}")
                probe, failure = _run_probe(entries, scenario, repeats)
                points.append(ScalePoint(scenario, size, simulated.index_bytes, seconds, probe, failure))
                on_points(points)
    return points


def _too_slow(points: Sequence[ScalePoint], scenario: str, row_groups: int) -> str | None:
    """Say which smaller index took too long, if one did."""
    for point in points:
        if point.scenario != scenario or point.row_groups >= row_groups or point.probe is None:
            continue
        if point.probe.cold_seconds > _MOST_SECONDS:
            return f"left out: {point.row_groups:,} row groups took {point.probe.cold_seconds:.1f} s"
    return None


def _run_probe(entries: Path, scenario: str, repeats: int) -> tuple[Probe | None, str | None]:
    command = [sys.executable, "-m", "ssb_bench.studies.scale_probe", str(entries), scenario, str(repeats)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PROBE_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return None, f"took longer than {_PROBE_TIMEOUT_SECONDS} s"
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return _probe_of(json.loads(done.stdout)), None


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


def scale_json(
    points: Sequence[ScalePoint], machine: dict[str, str | int], *, complete: bool = True
) -> dict[str, object]:
    """Give the points as JSON; `complete` is false as long as more are to come."""
    return {"format": FORMAT, "complete": complete, "machine": machine, "points": [asdict(point) for point in points]}


def unfinished_points(path: Path, machine: dict[str, str | int]) -> list[ScalePoint]:
    """Give the points of a measurement on this machine that was stopped; none if there is no such file."""
    if not path.exists():
        return []
    points = read_scale(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    return points if not content.get("complete", True) and content["machine"] == machine else []


def read_scale(path: Path) -> list[ScalePoint]:
    """Read points back.

    Raises:
        BenchError: If the file is not of this format.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("format") != FORMAT:
        raise BenchError(f"{path} is not of format {FORMAT}")
    return [
        ScalePoint(**{**point, "probe": None if point["probe"] is None else _probe_of(point["probe"])})
        for point in content["points"]
    ]


# Any: what json.loads gives has no narrower type.
def _probe_of(content: Mapping[str, Any]) -> Probe:
    return Probe(**{**content, "warm_seconds": tuple(content["warm_seconds"])})


def render_scale(points: Sequence[ScalePoint]) -> RenderableType:
    """Lay out the points, what dominates the largest, and the targets."""
    table = Table(box=None, pad_edge=False, title="planning over simulated indexes", title_justify="left")
    for heading in ("scenario", "row groups", "open s", "cold s", "warm s", "cold reads", "cold MB", "warm reads"):
        table.add_column(heading, justify="left" if heading == "scenario" else "right")
    for heading in ("warm MB", "kept", "peak MB"):
        table.add_column(heading, justify="right")
    for point in sorted(points, key=lambda point: (point.scenario, point.row_groups)):
        probe = point.probe
        if probe is None:
            table.add_row(point.scenario, f"{point.row_groups:,}", "null", style="" if point.left_out else "bold red")
            continue
        table.add_row(
            point.scenario,
            f"{point.row_groups:,}",
            *(f"{seconds:.3f}" for seconds in (probe.open_seconds, probe.cold_seconds, probe.warm_median_seconds)),
            *(f"{probe.cold_requests:,}", f"{probe.cold_bytes / 1e6:.1f}"),
            *(f"{probe.warm_requests:,}", f"{probe.warm_bytes / 1e6:.1f}", f"{probe.kept:,}"),
            f"{probe.peak_bytes / 1e6:.0f}",
        )
    failures = [Text(f"FAILED  {failure}", style="bold red") for failure in scale_failures(points)]
    left_out = [Text(f"{p.scenario}, {p.row_groups:,} row groups: {p.left_out}") for p in points if p.left_out]
    return Group(table, *left_out, *_dominating(points), *failures)


def _dominating(points: Sequence[ScalePoint]) -> list[Text]:
    lines: list[Text] = []
    for scenario in SCENARIOS:
        largest = max((p for p in points if p.scenario == scenario and p.probe), key=_size, default=None)
        if largest is None or largest.probe is None:
            continue
        functions = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in [*largest.probe.profile.items()][:4])
        linear = grows_linearly(points, scenario)
        growth = {None: "", True: "linear at worst; ", False: "GROWS FASTER THAN LINEARLY; "}[linear]
        lines.append(Text(f"{scenario}: {growth}warm, {largest.row_groups:,} row groups: {functions}", style="dim"))
    return lines


def _size(point: ScalePoint) -> int:
    return point.row_groups
