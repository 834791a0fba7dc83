"""Order the non-NULL rows of a segment by key, then by row: one vectorised sort of integers that hold both.

Rows have dense numbers, so that these and gaps take few bits. Row r of row group i has the number r + sum of (n_j + 1)
for all row groups j < i, where n_j is the number of rows of row group j. One number stays free after each row group, so
that no run of numbers reaches from one row group into the next. The row space of the segment has far wider gaps between
row groups; each of those would widen a whole stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from puffin_index.keys.columns import Column, SortedColumn
from puffin_index.keys.merge import merge_keys
from puffin_index.keys.order import bounds_of, gather, order_by_key, pack_rows, positions_of, settle
from puffin_index.storage.arrays import Ints, Rows, Words
from puffin_index.storage.parts import checksum32


@dataclass(frozen=True, eq=False)
class RowNumbers:
    """The row groups of a segment: base in its row space, row count, and the number of the first row, of each."""

    bases: Ints
    row_counts: Ints
    firsts: Ints

    @classmethod
    def of(cls, spans: Sequence[tuple[int, int]] | Ints, block_rows: int = 1) -> RowNumbers:
        """Number the rows of row groups, given as pairs of base and row count in ascending order.

        Otherwise number blocks of rows in the place of rows; the last one of a row group may have fewer rows.
        """
        pairs = np.array(spans, np.int64).reshape(-1, 2)
        bases, counts = pairs[:, 0] // block_rows, -(-pairs[:, 1] // block_rows)
        return cls(bases, counts, np.cumsum(counts + 1) - (counts + 1))

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, in bytes."""
        return self.bases.nbytes + self.row_counts.nbytes + self.firsts.nbytes

    @property
    def spans(self) -> Ints:
        """Base and row count of each row group: shape (n, 2)."""
        return np.stack((self.bases, self.row_counts), axis=1)

    @property
    def row_count(self) -> int:
        """The number of rows of all row groups."""
        return int(self.row_counts.sum())

    @property
    def row_limit(self) -> int:
        """The end of the last row group in the row space: greater than every row."""
        return int((self.bases + self.row_counts).max(initial=0))

    @property
    def limit(self) -> int:
        """The end of all numbers: greater than the number of every row."""
        return int((self.row_counts + 1).sum())

    @property
    def checksum(self) -> int:
        """The low half of the xxh64 of base and row count of each row group, 8 bytes each."""
        return checksum32(self.spans.astype("<i8").tobytes())

    @cached_property
    def every_row(self) -> BitMap:
        """All rows, in the row space, which nobody may change."""
        every = BitMap()
        for base, row_count in zip(self.bases.tolist(), self.row_counts.tolist(), strict=True):
            every.add_range(base, base + row_count)
        return every

    def to_rows(self, starts: Ints, lengths: Ints) -> Ints | None:
        """Return the first row of each run of ascending numbers below `limit`; None if a run leaves its row group."""
        cuts = np.append(np.searchsorted(starts, self.firsts), len(starts))
        counts = np.diff(cuts)
        if bool((starts + lengths > np.repeat(self.firsts + self.row_counts, counts)).any()):
            return None
        rows: Ints = starts + np.repeat(self.bases - self.firsts, counts)
        return rows

    def rows_of(self, numbers: npt.NDArray[np.integer]) -> Ints:
        """Return the rows, in the row space, behind some numbers; each must be that of a row."""
        owners = np.searchsorted(self.firsts, numbers, "right") - 1
        rows: Ints = numbers + (self.bases - self.firsts)[owners]
        return rows

    def to_numbers(self, rows: npt.NDArray[np.integer]) -> Ints:
        """Return the numbers of some rows of the row space; each row must lie in a row group."""
        owners = np.searchsorted(self.bases, rows, "right") - 1
        numbers: Ints = rows + (self.firsts - self.bases)[owners]
        return numbers


_WORD_BITS = 64

KeyedRows: TypeAlias = tuple[npt.NDArray[np.integer], Rows]
"""The keys of some rows, and the numbers of these rows."""


