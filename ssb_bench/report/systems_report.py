"""What a comparison of systems says."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ssb_bench.report.document import Cell, Figure, Line, Marked, Part, Table, failed
from ssb_bench.report.figures import draw_systems
from ssb_bench.results.statistics import summarize
from ssb_bench.systems.run import SystemResult, SystemsRun

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
