"""Conditions on one column that Spark evaluates for the values of the column, such as `upper(name) LIKE '%X%'`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pyiceberg.schema import Schema
from pyroaring import BitMap

from planner.condition.columns import FoundColumn
from planner.condition.implied import Cost, Implied, costs
from planner.condition.spark.nodes import Column, Function, Matches
from planner.condition.spark.read import found_column, text_of
from planner.condition.tree.key_lists import MOST_KEYS, chosen
from planner.condition.tree.nodes import UNKNOWN, ByValue, EngineTest, Leaf, Nothing, Predicate, leaves
from planner.condition.tree.simplify import conjunction, disjunction
from planner.prune.gate import Limits
from planner.query import QueryRequest, answer_query
from planner.spark.requests.hook_filters import bind_filters
from planner.spark.requests.wire import Request, serialize_values
from planner.view.column_values import ColumnValues, KeyBounds, KeyRange, values_to_try
from planner.view.index_view import IndexView
from puffin_index.keys.leaf import NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import ValueType
from puffin_index.keys.values import value_of
from puffin_index.storage.arrays import Ints

_ONE_LEFT = "the rest of the condition leaves one row group at most"
_REASONS = {
    ColumnValues: "its evaluation takes too long",
    KeyBounds: "the column has too many values, and the condition is no comparison of a monotone function",
}


@dataclass(slots=True)
class ColumnFunctions:
    """The functions of a request, and the values of their columns.

    Attributes:
        functions: The functions.
        schema: The schema that has their columns.
        view: The index.
        row_groups: The row groups of the view that the scan has.
        limits: Bounds.
        objection: Why no function is to be evaluated; empty if there is no reason.
        found: The predicate of each function that was bound, by number, and what is implied.
    """

    functions: Sequence[Function]
    schema: Schema
    view: IndexView
    row_groups: Ints
    limits: Limits
    objection: str = ""
    found: dict[int, tuple[Predicate, Implied]] = field(init=False, default_factory=dict)
    _values: dict[Column, tuple[FoundColumn, ColumnValues | KeyBounds | str]] = field(init=False)
    _costs: dict[Column, Cost] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Find the values of all columns."""
        self._values = {}
        for function in self.functions:
            found = found_column(function.column, self.schema)
            if found is not None and found.value_type is not None and function.column not in self._values:
                with costs() as self._costs[function.column]:
                    values = self._find(found, found.value_type)
                self._values[function.column] = found, values

    def _find(self, column: FoundColumn, value_type: ValueType) -> ColumnValues | KeyBounds | str:
        if self.objection:
            return self.objection
        if value_type.name == "uuid":
            return "Spark has text where the index has the bytes of UUIDs"
        return values_to_try(self.view, column.column, value_type.name, self.row_groups, self.limits.byte_budget)

    @property
    def missing(self) -> list[Function]:
        """The functions that are still to be evaluated."""
        return [function for function in self.functions if self._is_missing(function)]

    def _is_missing(self, function: Function) -> bool:
        values = self._values.get(function.column, (None, ""))[1]
        return not isinstance(values, str) and function.values != values.fingerprint

    def wanted_values(self) -> bytes:
        """Serialise the answer that has the missing functions evaluated."""
        columns = list(dict.fromkeys(function.column for function in self.missing))
        lists: list[ColumnValues | KeyBounds] = []
        types: list[ValueType] = []
        for column in columns:
            found, values = self._values[column]
            assert not isinstance(values, str)
            assert found.value_type is not None
            lists.append(values)
            types.append(found.value_type)
        functions = [(function.number, columns.index(function.column)) for function in self.missing]
        return serialize_values(lists, types, functions, int(self.limits.seconds * 1000))

    def predicate(self, leaf: ByValue) -> Predicate:
        """Say which values satisfy a function: exact if it was evaluated without an error for all of the column's."""
        if not isinstance(leaf.test, EngineTest):
            return UNKNOWN
        number = leaf.test.number
        function = next((one for one in self.functions if one.number == number), None)
        found, values = (None, "") if function is None else self._values.get(function.column, (None, ""))
        if function is None or found is None or found.value_type is None:
            return UNKNOWN
        if function.number not in self.found:
            cost, micros = self._costs[function.column], 0.0
            predicate: Predicate = UNKNOWN
            if isinstance(values, str) or self._is_missing(function) or function.matches is None:
                reason = values if isinstance(values, str) else _REASONS[type(values)]
                text = f"not used, {reason}"
            else:
                predicate, text = self._matching(function, function.matches, found, found.value_type, values)
                micros = function.matches.microseconds
            seconds = cost.seconds + micros / 1e6
            implied = Implied("function", f"{function.name}: {text}", seconds=seconds, bytes_read=cost.bytes_read)
            self.found[function.number] = predicate, implied
        return self.found[function.number][0]

    @property
    def listed(self) -> Predicate:
        """What every row satisfies if the index knows all values of the columns that functions were evaluated for."""
        known: list[Predicate] = []
        for found, values in self._values.values():
            if isinstance(values, str) or found.value_type is None:
                continue
            known.append(_has_listed_value(found, values, found.value_type))
        return conjunction(known)

    def _matching(
        self,
        function: Function,
        matches: Matches,
        found: FoundColumn,
        value_type: ValueType,
        values: ColumnValues | KeyBounds,
    ) -> tuple[Predicate, str]:
        if isinstance(values, ColumnValues) and matches.positions is not None:
            places = np.frombuffer(BitMap.deserialize(matches.positions).to_array(), np.uint32).astype(np.int64)
            predicate = chosen(found.column, values.keys, places, value_type)
            known = f"in {len(places)} of {len(values)} values"
        elif isinstance(values, KeyBounds) and matches.between is not None:
            predicate = (
                Leaf(found.column, RangeTest(*matches.between), value_type.name) if matches.between else Nothing()
            )
            known = _interval([str(value_of(key, value_type)) for key in matches.between])
        else:
            return UNKNOWN, "not used, the answer is no answer to the question"
        text = f"{text_of(function.column)} {known}{' or NULL' if matches.null else ''}"
        if matches.null:
            is_null = Leaf(found.column, NullTest(is_null=True), value_type.name)
            predicate = disjunction([predicate, is_null])
        return predicate if matches.exact else conjunction([predicate, UNKNOWN]), text