@dataclass(frozen=True, slots=True, eq=False)
class OrderedRows:
    """All non-NULL rows, ordered by key, then by row.

    A word has the key, minus the least, above `row_bits` bits of the row's number; the key alone if `rows` is given. In
    the bytes domain the key is a place in the ascending `dictionary`, and the least is 0.
    """

    words: Words
    row_bits: int
    rows: Rows | None
    least: int
    dictionary: pa.LargeBinaryArray | None

    def __len__(self) -> int:
        return len(self.words)

    def end_of_key(self, place: int) -> int:
        """Return the end of the rows that share the key of the row at a place."""
        last = self.words[place] | self._row_mask
        return int(np.searchsorted(self.words, last, "right"))

    def has_keys(self, most: int) -> bool:
        """Return whether there are at most so many keys."""
        place = count = 0
        while place < len(self) and count <= most:
            place, count = self.end_of_key(place), count + 1
        return count <= most

    def span(self, first: int, end: int) -> tuple[Words, Rows]:
        """Return the keys, minus `least`, and the rows from place `first` up to `end`."""
        words = self.words[first:end]
        rows = (words & self._row_mask).astype(np.uint32) if self.rows is None else self.rows[first:end]
        return words >> np.uint64(self.row_bits), rows

    @property
    def _row_mask(self) -> np.uint64:
        return np.uint64((1 << self.row_bits) - 1)


def order_rows(
    columns: Sequence[SortedColumn], numbers: RowNumbers, is_bytes: bool, rows: Sequence[Rows] | None = None
) -> OrderedRows:
    """Order the rows of a segment, given the column of each row group.

    `rows` has the row of each key where a row may have several.
    """
    own_rows = [None] * len(columns) if rows is None else rows
    used = [
        (column, first, own)
        for column, first, own in zip(columns, numbers.firsts.tolist(), own_rows, strict=True)
        if column.column.valid_count
    ]
    if not used:
        nothing = pa.array([], pa.large_binary()) if is_bytes else None
        return OrderedRows(np.empty(0, np.uint64), 0, np.empty(0, np.uint32), 0, nothing)
    row_bits = (numbers.limit - 1).bit_length()
    if is_bytes:
        dictionary, ranks = merge_keys([column.keys for column, _, _ in used])
        parts = [
            _keyed(rank[column.codes], column.column, first, own)
            for (column, first, own), rank in zip(used, ranks, strict=True)
        ]
        return order_keyed(parts, 0, len(dictionary), row_bits, dictionary)
    parts = [_keyed(column.column.int_keys, column.column, first, own) for column, first, own in used]
    bounds = [bounds_of(keys) for keys, _ in parts]
    return order_keyed(parts, min(low for low, _ in bounds), max(high for _, high in bounds), row_bits)


def _keyed(keys: npt.NDArray[np.integer], column: Column, first: int, rows: Rows | None) -> KeyedRows:
    if rows is not None:
        return keys, rows + np.uint32(first)
    if column.valid is None:
        return keys, np.arange(first, first + len(keys), dtype=np.uint32)
    return keys[column.valid], positions_of(column.valid) + np.uint32(first)


def order_keyed(
    parts: Sequence[KeyedRows], least: int, most: int, row_bits: int, dictionary: pa.LargeBinaryArray | None = None
) -> OrderedRows:
    """Return rows ordered by key, then by row; rows of one key ascend through all parts.

    Keys lie between `least` and `most`, or are places in a dictionary of distinct keys.
    """
    if (most - least).bit_length() + row_bits > _WORD_BITS:
        return OrderedRows(*_order_wide(parts, least, most), least, dictionary)
    words = np.empty(sum(len(keys) for keys, _ in parts), np.uint64)
    place = 0
    for keys, rows in parts:
        pack_rows(words[place : place + len(keys)], keys, least, rows, row_bits, 0)
        place += len(keys)
    words.sort()
    return OrderedRows(words, row_bits, None, least, dictionary)


def _order_wide(parts: Sequence[KeyedRows], least: int, most: int) -> tuple[Words, int, Rows]:
    """Order rows whose keys leave no room for the row in a word: first by upper bits of the key, then repair ties."""
    all_keys = np.concatenate([keys for keys, _ in parts])
    all_rows = np.concatenate([rows for _, rows in parts])
    by_prefix = order_by_key(all_keys, least, most, None, len(all_keys))
    order, prefixes = by_prefix.rows(), by_prefix.prefixes()
    del by_prefix
    keys = gather(all_keys, order)
    # The difference of two int64 keys may exceed int64, but modulo 2 ** 64 an unsigned word holds any difference.
    keys = keys.astype(np.int64, copy=False)
    keys -= np.int64(least)
    words: Words = keys.view(np.uint64)
    rows = gather(all_rows, order)
    settle(prefixes, words, rows)
    return words, 0, rows
