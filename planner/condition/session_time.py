"""Dates and times of a WHERE text, converted to the types of their columns as Spark 4.1 does in a session's time zone.

| column | literal | becomes |
| --- | --- | --- |
| timestamp with zone | `TIMESTAMP`, `TIMESTAMP_NTZ`, `DATE`, text | the instant, read in the session's zone |
| timestamp without | `TIMESTAMP`, also with a zone | the wall clock of the instant, in zones of fixed offset |
| timestamp without | text without a zone | that wall clock |
| date, time | text | that date or time |

Spark converts a column without time zone if the literal has one. In zones that change their clocks two times of the
column may then be one instant, so such a test stays unknown there. Text that Spark refuses stays unknown, too, and so
does a time before 1970 in such a zone (`instant_at`).
"""

import re
from contextlib import suppress
from datetime import timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from planner.condition import literals
from planner.condition.literals import Literal
from puffin_index.errors import NotFoundError, did_you_mean

DEFAULT_ZONE: Final = "UTC"

# What else a database has is read otherwise in Java (`EST`, `WET`), or not at all (`right/Europe/Berlin`).
_PLACE: Final = re.compile(r"(?!posix/|right/)\w+/[\w/+-]+")


def zone_named(name: str) -> tzinfo:
    """Return a time zone by area and city, or by offset such as `+05:30` or `UTC-3`; raise NotFoundError if none."""
    offset = literals.offset_micros(name)
    if offset is not None:
        return timezone(timedelta(microseconds=offset))
    with suppress(ZoneInfoNotFoundError, ValueError, OSError):
        if _PLACE.fullmatch(name):
            return ZoneInfo(name)
    near = did_you_mean(name, filter(_PLACE.fullmatch, available_timezones()))
    raise NotFoundError(f"there is no time zone {name!r}; there are such as Europe/Berlin, +01:00 and UTC{near}")


def in_session(literal: Literal, column_type: str, zone: tzinfo) -> Literal:
    """Convert a date, a time or a text to the type of a column, wherever that is certain."""
    found: Literal | None = None
    with suppress(ValueError):
        match column_type, literal:
            case "date", Literal("string", text):
                found = literals.date_literal(text.decode())
            case "time", Literal("string", text):
                found = literals.time_literal(text.decode())
            case "timestamptz", Literal("string", text):
                found = literals.timestamp_literal("TIMESTAMP", text.decode(), zone)
            case "timestamp", Literal("string", text):
                found = (
                    None
                    if literals.has_zone(text.decode())
                    else literals.timestamp_literal("TIMESTAMP_NTZ", text.decode(), zone)
                )
            case "timestamptz", Literal("date", days):
                found = literals.instant_at(days * literals.MICROS_A_DAY, zone)
            case "timestamp", Literal("date", days):
                found = Literal("timestamp", days * literals.MICROS_A_DAY)
            case "timestamptz", Literal("timestamp", wall_clock):
                found = literals.instant_at(wall_clock, zone)
            case "timestamp", Literal("timestamptz", instant):
                offset = zone.utcoffset(None)
                found = None if offset is None else Literal("timestamp", instant + offset // timedelta(microseconds=1))
    return found or literal
