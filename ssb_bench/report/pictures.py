"""What a report is made of, and its pictures: in the page as SVG, and beside it as SVG and PNG files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from ssb_bench.data.workload import Workload
from ssb_bench.report.charts import Picture, draw_appends, draw_arms, draw_scale, draw_sweep, draw_systems
from ssb_bench.results.append_results import AppendRun
from ssb_bench.results.results import QueryResult, Run
from ssb_bench.results.step_times import StepTime
from ssb_bench.studies.scale import ScalePoint
from ssb_bench.studies.sweep import SweepPoint
from ssb_bench.systems.run import SystemsRun

WORKLOADS: Final[dict[Workload, str]] = {
    "count": "Q1-Q7, count(*)",
    "rows": "Q1-Q7, select *",
    "aggregate": "Q1-Q7, aggregates",
    "ssb": "The 13 standard queries, where nothing can be skipped",
}


@dataclass(frozen=True, slots=True)
class Sources:
    """What there is to report; any part may be missing."""

    run: Run | None = None
    systems: SystemsRun | None = None
    appends: AppendRun | None = None
    scale: Sequence[ScalePoint] = ()
    sweep: Sequence[SweepPoint] = ()
    steps: Mapping[str, StepTime] = field(default_factory=dict)


def measured_queries(run: Run, workload: Workload) -> list[QueryResult]:
    """Give the queries of a workload that ran with the index."""
    return [query for query in run.queries if query.workload == workload and query.with_index is not None]


def draw_pictures(sources: Sources) -> dict[str, Picture]:
    """Draw what there is, by name: `queries-<workload>`, `systems`, `appends`, `sweep`, `scale`."""
    return {name: Picture(figure) for name, figure in _figures(sources)}


def _figures(sources: Sources) -> Iterator[tuple[str, Figure]]:
    if sources.run is not None:
        for workload in WORKLOADS:
            measured = measured_queries(sources.run, workload)
            if measured:
                yield f"queries-{workload}", draw_arms(measured)
    if sources.systems is not None:
        yield "systems", draw_systems(sources.systems)
    if sources.appends is not None:
        yield "appends", draw_appends(sources.appends)
    if sources.sweep:
        yield "sweep", draw_sweep(sources.sweep)
    if sources.scale:
        yield "scale", draw_scale(sources.scale)


def write_pictures(pictures: Mapping[str, Picture], page: Path) -> Path:
    """Write each picture as SVG and PNG into `<page>-pictures` beside the page; give that directory."""
    folder = page.with_name(f"{page.stem}-pictures")
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        (folder / f"{name}.svg").write_text(picture.svg, encoding="utf-8")
        picture.figure.savefig(folder / f"{name}.png", dpi=130)
    return folder
