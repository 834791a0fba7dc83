"""What a query implies of a scan, piece by piece, and what each piece drops alone and beside the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema

from planner.first_rows.search import Enough, FirstRows
from planner.predicate.implied import Implied
from planner.predicate.junctions import fold_junctions
from planner.predicate.nodes import UNKNOWN, Predicate
from planner.predicate.simplify import conjunction, disjunction
from planner.spark.requests.conditions import expression_of
from planner.spark.requests.functions import ColumnFunctions
from planner.spark.requests.hook_filters import bind_filters
from planner.spark.requests.runtime_keys import bind_runtime_keys
from planner.spark.requests.wire import Request
from planner.where.unknown import Unknown, UnknownFunction
from puffin_index.storage.arrays import Flags


@dataclass(frozen=True, slots=True)
class Piece:
    """One thing that a query implies.

    Attributes:
        implied: What is known of it.
        alone: What it says of a row, without the rest of the query; None if nobody needs to ask.
        others: What the rest of the query says; None if nobody needs to ask.
    """

    implied: Implied
    alone: Predicate | None = None
    others: Predicate | None = None


def pieces_of(
    request: Request, schema: Schema, functions: ColumnFunctions, waiting: Sequence[int], enough: Enough, kept: Flags
) -> list[Piece]:
    """List what a request implies.

    Args:
        request: The request.
        schema: The schema of its columns.
        functions: Its functions, bound.
        waiting: The IDs of columns of which more will be known when the query runs.
        enough: What was found for the rows that it wants.
        kept: Which row groups are read.
    """
    pieces = [_function(number, request, schema, functions) for number in functions.found]
    for at, keys in enumerate(request.runtime_keys):
        rest = request.model_copy(update={"runtime_keys": request.runtime_keys[:at] + request.runtime_keys[at + 1 :]})
        others = bind_filters(rest, functions.predicate)
        pieces.append(Piece(Implied(keys.source, str(keys)), bind_runtime_keys(keys, schema), others))
    for field in waiting:
        text = f"{schema.find_column_name(field)}: its keys are known when the query runs"
        pieces.append(Piece(Implied("join or subquery", text)))
    return [*pieces, *(Piece(first, enough.threshold) for first in enough.as_implied(str(request.wanted), kept))]


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


def weigh(
    pieces: Sequence[Piece],
    kept: Flags,
    read: Callable[[Predicate, FirstRows | None], Flags] | None,
    wanted: FirstRows | None,
) -> tuple[Implied, ...]:
    """Say what a query implies, and what each piece drops.

    Args:
        pieces: What the query implies.
        kept: Which row groups are read, all pieces considered.
        read: Says which row groups would be read for a predicate and for the rows that are wanted; None to leave out
            what takes such a pass.
        wanted: The rows that the query wants.
    """
    if read is None:
        return tuple(piece.implied for piece in pieces)
    weighed: list[Implied] = []
    for piece in pieces:
        implied = piece.implied
        if piece.alone is not None:
            implied = replace(implied, dropped_alone=int(np.count_nonzero(~read(piece.alone, None))))
        if piece.others is not None:
            only = int(np.count_nonzero(~kept & read(piece.others, wanted)))
            implied = replace(implied, dropped_only_by_it=only)
        weighed.append(implied)
    return tuple(weighed)
