"""Build merged bit slices: choose the row groups to merge, and encode their payload."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from puffin_index.keys.columns import Column, SortedColumn, join_columns
from puffin_index.kinds.base import MergedPayload, Payload
from puffin_index.kinds.bsi.bit_sliced import fits_slices
from puffin_index.kinds.bsi.dictionary_coded import serialize_dictionary_coded
from puffin_index.kinds.bsi.packed_slices import serialize_packed
from puffin_index.roaring.write import BLOCK_ROWS, block_count
from puffin_index.storage.arrays import Ints
from puffin_index.storage.parts import LAYOUT_VERSION, checksum32

MERGED_BSI = "puffin-index-merged-bsi-v1"
MERGED_DICTIONARY_BSI = "puffin-index-merged-dictionary-bsi-v1"
MERGED_ROWS = 131_072
"""The most rows of all row groups of a payload (a single row group may have more); planning reads a payload at once."""

_MERGED_BYTES = 64 * 1024 * 1024


def is_small(row_count: int) -> bool:
    """Return whether merging the slices of a row group beats Paimon's format.

    A roaring container of a slice takes about as many bytes for few rows as for 65,536 rows. A row group is small if
    its rows fill less than three quarters of its containers.
    """
    return 4 * row_count < 3 * BLOCK_ROWS * max(1, block_count(row_count))


def row_counts_checksum(row_counts: Ints) -> int:
    """Return the low half of the xxh64 of the row counts of row groups, 8 bytes each, little-endian."""
    return checksum32(np.asarray(row_counts, "<i8").tobytes())


def build_merged_slices(columns: Sequence[Column]) -> Payload:
    """Build the payload of some row groups.

    Args:
        columns: The column of each row group; at least one, all of one value type.
    """
    column = join_columns(columns)
    if fits_slices(column):
        blob_type, (data, layout) = MERGED_BSI, serialize_packed(column.int_keys, column.valid)
    else:
        blob_type, (data, layout) = (
            MERGED_DICTIONARY_BSI,
            serialize_dictionary_coded(SortedColumn(column), serialize_packed),
        )
    checksum = row_counts_checksum(np.array([one.row_count for one in columns], np.int64))
    return Payload(blob_type, data, np.concatenate((np.array((LAYOUT_VERSION, checksum), np.int64), layout)))


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
        return [MergedPayload(build_merged_slices(columns), len(columns))] if columns else []
