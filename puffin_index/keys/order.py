"""Order keys and the rows that have them: the array operations with which `puffin_index.keys.columns` sorts columns."""

from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from puffin_index.storage.arrays import Flags, Ints, Rows, Words, are_new, ramps, stretches

_WORD_BITS = 64
Packed: TypeAlias = Words | Rows

_Number = TypeVar("_Number", bound=np.generic)


@dataclass(slots=True, eq=False)
class PackedRows:
    """Rows ordered by key, then by row: one integer holds key and row, so that one vectorised sort orders both.

    The key, minus the least, stands above `row_bits` bits of the row, without its lowest `dropped_bits`. Rows whose
    keys differ only in these are in the order of rows.
    """

    packed: Packed
    row_bits: int
    dropped_bits: int

    def changes(self) -> Flags:
        """Return where the bits of the key differ from the previous ones; true for the first."""
        changes = np.empty(len(self.packed), np.bool_)
        changes[:1] = True
        for start, end in stretches(len(changes), 1):
            upper = self._upper(start - 1, end)
            np.not_equal(upper[1:], upper[:-1], out=changes[start:end])
        return changes

    def chosen_keys(self, chosen: Flags, minimum: int) -> Ints:
        """Return the keys of some rows, given the least key; no bits may have been dropped."""
        keys = np.empty(np.count_nonzero(chosen), np.int64)
        place = 0
        for start, end in stretches(len(chosen)):
            some, own = self._upper(start, end), chosen[start:end]
            some = some if own.all() else some[own]
            np.add(some, np.int64(minimum), out=keys[place : place + len(some)], casting="unsafe", dtype=np.int64)
            place += len(some)
        return keys

    def prefixes(self) -> Words:
        """Return the bits of each row's key, overwriting the rows to save memory."""
        packed = self.packed.astype(np.uint64, copy=False)
        packed >>= np.uint64(self.row_bits)
        return packed

    def rows(self) -> Rows:
        """Return the rows."""
        rows = self.packed.astype(np.uint32)
        rows &= np.uint32((1 << self.row_bits) - 1)
        return rows

    def _upper(self, start: int, end: int) -> Packed:
        return self.packed[start:end] >> self.packed.dtype.type(self.row_bits)


def order_by_key(
    keys: npt.NDArray[np.integer], minimum: int, maximum: int, rows: Rows | None, row_count: int
) -> PackedRows:
    """Order rows (ascending; None: row i has key i), all less than `row_count`, by keys of any width, then by row."""
    row_bits = max(row_count - 1, 1).bit_length()
    key_bits = (maximum - minimum).bit_length()
    dropped_bits = max(0, key_bits + row_bits - _WORD_BITS)
    fits_half = key_bits + row_bits <= _WORD_BITS // 2
    packed: Packed = np.empty(len(keys), np.uint32) if fits_half else np.empty(len(keys), np.uint64)
    pack_rows(packed, keys, minimum, rows, row_bits, dropped_bits)
    packed.sort()
    return PackedRows(packed, row_bits, dropped_bits)


def pack_rows(
    packed: Packed, keys: npt.NDArray[np.integer], minimum: int, rows: Rows | None, row_bits: int, dropped_bits: int
) -> None:
    """Pack keys, less a minimum, and rows (None: 0, 1, 2, ...), as in `PackedRows`, in the given order."""
    number = packed.dtype.type
    # Keys and minimum may be negative or too wide for the type, but wrapping arithmetic gets their difference right.
    least = number(minimum & (1 << 8 * packed.dtype.itemsize) - 1)
    for start, end in stretches(len(keys)):
        some = packed[start:end]
        some[:] = keys[start:end]
        some -= least
        if dropped_bits:
            some >>= number(dropped_bits)
        some <<= number(row_bits)
        if rows is None:
            some |= np.arange(start, end, dtype=np.uint32)
        else:
            some |= rows[start:end]


def bounds_of(keys: npt.NDArray[np.integer]) -> tuple[int, int]:
    """Return the least and the greatest of at least one key; Arrow finds both in one pass."""
    bounds = pc.min_max(pa.array(keys))
    return bounds["min"].as_py(), bounds["max"].as_py()


def gather(values: npt.NDArray[_Number], places: Rows) -> npt.NDArray[_Number]:
    """Return the values at some places, a limited number at a time to bound numpy's 64-bit copies of the places."""
    found = np.empty(len(places), values.dtype)
    for start, end in stretches(len(places)):
        # All places are valid; "clip" writes to `out` directly, while "raise" goes through a copy.
        np.take(values, places[start:end], out=found[start:end], mode="clip")
    return found


def settle(prefixes: Words, ordered: Ints | Words, rows: Rows) -> None:
    """Finish, in place, the order of keys that were sorted by prefixes alone, and of their rows."""
    descents = np.flatnonzero(ordered[1:] < ordered[:-1])
    if not len(descents):
        return
    unsettled = np.unique(prefixes[descents])
    low, high = np.searchsorted(prefixes, unsettled, "left"), np.searchsorted(prefixes, unsettled, "right")
    places = ramps(low, high - low)
    order = np.lexsort((rows[places], ordered[places]))
    ordered[places], rows[places] = ordered[places[order]], rows[places[order]]


def distinct_of_sorted(ordered: npt.NDArray[_Number]) -> tuple[npt.NDArray[_Number], Rows]:
    """Return the distinct keys and the start of each; smaller arrays are made first to save memory."""
    changes = are_new(ordered)
    starts = starts_of(changes)
    return ordered if changes.all() else ordered[changes], starts


def starts_of(changes: Flags) -> Rows:
    """Return the positions of the changes, followed by the number of elements."""
    starts = np.empty(np.count_nonzero(changes) + 1, np.uint32)
    _put_positions(changes, starts[:-1])
    starts[-1] = len(changes)
    return starts


def positions_of(flags: Flags) -> Rows:
    """Return the positions of set flags, a limited number at a time to bound numpy's 64-bit positions."""
    positions = np.empty(np.count_nonzero(flags), np.uint32)
    _put_positions(flags, positions)
    return positions


def _put_positions(flags: Flags, positions: Rows) -> None:
    if len(positions) == len(flags):
        positions[:] = np.arange(len(flags), dtype=np.uint32)
        return
    place = 0
    for start, end in stretches(len(flags)):
        some = np.flatnonzero(flags[start:end])
        positions[place : place + len(some)] = some + start
        place += len(some)
