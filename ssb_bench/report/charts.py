"""The pictures of the page as SVG: sweep against theory, growth with the number of row groups, systems side by side."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from ssb_bench.report.plot import INDEX_COLOR, WITH_COLOR, WITHOUT_COLOR
from ssb_bench.results.append_results import AppendRun
from ssb_bench.results.results import QueryResult
from ssb_bench.results.statistics import summarize
from ssb_bench.studies.scale import TARGET_ROW_GROUPS, TARGET_SECONDS, ScalePoint
from ssb_bench.studies.sweep import CLUSTERINGS, SweepPoint
from ssb_bench.systems.run import SystemsRun

PERFECT_COLOR: Final = "#3a9a5b"
# Any: matplotlib types the keys of its settings as one long list of literals.
_STYLE: Final[dict[Any, Any]] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
}
_LINE_STYLES: Final = ("-", "--", "-.", ":", (0, (1, 1)))


@dataclass(frozen=True)
class Picture:
    """A figure, drawn once for each form that it is wanted in."""

    figure: Figure

    @cached_property
    def svg(self) -> str:
        """It as the text of an `svg` element."""
        text = io.StringIO()
        self.figure.savefig(text, format="svg")
        return text.getvalue()[text.getvalue().index("<svg") :]


def draw_arms(queries: Sequence[QueryResult]) -> Figure:
    """Draw times without the index, with it and with perfect pruning, and the row groups of those with a plan."""
    planned = any(query.plan is not None for query in queries)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(max(7.0, 1.1 * len(queries)), 5.4 if planned else 3.4), layout="constrained")
        panels = figure.subplots(2 if planned else 1, 1, squeeze=False)[:, 0]
        _draw_times(panels[0], queries)
        if planned:
            _draw_row_groups(panels[1], queries)
        for axes in panels:
            axes.set_xticks(range(len(queries)), [q.name for q in queries], rotation=30 if len(queries) > 8 else 0)
            axes.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
            axes.grid(axis="y", color="#e4e6ea", linewidth=0.7)
            axes.set_axisbelow(True)
    return figure


def _draw_times(axes: Axes, queries: Sequence[QueryResult]) -> None:
    arms = (
        ("without index", WITHOUT_COLOR, [q.without_index for q in queries]),
        ("with index", WITH_COLOR, [q.with_index for q in queries]),
        ("perfect pruning", PERFECT_COLOR, [q.perfect for q in queries]),
    )
    shown = [arm for arm in arms if any(side is not None for side in arm[2])]
    for number, (label, color, sides) in enumerate(shown):
        there = [(place, summarize(side.seconds)) for place, side in enumerate(sides) if side is not None]
        medians = [summary.median_seconds for _, summary in there]
        below = [summary.median_seconds - summary.least_seconds for _, summary in there]
        above = [summary.greatest_seconds - summary.median_seconds for _, summary in there]
        places, width = _places([place for place, _ in there], number, len(shown))
        axes.bar(places, medians, width, color=color, label=label)
        axes.errorbar(places, medians, yerr=[below, above], fmt="none", ecolor="#444", elinewidth=0.8)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("seconds, logarithmic")


def _draw_row_groups(axes: Axes, queries: Sequence[QueryResult]) -> None:
    """Draw the row groups of the scan, those that are kept, and those that hold a match, with their numbers."""
    counts = (
        ("of the scan", WITHOUT_COLOR, [q.plan.row_groups if q.plan else None for q in queries]),
        ("kept with index", WITH_COLOR, [q.plan.kept if q.plan else None for q in queries]),
        ("hold a match", PERFECT_COLOR, [q.survivors for q in queries]),
    )
    for number, (label, color, values) in enumerate(counts):
        there = [(place, value) for place, value in enumerate(values) if value is not None]
        places, width = _places([place for place, _ in there], number, len(counts))
        bars = axes.bar(places, [value for _, value in there], width, color=color, label=label)
        axes.bar_label(bars, fmt="{:,.0f}", fontsize=6.5, padding=1)
    axes.margins(y=0.12)
    axes.set_ylabel("row groups")


def _places(queries: Sequence[int], number: int, count: int) -> tuple[list[float], float]:
    """Give where the bars of side `number` of `count` stand, and their width."""
    width = 0.8 / count
    return [place + (number - (count - 1) / 2) * width for place in queries], width


def draw_scale(points: Sequence[ScalePoint]) -> Figure:
    """Draw warm and cold planning times over the number of row groups, both logarithmic."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(11, 4.2), layout="constrained")
        cold, warm, memory = figure.subplots(1, 3)
        for scenario in dict.fromkeys(point.scenario for point in points):
            mine = sorted((p.row_groups, p.probe) for p in points if p.scenario == scenario and p.probe is not None)
            sizes = [size for size, _ in mine]
            warm.plot(sizes, [p.warm_median_seconds for _, p in mine], marker="o", ms=3, label=scenario)
            cold.plot(sizes, [p.cold_seconds for _, p in mine], marker="o", ms=3, label=scenario)
            memory.plot(sizes, [p.peak_bytes / 1e6 for _, p in mine], marker="o", ms=3)
        warm.plot(
            [TARGET_ROW_GROUPS], [TARGET_SECONDS], marker="*", ms=11, color="#c22", ls="", label="target, equality"
        )
        for axes, title, unit in (
            (cold, "first plan (directories are read)", "seconds"),
            (warm, "later plans", "seconds"),
            (memory, "peak memory of the process", "MB"),
        ):
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_title(title, fontsize=10)
            axes.set_xlabel("row groups")
            axes.set_ylabel(unit)
            axes.grid(color="#e4e6ea", linewidth=0.7)
        figure.legend(*warm.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def draw_appends(run: AppendRun) -> Figure:
    """Draw the lag of each batch, and each query's time, over the time; lines: what the queries take afterwards."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(11, 5.2), layout="constrained")
        lag, times = figure.subplots(2, 1, sharex=True, height_ratios=(2, 3))
        indexed = [(batch.committed_seconds, batch.lag_seconds) for batch in run.appended if batch.lag_seconds]
        lag.bar([at for at, _ in indexed], [seconds for _, seconds in indexed], 0.5, color=INDEX_COLOR, align="edge")
        lag.set_ylabel("seconds from a batch's\ncommit to its index")
        for number, query in enumerate(run.settled_with):
            mine = [execution for execution in run.executions if execution.query == query]
            starts, seconds = [e.started_seconds for e in mine], [e.seconds for e in mine]
            times.plot(starts, seconds, marker="o", ms=3, lw=0.8, color=f"C{number}", label=query)
        for color, label, settled in (
            (WITH_COLOR, "median afterwards, with index", run.settled_with),
            (WITHOUT_COLOR, "median afterwards, without index", run.settled_without),
        ):
            every = [seconds for of_query in settled.values() for seconds in of_query]
            if every:
                times.axhline(summarize(every).median_seconds, color=color, lw=1.2, ls="--", label=label)
        for batch in run.appended:
            times.axvline(batch.committed_seconds, color="#e4e6ea", lw=0.8, zorder=0)
        times.set_ylim(bottom=0)
        times.set_ylabel("seconds of a query")
        times.set_xlabel("seconds from the begin; upright lines: batches are committed")
        figure.legend(*times.get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside right upper")
    return figure


def draw_sweep(points: Sequence[SweepPoint]) -> Figure:
    """Draw the share of row groups kept: a row of heat maps for each clustering, theory last."""
    sizes = sorted({p.row_group_rows for p in points})
    selectivities = sorted({p.selectivity for p in points})
    predicates = sorted({p.predicates for p in points})
    clusterings = [name for name in CLUSTERINGS if any(p.clustering == name for p in points)]
    rows = [*clusterings, "theory"]
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(2.6 * len(predicates) + 1.4, 2.5 * len(rows)), layout="constrained")
        grid = figure.subplots(len(rows), len(predicates), squeeze=False)
        for row, name in enumerate(rows):
            for column, count in enumerate(predicates):
                cells = np.full((len(selectivities), len(sizes)), np.nan)
                for p in points:
                    if p.predicates == count and p.clustering == (clusterings[-1] if name == "theory" else name):
                        share = p.theory if name == "theory" else p.kept
                        cells[selectivities.index(p.selectivity), sizes.index(p.row_group_rows)] = share
                _heat_map(grid[row, column], cells, sizes, selectivities)
                grid[row, column].set_title(f"{name}, {count} predicate{'s' if count > 1 else ''}", fontsize=8)
        grid[0, 0].set_ylabel("selectivity")
    return figure


def _heat_map(
    axes: Axes, cells: np.ndarray[tuple[int, int], np.dtype[np.float64]], sizes: list[int], s: list[float]
) -> None:
    axes.imshow(cells, cmap="YlOrRd", vmin=0, vmax=1, aspect="auto", origin="lower")
    axes.set_xticks(range(len(sizes)), [f"{size // 1000}k" for size in sizes], fontsize=7)
    axes.set_yticks(range(len(s)), [f"{value:.0e}" for value in s], fontsize=7)
    for (y, x), value in np.ndenumerate(cells):
        if not np.isnan(value):
            color = "white" if value > 0.6 else "black"
            axes.text(x, y, f"{value:.0%}", ha="center", va="center", fontsize=6, color=color)


def draw_systems(run: SystemsRun) -> Figure:
    """Draw the warm medians of all systems that ran, a line each over the queries."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(11, 4.2), layout="constrained")
        axes = figure.subplots()
        names = list(run.queries)
        ran = [system for system in run.systems if system.failure is None]
        for number, system in enumerate(ran):
            medians = [system.median(name) for name in names]
            seconds = [np.nan if median is None else median for median in medians]
            style = _LINE_STYLES[number // 4 % len(_LINE_STYLES)]
            axes.plot(names, seconds, marker="o", ms=4, ls=style, label=system.title)
        axes.set_yscale("log")
        axes.set_ylabel("seconds (warm median), logarithmic")
        axes.tick_params(axis="x", rotation=25)
        axes.grid(color="#e4e6ea", linewidth=0.7)
        figure.legend(frameon=False, fontsize=8, loc="outside right upper")
    return figure
