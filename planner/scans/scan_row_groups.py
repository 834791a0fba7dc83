"""The row groups of a scan: which data file each is of, and where the index view has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.view.index_view import IndexView
from puffin_index.data.data_table import DataFile
from puffin_index.storage.arrays import Flags, Ints


@dataclass(frozen=True, slots=True)
class ScanRowGroups:
    """The row groups of a scan, data file by data file. A file without an index counts the row groups that it lists.

    Attributes:
        file_of: For each row group its data file, as a number among those of the scan.
        ordinals: For each row group its ordinal in the data file.
        numbers: For each row group its number in the view, -1 where it has no index.
        row_counts: For each row group its rows, 0 where it has no index.
        first_rows: For each row group the position of its first row in the data file; undefined where it has no index.
        is_read_whole: For each row group whether readers of byte ranges read its data file whole or not at all.
    """

    file_of: Ints
    ordinals: Ints
    numbers: Ints
    row_counts: Ints
    first_rows: Ints
    is_read_whole: Flags

    @classmethod
    def of(cls, view: IndexView, files: Sequence[DataFile]) -> ScanRowGroups:
        """Find the row groups of some data files in a view."""
        known = [view.row_groups_of(file) for file in files]
        counts = np.array(
            [max(1, len(f.split_offsets)) if own is None else len(own) for f, own in zip(files, known, strict=True)],
            np.int64,
        )
        file_of = np.repeat(np.arange(len(files)), counts)
        ordinals = np.arange(len(file_of)) - np.repeat(np.cumsum(counts) - counts, counts)
        first = np.array([-1 if own is None else own.start for own in known], np.int64)[file_of]
        numbers = np.where(first >= 0, first + ordinals, -1)
        if not view.row_group_count:
            zeros = np.zeros_like(numbers)
            return cls(file_of, ordinals, numbers, zeros, zeros, zeros.astype(np.bool_))
        indexed = numbers >= 0
        row_counts, is_read_whole = view.row_counts[numbers] * indexed, view.is_read_whole[numbers] & indexed
        return cls(file_of, ordinals, numbers, row_counts, view.first_rows[numbers], is_read_whole)
