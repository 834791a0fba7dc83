"""The third bucket: row groups whose data has to be read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from planner.aggregates.partial import Partial
from planner.aggregates.question import Question
from planner.query import QueryAnswer
from planner.scans.arrow_scan import in_order, residual_of
from planner.scans.row_group_reader import RowGroupReader, RowGroupTask, tasks_of
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import Column
from puffin_index.storage.arrays import Flags, Ints

_JOINED_AT = 256
"""So many partial answers are joined to one, so that memory does not grow with the row groups."""


def read_partial(planned: QueryAnswer, table: Table, question: Question, positions: Ints) -> tuple[Partial, int]:
    """Read row groups and answer from their data.

    Args:
        planned: The scan.
        table: The data table.
        question: The question.
        positions: Which row groups of the plan, ascending.

    Returns:
        What the row groups give, and how many were read: a file without an index may have more than it lists.

    Raises:
        UnsupportedError: If a part of the predicate, a data file's format or equality deletes make reading impossible.
    """
    if not len(positions):
        return Partial.merged(question, []), 0
    reader = RowGroupReader(table, planned.request.schema, residual_of(planned))

    def read(task: RowGroupTask) -> Partial:
        values, row_count = reader.values(task, [asked.column for asked in question.every_column])
        columns = {asked.column: column_of(values[asked.column], asked.value_type) for asked in question.every_column}
        zeros = {
            asked.column: _signed_zeros(values[asked.column], columns[asked.column])
            for asked in question.columns
            if asked.ends and asked.value_type.is_floating
        }
        for column, own in columns.items():
            if own.row_count != row_count:
                every = np.zeros(row_count, np.int64)
                columns[column] = own.take(every)
                zeros |= {column: zeros[column][every]} if column in zeros else {}
        return Partial.of_rows(question, columns, row_count, signed_zeros=zeros)

    parts: list[Partial] = []
    count = 0
    for part in in_order(read, tasks_of(planned, table, positions)):
        parts.append(part)
        count += 1
        if len(parts) == _JOINED_AT:
            parts = [Partial.merged(question, parts)]
    return Partial.merged(question, parts), count


def _signed_zeros(values: pa.Array | pa.ChunkedArray, column: Column) -> Flags:
    """Which values are -0.0."""
    doubles = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy()
    return np.asarray(np.signbit(doubles) & (column.int_keys == 0), np.bool_)
