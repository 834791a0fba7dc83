"""What people see: numbers of bytes as text, and tables, bars and facts as HTML for notebooks.

All text is escaped. The HTML needs nothing from elsewhere and takes the colours of the page around it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import NewType, TypeAlias

Html = NewType("Html", str)
"""Text that a browser may take as it is."""

_LONGEST_CELL = 2_000
_BAR_PIXELS = 160
_CELL = "padding:2px 12px 2px 0;vertical-align:top"


@dataclass(frozen=True, slots=True)
class Bar:
    """A text beside a bar.

    Attributes:
        text: The text.
        share: The length of the bar, from 0 to 1.
    """

    text: str
    share: float


Cell: TypeAlias = str | int | Bar


def format_bytes(count: int) -> str:
    """Return a number of bytes for people: 3 significant digits, binary units. Differences may be negative."""
    sign, value = "-" if count < 0 else "", float(abs(count))
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{sign}{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{sign}{value:.1f} {unit}"
        value /= 1024
    return f"{sign}{value:.1f} TiB"


def share_of(part: int, whole: int, text: str = "") -> Bar:
    """Return a bar for a part of a whole; the text is `part of whole` by default."""
    return Bar(text or f"{part:,} of {whole:,}", part / whole if whole else 0.0)


def panel(title: str, *parts: Html) -> Html:
    """Return a title with parts below."""
    body = "".join(parts)
    return Html(
        f'<div style="margin:4px 0"><div style="font-weight:bold;margin-bottom:2px">{_text(title)}</div>{body}</div>'
    )


def facts(pairs: Mapping[str, Cell]) -> Html:
    """Return a table of names and values; empty texts are left out."""
    rows = "".join(
        f'<tr><td style="{_CELL};text-align:left;opacity:0.7">{_text(name)}</td>{_cell(value)}</tr>'
        for name, value in pairs.items()
        if value != ""
    )
    return _table(rows)


def table(headers: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Html:
    """Return a table; numbers stand at the right of their columns. Without rows nothing is returned."""
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    if not body:
        return Html("")
    head = "".join(f'<th style="{_CELL};text-align:left;opacity:0.7">{_text(header)}</th>' for header in headers)
    return _table(f"<tr>{head}</tr>{body}")


def sentences(label: str, lines: Iterable[str]) -> Html:
    """Return lines behind a label, such as `warning`; without lines nothing is returned."""
    return Html("".join(f"<div>{_text(label)}: {_text(line)}</div>" for line in lines))


def _table(rows: str) -> Html:
    return Html(f'<table style="border-collapse:collapse;margin:2px 0 6px 0">{rows}</table>')


def _cell(value: Cell) -> str:
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


def show_live(shown: object) -> Callable[[object], None]:
    """Show an object below the notebook cell that runs, and return what replaces it by another.

    Nothing is shown outside of notebooks.
    """
    # In a notebook IPython is imported already.
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    if module is None or not hasattr(shell, "kernel"):
        return lambda _: None
    handle = module.display.display(shown, display_id=True)
    update: Callable[[object], None] = handle.update
    return update
