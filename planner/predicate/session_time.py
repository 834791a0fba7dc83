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

from __future__ import annotations

import re
from datetime import timedelta, timezone, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pyiceberg.expressions import (
    And,
    BooleanExpression,
    In,
    LiteralPredicate,
    NotIn,
    NotStartsWith,
    Or,
    Reference,
    StartsWith,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import DateLiteral, Literal, StringLiteral
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, IcebergType, TimestampType, TimestamptzType

from planner.predicate.found_column import find_column
from planner.predicate.junctions import fold_junctions
from planner.where.sql_literals import (
    InstantLiteral,
    LocalTimestampLiteral,
    SessionTimestampLiteral,
    TextLiteral,
    date_literal,
    timestamp_literal,
)
from planner.where.terms import FieldTerm, MapElement
from planner.where.truth import MAX_ALTERNATIONS
from planner.where.unknown import Unknown
from puffin_index.errors import NotFoundError, did_you_mean

DEFAULT_ZONE: Final = "UTC"

_OFFSET: Final = re.compile(r"(?P<sign>[+-])(?P<hours>0?[0-9]|1[0-7]):(?P<minutes>[0-5][0-9])")
_MICROS_A_DAY = 86_400_000_000
_MICROSECOND = timedelta(microseconds=1)


def zone_named(name: str) -> tzinfo:
    """Return a time zone by its name, or by its offset such as `+05:30`.

    Raises:
        NotFoundError: If there is no such zone.
    """
    if offset := _OFFSET.fullmatch(name):
        minutes = timedelta(hours=int(offset["hours"]), minutes=int(offset["minutes"]))
        return timezone(-minutes if offset["sign"] == "-" else minutes)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise NotFoundError(f"there is no time zone {name!r}{did_you_mean(name, available_timezones())}") from error


def in_session(expression: BooleanExpression, schema: Schema, zone: tzinfo) -> BooleanExpression:
    """Return an expression whose dates and times have the types of their columns, wherever that is certain.

    Args:
        expression: From `planner.where.parser`, without NOT.
        schema: The schema that has the columns.
        zone: The time zone of the session.

    Raises:
        NotFoundError: If the schema lacks a column that is compared with a date, a time or a text.
    """
    too_deep: BooleanExpression = Unknown(text=f"conditions nested more than {MAX_ALTERNATIONS} levels deep")

    def convert(leaf: BooleanExpression, _: bool) -> BooleanExpression:
        return _converted(leaf, schema, zone)

    def join(parts: list[BooleanExpression], is_and: bool) -> BooleanExpression:
        return And(*parts) if is_and else Or(*parts)

    return fold_junctions(expression, leaf=convert, join=join, too_deep=too_deep)


def _converted(leaf: BooleanExpression, schema: Schema, zone: tzinfo) -> BooleanExpression:
    match leaf:
        case StartsWith() | NotStartsWith():
            return leaf
        case LiteralPredicate() if _is_of_time(leaf.literal):
            found = _literal_of(leaf.literal, _type_of(leaf, schema), zone)
            return leaf if found is None else type(leaf)(term=leaf.term, value=found)
        case In() | NotIn() if any(map(_is_of_time, leaf.literals)):
            column_type = _type_of(leaf, schema)
            every = [_literal_of(literal, column_type, zone) for literal in leaf.literals]
            known = {literal for literal in every if literal is not None}
            return leaf if None in every else type(leaf)(term=leaf.term, values=known)
        case _:
            return leaf


def _is_of_time(literal: Literal[Any]) -> bool:
    times = DateLiteral | LocalTimestampLiteral | InstantLiteral | SessionTimestampLiteral | StringLiteral
    return isinstance(literal, times) and not isinstance(literal, TextLiteral)


def _type_of(leaf: UnboundPredicate, schema: Schema) -> IcebergType | None:
    if not isinstance(leaf.term, Reference | MapElement | FieldTerm):
        return None
    found = find_column(schema, leaf.term)
    return None if found is None else found.type


def _literal_of(literal: Literal[Any], column_type: IcebergType | None, zone: tzinfo) -> Literal[Any] | None:
    """Convert a literal to the type of a column; None if that is not certain or not needed."""
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
