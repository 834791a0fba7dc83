"""The picture of a record, by matplotlib: a row of panels for each heading, with bars for the sides of each name."""

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from ssb_bench.report.tables import shown, unit_of
from ssb_bench.results.record import Record, Step, times_as_fast, together

# Blue and grey stay apart for every kind of colour vision, and in print.
_COLORS: Final = ("#a3a9b3", "#0b6fb8", "#f0a202", "#1c7a3d", "#b3261e", "#7a4fb3", "#3fb8b0", "#8a5a2b", "#d16ba5")
_DRAWN_COUNTS: Final = 2
"""The first counts of a record are drawn."""

_DPI: Final = 130
_SMALL: Final = 7.0
_RANGE: Final = {"ecolor": "#333333", "elinewidth": 0.8}
_STYLE: Final = Path(__file__).with_name("picture.mplstyle")


def save(figure: Figure, path: Path) -> None:
    """Write a picture in the format that the path names: PNG, SVG or PDF."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(fname=_STYLE):
        figure.savefig(path, dpi=_DPI)


@mpl.rc_context(fname=_STYLE)
def draw(record: Record) -> Figure:
    """Draw the times and the first counts of a record; bars lie, so that names and numbers have room beside them."""
    headings: dict[str, dict[str, list[Step]]] = {}
    for (heading, name), sides in record.rows().items():
        headings.setdefault(heading, {})[name] = [together(steps) for steps in sides.values()]
    counts = [*dict.fromkeys(name for step in record.steps for name in step.counts)][:_DRAWN_COUNTS]
    heights = [0.9 + 0.17 * max(sum(map(len, rows.values())) + len(rows), 9) for rows in headings.values()] or [1.0]
    figure = Figure(figsize=(15, 1.0 + sum(heights)), layout="constrained")
    panels = figure.subplots(len(heights), 1 + len(counts), squeeze=False, height_ratios=heights)
    colors = dict(zip(dict.fromkeys(step.side for step in record.steps), cycle(_COLORS), strict=False))
    for (heading, rows), (times, *others) in zip(headings.items(), panels, strict=False):
        _draw_times(times, rows, colors)
        times.set_title(heading, loc="left")
        for name, axes in zip(counts, others, strict=True):
            _draw_count(axes, name, rows, colors)
    patches = [Patch(color=color) for color in colors.values()]
    figure.legend(patches, [*colors], loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle(f"{record.title}, scale factor {record.scale_factor:g}", fontsize=14, fontweight="bold")
    return figure


def _places(axes: Axes, rows: dict[str, list[Step]], unit: str) -> Iterator[tuple[int, Step, Step]]:
    """Say where the bar of each step lies, the first name on top; beside it, the first side of its name."""
    at, middles = 0, list[float]()
    for steps in rows.values():
        yield from ((at + number, step, steps[0]) for number, step in enumerate(steps))
        middles.append(at + (len(steps) - 1) / 2)
        at += len(steps) + 1
    axes.set_xlabel(unit)
    axes.set_yticks(middles, [*rows])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(at, 2) - 1.2, -0.8)
    axes.grid(axis="x")


def _draw_times(axes: Axes, rows: dict[str, list[Step]], colors: dict[str, str]) -> None:
    greatest = 0.0
    for place, step, base in _places(axes, rows, "seconds: median, min to max, and how many times as fast"):
        if step.median is None:
            continue
        most = max(step.seconds)
        ends = [[step.median - min(step.seconds)], [most - step.median]]
        axes.barh(place, step.median, 0.95, color=colors[step.side], xerr=ends, error_kw=_RANGE)
        greatest = max(greatest, most)
        if (ratio := times_as_fast(base, step)) is not None:
            text = f"{ratio:.1f}\N{MULTIPLICATION SIGN}"
            axes.text(most * 1.08, place, text, ha="left", va="center", fontsize=_SMALL, fontweight="bold")
    if greatest:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlim(right=greatest * 2.2)


def _draw_count(axes: Axes, name: str, rows: dict[str, list[Step]], colors: dict[str, str]) -> None:
    greatest, scale = 0.0, 1e6 if name.endswith("bytes") else 1
    for place, step, _ in _places(axes, rows, unit_of(name)):
        if name in step.counts:
            bars = axes.barh(place, step.counts[name] / scale, 0.95, color=colors[step.side])
            axes.bar_label(bars, [shown(name, step.counts[name])], fontsize=_SMALL, padding=2)
            greatest = max(greatest, step.counts[name] / scale)
    axes.set_xlim(0, 1.2 * greatest or 1)
    axes.xaxis.set_major_locator(MaxNLocator(6, prune="upper"))
