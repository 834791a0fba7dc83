"""A comparison of systems as a table in the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ssb_bench.systems.run import SystemResult, SystemsRun


def render_systems(run: SystemsRun) -> RenderableType:
    """Lay out the warm medians, the cold times, what each system's data and index took, and who is missing."""
    ran = [system for system in run.systems if system.failure is None]
    missing = [Text(f"{s.title}: {s.failure}", style="dim") for s in run.systems if s.failure is not None]
    failures = [Text(f"FAILED  {failure}", style="bold red") for failure in run.failures]
    return Group(
        _times(run, ran, "warm, median milliseconds", cold=False),
        _times(run, ran, "cold, milliseconds", cold=True),
        *(Text(fact_line(system), style="dim") for system in ran if system.facts),
        *(Text(reads_line(system), style="dim") for system in ran if system.reads),
        *missing,
        *failures,
    )


def fact_line(system: SystemResult) -> str:
    """Say in one line what a system is and what making its data and index took."""
    facts = system.facts
    parts = [str(facts["version"])] if "version" in facts else []
    parts += [f"{what} {float(facts[key]):.1f} s" for key, what in _SECONDS.items() if key in facts]
    parts += [f"{what} {float(facts[key]) / 1e6:.1f} MB" for key, what in _BYTES.items() if key in facts]
    return f"{system.title}: {', '.join(parts)}"


def reads_line(system: SystemResult) -> str:
    """Say in one line what the reader of a system gave, by query; nothing where it is not counted."""
    reads = (f"{query} {read['rows']:,.0f} in {read['files']:,.0f} files" for query, read in system.reads.items())
    return f"{system.title}, rows that its reader gives: {', '.join(reads)}" if system.reads else ""


_SECONDS = {
    "write_seconds": "written in",
    "build_seconds": "index built in",
    "write_and_build_seconds": "written with its index in",
}
_BYTES = {"data_bytes": "data", "index_bytes": "index"}


def _times(run: SystemsRun, systems: list[SystemResult], title: str, *, cold: bool) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("system")
    for query in run.queries:
        table.add_column(query, justify="right")
    for system in systems:
        table.add_row(system.title, *(_cell(system, query, cold) for query in run.queries))
    return table


def _cell(system: SystemResult, query: str, cold: bool) -> Text:
    seconds = system.cold.get(query) if cold else system.median(query)
    return Text("null", style="bold red") if seconds is None else Text(f"{seconds * 1000:,.1f}")
