"""A condition as SQL text: for reports, audits and the query log; with literals or without."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, assert_never

import numpy as np
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, MapType, NestedField, StringType, StructType

from planner.condition.places import prefix_end
from planner.condition.tree import nodes
from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.map_key import ColumnId, Contents, MapKey, field_of
from puffin_index.keys.value_types import NAN_KEY, ValueType, value_type_named
from puffin_index.keys.values import value_of

HIDDEN: Final = "?"

_MOST_MEMBERS: Final = 50
_PLAIN = re.compile(
    r"(?!(?:AND|OR|NOT|IN|IS|LIKE|BETWEEN|NULL|TRUE|FALSE|SELECT|WHERE|CASE|CURRENT_\w+|LOCALTIMESTAMP)$)[A-Za-z_]\w*",
    re.IGNORECASE | re.ASCII,
)
_QUOTED = re.compile(r"""[xX]?'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\"""", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w`.])[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?[a-zA-Z]{0,2}(?![\w`])")


def as_sql(predicate: nodes.Predicate, schema: Schema, *, literals: bool = True, for_people: bool = False) -> str:
    """Write a condition as SQL that reads back as the same; people get unknown parts as written, and long lists cut."""
    return _Writer(schema, literals, for_people).write(predicate)


def column_text(column: ColumnId, schema: Schema) -> str:
    """Write the name of a column, or of a key of a map."""
    return _Writer(schema, literals=True, for_people=True).name(column)


def conjuncts_as_sql(predicate: nodes.Predicate, schema: Schema, *, literals: bool, for_people: bool) -> list[str]:
    """Write the parts of a condition that hold together, as `as_sql` does; none if all rows match."""
    parts = predicate.children if isinstance(predicate, nodes.Conjunction) else (predicate,)
    said = (part for part in parts if part != nodes.EVERY_ROW and not _is_of_words(part))
    return [_Writer(schema, literals, for_people).part(part) for part in said]


