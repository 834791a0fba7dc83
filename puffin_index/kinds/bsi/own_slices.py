"""The blob type `puffin-index-bsi-v1`: bit slices of any number of row groups (docs/payloads.md, Bit slices).

In a slice of few rows a row set takes 8 bits a row, in a slice of 65,536 rows 1 bit; plain bits always take 1. Where
neighbouring rows often share a value, in runs too short for run containers, zstd saves a third to a half of the bytes.
On values in random order zstd saves nothing. Saved reading and added decompression break even at about 230 MB/s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import zstandard
from pyroaring import BitMap

from puffin_index.errors import UnsupportedError
from puffin_index.keys.asked import INT64_MINIMUM, AskedTest
from puffin_index.keys.columns import Column, KeyArray, SortedColumn
from puffin_index.keys.leaf import NullTest
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import LookUp, OpenIndex, Payload, RowSet, StoredPayload
from puffin_index.kinds.bsi.bit_sliced import CODES, BitSlicedIndex
from puffin_index.kinds.bsi.key_dictionary import HEADER_BYTES, DictionaryCodedIndex, serialize_dictionary
from puffin_index.kinds.bsi.slices import (
    EXISTENCE_GAP,
    LEAST_NUMBERS,
    HalfBits,
    append_part,
    bits_length,
    check_size,
    halves_of_layout,
    halves_of_numbers,
    numbers_of_halves,
    serialize_numbers,
)
from puffin_index.kinds.held_keys import DistinctKeys, HoldsKeys, KeySets, Totals, Want
from puffin_index.kinds.postings.sort import RowNumbers
from puffin_index.roaring import BLOCK_ROWS, block_count, row_set_of_ascending
from puffin_index.storage.arrays import Ints
from puffin_index.storage.binary import Buffer
from puffin_index.storage.parts import LAYOUT_VERSION, Part, check_layout, checksum32, corrupt
from puffin_index.storage.ranged import Reading, run

PAIMON_BSI = "paimon-bsi-v1"
BSI = "puffin-index-bsi-v1"
LEAST_SAVING = 0.3
"""A smaller saving, as a share of the bytes, does not justify decompression."""

_HEAD_NUMBERS = 4
_LEVEL = 3
_SAMPLE_BYTES = 8 * 1024


def is_small(row_count: int) -> bool:
    """Return whether bit slices of a row group take fewer bytes together with those of its neighbours.

    A roaring container of a slice takes about as many bytes for few rows as for 65,536 rows. A row group is small if
    its rows fill less than three quarters of its containers.
    """
    return 4 * row_count < 3 * BLOCK_ROWS * max(1, block_count(row_count))


def fits_slices(column: Column) -> bool:
    """Return whether the keys are integers other than -2**63, whose magnitude exceeds 63 bits."""
    if not _is_number(column.value_type):
        return False
    keys = column.int_keys
    if not len(keys) or int(keys.min()) > INT64_MINIMUM:
        return True
    return column.valid is not None and not bool((keys[column.valid] == INT64_MINIMUM).any())


def _is_number(value_type: ValueType) -> bool:
    return value_type.domain == "int64" and not value_type.is_floating


def build_slices(ordered: SortedColumn, row_counts: Sequence[int], *, may_compress: bool) -> Payload:
    """Build the payload of row groups; numbers of one row group are in Paimon's format unless it may compress."""
    column = ordered.column
    is_coded = not fits_slices(column)
    # Slices first: the codes are freed before the dictionary is built, and computing the codes already sorts the keys.
    halves = halves_of_numbers(ordered.codes if is_coded else column.int_keys, column.valid)
    if not (is_coded or may_compress) and len(row_counts) == 1:
        return Payload(PAIMON_BSI, *serialize_numbers(halves, column.row_count))
    is_alone = len(row_counts) == 1 and not is_small(column.row_count)
    contents = [content for half in halves if half for content in _contents(half, column.row_count, is_alone)]
    stored = (_compressed(contents) if may_compress else None) or contents
    data, directory_end = serialize_dictionary(ordered.keys) if is_coded else (bytearray(), 0)
    with memoryview(data) as view:
        checksum = checksum32(view[:directory_end]) if directory_end else 0
    head = [LAYOUT_VERSION, _checksum_of(np.array(row_counts)), directory_end, checksum]
    left = iter([append_part(data, content) for content in stored])
    check_size(data, column.row_count)
    placed = [half.placed([next(left) for _ in half.sets]) if half else None for half in halves]
    return Payload(BSI, data, np.array(head + numbers_of_halves(placed, 0), np.int64), len(row_counts))


def _contents(half: HalfBits, row_count: int, is_alone: bool) -> Iterator[Buffer]:
    for bits, row_set in zip(half.bits, half.sets, strict=True):
        plain = bits[: bits_length(row_count)].data
        # The row sets of a large row group are hardly longer, and read in less time. None has the length of plain bits.
        is_plain = len(plain) == len(row_set) if is_alone else len(plain) <= len(row_set)
        yield plain if is_plain else row_set


