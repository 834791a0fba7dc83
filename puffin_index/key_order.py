"""Keys in order, with the rows that have them: array operations that `puffin_index.columns` sorts columns with."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# What numpy makes 64-bit numbers of on the way stays in the processor's cache.
_AT_ONCE = 65_536
_Number = TypeVar("_Number", np.int64, np.uint64, np.uint32)
_Offset = TypeVar("_Offset", np.uint8, np.uint16, np.uint32)


def distinct_of_counts(
    counts: npt.NDArray[np.int64], minimum: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """The distinct keys, and where the rows of each begin, from the counts of all keys from `minimum` on."""
    places = np.flatnonzero(counts)
    starts = np.zeros(len(places) + 1, np.uint32)
    np.cumsum(counts[places], out=starts[1:])
    return places + np.int64(minimum), starts


def order_by_key(
    keys: npt.NDArray[np.int64] | npt.NDArray[np.uint32],
    minimum: int,
    maximum: int,
    rows: npt.NDArray[np.uint32],
    row_count: int,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64] | npt.NDArray[np.uint32], int]:
    """Order rows by key, then by row.

    Key and row are packed into one integer, which takes one vectorised sort and no slow indirect one. Where they do not
    fit, the lowest bits of the key are left out.

    Returns:
        The rows, the sorted integers, and how many of their bits, the lowest, are the row.
    """
    row_bits = max(row_count - 1, 1).bit_length()
    key_bits = (maximum - minimum).bit_length()
    packed: npt.NDArray[np.uint64] | npt.NDArray[np.uint32]
    if key_bits + row_bits <= 32:
        packed = offsets_from(minimum, keys, np.dtype(np.uint32))
    else:
        offsets = keys - keys.dtype.type(minimum)
        packed = offsets.view(np.uint64) if offsets.dtype == np.int64 else offsets.astype(np.uint64)
        packed >>= np.uint64(max(0, key_bits + row_bits - 64))
        del offsets
    packed <<= packed.dtype.type(row_bits)
    packed |= rows
    packed.sort()
    if packed.dtype == np.uint32:
        return packed & np.uint32((1 << row_bits) - 1), packed, row_bits
    ordered = packed.astype(np.uint32)
    ordered &= np.uint32((1 << row_bits) - 1)
    return ordered, packed, row_bits


def bounds_of(keys: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Return the least and the greatest of some keys, there being any; Arrow finds both at once."""
    bounds = pc.min_max(pa.array(keys))
    return bounds["min"].as_py(), bounds["max"].as_py()


def order_few(
    keys: npt.NDArray[np.int64], minimum: int, maximum: int
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Order positions by key, then by position, where few keys are possible: Arrow counts them instead of comparing.

    Returns:
        The positions, and how many there are of each key from the least to the greatest.
    """
    width = maximum - minimum + 1
    narrow, wide = np.dtype(np.uint8), np.dtype(np.uint16)
    offsets = offsets_from(minimum, keys, narrow) if width <= 256 else offsets_from(minimum, keys, wide)
    order = pc.sort_indices(pa.array(offsets)).to_numpy()
    ends = np.searchsorted(offsets, np.arange(width, dtype=offsets.dtype), "right", sorter=order.view(np.int64))
    return order.astype(np.uint32), np.diff(ends, prepend=0)


def offsets_from(
    minimum: int, keys: npt.NDArray[np.int64] | npt.NDArray[np.uint32], dtype: np.dtype[_Offset]
) -> npt.NDArray[_Offset]:
    """Return by how much keys exceed the least of them; none does by more than the type of the offsets holds."""
    offsets = keys.astype(dtype)
    # Modulo 2 to the bits of the type, which the difference fits.
    offsets -= dtype.type(minimum & (1 << 8 * dtype.itemsize) - 1)
    return offsets


def gather(values: npt.NDArray[_Number], places: npt.NDArray[np.uint32]) -> npt.NDArray[_Number]:
    """Return the values at some places, some at a time: numpy makes 64-bit numbers of the places before it looks."""
    found = np.empty(len(places), values.dtype)
    for start in range(0, len(places), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        # All places are there; unlike "raise", "clip" writes to `out` directly.
        np.take(values, places[some], out=found[some], mode="clip")
    return found


def settle(
    prefixes: npt.NDArray[np.unsignedinteger], ordered: npt.NDArray[np.int64], rows: npt.NDArray[np.uint32]
) -> None:
    """Put keys in order that were sorted by their prefixes alone, and their rows with them, in place."""
    descents = np.flatnonzero(ordered[1:] < ordered[:-1])
    if not len(descents):
        return
    unsettled = np.unique(prefixes[descents])
    low, high = np.searchsorted(prefixes, unsettled, "left"), np.searchsorted(prefixes, unsettled, "right")
    counts = high - low
    places = np.arange(int(counts.sum())) + np.repeat(low - (np.cumsum(counts) - counts), counts)
    order = np.lexsort((rows[places], ordered[places]))
    ordered[places], rows[places] = ordered[places[order]], rows[places[order]]


def distinct_of_sorted(ordered: npt.NDArray[_Number]) -> tuple[npt.NDArray[_Number], npt.NDArray[np.uint32]]:
    """The distinct keys, and where each begins; the smaller arrays are made first."""
    changes = changes_of(ordered)
    starts = starts_of(changes)
    return ordered if changes.all() else ordered[changes], starts


def changes_of(ordered: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
    """Where an element differs from the one before; true for the first."""
    changes = np.empty(len(ordered), np.bool_)
    changes[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=changes[1:])
    return changes


def starts_of(changes: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """The positions of the changes, and in the end how many elements there are."""
    count = np.count_nonzero(changes)
    if count == len(changes):
        return np.arange(count + 1, dtype=np.uint32)
    starts = np.empty(count + 1, np.uint32)
    place = 0
    for first in range(0, len(changes), _AT_ONCE):
        some = np.flatnonzero(changes[first : first + _AT_ONCE])
        starts[place : place + len(some)] = some + first
        place += len(some)
    starts[-1] = len(changes)
    return starts
