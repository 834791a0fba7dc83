"""Structured log lines: an event, then key=value pairs, readable for humans and log collectors."""

import json
import logging
import threading
from collections.abc import Mapping

from cachetools import TTLCache
from sqlalchemy.exc import SQLAlchemyError

from puffin_index.storage.caches import cleared_by

_SQL_OF_CATALOG = "\n[SQL:"

_SILENT_SECONDS = 3600.0
_told: TTLCache[str, bool] = TTLCache(10_000, _SILENT_SECONDS)
_told_lock = threading.Lock()
cleared_by(_told.clear, _told_lock)


class LogLine(str):
    """A line, with its event (under `event`) and pairs as members of a JSON object."""

    __slots__ = ("members",)

    members: Mapping[str, object]


def log_line(event: str, **fields: object) -> LogLine:
    """Return one line, such as `committed segments=2 seconds=0.31 table="a b"`, without the pairs that are None."""
    known = {name: value for name, value in fields.items() if value is not None}
    line = LogLine(" ".join((event, *(f"{name}={_written(value)}" for name, value in known.items()))))
    line.members = {"event": event, **known}
    return line


def is_news(about: str) -> bool:
    """Return whether nothing was logged about this in the last hour, and take it as logged."""
    with _told_lock:
        was_told = about in _told
        _told.setdefault(about, True)
    return not was_told


def level_of_trouble(location: str) -> int:
    """Return the level of a line about trouble with a file: a warning once an hour, whichever part is in trouble."""
    return logging.WARNING if is_news(location) else logging.DEBUG


def reason_of(error: BaseException) -> str:
    """Return what an error says, without the statement and the advice that SQLAlchemy and databases add below."""
    # Other errors may quote one of SQLAlchemy's.
    return str(error).partition("\n" if isinstance(error, SQLAlchemyError) else _SQL_OF_CATALOG)[0]


def _written(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    text = str(value)
    is_plain = bool(text) and not any(letter.isspace() or letter in '"=' for letter in text)
    return text if is_plain else json.dumps(text, ensure_ascii=False)
