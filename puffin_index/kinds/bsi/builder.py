"""Build bit slices: of one row group, or of neighbouring small row groups together."""

from __future__ import annotations

from collections.abc import Sequence

from puffin_index.keys.columns import SortedColumn
from puffin_index.kinds.base import MergedPayload
from puffin_index.kinds.bsi.merged_slices_build import SmallRowGroups, is_small
from puffin_index.kinds.kind import KindBuilder


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
