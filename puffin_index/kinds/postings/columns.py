"""Postings turned back into columns: of all rows of a blob, to be kept or merged, or of the rows with some keys."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from puffin_index.keys.columns import Column, KeyArray, chosen_keys, join_keys
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.held_keys import KeyCounts, KeysInMemory, KeysWithin
from puffin_index.kinds.postings.keys import AskedBlocks, keys_of_blocks, runs_of
from puffin_index.kinds.postings.parse import (
    LENGTHS,
    ParsedBlocks,
    decode_runs,
    parse_blocks,
    row_set,
    runs_in,
    sections_of,
)
from puffin_index.kinds.postings.sort import RowNumbers
from puffin_index.storage.arrays import Flags, Ints, ramps
from puffin_index.storage.parts import corrupt
from puffin_index.storage.ranged import Blob, Reading, at_once

Codes: TypeAlias = npt.NDArray[np.unsignedinteger]
"""One more than the place of each row's key; 0 for NULL. Of the smallest type that has them."""

_FEW_LONG_RUNS = 8
"""Where fewer than one run in this many has several rows, the rows after the first are listed apart."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyRows:
    """Distinct keys, ascending, and for each row its number and the place of its key, in any order."""

    keys: KeyArray
    codes: npt.NDArray[np.integer]
    numbers: npt.NDArray[np.integer]


def key_rows(blocks: ParsedBlocks) -> KeyRows:
    """Decode whole blocks. Raises CorruptFileError on damage."""
    keys = keys_of_blocks(blocks)
    sections = np.arange(len(blocks.runs))
    starts, lengths = decode_runs(blocks, sections)
    # Few bytes a code: arrays of runs are what decoding takes the time for.
    codes_of_groups = group_codes(blocks).astype(np.min_scalar_type(len(keys)))
    run_codes = np.repeat(codes_of_groups, blocks.group_counts(sections))
    if lengths is None:
        return KeyRows(keys, run_codes, starts)
    places = np.flatnonzero(lengths > 1)
    if len(places) * _FEW_LONG_RUNS > len(lengths):
        return KeyRows(keys, np.repeat(run_codes, lengths), ramps(starts, lengths))
    later = lengths[places] - 1
    codes = np.concatenate((run_codes, np.repeat(run_codes[places], later)))
    return KeyRows(keys, codes, np.concatenate((starts, ramps(starts[places] + 1, later))))


def join_key_rows(parts: Sequence[KeyRows], is_bytes: bool) -> KeyRows:
    """Join parts whose keys ascend through all of them."""
    nothing = np.empty(0, np.int64)
    firsts = np.cumsum([0, *(len(part.keys) for part in parts)]).tolist()
    # The codes of a part may be of a type that is too small for those of all.
    codes = [part.codes.astype(np.int64) + first for part, first in zip(parts, firsts[:-1], strict=True)]
    numbers = np.concatenate([nothing, *(part.numbers for part in parts)])
    return KeyRows(join_keys([part.keys for part in parts], is_bytes), np.concatenate([nothing, *codes]), numbers)


def rows_of_keys(asked: AskedBlocks, keys: KeyArray) -> KeyRows:
    """Decode the rows of ascending keys, each in an interval of the cuts, or raise CorruptFileError."""
    blocks = parse_blocks([asked.stored], asked.is_bytes)
    runs = runs_of(blocks, [asked])
    there = np.flatnonzero(runs[0::2] < runs[1::2])
    if not len(there):
        return KeyRows(keys[:0], there, there)
    lows, highs = runs[0::2][there], runs[1::2][there]
    starts, lengths, counts = runs_in(blocks, sections_of(blocks, lows, highs), lows, highs)
    codes = np.repeat(np.arange(len(there)), counts)
    if lengths is not None:
        starts, codes = ramps(starts, lengths), np.repeat(codes, lengths)
    return KeyRows(chosen_keys(keys, there), codes, starts)


def key_counts(blocks: ParsedBlocks) -> tuple[KeyArray, Ints]:
    """Return the keys of whole blocks and the number of rows of each; see `key_rows`."""
    keys = keys_of_blocks(blocks)
    rows = blocks.group_counts(np.arange(len(blocks.runs)))
    # The header has the number of rows of a section: lengths of runs are decoded only where they tell keys apart.
    is_single = blocks.groups == 1
    rows[np.repeat(is_single, blocks.groups)] = blocks.rows[is_single]
    has_long = ~is_single & (blocks.rows != blocks.runs)
    if has_long.any():
        chosen = np.repeat(has_long, blocks.groups)
        lengths, runs = blocks.stream(LENGTHS, np.flatnonzero(has_long)), rows[chosen]
        rows[chosen] = np.add.reduceat(lengths, np.cumsum(runs) - runs)
    counts = np.zeros(len(keys), np.int64)
    np.add.at(counts, group_codes(blocks), rows)
    return keys, counts


def group_codes(blocks: ParsedBlocks) -> Ints:
    """Return the place of each group's key among all keys."""
    counts = blocks.key_counts
    first_codes = np.cumsum(counts) - counts
    # The only section of a block has one group per key. Several sections have one group each, of the block's only key.
    return ramps(np.repeat(first_codes, blocks.section_counts), blocks.groups)


