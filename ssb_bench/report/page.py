"""The report as one HTML page that needs nothing else, and its pictures as files beside it."""

import datetime
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from itertools import repeat
from pathlib import Path
from string import Template

from ssb_bench.report.document import Cell, Facts, Figure, Heading, Line, Marked, Part, Table
from ssb_bench.report.figures import save


def write_page(sections: Mapping[str, Iterable[Part]], path: Path) -> Path:
    """Write a page of sections under headings, and each picture as SVG and PNG into the folder that is returned."""
    folder = path.with_name(f"{path.stem}-pictures")
    folder.mkdir(parents=True, exist_ok=True)
    body = "\n".join(
        f"<section><h2>{heading}</h2>\n{''.join(_html(part, folder) for part in parts)}</section>"
        for heading, parts in sections.items()
    )
    template = Template(files("ssb_bench.report").joinpath("page.html").read_text(encoding="utf-8"))
    made = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    path.write_text(template.substitute(made=made, body=body), encoding="utf-8")
    return folder


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
