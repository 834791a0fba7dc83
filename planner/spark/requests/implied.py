"""What a Spark query implies of a scan, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyiceberg.schema import Schema

from planner.condition.implied import Implied
from planner.condition.tree.nodes import UNKNOWN, ByValue, Conjunction, Disjunction, EngineTest, Predicate
from planner.condition.tree.simplify import conjunction, disjunction
from planner.query import Piece
from planner.spark.requests.functions import ColumnFunctions
from planner.spark.requests.hook_filters import bind_filters, read_conditions
from planner.spark.requests.runtime_keys import bind_runtime_keys
from planner.spark.requests.wire import Request


def pieces_of(
    request: Request, schema: Schema, functions: ColumnFunctions, waiting: Sequence[int], *, are_weighed: bool
) -> tuple[Piece, ...]:
    """List what a request implies, besides the rows that it wants.

    Args:
        request: The request.
        schema: The schema of its columns.
        functions: Its functions, bound.
        waiting: The IDs of columns whose keys are known when the query runs.
        are_weighed: Whether each piece says what it and the others say of rows. Keys are bound once more for that.
    """
    pieces = [
        _weighable(number, request, functions) if are_weighed else Piece(implied)
        for number, (_, implied) in functions.found.items()
    ]
    for at, keys in enumerate(request.runtime_keys):
        if not are_weighed:
            pieces.append(Piece(Implied(keys.source, str(keys))))
            continue
        rest = request.model_copy(update={"runtime_keys": request.runtime_keys[:at] + request.runtime_keys[at + 1 :]})
        others = bind_filters(rest, functions.predicate)
        pieces.append(Piece(Implied(keys.source, str(keys)), bind_runtime_keys(keys, schema), others))
    for field in waiting:
        text = f"{schema.find_column_name(field)}: its keys are known when the query runs"
        pieces.append(Piece(Implied("join or subquery", text)))
    return tuple(pieces)


def _weighable(number: int, request: Request, functions: ColumnFunctions) -> Piece:
    predicate, implied = functions.found[number]
    if predicate == UNKNOWN:
        return Piece(implied)

    def is_this(leaf: ByValue) -> bool:
        return leaf.test == EngineTest(number)

    # Below OR, the function says nothing without the other branches.
    alone = [_only(condition, is_this, predicate) for condition in read_conditions(request, filters=False)]
    others = bind_filters(request, lambda leaf: UNKNOWN if is_this(leaf) else functions.predicate(leaf))
    return Piece(implied, conjunction(alone), others)


def _only(condition: Predicate, is_this: Callable[[ByValue], bool], predicate: Predicate) -> Predicate:
    """What a condition says if all but one test of it are unknown."""
    match condition:
        case Conjunction(children):
            return conjunction([_only(child, is_this, predicate) for child in children])
        case Disjunction(children):
            return disjunction([_only(child, is_this, predicate) for child in children])
        case ByValue() if is_this(condition):
            return predicate
        case _:
            return UNKNOWN
