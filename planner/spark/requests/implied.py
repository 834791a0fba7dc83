"""What a Spark query implies of a scan, piece by piece."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema

from planner.predicate.implied import Implied
from planner.predicate.junctions import fold_junctions
from planner.predicate.nodes import UNKNOWN, Predicate
from planner.predicate.simplify import conjunction, disjunction
from planner.query import Piece
from planner.spark.requests.conditions import expression_of
from planner.spark.requests.functions import ColumnFunctions
from planner.spark.requests.hook_filters import bind_filters
from planner.spark.requests.runtime_keys import bind_runtime_keys
from planner.spark.requests.wire import Request
from planner.where.unknown import Unknown, UnknownFunction


def pieces_of(
    request: Request, schema: Schema, functions: ColumnFunctions, waiting: Sequence[int]
) -> tuple[Piece, ...]:
    """List what a request implies, besides the rows that it wants.

    Args:
        request: The request.
        schema: The schema of its columns.
        functions: Its functions, bound.
        waiting: The IDs of columns of which more will be known when the query runs.
    """
    pieces = [_function(number, request, schema, functions) for number in functions.found]
    for at, keys in enumerate(request.runtime_keys):
        rest = request.model_copy(update={"runtime_keys": request.runtime_keys[:at] + request.runtime_keys[at + 1 :]})
        others = bind_filters(rest, functions.predicate)
        pieces.append(Piece(Implied(keys.source, str(keys)), bind_runtime_keys(keys, schema), others))
    for field in waiting:
        text = f"{schema.find_column_name(field)}: its keys are known when the query runs"
        pieces.append(Piece(Implied("join or subquery", text)))
    return tuple(pieces)


def _function(number: int, request: Request, schema: Schema, functions: ColumnFunctions) -> Piece:
    predicate, implied = functions.found[number]
    if predicate == UNKNOWN:
        return Piece(implied)

    def is_other(leaf: BooleanExpression) -> bool:
        return not isinstance(leaf, UnknownFunction) or leaf.number != number

    def bind_alone(leaf: BooleanExpression, negated: bool) -> Predicate:
        return UNKNOWN if is_other(leaf) or negated else predicate

    def bind_other(leaf: Unknown) -> Predicate:
        return functions.predicate(leaf) if is_other(leaf) else UNKNOWN

    # Below OR, the function says nothing without the other branches.
    too_deep: Predicate = UNKNOWN
    conditions = [
        fold_junctions(
            expression_of(node, schema),
            leaf=bind_alone,
            join=lambda parts, is_and: conjunction(parts) if is_and else disjunction(parts),
            too_deep=too_deep,
        )
        for node in request.conditions
    ]
    return Piece(implied, conjunction(conditions), bind_filters(request, bind_other))
