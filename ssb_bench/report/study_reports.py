"""What the studies of appends and of scale say, and what each step of a benchmark took.

What the study of stores says. What a comparison of systems says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from ssb_bench.report.document import Cell, Figure, Line, Marked, Part, Table, failed, marked_if
from ssb_bench.report.figures import draw_appends, draw_scale, draw_systems
from ssb_bench.results.statistics import StepTime, Summary, summarize
from ssb_bench.results.studies import AppendRun, StoreRun, StoreStep
from ssb_bench.studies.scale import ScalePoint, grows_linearly, scale_failures
from ssb_bench.studies.scale_probe import SCENARIOS
from ssb_bench.systems.run import SystemResult, SystemsRun

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


_HEADINGS = (
    *("distance ms", "work", "index", "rounds", "seconds", "seconds as rounds", "requests", "of kind", "at once"),
    *("MB read", "MB written", "answer"),
)
_TARGETS = {"one column: plan": 1.5, "two columns: plan": 2.0, "q1: plan": 1.5, "q2: plan": 2.0}
"""The most rounds of a plan whose directories are in memory, by the end of its name."""


def store_parts(run: StoreRun) -> Iterator[Part]:
    """Lay out what each piece of work asked of the store, at each distance."""
    yield Line(
        f"lineorder of scale factor {run.scale_factor:g} in a store: {run.data_files} data files with "
        f"{run.data_bytes / 1e6:.0f} MB, {run.segments} segments with {run.index_bytes / 1e6:.0f} MB. Rounds are the "
        "longest chain of requests, each of which began after the end of the one before. "
        "The answer: row groups kept by a plan, rows counted, read or indexed, segments after compaction."
    )
    for milliseconds in dict.fromkeys(step.milliseconds for step in run.steps):
        rows = [_row(step) for step in run.steps if step.milliseconds == milliseconds]
        yield Table(_HEADINGS, rows, f"a store {milliseconds:g} ms away", ("work", "index", "of kind"))
    yield from failed(run.failures)


def _row(step: StoreStep) -> list[Cell]:
    most = next((most for name, most in _TARGETS.items() if step.name.endswith(name)), None)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in step.by_kind.items())
    return [
        *(f"{step.milliseconds:g}", step.name, "yes" if step.side == "index" else "no"),
        marked_if(most is not None and step.rounds > most, f"{step.rounds:,}"),
        *(f"{step.seconds:.3f}", f"{step.seconds * 1000 / step.milliseconds:.1f}" if step.milliseconds else ""),
        *(f"{step.requests:,}", kinds, f"{step.most_at_once:,}"),
        *(f"{step.bytes_in / 1e6:.2f}", f"{step.bytes_out / 1e6:.2f}"),
        "" if step.answer is None else f"{step.answer:,}",
    ]


_SECONDS = {
    "write_seconds": "written in",
    "build_seconds": "index built in",
    "write_and_build_seconds": "written with its index in",
}
_BYTES = {"data_bytes": "data", "index_bytes": "index"}


def systems_parts(run: SystemsRun) -> Iterator[Part]:
    """Lay out warm and cold times, what each system's data and index took, and which systems are missing."""
    ran = [system for system in run.systems if system.failure is None]
    yield Line(
        f"Scale factor {run.scale_factor:g}: {run.rows:,} rows, {run.row_groups:,} row groups, "
        f"{run.data_bytes / 1e6:.0f} MB of Parquet. Milliseconds."
    )
    yield Figure("systems", "Warm medians of all systems", partial(draw_systems, run))
    # One table for each workload: all queries side by side are too wide.
    workloads: dict[str, list[str]] = {}
    for query in run.queries:
        workloads.setdefault(query.partition("-")[2], []).append(query)
    for title, cell in (("warm: median, least to greatest", _warm), ("cold: first execution", _cold)):
        for queries in workloads.values():
            yield Table(("system", *queries), [[s.title, *(cell(s, query) for query in queries)] for s in ran], title)
    yield from (Line(line) for system in ran for line in (fact_line(system), reads_line(system)) if line)
    yield from (Line(f"not run: {s.title}: {s.failure}") for s in run.systems if s.failure is not None)
    yield from failed(run.failures)


def fact_line(system: SystemResult) -> str:
    """Say in one line what a system is and what making its data and index took; nothing if it does not tell."""
    facts = system.facts
    parts = [str(facts["version"])] if "version" in facts else []
    parts += [f"{what} {float(facts[key]):.1f} s" for key, what in _SECONDS.items() if key in facts]
    parts += [f"{what} {float(facts[key]) / 1e6:.1f} MB" for key, what in _BYTES.items() if key in facts]
    return f"{system.title}: {', '.join(parts)}" if parts else ""


def reads_line(system: SystemResult) -> str:
    """Say in one line what the reader of a system gave, by query; nothing where it is not counted."""
    reads = (f"{query} {read['rows']:,.0f} in {read['files']:,.0f} files" for query, read in system.reads.items())
    return f"{system.title}, rows that its reader gives: {', '.join(reads)}" if system.reads else ""


def _warm(system: SystemResult, query: str) -> Cell:
    if system.median(query) is None:
        return Marked("null", "bad")
    summary = summarize(system.warm[query])
    least, most = summary.least_seconds * 1e3, summary.greatest_seconds * 1e3
    return f"{summary.median_seconds * 1e3:,.1f}\n{least:,.0f} to {most:,.0f}"


def _cold(system: SystemResult, query: str) -> Cell:
    seconds = system.cold.get(query)
    return Marked("null", "bad") if seconds is None else f"{seconds * 1e3:,.1f}"