def column_of_codes(value_type: ValueType, keys: KeyArray, codes: npt.NDArray[np.integer]) -> Column:
    """Return the column of rows with these `Codes`, of whichever type."""
    known: Flags = codes > 0
    valid = None if known.all() else known
    if isinstance(keys, np.ndarray):
        return Column(value_type, len(codes), np.concatenate(([0], keys))[codes], valid)
    places = pa.array(codes.astype(np.int64) - 1, mask=None if valid is None else ~valid)
    return Column(value_type, len(codes), keys.take(places), valid)


def no_codes(count: int, key_count: int) -> Codes:
    """Return the codes of NULL rows, in the type that has codes for this many keys."""
    return np.zeros(count, np.min_scalar_type(key_count))


@dataclass(frozen=True, slots=True, eq=False)
class CodedRows(KeysInMemory):
    """The distinct keys of a blob, ascending, and the code of each number (`puffin_index.kinds.postings.sort`).

    Answers with the rows of the segment's row space, from memory alone. Safe to share between threads.
    """

    value_type: ValueType
    distinct_keys: KeyArray
    codes: Codes
    numbers: RowNumbers

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes."""
        return int(self.distinct_keys.nbytes) + self.codes.nbytes + self.numbers.nbytes

    def keys_of(self, rows: BitMap | None) -> Reading[Column]:
        """Return the keys of some rows."""
        return at_once(column_of_codes(self.value_type, self.distinct_keys, self._codes_of(rows)))

    def counts_of(self, rows: BitMap) -> Reading[KeyCounts]:
        """Return the distinct keys of some rows, counted without sorting rows."""
        counts = np.bincount(self._codes_of(rows), minlength=1).astype(np.int64, copy=False)
        places = np.flatnonzero(counts[1:])
        keys = chosen_keys(self.distinct_keys, places)
        return at_once(KeyCounts(self.value_type, keys, counts[1:][places], int(counts[0])))

    def _codes_of(self, rows: BitMap | None) -> Codes:
        numbers = self.numbers
        if rows is None or len(rows) == numbers.row_count:
            return self.codes[ramps(numbers.firsts, numbers.row_counts)]
        return self.codes[numbers.to_numbers(np.frombuffer(rows.to_array(), np.uint32))]


def code_rows(
    blob: Blob, parts: Iterable[Reading[KeyRows]], key_count: int, numbers: RowNumbers, value_type: ValueType
) -> Reading[CodedRows]:
    """Return the key of each row from all keys and their rows, ascending; only one part is in memory at a time.

    Raises CorruptFileError if a row has two keys or belongs to no row group, or if there are more keys.
    """
    codes = no_codes(numbers.limit, key_count)
    keys: list[KeyArray] = []
    first, row_count = 1, 0
    for reading in parts:
        part = yield from reading
        if int(part.numbers.max(initial=0)) >= numbers.limit:
            raise corrupt(blob, "rows that no row group has")
        if first + len(part.keys) - 1 > key_count:
            raise corrupt(blob, f"more than {key_count} keys")
        own = part.codes.astype(codes.dtype, copy=False)
        codes[part.numbers] = own + codes.dtype.type(first)
        keys.append(part.keys)
        first, row_count = first + len(part.keys), row_count + len(part.numbers)
    # A row with two keys, or outside every row group, lowers the count of owned rows below that of all rows.
    outside = np.count_nonzero(codes[numbers.firsts + numbers.row_counts])
    if np.count_nonzero(codes) - outside != row_count:
        raise corrupt(blob, "rows that no row group has, or twice")
    return CodedRows(value_type, join_keys(keys, value_type.domain == "bytes"), codes, numbers)


@dataclass(frozen=True, slots=True, eq=False)
class RowsWithin(KeysWithin):
    """Answers with the rows of the row space that have some keys, which are read for each answer."""

    blob: Blob
    read: Callable[[], Reading[Sequence[KeyRows]]]
    cost_bytes: int
    numbers: RowNumbers
    value_type: ValueType

    def read_once(self) -> Reading[tuple[BitMap, KeysWithin]]:
        """Read all rows of the keys, and return the same keys in memory. Raises CorruptFileError on damage."""
        parts = yield from self.read()
        numbers = np.concatenate([np.empty(0, np.int64), *(part.numbers for part in parts)])
        rows = row_set(numbers, None, self.numbers)
        if rows is None:
            raise corrupt(self.blob, "rows that no row group has")
        return rows, replace(self, read=lambda: at_once(parts), cost_bytes=0)

    def keys_of(self, rows: BitMap | None) -> Reading[Column]:
        """Return the keys of some rows, or raise CorruptFileError on damage or for a row with none of the keys."""
        if rows is None:
            raise corrupt(self.blob, "rows of other keys are asked for")
        wanted = self.numbers.to_numbers(np.frombuffer(rows.to_array(), np.uint32))
        every = join_key_rows((yield from self.read()), self.value_type.domain == "bytes")
        order = np.argsort(every.numbers, kind="stable")
        ordered = every.numbers[order]
        places = np.searchsorted(ordered, wanted)
        is_there = places < len(ordered)
        if not is_there.all() or (ordered[places] != wanted).any() or (ordered[1:] == ordered[:-1]).any():
            raise corrupt(self.blob, "rows with two keys, or with none that the test asks for")
        return column_of_codes(self.value_type, every.keys, every.codes[order[places]] + 1)