def _compressed(contents: Sequence[Buffer]) -> list[Buffer] | None:
    """Return the smaller of each content and its zstd frame; None where samples show that compression does not pay."""
    compressor = zstandard.ZstdCompressor(level=_LEVEL)
    # A sample of each part decides, so that values in random order cost next to nothing.
    starts = [max(0, len(content) - _SAMPLE_BYTES) // 2 for content in contents]
    samples = [content[start : start + _SAMPLE_BYTES] for start, content in zip(starts, contents, strict=True)]
    after, before = sum(min(len(one), len(compressor.compress(one))) for one in samples), sum(map(len, samples))
    if not before or 1 - after / before < LEAST_SAVING:
        return None
    return [min(content, compressor.compress(content), key=len) for content in contents]


def _checksum_of(row_counts: Ints) -> int:
    return checksum32(row_counts.astype("<i8").tobytes())


def open_slices(payload: StoredPayload) -> BitSlicedIndex | DictionaryCodedIndex:
    """Open the bit slices of all rows of a payload, numbered without gaps.

    Raises UnsupportedError for another blob type or version, CorruptFileError if the layout contradicts the rest.
    """
    blob, value_type = payload.blob, payload.value_type
    if payload.blob_type == BSI:
        return _open_own(payload)
    if payload.blob_type != PAIMON_BSI or not _is_number(value_type):
        raise _not_read(payload)
    rows = payload.row_count
    numbers = check_layout(blob, payload.layout, 1 + LEAST_NUMBERS)[1:]
    halves = halves_of_layout(blob, numbers, rows, EXISTENCE_GAP)
    return BitSlicedIndex(blob, halves, rows, value_type, is_own=False)


def _open_own(payload: StoredPayload) -> BitSlicedIndex | DictionaryCodedIndex:
    blob, value_type, row_counts = payload.blob, payload.value_type, payload.spans[:, 1]
    numbers = check_layout(blob, payload.layout, _HEAD_NUMBERS + LEAST_NUMBERS)
    _, checksum, directory_end, directory_checksum = numbers[:_HEAD_NUMBERS]
    if checksum != _checksum_of(row_counts):
        raise corrupt(blob, "bit slices of other row groups")
    rows = int(row_counts.sum())
    halves = halves_of_layout(blob, numbers[_HEAD_NUMBERS:], rows, 0)
    if directory_end:
        if not HEADER_BYTES <= directory_end <= blob.length:
            raise corrupt(blob, "a layout that describes no dictionary")
        codes = BitSlicedIndex(blob, halves, rows, CODES, is_own=True)
        return DictionaryCodedIndex(blob, Part(0, directory_end, directory_checksum), codes, value_type)
    if not _is_number(value_type):
        raise _not_read(payload)
    return BitSlicedIndex(blob, halves, rows, value_type, is_own=True)


def _not_read(payload: StoredPayload) -> UnsupportedError:
    return UnsupportedError(
        f"{payload.blob.location}: kind bsi reads no blob {payload.blob_type} of a {payload.value_type.name} column"
    )


class MergedSlices(OpenIndex, HoldsKeys):
    """Answer any test with rows of the segment's row space. Memory keeps nothing that is read. Safe to share.

    Raises UnsupportedError for another version or domain, CorruptFileError if the layout contradicts the rest.
    """

    def __init__(self, payload: StoredPayload) -> None:
        self._payload = payload
        bases, row_counts = payload.spans.T
        self._numbers = RowNumbers(bases, row_counts, np.cumsum(row_counts) - row_counts)
        self._value_count = open_slices(self._payload).value_count

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes."""
        return self._numbers.nbytes + self._payload.layout.nbytes

    def keys(self, most: int) -> Reading[KeyArray | None]:
        """Return the keys of the dictionary; None without a dictionary, or if there are more than `most`."""
        return open_slices(self._payload).keys(most)

    def prepare(self, asked: AskedTest) -> Reading[LookUp]:
        """Prepare a test: the layout says how many rows are NULL."""
        test, most = asked.test, self._value_count
        if isinstance(test, NullTest) and test.is_null:
            most = self._numbers.row_count - most
        bounds = (most if isinstance(test, NullTest) else 0), most
        own = yield from open_slices(self._payload).prepare(asked)

        def rows(candidates: BitMap | None) -> Reading[RowSet]:
            found = yield from own.rows(None if candidates is None else self._numbers_of(candidates))
            if len(found.rows) > most or (candidates is None and len(found.rows) < bounds[0]):
                raise corrupt(self._payload.blob, "bit slices of other rows than they are said to have")
            return RowSet(self._rows_of(found.rows), True)

        return LookUp(bounds, own.cost, rows)

    def keys_of(self, rows: BitMap | None) -> Reading[Column]:
        """Return the keys of some rows."""
        return open_slices(self._payload).keys_of(None if rows is None else self._numbers_of(rows))

    def distinct_of(self, rows: BitMap) -> Reading[DistinctKeys]:
        """Return the distinct keys of some rows."""
        return open_slices(self._payload).distinct_of(self._numbers_of(rows))

    def totals_of_each(self, groups: Sequence[BitMap], want: Want = Want.ALL) -> Reading[list[Totals]]:
        """Return the totals of each of some disjoint sets of rows."""
        return open_slices(self._payload).totals_of_each([self._numbers_of(rows) for rows in groups], want)

    def sets_of(self) -> Reading[KeySets | None]:
        """Return the rows of each key; None if there are many keys."""
        found = yield from open_slices(self._payload).sets_of()
        if found is None:
            return None
        return replace(found, rows=[self._rows_of(own) for own in found.rows], nulls=self._rows_of(found.nulls))

    def columns(self) -> list[Column]:
        """Return the column of each row group, decoded from all slices."""
        column = run(self.keys_of(None))
        return [
            column.part(first, first + count)
            for first, count in zip(self._numbers.firsts.tolist(), self._numbers.row_counts.tolist(), strict=True)
        ]

    def _numbers_of(self, rows: BitMap) -> BitMap:
        """Return the numbers of those rows that lie in the row groups of the blob."""
        inside = (rows & self._numbers.every_row).to_array()
        return row_set_of_ascending(self._numbers.to_numbers(np.frombuffer(inside, np.uint32)))

    def _rows_of(self, numbers: BitMap) -> BitMap:
        """Return the rows, in the row space, behind some numbers."""
        return row_set_of_ascending(self._numbers.rows_of(np.frombuffer(numbers.to_array(), np.uint32)))
