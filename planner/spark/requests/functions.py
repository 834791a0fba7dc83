"""Conditions on one column that Spark evaluates over its values, and what a Spark query implies of a scan with them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from pyiceberg.schema import Schema
from pyroaring import BitMap

from planner.condition.as_sql import column_text
from planner.condition.implied import Implied
from planner.condition.spark.nodes import Function
from planner.condition.spark.read import found_column
from planner.condition.tree.nodes import UNKNOWN, ByValue, EngineTest, Leaf, Nothing, Predicate, leaves
from planner.condition.tree.simplify import chosen, conjunction, disjunction
from planner.query import QueryRequest, answer_query
from planner.spark.requests.hook_filters import bind_filters
from planner.spark.requests.wire import Request, ValueList, serialize_values
from planner.view.column_values import ByValueTests, ColumnValues, KeyRange
from puffin_index.keys.leaf import NullTest, RangeTest
from puffin_index.keys.map_key import ColumnId
from puffin_index.keys.value_types import ValueType, value_type_named
from puffin_index.keys.values import value_of

_ONE_LEFT: Final = "the rest of the condition leaves one row group at most"
_REASONS: Final = {
    ColumnValues: "its evaluation takes too long",
    KeyRange: "the column has too many values, and the condition is no comparison of a monotone function",
}


@dataclass(slots=True)
class ColumnFunctions(ByValueTests):
    """The functions of a request by number, which Spark evaluates for at most some milliseconds.

    `objection` says why no function is to be evaluated; it is empty if there is no reason.
    """

    functions: Mapping[int, Function]
    milliseconds: int
    objection: str = ""

    def _can_evaluate(self, leaf: ByValue) -> bool:
        return isinstance(leaf.test, EngineTest) and leaf.test.number in self.functions

    def _objection(self, value_type: str) -> str:
        is_uuid = value_type == "uuid"
        return self.objection or ("Spark has text where the index has the bytes of UUIDs" if is_uuid else "")

    def wanted_values(self) -> bytes | None:
        """Serialise the answer that has Spark evaluate functions; None if Spark has evaluated all of use."""
        lists: dict[tuple[ColumnId, str], ValueList] = {}
        missing: list[tuple[int, tuple[ColumnId, str]]] = []
        for number, function in self.functions.items():
            found = found_column(function.column, self.schema)
            if found is None or found.value_type is None:
                continue
            key = found.column, found.value_type.name
            values, *_ = self._values_of(*key)
            if not isinstance(values, str) and function.values != values.fingerprint:
                lists[key] = values, found.value_type
                missing.append((number, key))
        places = {key: place for place, key in enumerate(lists)}
        functions = [(number, places[key]) for number, key in missing]
        return serialize_values(list(lists.values()), functions, self.milliseconds) if missing else None

    def _evaluate(self, leaf: ByValue, values: ColumnValues | KeyRange) -> tuple[Predicate, str, float]:
        assert isinstance(leaf.test, EngineTest)
        function = self.functions[leaf.test.number]
        matches = function.matches
        if function.values != values.fingerprint or matches is None:
            return UNKNOWN, f"not used, {_REASONS[type(values)]}", 0.0
        value_type = value_type_named(leaf.value_type)
        if isinstance(values, ColumnValues) and matches.positions is not None:
            places = np.frombuffer(BitMap.deserialize(matches.positions).to_array(), np.uint32).astype(np.int64)
            predicate = chosen(leaf.field_id, values.keys, places, value_type)
            known = f"in {len(places)} of {len(values)} values"
        elif isinstance(values, KeyRange) and matches.between is not None:
            between = matches.between
            predicate = Leaf(leaf.field_id, RangeTest(*between), leaf.value_type) if between else Nothing()
            known = _interval(between, value_type)
        else:
            return UNKNOWN, "not used, the answer is no answer to the question", 0.0
        text = f"{column_text(leaf.field_id, self.schema)} {known}{' or NULL' if matches.null else ''}"
        if matches.null:
            predicate = disjunction([predicate, Leaf(leaf.field_id, NullTest(is_null=True), leaf.value_type)])
        seconds = matches.microseconds / 1e6
        return predicate if matches.exact else conjunction([predicate, UNKNOWN]), text, seconds


def _interval(between: Sequence[int], value_type: ValueType) -> str:
    if not between:
        return "has no such value"
    low, high = (str(value_of(key, value_type)) for key in between)
    return f"= {low}" if low == high else f"between {low} and {high}"


def functions_of(request: Request, schema: Schema, query: QueryRequest, *, is_asked: bool) -> ColumnFunctions:
    """The functions of a request, if they are of use; none if they are not to be evaluated."""
    functions = {one.number: one for one in request.functions} if is_asked else {}
    return ColumnFunctions(
        schema,
        query.scan.view,
        query.scan.numbers,
        query.limits.byte_budget,
        functions,
        int(query.limits.seconds * 1000),
        _ONE_LEFT if functions and _leaves_one(request, query) else "",
    )


def _leaves_one(request: Request, query: QueryRequest) -> bool:
    """Whether a request leaves one row group at most without functions that are still to be evaluated.

    A function is evaluated over the values of all row groups, which may take long. Counts need functions anyway.
    """
    are_evaluated = all(function.values is not None for function in request.functions)
    if are_evaluated or request.aggregates is not None or request.wanted is not None:
        return False
    rest = bind_filters(request)
    if all(isinstance(leaf.test, NullTest) for leaf in leaves(rest)):
        return False
    return answer_query(replace(query, predicate=rest)).plan.kept <= query.scan.unlisted + 1


def implied_by(
    request: Request, schema: Schema, functions: ColumnFunctions, waiting: Sequence[int]
) -> tuple[Implied, ...]:
    """List what a request implies, besides the rows that it wants; all its functions must be decided.

    `waiting` are the columns whose keys are known when the query runs.
    """
    awaited = (f"{schema.find_column_name(field_id)}: its keys are known when the query runs" for field_id in waiting)
    return (
        *functions.implied,
        *(Implied(keys.source, str(keys)) for keys in request.runtime_keys),
        *(Implied("join or subquery", text) for text in awaited),
    )
