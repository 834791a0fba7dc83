"""Decoded keys of rows: of all rows of a blob, to be kept, or of the rows with some keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from pyroaring import BitMap

from puffin_index.keys.columns import Column
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.held_keys import KeyCounts, KeysInMemory, KeysWithin
from puffin_index.kinds.postings.columns import CodedNumbers, KeyRows, join_keys, no_codes
from puffin_index.kinds.postings.numbers import RowNumbers
from puffin_index.storage.arrays import Ints
from puffin_index.storage.many_ranges import ramps
from puffin_index.storage.parts import corrupt
from puffin_index.storage.ranged import Blob


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


class RowsWithin(KeysWithin):
    """Answers with the rows of the segment's row space whose keys lie in some blocks. Memory keeps nothing.

    Args:
        blob: The blob, for error messages.
        read: Reads the blocks; returns their keys, ascending, with all of their rows.
        cost_bytes: The number of bytes that `read` reads.
        numbers: The row groups of the segment.
        value_type: The type of the keys.
    """

    def __init__(
        self,
        blob: Blob,
        read: Callable[[], Sequence[KeyRows]],
        cost_bytes: int,
        numbers: RowNumbers,
        value_type: ValueType,
    ) -> None:
        self._blob = blob
        self._read = read
        self._cost_bytes = cost_bytes
        self._numbers = numbers
        self._value_type = value_type

    @property
    def cost_bytes(self) -> int:
        """The number of bytes that are read for the keys."""
        return self._cost_bytes

    def keys_of(self, rows: BitMap | None) -> Column:
        """Return the keys of some rows.

        Raises:
            CorruptFileError: If the blob is damaged, or a row's key does not lie in the blocks.
        """
        if rows is None:
            raise corrupt(self._blob, "rows of other keys are asked for")
        wanted = self._numbers.to_numbers(np.frombuffer(rows.to_array(), np.uint32))
        parts = self._read()
        every = np.concatenate([np.empty(0, np.int64), *(part.numbers for part in parts)])
        codes, first = no_codes(len(every), sum(len(part.keys) for part in parts)), 0
        ends = np.cumsum([len(part.numbers) for part in parts]).tolist()
        for part, end in zip(parts, ends, strict=True):
            codes[end - len(part.numbers) : end] = part.codes.astype(codes.dtype) + codes.dtype.type(first + 1)
            first += len(part.keys)
        order = np.argsort(every, kind="stable")
        ordered = every[order]
        places = np.searchsorted(ordered, wanted)
        is_there = places < len(ordered)
        if not is_there.all() or (ordered[places] != wanted).any() or (ordered[1:] == ordered[:-1]).any():
            raise corrupt(self._blob, "rows with two keys, or with none that the test asks for")
        keys = join_keys([part.keys for part in parts], self._value_type)
        return CodedNumbers(self._value_type, keys, codes[order[places]]).every()