def functions_of(request: Request, schema: Schema, query: QueryRequest, *, is_asked: bool) -> ColumnFunctions:
    """The functions of a request, if they are of use.

    Args:
        request: The request.
        schema: The schema of its columns.
        query: The query, without its predicate.
        is_asked: Whether functions may be evaluated.
    """
    functions, numbers = request.functions if is_asked else (), query.scan.row_groups.numbers
    objection = _ONE_LEFT if functions and _leaves_one(request, query) else ""
    return ColumnFunctions(functions, schema, query.scan.view, numbers, query.limits, objection)


def _leaves_one(request: Request, query: QueryRequest) -> bool:
    """Whether a request leaves one row group at most without functions that are still to be evaluated.

    A function is evaluated for the values of all row groups, some of which may take long. Counts need functions anyway.
    """
    if request.aggregates is not None or request.wanted is not None:
        return False
    if all(function.values is not None for function in request.functions):
        return False
    rest = bind_filters(request)
    if all(isinstance(leaf.test, NullTest) for leaf in leaves(rest)):
        return False
    return answer_query(replace(query, predicate=rest, is_weighed=False)).plan.kept <= query.scan.unlisted + 1


def _has_listed_value(found: FoundColumn, values: ColumnValues | KeyBounds, value_type: ValueType) -> Predicate:
    is_null = Leaf(found.column, NullTest(is_null=True), value_type.name)
    listed = values.listed if isinstance(values, ColumnValues) else values
    if isinstance(listed, KeyRange | KeyBounds):
        return disjunction([is_null, Leaf(found.column, RangeTest(listed.low, listed.high), value_type.name)])
    if not 0 < len(listed) <= MOST_KEYS:
        return UNKNOWN
    keys = listed.tolist() if isinstance(listed, np.ndarray) else listed.to_pylist()
    return disjunction([is_null, Leaf(found.column, SetTest(tuple(keys)), value_type.name)])


def _interval(ends: list[str]) -> str:
    if not ends:
        return "has no such value"
    return f"= {ends[0]}" if ends[0] == ends[1] else f"between {ends[0]} and {ends[1]}"
