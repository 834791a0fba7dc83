"""The predicate tree that the planner evaluates: leaf tests by field id under AND and OR. NOT is at the leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.map_key import ColumnId


@dataclass(frozen=True, slots=True)
class Leaf:
    """A test of one column.

    Attributes:
        field_id: The column, or a key of a map.
        test: In the key domain of the column's type.
        value_type: Name of the type that the keys belong to. An index of another key domain can't answer.
    """

    field_id: ColumnId
    test: LeafTest
    value_type: str


@dataclass(frozen=True, slots=True)
class Everything:
    """All rows match; or, where `exact` is false, any row may (an upper bound)."""

    exact: bool


@dataclass(frozen=True, slots=True)
class Nothing:
    """No row matches."""


@dataclass(frozen=True, slots=True)
class Conjunction:
    """All children hold."""

    children: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Disjunction:
    """At least one child holds."""

    children: tuple[Predicate, ...]


Predicate: TypeAlias = Leaf | Everything | Nothing | Conjunction | Disjunction

UNKNOWN = Everything(exact=False)


def leaves(predicate: Predicate) -> Iterator[Leaf]:
    """Yield the leaves, left to right."""
    pending = [predicate]
    while pending:
        match pending.pop():
            case Leaf() as leaf:
                yield leaf
            case Conjunction(children) | Disjunction(children):
                pending.extend(reversed(children))
            case Everything() | Nothing():
                pass


def conjunction(children: list[Predicate]) -> Predicate:
    """Build an AND: flattened, without parts that are always true. A column gets one range and one `NOT IN`."""
    flat: list[Predicate] = []
    for child in children:
        flat.extend(child.children if isinstance(child, Conjunction) else (child,))
    if any(isinstance(child, Nothing) for child in flat):
        return Nothing()
    exact = all(child.exact for child in flat if isinstance(child, Everything))
    kept = _merge_leaves([child for child in flat if not isinstance(child, Everything)])
    if not exact:
        kept.append(UNKNOWN)
    if not kept:
        return Everything(exact=True)
    return kept[0] if len(kept) == 1 else Conjunction(tuple(kept))


def _merge_leaves(children: list[Predicate]) -> list[Predicate]:
    """Intersect the ranges of a column. Leave out `IS NOT NULL` where another test of the column implies it."""
    ranges: dict[ColumnId, Leaf] = {}
    tested: set[ColumnId] = set()
    for child in children:
        if isinstance(child, Leaf) and not isinstance(child.test, NullTest):
            tested.add(child.field_id)
            if isinstance(child.test, RangeTest) and not child.test.negated:
                earlier = ranges.get(child.field_id)
                test = child.test if earlier is None else _intersect(earlier.test, child.test)
                ranges[child.field_id] = Leaf(child.field_id, test, child.value_type)
    merged: list[Predicate] = list(ranges.values())
    for child in children:
        if isinstance(child, Leaf):
            if isinstance(child.test, RangeTest) and not child.test.negated:
                continue
            if child.test == NullTest(is_null=False) and child.field_id in tested:
                continue
        merged.append(child)
    return _unite_sets(merged, negated=True)


def _unite_sets(children: list[Predicate], *, negated: bool) -> list[Predicate]:
    """Unite a column's `IN` tests under OR, or its `NOT IN` tests under AND. The first one's place is kept."""
    keys: dict[tuple[ColumnId, str], set[Key]] = {}
    places: dict[tuple[ColumnId, str], int] = {}
    united: list[Predicate] = []
    for child in children:
        if not isinstance(child, Leaf) or not isinstance(child.test, SetTest) or child.test.negated is not negated:
            united.append(child)
            continue
        column = child.field_id, child.value_type
        if column not in places:
            keys[column], places[column] = set(), len(united)
            united.append(child)
        keys[column].update(child.test.keys)
    for (field_id, value_type), place in places.items():
        ordered = tuple(sorted(keys[field_id, value_type]))
        united[place] = Leaf(field_id, SetTest(ordered, negated), value_type)  # type: ignore[arg-type] # one column: one key type
    return united


def _intersect(first: LeafTest, second: RangeTest) -> RangeTest:
    assert isinstance(first, RangeTest)
    low, low_inclusive = first.low, first.low_inclusive
    if low is None or (second.low is not None and second.low > low):  # type: ignore[operator] # one column: one key type
        low, low_inclusive = second.low, second.low_inclusive
    elif second.low == low:
        low_inclusive = low_inclusive and second.low_inclusive
    high, high_inclusive = first.high, first.high_inclusive
    if high is None or (second.high is not None and second.high < high):  # type: ignore[operator] # one column: one key type
        high, high_inclusive = second.high, second.high_inclusive
    elif second.high == high:
        high_inclusive = high_inclusive and second.high_inclusive
    return RangeTest(low, high, low_inclusive, high_inclusive)


def disjunction(children: list[Predicate]) -> Predicate:
    """Build an OR: flattened, without parts that are never true. Sets of a column are united."""
    flat: list[Predicate] = []
    for child in children:
        flat.extend(child.children if isinstance(child, Disjunction) else (child,))
    everything = [child for child in flat if isinstance(child, Everything)]
    if everything:
        return Everything(exact=any(child.exact for child in everything))
    kept = _unite_sets([child for child in flat if not isinstance(child, Nothing)], negated=False)
    if not kept:
        return Nothing()
    return kept[0] if len(kept) == 1 else Disjunction(tuple(kept))
