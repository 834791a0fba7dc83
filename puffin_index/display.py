"""What people and programs see of an object: described once, as data, and rendered as HTML, text and JSON.

All text is escaped. The HTML needs nothing from elsewhere and takes the colours of the page around it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from html import escape
from operator import attrgetter
from typing import Any, ClassVar, TypeAlias

_LONGEST_CELL = 2_000
_BAR_PIXELS = 160
_CELL = "padding:2px 12px 2px 0;vertical-align:top"


@dataclass(frozen=True, slots=True)
class Bar:
    """A text beside a bar, whose length is a share from 0 to 1."""

    text: str
    share: float


Cell: TypeAlias = str | int | Bar


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows under the names of columns; without rows, nothing is shown."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, slots=True)
class Report:
    """Describes an object: facts by name (empty texts are left out), grids, sentences, warnings, what is behind it."""

    title: str
    facts: Mapping[str, Cell] = field(default_factory=dict)
    grids: Sequence[Grid] = ()
    sentences: Sequence[str] = ()
    warnings: Sequence[str] = ()
    below: Report | None = None

    def as_html(self) -> str:
        """The description for a notebook."""
        facts = "".join(
            f'<tr><td style="{_CELL};text-align:left;opacity:0.7">{_text(name)}</td>{_html_cell(value)}</tr>'
            for name, value in self._facts()
        )
        body = _html_table(facts) if facts else ""
        body += "".join(map(_html_grid, self.grids))
        body += "".join(f"<div>{_text(line)}</div>" for line in (*self.sentences, *self._warned()))
        body += "" if self.below is None else self.below.as_html()
        title = f'<div style="font-weight:bold;margin-bottom:2px">{_text(self.title)}</div>'
        return f'<div style="margin:4px 0">{title}{body}</div>'

    def as_text(self, *, warns: bool = True) -> str:
        """The description for a terminal, with or without what was in trouble."""
        lines = [self.title, *(f"  {name}: {_plain(value)}" for name, value in self._facts())]
        for grid in self.grids:
            lines += _lines_of(grid)
        lines += [f"  {line}" for line in (*self.sentences, *(self._warned() if warns else ()))]
        return "\n".join([*lines, *([] if self.below is None else [self.below.as_text(warns=warns)])])

    def _warned(self) -> Iterator[str]:
        return (f"warning: {warning}" for warning in self.warnings)

    def _facts(self) -> Iterator[tuple[str, Cell]]:
        return ((name, value) for name, value in self.facts.items() if value != "")


class Described:
    """Is shown by its description; `JSON` lists attributes, dotted or as `key=name`, or `*` for all fields."""

    __slots__ = ()
    JSON: ClassVar[tuple[str, ...]] = ("*",)

    def __repr__(self) -> str:
        return self.describe().as_text()

    def describe(self) -> Report:
        """Describe the object."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return self.describe().as_html()

    def to_json(self) -> dict[str, Any]:
        """The object as `--json` prints it."""
        document: dict[str, Any] = as_json(self)
        return document


def as_json(value: Any) -> Any:
    """A value in the types of JSON, objects by their fields, or by the names that their class lists as `JSON`."""
    match value:
        case Mapping():
            return {str(key): as_json(one) for key, one in value.items()}
        case str() | bytes() | int() | float() | None:
            return value
        case _ if is_dataclass(value):
            own = [field.name for field in fields(value) if not field.name.startswith("_")]
            listed = getattr(value, "JSON", ("*",))
            names = (name.partition("=") for one in listed for name in (own if one == "*" else [one]))
            found = {key.rpartition(".")[2]: attrgetter(name or key)(value) for key, _, name in names}
            return {key: as_json(one() if callable(one) else one) for key, one in found.items()}
        case Iterable():
            return [as_json(one) for one in value]
        case _:
            return value


def format_bytes(count: int) -> str:
    """Return a number of bytes as text: 3 significant digits, binary units. Differences may be negative."""
    sign, value = "-" if count < 0 else "", float(abs(count))
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{sign}{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{sign}{value:.1f} {unit}"
        value /= 1024
    return f"{sign}{value:.1f} TiB"


def share_of(part: int, whole: int, text: str = "") -> Bar:
    """Return a bar for a part of a whole; the text is `part of whole` by default."""
    return Bar(text or f"{part:,} of {whole:,}", part / whole if whole else 0.0)


def _html_grid(grid: Grid) -> str:
    body = "".join(f"<tr>{''.join(map(_html_cell, row))}</tr>" for row in grid.rows)
    head = "".join(f'<th style="{_CELL};text-align:left;opacity:0.7">{_text(header)}</th>' for header in grid.headers)
    return _html_table(f"<tr>{head}</tr>{body}") if body else ""


def _html_table(rows: str) -> str:
    return f'<table style="border-collapse:collapse;margin:2px 0 6px 0">{rows}</table>'


def _html_cell(value: Cell) -> str:
    if isinstance(value, int):
        return f'<td style="{_CELL};text-align:right">{value:,}</td>'
    if isinstance(value, str):
        return f'<td style="{_CELL};text-align:left;overflow-wrap:anywhere">{_text(value)}</td>'
    width = round(_BAR_PIXELS * min(max(value.share, 0.0), 1.0))
    full = f"width:{width}px;background:currentColor;opacity:0.55"
    rest = f"width:{_BAR_PIXELS - width}px;margin-right:8px;background:currentColor;opacity:0.12"
    bar = "".join(f'<span style="display:inline-block;height:9px;{style}"></span>' for style in (full, rest))
    return f'<td style="{_CELL};text-align:left;white-space:nowrap">{bar}{_text(value.text)}</td>'


def _text(text: str) -> str:
    shown = text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}…"
    # A lone half of a surrogate pair has no form in UTF-8, in which notebooks are stored.
    return escape(shown.encode(errors="backslashreplace").decode())


def _plain(value: Cell) -> str:
    return f"{value:,}" if isinstance(value, int) else value if isinstance(value, str) else value.text


def _lines_of(grid: Grid) -> list[str]:
    """A table in columns of even width, numbers at the right."""
    if not grid.rows:
        return []
    texts = [list(grid.headers), *([_plain(value) for value in row] for row in grid.rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    aligns = [">" if isinstance(value, int) else "<" for value in grid.rows[0]]
    cells = (
        [f"{text:{align}{width}}" for text, align, width in zip(row, aligns, widths, strict=True)] for row in texts
    )
    return [f"  {'  '.join(row)}".rstrip() for row in cells]


def show_live(shown: object) -> Callable[[object], None]:
    """Show an object below the notebook cell that runs, if any, and return what replaces it by another."""
    # In a notebook IPython is imported already.
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    if module is None or not hasattr(shell, "kernel"):
        return lambda _: None
    handle = module.display.display(shown, display_id=True)
    update: Callable[[object], None] = handle.update
    return update
