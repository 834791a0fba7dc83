"""A run as a picture: times, row groups and bytes, without and with the index."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from ssb_bench.report.terminal import title_of
from ssb_bench.results.results import QueryResult, Run, Side
from ssb_bench.results.statistics import summarize

# Blue and grey stay apart for every kind of colour vision, and in print.
WITHOUT_COLOR: Final = "#a3a9b3"
WITH_COLOR: Final = "#0b6fb8"
INDEX_COLOR: Final = "#f0a202"
INDEX_LABEL: Final = "index, read by the planner"
_BAR_WIDTH: Final = 0.38
_ROOMY: Final = 8
"""So many queries have room for their numbers and names side by side."""
_MEGABYTE: Final = 1e6


def plot_run(run: Run, path: Path) -> None:
    """Draw a run into a PNG file (or SVG or PDF, by the name of the file): a row of panels for each workload."""
    queries = [query for query in run.queries if query.without_index is not None and query.with_index is not None]
    workloads = list(dict.fromkeys(query.workload for query in queries)) or ["count"]
    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(15, 5.4 * len(workloads)), layout="constrained")
        for workload, (times, groups, read) in zip(
            workloads, figure.subplots(len(workloads), 3, squeeze=False), strict=True
        ):
            own = [query for query in queries if query.workload == workload]
            _draw_times(times, own)
            _draw_row_groups(groups, own)
            _draw_bytes(read, own)
            if len(workloads) > 1:
                times.set_title(f"{workload}: {times.get_title()}")
        figure.suptitle(title_of(run), fontsize=14, fontweight="bold")
        handles, labels = read.get_legend_handles_labels()
        order = [labels.index(label) for label in ("without index", "with index", INDEX_LABEL)]
        figure.legend(
            [handles[place] for place in order],
            [labels[place] for place in order],
            loc="outside lower center",
            ncols=3,
            frameon=False,
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=130)


def _draw_times(axes: Axes, queries: Sequence[QueryResult]) -> None:
    for offset, color, label, side_of in _SIDES:
        summaries = [summarize(side_of(query).seconds) for query in queries]
        medians = [summary.median_seconds for summary in summaries]
        below = [summary.median_seconds - summary.least_seconds for summary in summaries]
        above = [summary.greatest_seconds - summary.median_seconds for summary in summaries]
        places = [place + offset for place in range(len(queries))]
        axes.bar(places, medians, _BAR_WIDTH, color=color, label=label)
        axes.errorbar(places, medians, yerr=[below, above], fmt="none", ecolor="#333333", elinewidth=1, capsize=2)
    tops = [max(*_without(query).seconds, *_with(query).seconds) for query in queries]
    for place, (query, top) in enumerate(zip(queries, tops, strict=True)):
        if query.speed_up is not None:
            axes.text(
                place,
                top * 1.08,
                f"{query.speed_up:.1f}\N{MULTIPLICATION SIGN}",
                ha="center",
                va="bottom",
                fontweight="bold",
            )
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(top=max(tops, default=1.0) * 1.6)
    _label(axes, queries, "time (median, min to max)", "seconds, logarithmic")


def _draw_row_groups(axes: Axes, queries: Sequence[QueryResult]) -> None:
    alls = [query.plan.row_groups if query.plan else 0 for query in queries]
    kept = [query.plan.kept if query.plan else 0 for query in queries]
    _bars(axes, [float(count) for count in alls], [float(count) for count in kept], lambda count: f"{count:.0f}")
    _label(axes, queries, "row groups in the scan", "row groups")


def _draw_bytes(axes: Axes, queries: Sequence[QueryResult]) -> None:
    without, with_index = (
        [(side_of(query).bytes_read or 0) / _MEGABYTE for query in queries] for _, _, _, side_of in _SIDES
    )
    index = [query.plan.index_bytes_read / _MEGABYTE if query.plan else 0.0 for query in queries]
    places = [place + _BAR_WIDTH / 2 for place in range(len(queries))]
    axes.bar(places, index, _BAR_WIDTH, bottom=with_index, color=INDEX_COLOR, label=INDEX_LABEL)
    _bars(axes, without, with_index, _short, on_top=index)
    _label(axes, queries, "bytes read", "MB")


def _short(megabytes: float) -> str:
    return f"{megabytes:.0f}" if megabytes >= 10 else f"{megabytes:.2g}"


def _bars(
    axes: Axes,
    without: Sequence[float],
    with_index: Sequence[float],
    text: Callable[[float], str],
    on_top: Sequence[float] = (),
) -> None:
    """Draw both sides with their numbers above them; `on_top` is what stands on the bars with the index already."""
    tops = [height + more for height, more in itertools.zip_longest(with_index, on_top, fillvalue=0.0)]
    for (offset, color, label, _), heights, labelled in zip(
        _SIDES, (without, with_index), (without, tops), strict=True
    ):
        places = [place + offset for place in range(len(heights))]
        axes.bar(places, heights, _BAR_WIDTH, color=color, label=label)
        for place, top in zip(places, labelled, strict=True):
            axes.annotate(
                text(top),
                (place, top),
                (0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=7,
                rotation=0 if len(heights) <= _ROOMY else 90,
            )
    axes.set_ylim(top=max([*without, *tops, 1.0]) * 1.12)


def _label(axes: Axes, queries: Sequence[QueryResult], title: str, unit: str) -> None:
    axes.set_title(title)
    axes.set_ylabel(unit)
    axes.set_xticks(range(len(queries)), [query.name.upper() for query in queries])
    is_narrow = len(queries) > _ROOMY or any(len(query.name) > 4 for query in queries)
    axes.tick_params(axis="x", length=0, labelrotation=40 if is_narrow else 0)
    axes.grid(axis="y", color="#e4e6ea", linewidth=0.8)
    axes.set_axisbelow(True)


def _without(query: QueryResult) -> Side:
    if query.without_index is None:
        raise ValueError(f"{query.name} has no measurement without the index")
    return query.without_index


def _with(query: QueryResult) -> Side:
    if query.with_index is None:
        raise ValueError(f"{query.name} has no measurement with the index")
    return query.with_index


_SIDES: Final = (
    (-_BAR_WIDTH / 2, WITHOUT_COLOR, "without index", _without),
    (_BAR_WIDTH / 2, WITH_COLOR, "with index", _with),
)
