"""The report as one HTML page that needs nothing else, and its pictures as files beside it."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from itertools import repeat
from pathlib import Path
from string import Template

from ssb_bench.report.clustered_report import clustered_parts
from ssb_bench.report.document import Cell, Facts, Figure, Heading, Line, Marked, Part, Table
from ssb_bench.report.figures import save
from ssb_bench.report.opening import opening_parts
from ssb_bench.report.run_report import run_parts
from ssb_bench.report.study_reports import append_parts, scale_parts, step_parts, systems_parts
from ssb_bench.results.run import Run
from ssb_bench.results.statistics import StepTime
from ssb_bench.results.studies import AppendRun, ClusteredRun
from ssb_bench.studies.scale import ScalePoint
from ssb_bench.systems.run import SystemsRun


@dataclass(frozen=True, slots=True)
class Sources:
    """What there is to report; any part may be missing."""

    run: Run | None = None
    systems: SystemsRun | None = None
    appends: AppendRun | None = None
    scale: Sequence[ScalePoint] = ()
    clustered: ClusteredRun | None = None
    steps: Mapping[str, StepTime] = field(default_factory=dict)


def write_page(sources: Sources, path: Path) -> Path:
    """Write the page, and each picture as SVG and PNG into `<page>-pictures` beside it; give that directory."""
    folder = path.with_name(f"{path.stem}-pictures")
    folder.mkdir(parents=True, exist_ok=True)
    body = "\n".join(
        f"<section><h2>{heading}</h2>\n{''.join(_html(part, folder) for part in parts)}</section>"
        for heading, parts in _sections(sources)
    )
    template = Template(files("ssb_bench.report").joinpath("page.html").read_text(encoding="utf-8"))
    made = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    opening = "" if sources.run is None else "".join(_html(part, folder) for part in opening_parts(sources.run))
    path.write_text(template.substitute(made=made, opening=opening, body=body), encoding="utf-8")
    return folder


def _sections(sources: Sources) -> Iterator[tuple[str, Iterator[Part]]]:
    if sources.run is not None:
        yield "Without the index, with it, and perfect pruning", run_parts(sources.run)
    if sources.systems is not None:
        yield "Systems on the same rows", systems_parts(sources.systems)
    if sources.appends is not None:
        yield "While data arrive", append_parts(sources.appends)
    if sources.clustered is not None:
        yield "Keys that come in bursts: row groups kept", clustered_parts(sources.clustered)
    if sources.scale:
        yield "Planning over up to a million row groups", scale_parts(sources.scale)
    if sources.steps:
        yield "Time of each step", step_parts(sources.steps)


def _html(part: Part, folder: Path) -> str:
    match part:
        case Heading(text):
            return f"<h3>{escape(text)}</h3>\n"
        case Line(text):
            return _element("p", text) + "\n"
        case Table():
            return _table(part)
        case Figure():
            return _picture(part, folder)
        case Facts(title, facts):
            items = "".join(f"<dt>{escape(key)}</dt><dd>{escape(str(value))}</dd>" for key, value in facts.items())
            return f"<details><summary>{escape(title)}</summary><dl>{items}</dl></details>\n"


def _picture(figure: Figure, folder: Path) -> str:
    picture, file = figure.draw(), folder / f"{figure.name}.svg"
    for path in (file, file.with_suffix(".png")):
        save(picture, path)
    _, _, svg = file.read_text(encoding="utf-8").partition("<svg ")
    # A screen reader reads the label.
    return f'<figure><svg role="img" aria-label="{escape(figure.shows)}" {svg}</figure>\n'


def _table(table: Table) -> str:
    classes = ["text" if heading in table.texts else "" for heading in table.headings]
    head = "".join(map(_element, repeat("th"), table.headings, classes))
    body = "".join(f"<tr>{''.join(map(_element, repeat('td'), row, classes))}</tr>\n" for row in table.rows)
    title = f"<h4>{escape(table.title)}</h4>" if table.title else ""
    return f"{title}<div class=wide><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>\n"


def _element(name: str, cell: Cell, kind: str = "") -> str:
    marks, text = ([kind, cell.mark], cell.text) if isinstance(cell, Marked) else ([kind], cell)
    present = " ".join(filter(None, marks))
    quoted = f'"{present}"' if " " in present else present
    return f"<{name}{f' class={quoted}' if present else ''}>{escape(text).replace(chr(10), '<br>')}</{name}>"
