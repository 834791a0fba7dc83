"""Build the bitmap index of a segment: one payload per row group, or sorted postings of all row groups."""

from __future__ import annotations

from collections.abc import Sequence

from puffin_index.keys.columns import SortedColumn
from puffin_index.kinds.base import MergedPayload
from puffin_index.kinds.bitmap.options import BitmapLayout
from puffin_index.kinds.kind import KindBuilder
from puffin_index.kinds.postings.build import PlacedColumn, build_postings, postings_pay


class BitmapBuilder:
    """Builds one payload per row group, or postings if the layout says so or postings pay for the first row group.

    For many distinct values, one bitmap per value takes 7 to 14 bytes a row, postings take 1 to 4.

    Args:
        one_by_one: Builds one payload per row group.
        layout: The layout of the options.
    """

    def __init__(self, one_by_one: KindBuilder, layout: BitmapLayout) -> None:
        self._one_by_one = one_by_one
        self._layout = layout
        self._placed: list[PlacedColumn] = []

    def add(self, column: SortedColumn, base: int) -> Sequence[MergedPayload]:
        """Take the next row group; return its payload unless the builder gathers postings."""
        if self._layout == "auto":
            self._layout = "postings" if _pays(column) else "bitmaps"
        if self._layout == "bitmaps":
            return self._one_by_one.add(column, base)
        # Postings sort the integers of all row groups together, so the sorted form of one row group can be freed.
        is_int = column.column.value_type.domain == "int64"
        self._placed.append(PlacedColumn(base, SortedColumn(column.column) if is_int else column))
        return []

    def finish(self) -> Sequence[MergedPayload]:
        """Return the postings, if the builder gathered any."""
        return [MergedPayload(build_postings(self._placed), len(self._placed))] if self._placed else []


def _pays(column: SortedColumn) -> bool:
    return postings_pay([column.distinct_count], [column.column.valid_count])
