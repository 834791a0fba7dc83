"""Build bit slices: of one row group, or of neighbouring small row groups together."""

from __future__ import annotations

from collections.abc import Sequence

from puffin_index.keys.columns import Column, SortedColumn, join_columns
from puffin_index.kinds.base import MergedPayload
from puffin_index.kinds.bsi.own_slices import build_slices, is_small
from puffin_index.kinds.kind import KindBuilder

MERGED_ROWS = 131_072
"""The most rows of all row groups of a payload (a single row group may have more); planning reads a payload at once."""

_MERGED_BYTES = 64 * 1024 * 1024


class SmallRowGroups:
    """Gathers neighbouring small row groups until they are enough for a payload."""

    def __init__(self) -> None:
        self._columns: list[Column] = []

    def add(self, column: Column) -> list[MergedPayload]:
        """Take the next row group; return the payload of the earlier row groups if the new one would exceed a limit."""
        together = [*self._columns, column]
        row_count, nbytes = sum(one.row_count for one in together), sum(one.keys.nbytes for one in together)
        complete = self.flush() if row_count > MERGED_ROWS or nbytes > _MERGED_BYTES else []
        self._columns.append(column)
        return complete

    def flush(self) -> list[MergedPayload]:
        """Return the payload of the gathered row groups, if any."""
        columns, self._columns = self._columns, []
        if not columns:
            return []
        row_counts = [column.row_count for column in columns]
        payload = build_slices(SortedColumn(join_columns(columns)), row_counts, may_compress=True)
        return [MergedPayload(payload, len(columns))]


class SlicesBuilder:
    """Builds bit slices and merges the slices of small row groups.

    Args:
        one_by_one: Builds one payload per row group.
    """

    def __init__(self, one_by_one: KindBuilder) -> None:
        self._one_by_one = one_by_one
        self._small = SmallRowGroups()

    def add(self, column: SortedColumn, base: int) -> Sequence[MergedPayload]:
        """Take the next row group; return the payloads that are now complete."""
        if is_small(column.column.row_count):
            return self._small.add(column.column)
        return [*self._small.flush(), *self._one_by_one.add(column, base)]

    def finish(self) -> Sequence[MergedPayload]:
        """Return the payload of the small row groups at the end."""
        return self._small.flush()
