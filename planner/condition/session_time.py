"""Dates and times of a WHERE text, converted to the types of their columns as Spark 4.1 does in a session's time zone.

| column | literal | becomes |
| --- | --- | --- |
| timestamp with zone | `TIMESTAMP`, `TIMESTAMP_NTZ`, `DATE`, text | the instant, read in the session's zone |
| timestamp without | `TIMESTAMP`, also with a zone | the wall clock of the instant, in zones of fixed offset |
| timestamp without | text without a zone | that wall clock |
| date | text | that date |

Spark converts a column without time zone if the literal has one. In zones that change their clocks two times of the
column may then be one instant, so such a test stays unknown there. Text that Spark refuses stays unknown, too.
"""

import re
from datetime import timedelta, timezone, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pyiceberg.expressions.literals import DateLiteral, Literal, StringLiteral
from pyiceberg.types import DateType, IcebergType, TimestampType, TimestamptzType

from planner.condition.literals import (
    InstantLiteral,
    LocalTimestampLiteral,
    SessionTimestampLiteral,
    date_literal,
    timestamp_literal,
)
from puffin_index.errors import NotFoundError, did_you_mean

DEFAULT_ZONE: Final = "UTC"

_OFFSET: Final = re.compile(r"(?P<sign>[+-])(?P<hours>0?[0-9]|1[0-7]):(?P<minutes>[0-5][0-9])")
_MICROS_A_DAY = 86_400_000_000
_MICROSECOND = timedelta(microseconds=1)


def zone_named(name: str) -> tzinfo:
    """Return a time zone by its name, or by its offset such as `+05:30`.

    Raises NotFoundError if there is no such zone.
    """
    if offset := _OFFSET.fullmatch(name):
        minutes = timedelta(hours=int(offset["hours"]), minutes=int(offset["minutes"]))
        return timezone(-minutes if offset["sign"] == "-" else minutes)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise NotFoundError(f"there is no time zone {name!r}{did_you_mean(name, available_timezones())}") from error


def in_session(literal: Literal[Any], column_type: IcebergType, zone: tzinfo) -> Literal[Any]:
    """Convert a date, a time or a text to the type of a column, wherever that is certain."""
    return _converted(literal, column_type, zone) or literal


def _converted(literal: Literal[Any], column_type: IcebergType, zone: tzinfo) -> Literal[Any] | None:
    match column_type:
        case TimestamptzType():
            return _instant(_read(literal, "TIMESTAMP"), zone)
        case TimestampType():
            return _wall_clock(_read(literal, "TIMESTAMP_NTZ"), zone)
        case DateType():
            return _date(literal)
        case _:
            return None


def _read(literal: Literal[Any], type_name: str) -> Literal[Any] | None:
    """Read a text as a timestamp; other literals stay."""
    if not isinstance(literal, StringLiteral):
        return literal
    try:
        with_zone = timestamp_literal("TIMESTAMP", literal.value)
        if type_name == "TIMESTAMP_NTZ" and not isinstance(with_zone, SessionTimestampLiteral):
            return None
        return timestamp_literal(type_name, literal.value)
    except ValueError:
        return None


def _instant(literal: Literal[Any] | None, zone: tzinfo) -> InstantLiteral | None:
    match literal:
        case InstantLiteral():
            return literal
        case SessionTimestampLiteral():
            return literal.at(zone)
        case LocalTimestampLiteral():
            return SessionTimestampLiteral(literal.value).at(zone)
        case DateLiteral():
            return SessionTimestampLiteral(literal.value * _MICROS_A_DAY).at(zone)
        case _:
            return None


def _wall_clock(literal: Literal[Any] | None, zone: tzinfo) -> LocalTimestampLiteral | None:
    match literal:
        case LocalTimestampLiteral():
            return literal
        case DateLiteral():
            return LocalTimestampLiteral(literal.value * _MICROS_A_DAY)
        case SessionTimestampLiteral() | InstantLiteral():
            offset = zone.utcoffset(None)
            if offset is None:
                return None
            instant = literal.at(zone) if isinstance(literal, SessionTimestampLiteral) else literal
            return LocalTimestampLiteral(instant.value + offset // _MICROSECOND)
        case _:
            return None


def _date(literal: Literal[Any]) -> DateLiteral | None:
    if not isinstance(literal, StringLiteral):
        return literal if isinstance(literal, DateLiteral) else None
    try:
        return date_literal(literal.value)
    except ValueError:
        return None
