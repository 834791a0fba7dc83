"""Turn postings back into the columns they were built from, to be merged with columns of other segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from puffin_index.keys.columns import Column, KeyArray
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.postings.keys import keys_of_blocks
from puffin_index.kinds.postings.numbers import RowNumbers
from puffin_index.kinds.postings.parse import LENGTHS, ParsedBlocks
from puffin_index.kinds.postings.rows import Near, decode_runs
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.many_ranges import ramps
from puffin_index.storage.parts import corrupt
from puffin_index.storage.ranged import Blob


@dataclass(frozen=True, slots=True, eq=False)
class KeyRows:
    """Some keys and their rows.

    Attributes:
        keys: Distinct keys, ascending.
        codes: The place of each row's key in `keys`.
        numbers: The number of each row (`puffin_index.kinds.postings.numbers`).
    """

    keys: KeyArray
    codes: Ints
    numbers: Ints


def key_rows(blocks: ParsedBlocks, first_keys: Ints, is_bytes: bool) -> KeyRows:
    """Decode whole blocks.

    Args:
        blocks: The blocks.
        first_keys: The first key of each block; used only in the int64 domain.
        is_bytes: Whether the keys are of the bytes domain.

    Raises:
        CorruptFileError: If keys or rows are damaged.
    """
    keys = keys_of_blocks(blocks.raw, first_keys, is_bytes)
    sections = np.arange(len(blocks.sections.runs))
    starts, lengths = decode_runs(blocks, sections)
    run_codes = np.repeat(_group_codes(blocks), blocks.group_counts(sections))
    if lengths is None:
        return KeyRows(keys, run_codes, starts)
    return KeyRows(keys, np.repeat(run_codes, lengths), ramps(starts, lengths))


def key_rows_near(blocks: ParsedBlocks, first_keys: Ints, is_bytes: bool, near: Near, limit: int) -> KeyRows:
    """Decode the rows of whole blocks that lie near some rows, with all rows of the runs that have them.

    Args:
        blocks: The blocks.
        first_keys: The first key of each block; used only in the int64 domain.
        is_bytes: Whether the keys are of the bytes domain.
        near: The rows of interest.
        limit: A number greater than the number of every row.

    Raises:
        CorruptFileError: If keys or rows are damaged.
    """
    sections = np.arange(len(blocks.sections.runs))
    starts, lengths = decode_runs(blocks, sections)
    if int((starts if lengths is None else starts + lengths - 1).max(initial=0)) >= limit:
        raise corrupt(blocks.raw.blob, "rows that no row group has", int(blocks.raw.offsets[0]))
    places = np.flatnonzero(near.chosen(starts, lengths))
    groups = np.searchsorted(np.cumsum(blocks.group_counts(sections)), places, "right")
    keys, codes = np.unique(_group_codes(blocks)[groups], return_inverse=True)
    every = keys_of_blocks(blocks.raw, first_keys, is_bytes)
    own = every[keys] if isinstance(every, np.ndarray) else every.take(pa.array(keys))
    if lengths is None:
        return KeyRows(own, codes, starts[places])
    return KeyRows(own, np.repeat(codes, lengths[places]), ramps(starts[places], lengths[places]))


def column_of_numbers(
    blob: Blob, parts: Sequence[KeyRows], numbers: Ints, null_count: int, value_type: ValueType
) -> Column:
    """Return the column of the rows of some numbers.

    Args:
        blob: The blob, for error messages.
        parts: Keys and rows; among them all rows of these numbers that are not NULL.
        numbers: The numbers, ascending.
        null_count: How many of the rows are NULL.
        value_type: The type of the keys.

    Raises:
        CorruptFileError: If a row has two keys, or another number of rows has none.
    """
    codes = np.full(len(numbers), -1, np.int32)
    found, first = 0, 0
    for part in parts:
        places = np.searchsorted(numbers, part.numbers)
        here = np.flatnonzero(numbers[np.minimum(places, len(numbers) - 1)] == part.numbers)
        codes[places[here]] = part.codes[here] + first
        found, first = found + len(here), first + len(part.keys)
    if found != np.count_nonzero(codes >= 0) or found != len(numbers) - null_count:
        raise corrupt(blob, "rows with two keys or without any")
    keys = join_keys([part.keys for part in parts], value_type)
    return CodedNumbers(value_type, keys, codes).every()


def key_counts(blocks: ParsedBlocks, first_keys: Ints, is_bytes: bool) -> tuple[KeyArray, Ints]:
    """Return the keys of whole blocks and the number of rows of each; see `key_rows`."""
    keys = keys_of_blocks(blocks.raw, first_keys, is_bytes)
    sections = blocks.sections
    ends = np.cumsum(sections.groups)
    rows = np.zeros(int(ends[-1]), np.int64)
    # The header has the number of rows of a section; only sections of several keys are decoded.
    is_single = sections.groups == 1
    rows[ends[is_single] - 1] = sections.rows[is_single]
    several = np.flatnonzero(~is_single)
    if len(several):
        places = ramps(ends[several] - sections.groups[several], sections.groups[several])
        rows[places] = _group_rows(blocks, several)
    counts = np.zeros(len(keys), np.int64)
    np.add.at(counts, _group_codes(blocks), rows)
    return keys, counts


def _group_rows(blocks: ParsedBlocks, sections: Ints) -> Ints:
    """Return the number of rows of each group of some sections."""
    rows = blocks.group_counts(sections)
    # Where a section has as many rows as runs, all of its runs have one row.
    groups = blocks.sections.groups[sections]
    has_long = blocks.sections.rows[sections] != blocks.sections.runs[sections]
    if has_long.any():
        chosen = np.repeat(has_long, groups)
        runs = rows[chosen]
        lengths = blocks.sections.stream(LENGTHS, sections[has_long])
        rows[chosen] = np.add.reduceat(lengths, np.cumsum(runs) - runs)
    return rows


def _group_codes(blocks: ParsedBlocks) -> Ints:
    """Return the place of each group's key among all keys."""
    counts = blocks.raw.key_counts
    first_codes = np.cumsum(counts) - counts
    owners = np.repeat(np.arange(len(counts)), blocks.raw.section_counts)
    # A block of several sections has a single key: all of its groups share the place of this key.
    steps = np.where(blocks.raw.section_counts == 1, 1, 0)[owners]
    groups = blocks.sections.groups
    within = ramps(np.zeros(len(groups), np.int64), groups)
    codes: Ints = np.repeat(first_codes[owners], groups) + within * np.repeat(steps, groups)
    return codes


