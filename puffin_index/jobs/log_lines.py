"""Structured log lines: an event, then key=value pairs, readable for people and log collectors."""

from __future__ import annotations

import json
from collections.abc import Mapping

_SQL_OF_CATALOG = "\n[SQL:"


class LogLine(str):
    """A line, with its event and pairs as members of a JSON object.

    Attributes:
        members: The event under `event`, and the pairs.
    """

    __slots__ = ("members",)

    members: Mapping[str, object]


def log_line(event: str, **fields: object) -> LogLine:
    """Return one line, such as `committed segments=2 seconds=0.31 table="a b"`.

    Args:
        event: The name of the event.
        fields: The pairs. None is left out; texts with blanks, quotes or `=` are quoted as in JSON.
    """
    known = {name: value for name, value in fields.items() if value is not None}
    line = LogLine(" ".join((event, *(f"{name}={_written(value)}" for name, value in known.items()))))
    line.members = {"event": event, **known}
    return line


def reason_of(error: BaseException) -> str:
    """Return what an error says, without the SQL statement that a catalog's database adds."""
    return str(error).partition(_SQL_OF_CATALOG)[0]


def _written(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    text = str(value)
    is_plain = bool(text) and not any(letter.isspace() or letter in '"=' for letter in text)
    return text if is_plain else json.dumps(text, ensure_ascii=False)