def quoted(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def name_text(path: Iterable[str]) -> str:
    """The name of a column or field as SQL: in backquotes where it is no plain word."""
    return ".".join(part if _PLAIN.fullmatch(part) else f"`{part.replace('`', '``')}`" for part in path)


def without_literals(text: str) -> str:
    """Replace the literals in a text of Spark's by `?`; a text that is not understood is `?` as a whole."""
    left = _NUMBER.sub(HIDDEN, _QUOTED.sub(HIDDEN, text))
    return HIDDEN if "'" in left or '"' in left else left


@dataclass(frozen=True, slots=True)
class _Writer:
    schema: Schema
    literals: bool
    for_people: bool

    def write(self, predicate: nodes.Predicate) -> str:
        match predicate:
            case nodes.Conjunction(children):
                # What words a text has follows from the test beside it.
                return " AND ".join(self.part(child) for child in children if not _is_of_words(child))
            case nodes.Disjunction(children):
                return " OR ".join(self.part(child) for child in children)
            case nodes.Leaf(Contents() as column, test, value_type):
                return self._contents(column, test, value_type_named(value_type))
            case nodes.Leaf(column, test, value_type):
                return self._leaf(self.name(column), test, value_type_named(value_type))
            case nodes.ByValue(Contents() as column, nodes.ValueTest() as test):
                return self._value_test(f"of {self.name(column)}", test)
            case nodes.ByValue(column, test, text=text):
                if isinstance(test, nodes.EngineTest):
                    return text if self.literals else without_literals(text)
                return self._value_test(self.name(column), test)
            case nodes.Everything(exact, text):
                return "TRUE" if exact else text if self.for_people and text else HIDDEN
            case nodes.Nothing():
                return "FALSE"
            case _:
                assert_never(predicate)

    def part(self, predicate: nodes.Predicate) -> str:
        written = self.write(predicate)
        return f"({written})" if isinstance(predicate, nodes.Conjunction | nodes.Disjunction) else written

    def name(self, column: ColumnId) -> str:
        field_id, key = field_of(column), column.key if isinstance(column, MapKey) else None
        name = name_text(_path(self.schema.fields, field_id) or (f"field {field_id}",))
        if key is None:
            return name
        if not self.literals:
            return f"{name}[{HIDDEN}]"
        maps = self.schema.find_type(field_id)
        match maps.key_type if isinstance(maps, MapType) else None:
            case StringType():
                return f"{name}[{quoted(key)}]"
            case DateType():
                return f"{name}[DATE {quoted(key)}]"
            case _:
                return f"{name}[{key}]"

    def _leaf(self, name: str, test: LeafTest, value_type: ValueType) -> str:
        match test:
            case NullTest(is_null):
                return f"{name} IS {'' if is_null else 'NOT '}NULL"
            case SetTest(keys, negated):
                return self._set(name, keys, value_type, negated=negated)
            case RangeTest(negated=negated):
                written = self._range(name, test, value_type)
                return f"NOT ({written})" if negated else written

    def _contents(self, column: Contents, test: LeafTest, value_type: ValueType) -> str:
        name = self.name(column)
        lists = {"elements": name, "words": f"words({name})"}.get(column.part, f"map_{column.part}({name})")
        match test:
            case NullTest(is_null):
                return f"{name} IS {'' if is_null else 'NOT '}NULL"
            case SetTest(keys, negated):
                found = f"arrays_overlap({lists}, array({self._members(keys, value_type)}))"
                if len(keys) == 1:
                    found = f"array_contains({lists}, {self._literal(keys[0], value_type)})"
                return f"NOT {found}" if negated else found
            case RangeTest(None, None, negated=True):
                return f"size({name}) = 0"
            case RangeTest(negated=negated):
                found = f"exists({lists}, x -> {self._range('x', test, value_type)})"
                return f"NOT {found}" if negated else found

    def _set(self, name: str, keys: Sequence[Key], value_type: ValueType, *, negated: bool) -> str:
        if not keys:
            return f"{name} IS NOT NULL" if negated else "FALSE"
        has_nan = value_type.is_floating and keys[-1] == NAN_KEY
        numbers = keys[:-1] if has_nan else keys
        tests: list[str] = []
        if len(numbers) == 1:
            tests.append(f"{name} {'<>' if negated else '='} {self._literal(numbers[0], value_type)}")
        elif numbers:
            tests.append(f"{name} {'NOT IN' if negated else 'IN'} ({self._members(numbers, value_type)})")
        if has_nan:
            tests.append(f"NOT isnan({name}) AND {name} IS NOT NULL" if negated else f"isnan({name})")
        return " AND ".join(tests) if negated or len(tests) == 1 else f"({' OR '.join(tests)})"

    def _members(self, keys: Sequence[Key], value_type: ValueType) -> str:
        if not self.literals:
            return HIDDEN
        written = [self._literal(key, value_type) for key in (keys[:_MOST_MEMBERS] if self.for_people else keys)]
        return ", ".join(written) + (f", ... {len(keys) - len(written)} more" if len(keys) > len(written) else "")

    def _range(self, name: str, test: RangeTest, value_type: ValueType) -> str:
        low, high = test.low, test.high
        is_prefix = isinstance(high, bytes) and test.low_inclusive and not test.high_inclusive
        if isinstance(low, bytes) and value_type.name == "string" and is_prefix and high == prefix_end(low):
            prefix = re.sub(r"([\\%_])", r"\\\1", low.decode(errors="replace")) + "%"
            return f"{name} LIKE {quoted(prefix) if self.literals else HIDDEN}"
        bounds = []
        if low is not None:
            bounds.append(f"{name} {'>=' if test.low_inclusive else '>'} {self._literal(low, value_type)}")
        if high is not None:
            bounds.append(f"{name} {'<=' if test.high_inclusive else '<'} {self._literal(high, value_type)}")
        return " AND ".join(bounds) or f"{name} IS NOT NULL"

    def _value_test(self, name: str, test: nodes.ValueTest) -> str:
        subject = f"{test.function}({name})" if test.function else name
        written = [str(one) if isinstance(one, int) else quoted(one) for one in test.literals]
        right = ", ".join(written) if self.literals else HIDDEN
        escape = f" ESCAPE {quoted(test.escape)}" if test.escape != "\\" and self.literals else ""
        operand = f"({right})" if test.operator == "IN" else f"{right}{escape}"
        return f"{'NOT ' if test.negated else ''}{subject} {test.operator} {operand}"

    def _literal(self, key: Key, value_type: ValueType) -> str:
        return literal_text(key, value_type) if self.literals else HIDDEN


def _is_of_words(predicate: nodes.Predicate) -> bool:
    return isinstance(predicate, nodes.ByValue) and isinstance(predicate.field_id, Contents)


def literal_text(key: Key, value_type: ValueType) -> str:
    """Return a key as a literal of SQL."""
    value = value_of(key, value_type)
    match value_type.name, key:
        case "date", int():
            return f"DATE '{np.datetime64(key, 'D')}'"
        case "time", int():
            return f"TIME '{_moment(key).partition(' ')[2]}'"
        case "timestamp", int():
            return f"TIMESTAMP_NTZ '{_moment(key)}'"
        case "timestamptz", int():
            return f"TIMESTAMP '{_moment(key)}+00:00'"
        case "uuid" | "string", _:
            return quoted(str(value))
    match value:
        case bool():
            return str(value).upper()
        case float():
            is_float = value_type.name == "float" and float(np.float32(value)) == value
            word = "FLOAT" if is_float else "DOUBLE"
            return f"{value!r}{word[0]}" if math.isfinite(value) else f"{word}('{value!r}')"
        case Decimal():
            return format(value, "f")
        case bytes():
            return f"X'{value.hex()}'"
        case int():
            return str(value)
        case _:
            return quoted(str(value))


def _moment(micros: int) -> str:
    return str(np.datetime64(micros, "us")).replace("T", " ").removesuffix(".000000")


def _path(fields: Iterable[NestedField], field_id: int) -> tuple[str, ...] | None:
    for field in fields:
        if field.field_id == field_id:
            return (field.name,)
        if isinstance(field.field_type, StructType):
            below = _path(field.field_type.fields, field_id)
            if below is not None:
                return (field.name, *below)
    return None
