"""Check aggregates that the index answered: the same is computed from the data of some of the row groups."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from planner.aggregates.partial import Partial, group_name
from planner.aggregates.question import Question
from planner.condition.rows import Residual, values_of
from planner.query import answer_query
from planner.snapshot.scan import Scan
from planner.spark.audit.live_rows import LiveRows, Snapshot
from planner.spark.observe.planned_query import PlannedQuery
from puffin_index.errors import PuffinIndexError
from puffin_index.keys.arrow_keys import column_of
from puffin_index.storage.arrays import Ints

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Compared:
    """An answer of the index beside that of the data.

    Attributes:
        numbers: The row groups of the view that were read; none if the two could not be compared.
        difference: What the index said and what the data say, as text; empty if both say the same.
    """

    numbers: list[int]
    difference: tuple[str, str] | tuple[()] = ()


def compare_answers(
    query: PlannedQuery, table: Table, snapshot: Snapshot, numbers: Ints, field_ids: list[int], *, is_whole: bool
) -> Compared:
    """Compute the aggregates of a query from data.

    Args:
        query: The query, which the index has answered in part or wholly.
        table: The data table.
        snapshot: Its snapshot.
        numbers: Row groups of the view, ascending, which the index has answered.
        field_ids: The columns of the query.
        is_whole: Whether these are all row groups that the index has answered. Otherwise the index answers again.
    """
    request, answered = query.answer.request, query.answer.aggregates
    question = request.question
    if question is None or answered is None:
        return Compared([])
    if not is_whole:
        scan = Scan.of_view(query.view, numbers, request.scan.files, io=table.io)
        answered = answer_query(replace(request, scan=scan, executors=None)).aggregates
        if answered is None:
            return Compared([])
        numbers = np.delete(numbers, answered.unread)
    residual = Residual(query.predicate)
    parts: list[Partial] = []
    try:
        for number in numbers.tolist():
            with snapshot.rows(query.view, number, field_ids) as rows:
                parts.append(_partial(question, residual, rows))
    except (PuffinIndexError, OSError, pa.ArrowException):
        return Compared([])
    said, data = _groups(answered.partial), _groups(Partial.merged(question, parts))
    return Compared(numbers.tolist(), _difference(said, data, question.text))


def _partial(question: Question, residual: Residual, rows: LiveRows) -> Partial:
    matching = np.flatnonzero(rows.live & residual.matching(rows.read_column, rows.row_count))
    columns = {}
    for asked in question.every_column:
        column = column_of(values_of(asked.column, rows.read_column), asked.value_type)
        # A file that lacks the column has one value for all rows.
        at = matching if column.row_count == rows.row_count else np.zeros(len(matching), np.int64)
        columns[asked.column] = column.take(at)
    return Partial.of_rows(question, columns, len(matching))


def _groups(partial: Partial) -> dict[tuple[object, ...], dict[str, object]]:
    keys = [group_name(number) for number in range(len(partial.question.groups))]
    rows = (row for row in partial.groups.to_pylist() if row["rows"] or not keys)
    return {tuple(row.pop(key) for key in keys): row for row in rows}


def _difference(
    said: dict[tuple[object, ...], dict[str, object]], data: dict[tuple[object, ...], dict[str, object]], text: str
) -> tuple[str, str] | tuple[()]:
    differing = [key for key in said.keys() | data.keys() if said.get(key) != data.get(key)]
    if not differing:
        return ()
    shown = differing[:_SHOWN]
    claim, found = ({key: one.get(key, "no row") for key in shown} for one in (said, data))
    return f"{text} by groups of keys, {len(differing)} differ: {claim}", str(found)
