"""Conditions on one column that Spark evaluates over its values, and what a Spark query implies of a scan with them."""

from __future__ import annotations

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
from planner.condition.tree.nodes import (
    UNKNOWN,
    ByValue,
    Conjunction,
    Disjunction,
    EngineTest,
    Leaf,
    Nothing,
    Predicate,
    leaves,
)
from planner.condition.tree.simplify import chosen, conjunction, disjunction
from planner.query import Piece, QueryRequest, answer_query
from planner.spark.requests.hook_filters import bind_filters, bind_runtime_keys, read_conditions
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
            values, _ = self._values_of(*key)
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
        query.scan.row_groups.numbers,
        query.limits.byte_budget,
        functions,
        int(query.limits.seconds * 1000),
        _ONE_LEFT if functions and _leaves_one(request, query) else "",
    )


def _leaves_one(request: Request, query: QueryRequest) -> bool:
    """Whether a request leaves one row group at most without functions that are still to be evaluated.

    A function is evaluated over the values of all row groups, which may take long. Counts need functions anyway.
    """
    if request.aggregates is not None or request.wanted is not None:
        return False
    if all(function.values is not None for function in request.functions):
        return False
    rest = bind_filters(request)
    if all(isinstance(leaf.test, NullTest) for leaf in leaves(rest)):
        return False
    return answer_query(replace(query, predicate=rest, is_weighed=False)).plan.kept <= query.scan.unlisted + 1


def pieces_of(
    request: Request, schema: Schema, functions: ColumnFunctions, waiting: Sequence[int], *, are_weighed: bool
) -> tuple[Piece, ...]:
    """List what a request implies, besides the rows that it wants; all its functions must be decided.

    `waiting` are the columns whose keys are known when the query runs. With `are_weighed`, each piece says what it and
    the others say of rows; keys are bound once more for that.
    """
    pieces = [
        _weighable(leaf, request, functions) if are_weighed else Piece(implied)
        for leaf, (_, implied) in functions.found.items()
    ]
    for at, keys in enumerate(request.runtime_keys):
        implied = Implied(keys.source, str(keys))
        if not are_weighed:
            pieces.append(Piece(implied))
            continue
        rest = request.model_copy(update={"runtime_keys": request.runtime_keys[:at] + request.runtime_keys[at + 1 :]})
        pieces.append(Piece(implied, bind_runtime_keys(keys, schema), bind_filters(rest, functions.decide)))
    for field_id in waiting:
        text = f"{schema.find_column_name(field_id)}: its keys are known when the query runs"
        pieces.append(Piece(Implied("join or subquery", text)))
    return tuple(pieces)


def _weighable(leaf: ByValue, request: Request, functions: ColumnFunctions) -> Piece:
    predicate, implied = functions.found[leaf]
    if predicate == UNKNOWN:
        return Piece(implied)
    # Below OR, the function says nothing without the other branches.
    alone = [_only(condition, leaf, predicate) for condition in read_conditions(request, filters=False)]
    others = bind_filters(request, lambda other: UNKNOWN if other == leaf else functions.decide(other))
    return Piece(implied, conjunction(alone), others)


def _only(condition: Predicate, leaf: ByValue, predicate: Predicate) -> Predicate:
    """What a condition says if all tests but one are unknown."""
    match condition:
        case Conjunction(children):
            return conjunction([_only(child, leaf, predicate) for child in children])
        case Disjunction(children):
            return disjunction([_only(child, leaf, predicate) for child in children])
        case ByValue() if condition == leaf:
            return predicate
        case _:
            return UNKNOWN
