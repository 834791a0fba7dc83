"""Iceberg's description of pushed filters, as Spark's plans show them, in the dialect of WHERE texts.

The description is for people: texts are not escaped, dates and times are numbers. What is ambiguous may be read
wrongly. Advice may then be weaker; no answer depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count

from pyiceberg.schema import Schema
from pyiceberg.types import DateType, IcebergType, TimestampType, TimestamptzType

from planner.where.parser import parse_where
from puffin_index.errors import WhereSyntaxError

_TEXT = re.compile(r"(?<!\bX)'(.*?)'(?=$|, |\)| AND | OR )", re.DOTALL)
_PLACE = re.compile("\x00(\\d+)\x01")
_VALUE = "(?:\x00\\d+\x01|X?'[^']*'|[-+.\\w]+)"
_LEAF = re.compile(
    rf"(?P<name>[^()]+?) (?:(?P<test>IS (?:NOT )?NULL)|(?P<operator><=|>=|!=|=|<|>|(?:NOT )?LIKE) (?P<value>{_VALUE})"
    rf"|(?P<in>(?:NOT )?IN) \((?P<values>{_VALUE}(?:, {_VALUE})*)\))"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """Filters that were pushed into a scan.

    Attributes:
        where: The filters as one WHERE; None if there is none.
        skipped: The filters that are not understood.
    """

    where: str | None
    skipped: tuple[str, ...]


def where_of(description: str, schema: Schema) -> PushedFilters:
    """Translate the description of a scan's filters.

    Args:
        description: The filters, between commas.
        schema: The schema of the table.
    """
    texts: list[str] = []
    # Texts may hold commas and brackets, so that they are set aside first.
    numbers = count()

    def set_aside(match: re.Match[str]) -> str:
        texts.append(match[1])
        return f"\x00{next(numbers)}\x01"

    conjuncts: list[str] = []
    skipped: list[str] = []
    for part in _split(_TEXT.sub(set_aside, description)):
        translated = _translated(part, texts, schema)
        if translated is None:
            skipped.append(_PLACE.sub(lambda match: f"'{texts[int(match[1])]}'", part))
        elif not _is_implied(translated):
            conjuncts.append(translated)
    return PushedFilters(" AND ".join(conjuncts) or None, tuple(skipped))


def _is_implied(conjunct: str) -> bool:
    """Return whether Spark itself adds a condition to others that imply it."""
    return conjunct.endswith(" IS NOT NULL")


def _split(text: str) -> Iterator[str]:
    depth = start = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and text.startswith(", ", place):
            yield text[start:place]
            start = place + 2
    if text[start:].strip():
        yield text[start:]


def _translated(part: str, texts: list[str], schema: Schema) -> str | None:
    # NOT, AND, OR and brackets stay as they are; leaves between them are rewritten.
    pieces = re.split(r"((?:^|(?<=\())\(|\bNOT \(| AND | OR )", part)
    rewritten: list[str] = []
    for piece in pieces:
        leaf = piece.strip("()")
        opening = piece[: len(piece) - len(piece.lstrip("("))]
        match = _LEAF.match(piece, len(opening))
        if not leaf or piece in (" AND ", " OR ", "NOT ("):
            rewritten.append(piece)
            continue
        if match is None or piece[match.end() :].strip(")"):
            return None
        translated = _leaf(match, texts, schema)
        if translated is None:
            return None
        rewritten.append(f"{opening}{translated}{piece[match.end() :]}")
    where = "".join(rewritten)
    try:
        parse_where(where)
    except WhereSyntaxError:
        return None
    return where


def _leaf(match: re.Match[str], texts: list[str], schema: Schema) -> str | None:
    try:
        field = schema.find_field(match["name"], case_sensitive=False)
    except ValueError:
        return None
    name = f"`{match['name'].replace('`', '``')}`"
    if match["test"]:
        return f"{name} {match['test']}"
    if match["operator"] in ("LIKE", "NOT LIKE"):
        place = _PLACE.fullmatch(match["value"])
        if place is None:
            return None
        prefix = re.sub(r"([\\%_])", r"\\\1", texts[int(place[1])].removesuffix("%"))
        return f"{name} {match['operator']} {_quoted(prefix + '%')}"
    if match["operator"]:
        operator = "<>" if match["operator"] == "!=" else match["operator"]
        return f"{name} {operator} {_literal(match['value'], texts, field.field_type)}"
    values = (_literal(value, texts, field.field_type) for value in re.findall(_VALUE, match["values"]))
    return f"{name} {match['in']} ({', '.join(values)})"


def _literal(value: str, texts: list[str], column: IcebergType) -> str:
    place = _PLACE.fullmatch(value)
    if place is not None:
        return _quoted(texts[int(place[1])])
    if not re.fullmatch(r"-?\d+", value):
        return value
    try:
        match column:
            case DateType():
                return f"DATE '{(_EPOCH + timedelta(days=int(value))).date().isoformat()}'"
            case TimestampType():
                moment = _EPOCH + timedelta(microseconds=int(value))
                return f"TIMESTAMP_NTZ '{moment.replace(tzinfo=None).isoformat(sep=' ')}'"
            case TimestamptzType():
                moment = _EPOCH + timedelta(microseconds=int(value))
                return f"TIMESTAMP '{moment.replace(tzinfo=None).isoformat(sep=' ')} UTC'"
            case _:
                return value
    except OverflowError:
        return value


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
