"""Records as one HTML page that needs nothing else, and their pictures as files beside it."""

import datetime
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from rich.text import Text

from ssb_bench.report.picture import draw, save
from ssb_bench.report.tables import Part, parts_of
from ssb_bench.results.record import Record


def write_page(records: Sequence[Record], path: Path) -> Path:
    """Write a page of some records, and the picture of each as SVG and PNG into the folder that is returned."""
    folder = path.with_name(f"{path.stem}-pictures")
    folder.mkdir(parents=True, exist_ok=True)
    body = "\n".join(_section(record, folder) for record in records)
    template = Template(files("ssb_bench.report").joinpath("page.html").read_text(encoding="utf-8"))
    made = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    path.write_text(template.substitute(made=made, body=body), encoding="utf-8")
    return folder


def _section(record: Record, folder: Path) -> str:
    picture, file, title = draw(record), folder / f"{record.study}.svg", escape(record.title)
    for path in (file, file.with_suffix(".png")):
        save(picture, path)
    _, _, svg = file.read_text(encoding="utf-8").partition("<svg ")
    # A screen reader reads the label.
    figure = f'<figure><svg role="img" aria-label="{title}: times and counts" {svg}</figure>\n'
    parts = "".join(map(_html, parts_of(record)))
    machine = "".join(f"<dt>{escape(key)}</dt><dd>{escape(str(fact))}</dd>" for key, fact in record.machine.items())
    details = f"<details><summary>machine</summary><dl>{machine}</dl></details>\n"
    return f"<section><h2>{title}</h2>\n{figure}{parts}{details}</section>"


def _html(part: Part) -> str:
    if isinstance(part, Text):
        return _element("p", part) + "\n"
    head = "".join(_element("th", column.header) for column in part.columns)
    rows = zip(*(column.cells for column in part.columns), strict=True)
    body = "".join(f"<tr>{''.join(_element('td', cell) for cell in row)}</tr>\n" for row in rows)
    title = f"<h3>{escape(str(part.title))}</h3>" if part.title else ""
    return f"{title}<div class=wide><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>\n"


def _element(name: str, cell: object) -> str:
    style = f' class="{cell.style}"' if isinstance(cell, Text) and cell.style else ""
    return f"<{name}{style}>{escape(str(cell)).replace(chr(10), '<br>')}</{name}>"
