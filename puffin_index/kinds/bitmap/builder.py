"""Building the bitmap index of a segment: one payload a row group, or sorted postings of all of them."""

from __future__ import annotations

from collections.abc import Sequence

from puffin_index.keys.columns import SortedColumn
from puffin_index.kinds.base import MergedPayload
from puffin_index.kinds.bitmap.options import BitmapLayout
from puffin_index.kinds.kind import KindBuilder
from puffin_index.kinds.postings.build import PlacedColumn, build_postings, postings_pay


class BitmapBuilder:
    """Builds one payload a row group, or postings if the layout says so or they pay for the first row group.

    One bitmap a value is the wrong shape for many distinct values: 7 to 14 bytes a row, against 1 to 4.

    Args:
        one_by_one: Builds one payload a row group.
        layout: What the options ask for.
    """

    def __init__(self, one_by_one: KindBuilder, layout: BitmapLayout) -> None:
        self._one_by_one = one_by_one
        self._layout = layout
        self._placed: list[PlacedColumn] = []

    def add(self, column: SortedColumn, base: int) -> Sequence[MergedPayload]:
        """Take a row group; return its payload, unless there will be postings."""
        if self._layout == "auto":
            self._layout = "postings" if _pays(column) else "bitmaps"
        if self._layout == "bitmaps":
            return self._one_by_one.add(column, base)
        # Integers are sorted anew, all row groups together: what others sort of this column need not be kept.
        is_int = column.column.value_type.domain == "int64"
        self._placed.append(PlacedColumn(base, SortedColumn(column.column) if is_int else column))
        return []

    def finish(self) -> Sequence[MergedPayload]:
        """Return the postings, if it is postings that are built."""
        return [MergedPayload(build_postings(self._placed), len(self._placed))] if self._placed else []


def _pays(column: SortedColumn) -> bool:
    return postings_pay([column.distinct_count], [column.column.valid_count])
