"""What a report says, as plain parts: `terminal` prints them, `page` makes HTML of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from matplotlib.figure import Figure as Picture

from ssb_bench.results.statistics import verdict

Mark = Literal["bad", "good", "slow"]


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
    """A table; headings and cells may have several lines.

    Attributes:
        headings: One a column.
        rows: The cells; a row may end before its last columns.
        title: What the table shows.
        texts: Headings of the columns besides the first that hold text, not numbers.
    """

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
    """Return a speed-up as text, marked unless it may be noise; empty if there is none.

    Args:
        speed_up: Time without divided by time with.
        digits: After the decimal point.
    """
    if speed_up is None:
        return ""
    text, change = f"{speed_up:.{digits}f}", verdict(speed_up)
    return text if change == "unchanged" else Marked(text, "good" if change == "faster" else "slow")
