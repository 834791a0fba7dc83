"""The picture of a record, by matplotlib: a row of panels for each heading, with bars for the sides of each name."""

from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from ssb_bench.report.tables import shown, unit_of
from ssb_bench.results.record import Record, Step, times_as_fast, together

# Blue and grey stay apart for every kind of colour vision, and in print.
_COLORS: Final = ("#a3a9b3", "#0b6fb8", "#f0a202", "#1c7a3d", "#b3261e", "#7a4fb3", "#3fb8b0", "#8a5a2b", "#d16ba5")
_DRAWN_COUNTS: Final = 2
"""The first counts of a record are drawn."""

_DPI: Final = 130
_SMALL: Final = 7.0
# Any: matplotlib types the keys of its settings as one long list of literals.
_STYLE: Final[dict[Any, Any]] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#e4e6ea",
    "grid.linewidth": 0.7,
    "svg.fonttype": "none",
}


def save(figure: Figure, path: Path) -> None:
    """Write a picture in the format that the path names: PNG, SVG or PDF."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_STYLE):
        figure.savefig(path, dpi=_DPI)


@mpl.rc_context(_STYLE)
def draw(record: Record) -> Figure:
    """Draw the times and the first counts of a record; bars lie, so that names and numbers have room beside them."""
    headings: dict[str, dict[str, list[Step]]] = {}
    for (heading, name), sides in record.rows().items():
        headings.setdefault(heading, {})[name] = [together(steps) for steps in sides.values()]
    counts = [*dict.fromkeys(name for step in record.steps for name in step.counts)][:_DRAWN_COUNTS]
    heights = [0.9 + 0.17 * max(sum(map(len, rows.values())) + len(rows), 9) for rows in headings.values()] or [1.0]
    figure = Figure(figsize=(15, 1.0 + sum(heights)), layout="constrained")
    panels = figure.subplots(len(heights), 1 + len(counts), squeeze=False, height_ratios=heights)
    colors = dict(zip(dict.fromkeys(step.side for step in record.steps), _COLORS * 9, strict=False))
    legend: dict[str, Artist] = {}
    for (heading, rows), (times, *others) in zip(headings.items(), panels, strict=False):
        _draw_times(times, rows, colors)
        times.set_title(heading, loc="left")
        for name, axes in zip(counts, others, strict=True):
            _draw_count(axes, name, rows, colors)
        for axes in (times, *others):
            handles, labels = axes.get_legend_handles_labels()
            legend |= dict(zip(labels, handles, strict=True))
    figure.legend([*legend.values()], [*legend], loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle(f"{record.title}, scale factor {record.scale_factor:g}", fontsize=14, fontweight="bold")
    return figure


def _places(rows: dict[str, list[Step]]) -> list[tuple[float, Step, Step]]:
    """Say where the bar of each step lies, the first name on top; beside it, the first side of its name."""
    places, at = [], 0
    for steps in rows.values():
        places += [(float(at + number), step, steps[0]) for number, step in enumerate(steps)]
        at += len(steps) + 1
    return places


def _draw_times(axes: Axes, rows: dict[str, list[Step]], colors: dict[str, str]) -> None:
    greatest = 0.0
    for place, step, base in _places(rows):
        if step.median is None:
            continue
        axes.barh(place, step.median, 0.95, color=colors[step.side], label=step.side)
        ends = [[step.median - min(step.seconds)], [max(step.seconds) - step.median]]
        axes.errorbar(step.median, place, xerr=ends, fmt="none", ecolor="#333333", elinewidth=0.8)
        greatest = max(greatest, *step.seconds)
        if (ratio := times_as_fast(base, step)) is not None:
            text = f"{ratio:.1f}\N{MULTIPLICATION SIGN}"
            axes.text(max(step.seconds) * 1.08, place, text, ha="left", va="center", fontsize=_SMALL, fontweight="bold")
    if greatest:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlim(right=greatest * 2.2)
    _label(axes, rows, "seconds: median, min to max, and how many times as fast")


def _draw_count(axes: Axes, name: str, rows: dict[str, list[Step]], colors: dict[str, str]) -> None:
    there = [(place, step) for place, step, _ in _places(rows) if name in step.counts]
    scale = 1e6 if name.endswith("bytes") else 1
    for place, step in there:
        bars = axes.barh(place, step.counts[name] / scale, 0.95, color=colors[step.side])
        axes.bar_label(bars, [shown(name, step.counts[name])], fontsize=_SMALL, padding=2)
    axes.set_xlim(0, 1.2 * max([step.counts[name] / scale for _, step in there], default=1) or 1)
    axes.xaxis.set_major_locator(MaxNLocator(6, prune="upper"))
    _label(axes, rows, unit_of(name))


def _label(axes: Axes, rows: dict[str, list[Step]], unit: str) -> None:
    axes.set_xlabel(unit)
    places = _places(rows)
    names = {name: [place for place, step, _ in places if step.name == name] for name in rows}
    axes.set_yticks([sum(own) / len(own) for own in names.values()], [*names])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max((place for place, _, _ in places), default=0.0) + 0.8, -0.8)
    axes.grid(axis="x")
