"""The non-NULL rows of a segment ordered by key, then by row: one vectorised sort of key and row in one integer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from puffin_index.columns import Column, sort_column
from puffin_index.key_merge import merge_keys
from puffin_index.key_order import gather
from puffin_index.kinds.postings_bits import Words
from puffin_index.kinds.postings_numbers import RowNumbers

Rows: TypeAlias = npt.NDArray[np.uint32]

_Number = TypeVar("_Number", np.int64, np.uint32)

_WORD_BITS = 64


@dataclass(frozen=True, slots=True, eq=False)
class OrderedRows:
    """All non-NULL rows, ordered by key, then by row.

    Attributes:
        keys: For each row its key, less the least one; in the bytes domain its place in `dictionary`.
        rows: The numbers of the rows (`puffin_index.kinds.postings_numbers`).
        least: The least key; 0 in the bytes domain.
        dictionary: The distinct keys, ascending; None in the int64 domain.
    """

    keys: Words
    rows: Rows
    least: int
    dictionary: pa.LargeBinaryArray | None


def order_rows(columns: Sequence[Column], numbers: RowNumbers, is_bytes: bool) -> OrderedRows:
    """Order the rows of a segment, of whose row groups these are the columns."""
    used = [
        (column, first) for column, first in zip(columns, numbers.firsts.tolist(), strict=True) if column.valid_count
    ]
    if not used:
        nothing = pa.array([], pa.large_binary()) if is_bytes else None
        return OrderedRows(np.empty(0, np.uint64), np.empty(0, np.uint32), 0, nothing)
    some = [column for column, _ in used]
    rows = [_rows_of(column, first) for column, first in used]
    row_bits = (numbers.limit - 1).bit_length()
    if is_bytes:
        merged = merge_keys([sort_column(column).keys for column in some])
        key_bits = len(merged.keys).bit_length()
        return OrderedRows(*order_packed(_bytes_numbers(some, merged.ranks), rows, key_bits, row_bits), 0, merged.keys)
    bounds = [_bounds(column) for column in some]
    least, most = min(low for low, _ in bounds), max(high for _, high in bounds)
    key_bits = (most - least).bit_length()
    return OrderedRows(*order_packed(_int_numbers(some, least), rows, key_bits, row_bits), least, None)


def _bounds(column: Column) -> tuple[int, int]:
    keys = _of_valid(column.int_keys, column)
    return int(keys.min()), int(keys.max())


def _of_valid(numbers: npt.NDArray[_Number], column: Column) -> npt.NDArray[_Number]:
    return numbers if column.valid is None else numbers[column.valid]


def _int_numbers(columns: Sequence[Column], least: int) -> Iterator[Words]:
    for column in columns:
        # Modulo 2 ** 64, the difference of any two keys fits.
        yield (_of_valid(column.int_keys, column) - np.int64(least)).view(np.uint64)


def _bytes_numbers(columns: Sequence[Column], ranks: Sequence[Rows]) -> Iterator[Words]:
    for column, own in zip(columns, ranks, strict=True):
        yield _of_valid(own[sort_column(column).codes], column).astype(np.uint64)


def _rows_of(column: Column, first: int) -> Rows:
    if column.valid is None:
        return np.arange(column.row_count, dtype=np.uint32) + np.uint32(first)
    return np.flatnonzero(column.valid).astype(np.uint32) + np.uint32(first)


def order_packed(keys: Iterable[Words], rows: Sequence[Rows], key_bits: int, row_bits: int) -> tuple[Words, Rows]:
    """Return keys and rows ordered by key, then by row.

    Args:
        keys: Arrays of keys of at most `key_bits` bits, one key a row.
        rows: The rows that have them, of at most `row_bits` bits; for one key they ascend through all arrays.
        key_bits: See above.
        row_bits: See above.
    """
    if key_bits + row_bits > _WORD_BITS:
        return _order_wide(_joined(keys, sum(len(own) for own in rows)), np.concatenate(rows), key_bits)
    packed = np.empty(sum(len(own) for own in rows), np.uint64)
    place = 0
    for own_keys, own_rows in zip(keys, rows, strict=True):
        some = packed[place : place + len(own_rows)]
        np.left_shift(own_keys, np.uint64(row_bits), out=some)
        some |= own_rows
        place += len(own_rows)
    packed.sort()
    ordered = packed.astype(np.uint32)
    ordered &= np.uint32((1 << row_bits) - 1)
    packed >>= np.uint64(row_bits)
    return packed, ordered


def _joined(parts: Iterable[Words], count: int) -> Words:
    joined = np.empty(count, np.uint64)
    place = 0
    for part in parts:
        joined[place : place + len(part)] = part
        place += len(part)
    return joined


def _order_wide(keys: Words, rows: Rows, key_bits: int) -> tuple[Words, Rows]:
    """Order keys that leave no room for the row: by their upper bits, then the few that these do not tell apart."""
    place_bits = len(keys).bit_length()
    packed = keys >> np.uint64(max(0, key_bits + place_bits - _WORD_BITS))
    packed <<= np.uint64(place_bits)
    packed |= np.arange(len(keys), dtype=np.uint32)
    packed.sort()
    order = packed.astype(np.uint32)
    order &= np.uint32((1 << place_bits) - 1)
    packed >>= np.uint64(place_bits)
    alike = packed[1:] == packed[:-1]
    del packed
    keys, rows = gather(keys, order), gather(rows, order)
    unclear = np.zeros(len(keys), np.bool_)
    unclear[1:] |= alike
    unclear[:-1] |= alike
    if not bool((keys[1:] < keys[:-1]).any()):
        return keys, rows
    places = np.flatnonzero(unclear)
    # Upper bits ascend with the key, so that all groups of like ones are put in order by one stable sort.
    again = places[np.argsort(keys[places], kind="stable")]
    keys[places], rows[places] = keys[again], rows[again]
    return keys, rows
