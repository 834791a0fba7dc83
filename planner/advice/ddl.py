"""Statements and commands that create indexes, as text to copy."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from puffin_index.keys.map_key import split_name
from puffin_index.kinds.registry import KINDS

_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one table.

    Attributes:
        table: `catalog.namespace.table`.
    """

    table: str

    def create_index(self, column: str, kind: str) -> str:
        """Return the statement that creates the index of a column, or of `map#k#key`."""
        name, key = split_name(column)
        index = re.sub(r"\W+", "_", f"{column}_{kind}")
        option = "" if key is None else f" OPTIONS (key = {_quoted_text(key)})"
        path = ".".join(map(_quoted, name.split(".")))
        return f"CREATE INDEX {_quoted(index)} ON {self._quoted_table} USING {kind} ({path}{option})"

    def create_command(self, indexes: Iterable[tuple[str, str]]) -> str:
        """Return the command line that defines indexes, given as column and kind."""
        by_kind: dict[str, list[str]] = {kind: [] for kind in KINDS}
        for column, kind in indexes:
            by_kind[kind].append(column)
        options = (f"--{kind} {shlex.quote(','.join(columns))}" for kind, columns in by_kind.items() if columns)
        return " ".join(["puffin-index create", shlex.quote(self.table), *options])

    @property
    def _quoted_table(self) -> str:
        return ".".join(map(_quoted, self.table.split(".")))


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _quoted_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
