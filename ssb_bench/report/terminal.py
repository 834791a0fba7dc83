"""A report in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from ssb_bench.report.document import Cell, Facts, Figure, Heading, Line, Mark, Marked, Part, Table

_STYLES: Final[dict[Mark, str]] = {"bad": "bold red", "good": "bold green", "slow": "bold yellow"}


def render(parts: Iterable[Part]) -> RenderableType:
    """Lay out a report."""
    return Group(*_rendered(parts))


def _rendered(parts: Iterable[Part]) -> Iterator[RenderableType]:
    for part in parts:
        match part:
            case Heading(text):
                yield Text(text, style="bold")
            case Line(text):
                yield _text(text, "dim")
            case Table():
                yield _table(part)
            case Figure() | Facts():
                pass


def _table(table: Table) -> RichTable:
    laid_out = RichTable(
        title=table.title or None,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for place, heading in enumerate(table.headings):
        is_text = place == 0 or heading in table.texts
        laid_out.add_column(heading, justify="left" if is_text else "right", no_wrap=not is_text)
    for row in table.rows:
        laid_out.add_row(*map(_text, row))
    return laid_out


def _text(cell: Cell, style: str = "") -> Text:
    return Text(cell.text, style=_STYLES[cell.mark]) if isinstance(cell, Marked) else Text(cell, style=style)
