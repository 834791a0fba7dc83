"""Structured log lines: an event, then key=value pairs, readable for people and log collectors."""

from __future__ import annotations

import json


def log_line(event: str, **fields: object) -> str:
    """Return one line, such as `committed segments=2 seconds=0.31 table="a b"`.

    Args:
        event: The name of the event.
        fields: The pairs. None is left out; texts with blanks, quotes or `=` are quoted as in JSON.
    """
    pairs = (f"{name}={_written(value)}" for name, value in fields.items() if value is not None)
    return " ".join((event, *pairs))


def _written(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    text = str(value)
    is_plain = bool(text) and not any(letter.isspace() or letter in '"=' for letter in text)
    return text if is_plain else json.dumps(text, ensure_ascii=False)
