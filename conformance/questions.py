"""Questions about a table's columns, and their answers by an oracle that looks at one source row after the other."""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

from pyiceberg.types import ListType, MapType, UUIDType

from conformance.tables import KitTable

Test: TypeAlias = tuple[dict[str, Any], Callable[[Any], bool]]
"""A test as the kit spells it, and whether it holds for a value."""

MANY_VALUES = 12
"""Columns with more values are asked about some of them only."""

_LONG = 200
_AFTER_ALL = (1, 0.0)
_SUBJECT = re.compile(r"(.*?)#([kc])#(.*)")
_DETAILS = {"k": "map-key", "c": "content"}
_SIDES = {"keys": 0, "values": 1}
_WORD = re.compile(rb"[0-9A-Za-z\x80-\xff]+")
WORD_BLOCK_ROWS = 4_096


def ask(table: KitTable, names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Ask about columns of a table.

    Args:
        table: The table.
        names: The columns, leaves of structs (`a.b`), keys of maps (`m#k#key`), and what rows contain (`a#c#elements`).
    """
    for name in names:
        groups = rows_of(table, name)
        value_type = _value_type(table, name)
        subject = {"field": field_id(table, name), **details(name), "column": name, "type": value_type}
        if subject.get("content") == "words":
            yield from (subject | asked for asked in _of_words(groups))
            continue
        tests = _tests_of_contents if "content" in subject else _tests
        for test, holds in tests(value_type, groups):
            rows = [_steps([n for n, value in enumerate(group) if holds(value)]) for group in groups]
            yield {**subject, **test, "rows": rows}


def rows_of(table: KitTable, name: str) -> list[list[Any]]:
    """Give the value of each row of each row group; for what rows contain, a list of values."""
    top, _, leaf = _plain(name).partition(".")
    own = details(name)
    column = next(column for column in table.columns if column.name == top)
    groups: list[list[Any]] = []
    for file, row_groups in enumerate(table.files):
        values = column.values(file, sum(row_groups))
        if "map-key" in own:
            values = [v and next((value for key, value in v if str(key) == own["map-key"]), None) for v in values]
        elif own.get("content") in _SIDES:
            side = _SIDES[own["content"]]
            values = [None if v is None else [entry[side] for entry in v] for v in values]
        elif leaf:
            values = [None if v is None else v[leaf] for v in values]
        first = 0
        for rows in row_groups:
            groups.append(values[first : first + rows])
            first += rows
    return groups


def field_id(table: KitTable, name: str) -> int:
    """Give the field id of a column; that of the map for a key of a map."""
    return int(table.schema.find_field(_plain(name)).field_id)


def details(name: str) -> dict[str, str]:
    """Give the key of a map, or what of the rows is meant, where the name says one of them."""
    found = _SUBJECT.fullmatch(name)
    return {_DETAILS[found[2]]: found[3]} if found else {}


def _plain(name: str) -> str:
    found = _SUBJECT.fullmatch(name)
    return found[1] if found else name


def _value_type(table: KitTable, name: str) -> str:
    found, content = table.schema.find_type(_plain(name)), details(name).get("content")
    match found:
        case MapType():
            found = found.key_type if content == "keys" else found.value_type
        case ListType():
            found = found.element_type
    return str(found).replace(", ", ",")


def order(value: Any) -> tuple[int, Any]:
    """Give what sorts values as SQL does: NaN is the greatest and equals itself; -0.0 is 0.0; texts by their bytes."""
    if isinstance(value, float):
        return _AFTER_ALL if math.isnan(value) else (0, value + 0.0)
    return 0, value.encode() if isinstance(value, str) else value


def _tests(value_type: str, groups: list[list[Any]]) -> Iterator[Test]:
    """Give tests of a column, each with what holds for a value."""
    there = {order(value): value for group in groups for value in group if value is not None}
    known = [there[place] for place in sorted(there)]
    some = _some(known)
    absent = [value for value in _absent(value_type) if order(value) not in there]
    for negated in (False, True):
        yield _null_test(negated)
    for value in (*some, *absent):
        yield _set_test(value_type, [value], negated=False)
    for members in [some[:1], some[::2], some[1::3], []] if some else [absent]:
        yield _set_test(value_type, members, negated=False)
        yield _set_test(value_type, members, negated=True)
    bounds = [*some[:: max(1, len(some) // 4)], *_absent(value_type)[:1]]
    pairs = [*((None, value) for value in bounds), *((value, None) for value in bounds), *pairwise(bounds)]
    pairs += [(bounds[0], bounds[0]), (bounds[-1], bounds[0])]
    for number, (low, high) in enumerate(pairs):
        yield _range_test(value_type, low, high, (number % 2 == 0, number % 3 == 0), negated=number % 5 == 4)


def _tests_of_contents(value_type: str, groups: list[list[Any]]) -> Iterator[Test]:
    """Give tests of what rows contain, each with what holds for a row's list of values."""
    contained = [[value for row in group for value in row or ()] for group in groups]
    own = _range_test(value_type, None, None, (True, True), negated=False)
    nothing = _range_test(value_type, None, None, (True, True), negated=True)
    for test, holds in (*_tests(value_type, contained), own, nothing):
        yield test, holds if test["test"] == "null" else partial(_holds_of_contents, holds, test["negated"])


def _words(text: str) -> list[str]:
    return [word.decode() for word in _WORD.findall(text.encode())]


def _of_words(groups: list[list[str | None]]) -> Iterator[dict[str, Any]]:
    """Ask which rows lie in a block of which a row has a word; nobody asks which rows lack one."""
    words = [
        [None if text is None else [*map(bytes.decode, _WORD.findall(text.encode()))] for text in group]
        for group in groups
    ]
    for test, holds in _tests_of_contents("string", words):
        if test["test"] == "null":
            yield test | {"rows": [_steps([n for n, own in enumerate(group) if holds(own)]) for group in words]}
        elif not test["negated"]:
            rows = []
            for group in words:
                blocks = {n // WORD_BLOCK_ROWS for n, own in enumerate(group) if holds(own)}
                rows.append(_steps([n for n in range(len(group)) if n // WORD_BLOCK_ROWS in blocks]))
            yield test | {"rows": rows}


def _holds_of_contents(holds: Callable[[Any], bool], negated: bool, row: list[Any] | None) -> bool:
    """Say whether one value of a row satisfies a test; negated, whether all values do, of which none is NULL."""
    return row is not None and (all if negated else any)(map(holds, row))


def _some(known: list[Any]) -> list[Any]:
    """Choose from many values, and from long ones a few."""
    most = 4 if any(isinstance(value, str) and len(value) > _LONG for value in known) else MANY_VALUES
    return known if len(known) <= 2 * most else [*known[:: len(known) // most], known[-1]]


def _null_test(negated: bool) -> Test:
    return {"test": "null", "negated": negated}, lambda value: (value is None) != negated


def _set_test(value_type: str, members: Sequence[Any], *, negated: bool) -> Test:
    wanted = {order(member) for member in members}
    test = {"test": "in", "negated": negated, "values": [_text(value_type, member) for member in members]}
    return test, lambda value: value is not None and (order(value) in wanted) != negated


def _range_test(value_type: str, low: Any, high: Any, inclusive: tuple[bool, bool], *, negated: bool) -> Test:
    test = {
        "test": "range",
        "negated": negated,
        "low": None if low is None else _text(value_type, low),
        "high": None if high is None else _text(value_type, high),
        "low-inclusive": inclusive[0],
        "high-inclusive": inclusive[1],
    }

    def holds(value: Any) -> bool:
        if value is None:
            return False
        place = order(value)
        above = low is None or place > order(low) or (inclusive[0] and place == order(low))
        below = high is None or place < order(high) or (inclusive[1] and place == order(high))
        return (above and below) != negated

    return test, holds


def _absent(value_type: str) -> list[Any]:
    """Give values that the tables lack, or some of them have."""
    if value_type.startswith("decimal"):
        return [Decimal("77.77"), Decimal("-0.02")]
    if value_type.startswith("fixed"):
        return [b"abd"]
    some: dict[str, list[Any]] = {
        "boolean": [True],
        "int": [5, -100, 1_000_000],
        "long": [17, -100_000, 1 << 41],
        "date": [date(2001, 2, 3)],
        "time": [time(1, 2, 3)],
        "timestamp": [datetime(2001, 2, 3, 4, 5, 6)],
        "timestamptz": [datetime.fromisoformat("2001-02-03T04:05:06+00:00")],
        "float": [3.25],
        "double": [3.25, -1e300],
        "string": ["aa", "zzz", "\U0010ffff", "\uffff"],
        "binary": [b"\x00\x01"],
        "uuid": [bytes(range(16))],
    }
    return some[value_type]


def _text(value_type: str, value: Any) -> str:
    """Spell a value: binary as hexadecimal digits, numbers so that they come back, moments as ISO 8601."""
    match value:
        case bool():
            return str(value).lower()
        case bytes():
            return str(uuid.UUID(bytes=value)) if value_type == str(UUIDType()) else value.hex()
        case float():
            return repr(value)
        case date() | time():
            return value.isoformat()
        case _:
            return str(value)


def _steps(rows: list[int]) -> list[list[int]]:
    """Give first row, last row and step of each run of rows at one distance."""
    runs: list[list[int]] = []
    for row in rows:
        if runs and runs[-1][0] == runs[-1][1]:
            runs[-1][1:] = [row, row - runs[-1][0]]
        elif runs and row == runs[-1][1] + runs[-1][2]:
            runs[-1][1] = row
        else:
            runs.append([row, row, 1])
    return runs
