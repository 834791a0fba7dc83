"""Building AND and OR: what several tests of one column say together is one test, and a contradiction is no match."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy as np

from planner.condition.tree import nodes
from puffin_index.keys.columns import Column, KeyArray, SortedColumn, chosen_keys, tuple_of_keys
from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.map_key import ColumnId, Contents
from puffin_index.keys.value_types import ValueType
from puffin_index.storage.arrays import Ints

_Column: TypeAlias = tuple[ColumnId, str]
_Keys: TypeAlias = tuple[int, ...] | tuple[bytes, ...]


def rebuilt(predicate: nodes.Predicate, change: Callable[[nodes.Part], nodes.Predicate]) -> nodes.Predicate:
    """Return a condition of other parts, in as few tests as possible."""
    match predicate:
        case nodes.Conjunction(children):
            return conjunction([rebuilt(child, change) for child in children])
        case nodes.Disjunction(children):
            return disjunction([rebuilt(child, change) for child in children])
        case part:
            return change(part)


def undecided(test: nodes.ByValue) -> nodes.Predicate:
    """Return what a test by value says of rows where nobody decides it."""
    # What a text contains follows from another test, which stands beside it.
    return nodes.EVERY_ROW if isinstance(test.field_id, Contents) else nodes.UNKNOWN


def simplified(
    predicate: nodes.Predicate, decide: Callable[[nodes.ByValue], nodes.Predicate] = undecided
) -> nodes.Predicate:
    """Return what a condition says of rows; `decide` says what a test by value means."""
    return rebuilt(
        predicate,
        lambda part: (
            decide(part) if isinstance(part, nodes.ByValue) else nodes.UNKNOWN if part == nodes.UNKNOWN else part
        ),
    )


def conjunction(children: list[nodes.Predicate]) -> nodes.Predicate:
    """Build an AND: flattened, of each column one `IN`, or else one range and one `NOT IN`; `Nothing` if they clash."""
    flat = _parts(children, is_and=True)
    columns: dict[_Column, list[LeafTest]] = {}
    kept: list[nodes.Predicate | _Column] = []
    for child in flat:
        # A row that contains one key may contain another as well.
        if isinstance(child, nodes.Leaf) and not isinstance(child.field_id, Contents):
            column = child.field_id, child.value_type
            if column not in columns:
                kept.append(column)
            columns.setdefault(column, []).append(child.test)
        elif child != nodes.UNKNOWN:
            kept.append(child)
    parts: list[nodes.Predicate] = []
    for part in kept:
        if not isinstance(part, tuple):
            parts.append(part)
            continue
        left = _all_of(columns[part])
        if left is None:
            return nodes.NO_ROW
        parts.extend(nodes.Leaf(part[0], test, part[1]) for test in left)
    return nodes.joined([*parts, *([nodes.UNKNOWN] if nodes.UNKNOWN in flat else [])], is_and=True)


def disjunction(children: list[nodes.Predicate]) -> nodes.Predicate:
    """Build an OR: flattened, without parts that are never true. The `IN` tests of a column become one."""
    flat = _parts(children, is_and=False)
    return nodes.UNKNOWN if nodes.UNKNOWN in flat else nodes.joined(_unite_sets(flat), is_and=False)


def _parts(children: Sequence[nodes.Predicate], *, is_and: bool) -> Sequence[nodes.Predicate]:
    whole = nodes.joined(children, is_and=is_and)
    return whole.children if isinstance(whole, nodes.Conjunction if is_and else nodes.Disjunction) else (whole,)


def _unite_sets(children: Sequence[nodes.Predicate]) -> list[nodes.Predicate]:
    keys: dict[_Column, set[Key]] = {}
    places: dict[_Column, int] = {}
    united: list[nodes.Predicate] = []
    for child in children:
        if not isinstance(child, nodes.Leaf) or not isinstance(child.test, SetTest) or child.test.negated:
            united.append(child)
            continue
        column = child.field_id, child.value_type
        if column not in places:
            keys[column], places[column] = set(), len(united)
            united.append(child)
        keys[column].update(child.test.keys)
    for (field_id, value_type), place in places.items():
        united[place] = nodes.Leaf(field_id, SetTest(_in_order(keys[field_id, value_type])), value_type)
    return united


def _all_of(tests: list[LeafTest]) -> list[LeafTest] | None:
    """Return what is left of tests of one column that all hold; None if no row satisfies them."""
    nulls: set[bool] = set()
    inside: list[_Keys] = []
    outside: list[_Keys] = []
    ranges: list[RangeTest] = []
    holes: list[RangeTest] = []
    for test in tests:
        match test:
            case NullTest(is_null):
                nulls.add(is_null)
            case SetTest(keys, negated):
                (outside if negated else inside).append(keys)
            case RangeTest(negated=negated):
                (holes if negated else ranges).append(test)
    # A test of values implies that there is a value.
    wants_values = bool(inside or outside or ranges or holes)
    if True in nulls and (False in nulls or wants_values):
        return None
    if not wants_values:
        return [NullTest(is_null) for is_null in nulls]
    within = reduce(_intersect, ranges) if ranges else None
    if inside:
        keys = inside[0]
        if len(inside) + len(outside) > 1:
            keys = _in_order(set[Key](keys).intersection(*inside[1:]).difference(*outside))
        keys = keys if within is None else keys[_within(keys, within)]
        for hole in holes:
            gone = _within(keys, hole)
            keys = (*keys[: gone.start], *keys[gone.stop :])
        return [SetTest(keys)] if keys else None
    if within is not None and _is_empty(within):
        return None
    excluded = _in_order(set().union(*outside))
    excluded = excluded if within is None else excluded[_within(excluded, within)]
    # Without a key left to exclude, `NOT IN` says no more than the range.
    is_excluding = bool(excluded) or (bool(outside) and within is None)
    return [*([] if within is None else [within]), *holes, *([SetTest(excluded, negated=True)] if is_excluding else [])]


def _in_order(keys: set[Key]) -> _Keys:
    return tuple(sorted(keys))  # type: ignore[return-value] # one column: one key type


def _within(keys: Sequence[Key], test: RangeTest) -> slice:
    """Where the keys of a range lie among ascending keys; whether the test is negated does not matter."""
    start, stop = 0, len(keys)
    if test.low is not None:
        start = (bisect_left if test.low_inclusive else bisect_right)(keys, test.low)
    if test.high is not None:
        stop = (bisect_right if test.high_inclusive else bisect_left)(keys, test.high)
    return slice(start, max(start, stop))


def _is_empty(test: RangeTest) -> bool:
    low, high = test.low, test.high
    if isinstance(low, int) and isinstance(high, int):
        return low + (not test.low_inclusive) > high - (not test.high_inclusive)
    if low is None or high is None:
        return False
    return low > high or (low == high and not (test.low_inclusive and test.high_inclusive))  # type: ignore[operator] # one column: one key type


def _intersect(first: RangeTest, second: RangeTest) -> RangeTest:
    tests: Any = (first, second)  # of one column, so all keys are of one type
    low, is_above = max(
        ((one.low, not one.low_inclusive) for one in tests if one.low is not None), default=(None, False)
    )
    high, is_last = min(((one.high, one.high_inclusive) for one in tests if one.high is not None), default=(None, True))
    return RangeTest(low, high, not is_above, is_last)


MOST_KEYS: Final = 100_000
"""A longer list becomes the range from its least to its greatest key."""

FEW_KEYS: Final = 64
"""More keys that follow each other become a range. Fewer stay a list: for ranges of bytes there are no estimates."""


def among_keys(field_id: ColumnId, column: Column, most: int) -> nodes.Predicate:
    """Return the predicate that a column has one of some keys, or lies in their range if there are more than `most`."""
    keys, value_type = SortedColumn(column).keys, column.value_type
    if len(keys) == 0:
        return nodes.Nothing()
    if len(keys) > most:
        low, high = keys[:1].tolist()[0], keys[-1:].tolist()[0]
        return nodes.Leaf(field_id, RangeTest(low, high), value_type.name)
    return nodes.Leaf(field_id, SetTest(tuple(keys.tolist())), value_type.name)


def chosen(field_id: ColumnId, keys: KeyArray, places: Ints, value_type: ValueType) -> nodes.Predicate:
    """Return the predicate that a column has one of the keys at some ascending places among all its keys."""

    def leaf(test: LeafTest) -> nodes.Leaf:
        return nodes.Leaf(field_id, test, value_type.name)

    count = len(keys)
    if len(places) == 0:
        return nodes.Nothing()
    if len(places) == count:
        return leaf(NullTest(is_null=False))
    others = np.setdiff1d(np.arange(count), places, assume_unique=True)
    for some, negated in ((places, False), (others, True)):
        if len(some) > FEW_KEYS and some[-1] - some[0] == len(some) - 1:
            low, high = tuple_of_keys(chosen_keys(keys, some[[0, -1]]))
            return leaf(RangeTest(low, high, negated=negated))
    some, negated = (places, False) if len(places) <= len(others) else (others, True)
    if len(some) <= MOST_KEYS:
        return leaf(SetTest(tuple_of_keys(chosen_keys(keys, some)), negated))
    low, high = tuple_of_keys(chosen_keys(keys, places[[0, -1]]))
    return conjunction([leaf(RangeTest(low, high)), nodes.UNKNOWN])
