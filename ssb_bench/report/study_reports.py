"""What the studies of appends and of scale say, and what each step of a benchmark took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from ssb_bench.report.document import Cell, Figure, Line, Marked, Part, Table, failed, marked_if
from ssb_bench.report.figures import draw_appends, draw_scale
from ssb_bench.results.appends import AppendRun
from ssb_bench.results.statistics import Summary, summarize
from ssb_bench.results.step_times import StepTime
from ssb_bench.studies.scale import ScalePoint, grows_linearly, scale_failures
from ssb_bench.studies.scale_probe import SCENARIOS

_SCALE_HEADINGS = (
    *("scenario", "row groups", "open s", "cold s", "warm s", "cold reads", "cold MB", "warm reads", "warm MB"),
    *("kept", "peak MB", "linear"),
)


def append_parts(run: AppendRun) -> Iterator[Part]:
    """Lay out the lag of the indexes, and the times of the queries meanwhile and afterwards."""
    yield Line(f"{_lag_text(run)}. A watch builds in the background of the application that queries.")
    yield Figure(
        "appends", "Lag of the index and times of queries while batches are appended", partial(draw_appends, run)
    )
    rows = []
    for query in run.settled_with:
        sides = (run.meanwhile(query), run.settled_with[query], run.settled_without[query])
        rows.append([query, str(len(sides[0])), *(_range(summarize(side)) if side else "null" for side in sides)])
    headings = ("query", "executions", "meanwhile", "settled, with", "settled, without")
    yield Table(headings, rows, "queries while data arrive, seconds: median and range")
    yield from failed(run.failures)


def _lag_text(run: AppendRun) -> str:
    """Say in one sentence how long the index of a batch takes."""
    if not run.appended:
        return "no batch was appended"
    known = "no batch was indexed" if run.lag is None else f"indexed {_range(run.lag)} s after its commit"
    took = summarize([batch.write_seconds for batch in run.appended])
    return (
        f"{len(run.appended)} batches of {run.appended[0].rows:,} rows, one every {run.every_seconds:g} s, "
        f"written in {_range(took)} s: {known}"
    )


def _range(summary: Summary) -> str:
    return f"{summary.median_seconds:.2f} ({summary.least_seconds:.2f} to {summary.greatest_seconds:.2f})"


def scale_parts(points: Sequence[ScalePoint]) -> Iterator[Part]:
    """Lay out the points, what dominates the largest ones, what was left out, and failures."""
    yield Line("Simulated indexes: real segments, no data. A process of its own for each line.")
    yield Figure("scale", "Planning time and memory by number of row groups", partial(draw_scale, points))
    ordered = sorted(points, key=lambda point: (point.scenario, point.row_groups))
    yield Table(_SCALE_HEADINGS, [_scale_row(points, point) for point in ordered], "planning over simulated indexes")
    yield from (Line(f"{p.scenario}, {p.row_groups:,} row groups: {p.left_out}") for p in points if p.left_out)
    for scenario in SCENARIOS:
        measured = [(p.row_groups, p.probe) for p in ordered if p.scenario == scenario and p.probe is not None]
        if measured:
            size, probe = measured[-1]
            stages = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in probe.stage_seconds.items())
            yield Line(f"{scenario}, warm, {size:,} row groups: {stages}")
    yield from failed(scale_failures(points))


def _scale_row(points: Sequence[ScalePoint], point: ScalePoint) -> list[Cell]:
    probe = point.probe
    if probe is None:
        return [point.scenario, f"{point.row_groups:,}", marked_if(not point.left_out, "null")]
    linear = grows_linearly(points, point.scenario)
    return [
        *(point.scenario, f"{point.row_groups:,}"),
        *(f"{seconds:.3f}" for seconds in (probe.open_seconds, probe.cold_seconds, probe.warm_median_seconds)),
        *(f"{probe.cold_requests:,}", f"{probe.cold_bytes / 1e6:.1f}"),
        *(f"{probe.warm_requests:,}", f"{probe.warm_bytes / 1e6:.1f}"),
        *(f"{probe.kept:,}", f"{probe.peak_bytes / 1e6:.0f}"),
        "" if linear is None else "yes" if linear else Marked("no", "bad"),
    ]


def step_parts(steps: Mapping[str, StepTime]) -> Iterator[Part]:
    """Lay out what each step of the whole benchmark took, and all together."""
    rows: list[list[Cell]] = [[name, f"{step.seconds:.0f}", _exit_text(step)] for name, step in steps.items()]
    rows.append(["together", f"{sum(step.seconds for step in steps.values()):.0f}"])
    yield Table(("step", "seconds", "ended"), rows)


def _exit_text(step: StepTime) -> Cell:
    return "well" if step.exit_code == 0 else Marked(f"exit code {step.exit_code}", "bad")