@dataclass(frozen=True, slots=True, eq=False)
class CodedNumbers:
    """The key of each row of a blob.

    Attributes:
        value_type: The type of the keys.
        keys: Distinct keys, ascending.
        codes: For each number (`puffin_index.kinds.postings.numbers`) the place of its key in `keys`; -1 for NULL.
    """

    value_type: ValueType
    keys: KeyArray
    codes: npt.NDArray[np.int32]

    def of(self, numbers: Ints) -> Column:
        """Return the column of the rows of some numbers."""
        return self._column(self.codes[numbers])

    def every(self) -> Column:
        """Return the column of all numbers."""
        return self._column(self.codes)

    def columns(self, numbers: RowNumbers) -> list[Column]:
        """Return the column of each row group."""
        spans = zip(numbers.firsts.tolist(), numbers.row_counts.tolist(), strict=True)
        return [self._column(self.codes[first : first + count]) for first, count in spans]

    def _column(self, codes: npt.NDArray[np.int32]) -> Column:
        known: Flags = codes >= 0
        valid = None if known.all() else known
        if not isinstance(self.keys, np.ndarray):
            nulls = None if valid is None else ~valid
            return Column(self.value_type, len(codes), self.keys.take(pa.array(codes, mask=nulls)), valid)
        if valid is None:
            return Column(self.value_type, len(codes), self.keys[codes], None)
        own = np.zeros(len(codes), np.int64)
        own[known] = self.keys[codes[known]]
        return Column(self.value_type, len(codes), own, valid)


def code_numbers(blob: Blob, parts: Sequence[KeyRows], numbers: RowNumbers, value_type: ValueType) -> CodedNumbers:
    """Return the key of each row.

    Args:
        blob: The blob, for error messages.
        parts: All keys, ascending, and their rows.
        numbers: The row groups.
        value_type: The type of the keys.

    Raises:
        CorruptFileError: If a row has two keys or belongs to no row group.
    """
    first_codes = np.cumsum([0, *(len(part.keys) for part in parts)])
    codes = np.full(numbers.limit, -1, np.int32)
    for part, first in zip(parts, first_codes.tolist(), strict=False):
        if int(part.numbers.max(initial=0)) >= numbers.limit:
            raise corrupt(blob, "rows that no row group has")
        codes[part.numbers] = part.codes + first
    # A row with two keys, or outside every row group, lowers the count of owned rows below that of all rows.
    owned = np.zeros(numbers.limit, np.bool_)
    owned[ramps(numbers.firsts, numbers.row_counts)] = True
    if np.count_nonzero((codes >= 0) & owned) != sum(len(part.numbers) for part in parts):
        raise corrupt(blob, "rows that no row group has, or twice")
    return CodedNumbers(value_type, join_keys([part.keys for part in parts], value_type), codes)


def join_keys(keys: Sequence[KeyArray], value_type: ValueType) -> KeyArray:
    """Join ascending keys."""
    if value_type.domain == "bytes":
        return pa.concat_arrays([*keys, pa.array([], pa.large_binary())])
    return np.concatenate([np.empty(0, np.int64), *keys])
