"""The pictures of a report, by matplotlib."""

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from ssb_bench.results.run import QueryResult, Run, summarize
from ssb_bench.results.studies import AppendRun, ClusteredRun, ScalePoint, SystemsRun

# Blue and grey stay apart for every kind of colour vision, and in print.
_WITHOUT: Final = "#a3a9b3"
_WITH: Final = "#0b6fb8"
_INDEX: Final = "#f0a202"
_GRID: Final = "#e4e6ea"
_LINE_STYLES: Final = ("-", "--", "-.", ":", (0, (1, 1)))
_DPI: Final = 130
_SMALL: Final = 7.0

# Any: matplotlib types the keys of its settings as one long list of literals.
_STYLE: Final[dict[Any, Any]] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.7,
    "svg.fonttype": "none",
}

Values = Sequence[float | None]
"""A value for each query; None where there is none."""

_styled = mpl.rc_context(_STYLE)


def save(figure: Figure, path: Path) -> None:
    """Write a picture in the format that the path names: PNG, SVG or PDF."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_STYLE):
        figure.savefig(path, dpi=_DPI)


@_styled
def draw_run(run: Run) -> Figure:
    """Draw a run: a row of panels for each workload; bars lie, so that names and numbers have room beside them."""
    measured = {query.workload: run.measured(query.workload) for query in run.queries}
    measured = {workload: queries for workload, queries in measured.items() if queries}
    workloads, names = [*measured.values()] or [[]], [*measured]
    heights = [0.9 + 0.5 * max(len(queries), 3) for queries in workloads]
    figure = Figure(figsize=(15, 1.0 + sum(heights)), layout="constrained")
    panels = figure.subplots(len(workloads), 3, squeeze=False, height_ratios=heights)
    for number, (queries, (times, groups, read)) in enumerate(zip(workloads, panels, strict=True)):
        _draw_times(times, queries)
        _draw_row_groups(groups, queries)
        _draw_bytes(read, queries)
        if len(names) > 1:
            times.set_title(f"{names[number]}: {times.get_title()}")
    legend: dict[str, Artist] = {}
    for axes in panels.flat:
        handles, labels = axes.get_legend_handles_labels()
        legend |= dict(zip(labels, handles, strict=True))
    figure.legend([*legend.values()], [*legend], loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(run.title, fontsize=14, fontweight="bold")
    return figure


def _draw_times(axes: Axes, queries: Sequence[QueryResult]) -> None:
    arms = (
        ("without index", _WITHOUT, [q.without_index for q in queries]),
        ("with index", _WITH, [q.with_index for q in queries]),
    )
    ends = [0.0] * len(queries)
    for number, (label, color, sides) in enumerate(arms):
        there = [(place, summarize(side.seconds)) for place, side in enumerate(sides) if side is not None]
        medians = np.array([summary.median_seconds for _, summary in there])
        below = medians - [summary.least_seconds for _, summary in there]
        above = [summary.greatest_seconds for _, summary in there] - medians
        places, height = _places([place for place, _ in there], number, len(arms))
        axes.barh(places, medians, height, color=color, label=label)
        axes.errorbar(medians, places, xerr=[below, above], fmt="none", ecolor="#333333", elinewidth=0.8)
        for place, summary in there:
            ends[place] = max(ends[place], summary.greatest_seconds)
    for place, (query, end) in enumerate(zip(queries, ends, strict=True)):
        text = f"{query.speed_up:.1f}\N{MULTIPLICATION SIGN}" if query.speed_up is not None else ""
        axes.text(end * 1.08, place, text, ha="left", va="center", fontweight="bold")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(right=max(ends, default=1.0) * 2.2)
    _label(axes, queries, "time (median, min to max), and how many times as fast", "seconds, logarithmic")


def _draw_row_groups(axes: Axes, queries: Sequence[QueryResult]) -> None:
    counts: tuple[tuple[str, Values], ...] = (
        (_WITHOUT, [q.plan.row_groups if q.plan else None for q in queries]),
        (_WITH, [q.plan.kept if q.plan else None for q in queries]),
    )
    for number, (color, values) in enumerate(counts):
        _bars(axes, values, number, len(counts), color, "{:,.0f}".format)
    _label(axes, queries, "row groups: of the scan, kept", "row groups")


def _draw_bytes(axes: Axes, queries: Sequence[QueryResult]) -> None:
    without, with_index = (
        [0.0 if side is None else (side.bytes_read or 0) / 1e6 for side in sides]
        for sides in ([q.without_index for q in queries], [q.with_index for q in queries])
    )
    index = [q.plan.index_bytes_read / 1e6 if q.plan else 0.0 for q in queries]
    _bars(axes, without, 0, 2, _WITHOUT, _short)
    places, height = _places(range(len(queries)), 1, 2)
    axes.barh(places, with_index, height, color=_WITH)
    bars = axes.barh(places, index, height, left=with_index, color=_INDEX, label="index, read by the planner")
    both = [_short(value + more) for value, more in zip(with_index, index, strict=True)]
    axes.bar_label(bars, both, fontsize=_SMALL, padding=2)
    _label(axes, queries, "bytes read", "MB")


def _bars(axes: Axes, values: Values, number: int, count: int, color: str, text: Callable[[float], str]) -> None:
    """Draw the bars of side `number` of `count`, each with its value behind it."""
    there = [(place, value) for place, value in enumerate(values) if value is not None]
    places, height = _places([place for place, _ in there], number, count)
    bars = axes.barh(places, [value for _, value in there], height, color=color)
    axes.bar_label(bars, [text(value) for _, value in there], fontsize=_SMALL, padding=2)


def _places(queries: Sequence[int], number: int, count: int) -> tuple[list[float], float]:
    """Give where the bars of side `number` of `count` lie, and their height."""
    height = 0.8 / count
    return [place + (number - (count - 1) / 2) * height for place in queries], height


def _short(megabytes: float) -> str:
    return f"{megabytes:.0f}" if megabytes >= 10 else f"{megabytes:.2g}"


def _label(axes: Axes, queries: Sequence[QueryResult], title: str, unit: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(unit)
    axes.set_yticks(range(len(queries)), [_name(query) for query in queries])
    axes.tick_params(axis="y", length=0)
    # The first query is on top.
    axes.set_ylim(max(len(queries), 1) - 0.45, -0.55)
    axes.grid(axis="x")
    if axes.get_xscale() == "linear":
        axes.set_xlim(0, 1.12 * max(axes.dataLim.x1, 1e-6))


def _name(query: QueryResult) -> str:
    """The name of a query beside others of its workload: `Q1` of `q1-aggregate`."""
    name = query.name.partition("-")[0]
    return name.upper() if name[1:2].isdigit() else name.replace("_", " ")


@_styled
def draw_scale(points: Sequence[ScalePoint]) -> Figure:
    """Draw first and later planning times, and memory, over the number of row groups; all logarithmic."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    cold, warm, memory = figure.subplots(1, 3)
    for scenario in dict.fromkeys(point.scenario for point in points):
        mine = sorted((p.row_groups, p.probe) for p in points if p.scenario == scenario and p.probe is not None)
        sizes = [size for size, _ in mine]
        warm.plot(sizes, [p.warm_median_seconds for _, p in mine], marker="o", ms=3, label=scenario)
        cold.plot(sizes, [p.cold_seconds for _, p in mine], marker="o", ms=3)
        memory.plot(sizes, [p.peak_bytes / 1e6 for _, p in mine], marker="o", ms=3)
    warm.plot([1_000_000], [0.3], marker="*", ms=11, color="#c22", ls="", label="target, equality")
    for axes, title, unit in (
        (cold, "first plan (directories are read)", "seconds"),
        (warm, "later plans", "seconds"),
        (memory, "peak memory of the process", "MB"),
    ):
        axes.set(xscale="log", yscale="log", title=title, xlabel="row groups", ylabel=unit)
        axes.grid()
    figure.legend(*warm.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


@_styled
def draw_appends(run: AppendRun) -> Figure:
    """Draw the lag of each batch, and each query's time, over the time."""
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    lag, times = figure.subplots(2, 1, sharex=True, height_ratios=(2, 3))
    indexed = [(batch.committed_seconds, batch.lag_seconds) for batch in run.appended if batch.lag_seconds]
    lag.bar([at for at, _ in indexed], [seconds for _, seconds in indexed], 0.5, color=_INDEX, align="edge")
    lag.set_ylabel("seconds from a batch's\ncommit to its index")
    for number, (query, mine) in enumerate(run.by_query().items()):
        starts, seconds = [e.started_seconds for e in mine], [e.seconds for e in mine]
        times.plot(starts, seconds, marker="o", ms=3, lw=0.8, color=f"C{number}", label=query)
    for batch in run.appended:
        times.axvline(batch.committed_seconds, color=_GRID, lw=0.8, zorder=0)
    times.set_ylim(bottom=0)
    times.set_ylabel("seconds of a query")
    times.set_xlabel("seconds from the begin; upright lines: batches are committed")
    figure.legend(*times.get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside right upper")
    return figure


@_styled
def draw_clustered(run: ClusteredRun) -> Figure:
    """Draw the share of row groups kept, a heat map for each order and size; in red frames, too many."""
    orders, sizes, queries, bursts = (
        [*dict.fromkeys(getattr(cell, name) for cell in run.cells)] for name in ("order", "size", "query", "burst")
    )
    figure = Figure(figsize=(5.2 * len(sizes), 0.8 + 2.4 * len(orders)), layout="constrained")
    grid = figure.subplots(len(orders), len(sizes), squeeze=False)
    for axes, (order, size) in zip(grid.flat, product(orders, sizes), strict=True):
        shares, missed = np.zeros((2, len(bursts), len(queries)))
        for (y, burst), (x, query) in product(enumerate(bursts), enumerate(queries)):
            cells = [c for c in run.cells if (c.order, c.size, c.burst, c.query) == (order, size, burst, query)]
            shares[y, x] = sum(cell.kept for cell in cells) / sum(cell.row_groups for cell in cells)
            missed[y, x] = any(cell.is_missed for cell in cells)
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axes.set_xticks(range(len(queries)), queries, fontsize=6, rotation=25)
        axes.set_yticks(range(len(bursts)), [str(burst) for burst in bursts], fontsize=7)
        axes.set_title(f"{order}, row groups of {size}", fontsize=8)
        for (y, x), share in np.ndenumerate(shares):
            frame = {"facecolor": "white", "edgecolor": "#c22", "pad": 1.5} if missed[y, x] else None
            color = "#c22" if missed[y, x] else "white" if share > 0.6 else "black"
            axes.text(x, y, f"{share:.0%}", ha="center", va="center", fontsize=6, color=color, bbox=frame)
    grid[0, 0].set_ylabel("rows of a burst")
    return figure


@_styled
def draw_systems(run: SystemsRun) -> Figure:
    """Draw the warm medians of all systems that ran, a line each over the queries."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    axes = figure.subplots()
    ran = [system for system in run.systems if system.failure is None]
    for number, system in enumerate(ran):
        medians = [system.median(name) for name in run.queries]
        seconds = [np.nan if median is None else median for median in medians]
        style = _LINE_STYLES[number // 4 % len(_LINE_STYLES)]
        axes.plot([*run.queries], seconds, marker="o", ms=4, ls=style, label=system.title)
    axes.set_yscale("log")
    axes.set_ylabel("seconds (warm median), logarithmic")
    axes.tick_params(axis="x", rotation=25)
    axes.grid()
    figure.legend(frameon=False, fontsize=8, loc="outside right upper")
    return figure
