"""The key of each row of a blob, decoded and kept: what needs the keys of single rows again and again asks this."""

from __future__ import annotations

import numpy as np
from pyroaring import BitMap

from puffin_index.keys.columns import Column
from puffin_index.kinds.held_keys import KeyCounts, KeysInMemory
from puffin_index.kinds.postings.columns import CodedNumbers
from puffin_index.kinds.postings.numbers import RowNumbers
from puffin_index.storage.arrays import Ints
from puffin_index.storage.many_ranges import ramps


class CodedRows(KeysInMemory):
    """Answers with the rows of the segment's row space, from memory alone. Safe to share between threads.

    Args:
        coded: The key of each row.
        numbers: The row groups of the segment.
    """

    def __init__(self, coded: CodedNumbers, numbers: RowNumbers) -> None:
        self._coded = coded
        self._numbers = numbers

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes."""
        return self._coded.nbytes + self._numbers.nbytes

    def keys_of(self, rows: BitMap | None) -> Column:
        """Return the keys of some rows."""
        return self._coded.of(self._numbers_of(rows))

    def counts_of(self, rows: BitMap | None) -> KeyCounts:
        """Return the distinct keys of some rows, counted without sorting rows."""
        return self._coded.counts_of(self._numbers_of(rows))

    def _numbers_of(self, rows: BitMap | None) -> Ints:
        numbers = self._numbers
        if rows is None or len(rows) == numbers.row_count:
            return ramps(numbers.firsts, numbers.row_counts)
        return numbers.to_numbers(np.frombuffer(rows.to_array(), np.uint32))
