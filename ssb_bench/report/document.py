"""What a report says, as plain parts, and how they look in a terminal; `page` makes HTML of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from matplotlib.figure import Figure as Picture
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

Mark = Literal["bad", "good", "slow"]

NOISE_BAND: Final = 0.02
"""A ratio within this share of 1 says nothing."""


@dataclass(frozen=True, slots=True)
class Marked:
    """A text that stands out: `bad` for failures and missed targets, `good` and `slow` for changes."""

    text: str
    mark: Mark


Cell: TypeAlias = str | Marked


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading within a section."""

    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence or two."""

    text: Cell


@dataclass(frozen=True, slots=True)
class Table:
    """A table; cells may have several lines, rows may end early; `texts` are columns besides the first with text."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    texts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture: the name of its files, what it shows, and what draws it; for pages only."""

    name: str
    shows: str
    draw: Callable[[], Picture]


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that are seen on demand; for pages only."""

    title: str
    facts: Mapping[str, object]


Part: TypeAlias = Heading | Line | Table | Figure | Facts


def failed(failures: Sequence[str]) -> list[Line]:
    """Say what went wrong, a line each."""
    return [Line(Marked(f"FAILED  {failure}", "bad")) for failure in failures]


def marked_if(is_bad: bool, text: str) -> Cell:
    """Mark a text that misses its target."""
    return Marked(text, "bad") if is_bad else text


def marked_ratio(speed_up: float | None, digits: int) -> Cell:
    """Return a speed-up as text, marked unless it may be noise; empty if there is none."""
    if speed_up is None:
        return ""
    text = f"{speed_up:.{digits}f}"
    return text if abs(speed_up - 1) <= NOISE_BAND else Marked(text, "good" if speed_up > 1 else "slow")


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
