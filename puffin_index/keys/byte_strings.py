"""Sort byte strings by integers made of some of their bytes: ten times as fast as comparing the strings."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from puffin_index.keys.order import order_by_key
from puffin_index.keys.sorted_keys import bytes_of_keys, common_prefix
from puffin_index.storage.arrays import Bytes, Flags, Ints, Rows, Words, stretches

# For so few strings, comparison by Arrow takes no longer.
_FEW = 4096
_SAMPLED = 4096
_WINDOW_BYTES = 8
_WINDOW_BITS = 8 * _WINDOW_BYTES
_LEAST_BITS = 16
# The mask of a string's own bits in a window, by the number of bytes that the string has in the window.
_OWN_BITS = np.array([((1 << 8 * own) - 1) << _WINDOW_BITS - 8 * own for own in range(_WINDOW_BYTES + 1)], np.uint64)
# Packing a row drops at most the lowest 32 bits of a window. The minimum to subtract is rounded to zeros in these bits,
# so that the remaining bits still order windows by a plain prefix.
_ROUNDED = ~((1 << 32) - 1)


def order_bytes(keys: pa.LargeBinaryArray, few: int = _FEW) -> Rows:
    """Return the places of fewer than 2**32 byte strings in ascending order; places of equal strings ascend.

    A first sort orders all strings by the bytes behind their common prefix, packed with the place into one integer.
    Strings that these bytes do not tell apart are sorted by their next bytes, and so on. Arrow compares the remaining
    strings once they are at most `few`, or once a round settles fewer than half of them. There are fewer than 2**32.
    """
    data, offsets = bytes_of_keys(keys)
    if len(keys) <= few or len(data) < _WINDOW_BYTES:
        compared: Rows = pc.sort_indices(keys).to_numpy().astype(np.uint32)
        return compared
    bounds = pc.min_max(keys)
    at = common_prefix(bounds["min"].as_py(), bounds["max"].as_py())
    order, changes, told_bits = _order_windows(_windows(data, offsets, None, at), None)
    # Strings not told apart so far are neighbours in the order: sorting each group within its own places suffices.
    tied = _tied(changes)
    places, changes = np.flatnonzero(tied), changes[tied]
    before = len(keys)
    while len(places):
        at += told_bits // 8
        rows, groups = order[places], np.cumsum(changes, dtype=np.uint32) - np.uint32(1)
        # The window bits that fit into one integer with group and place.
        room = _WINDOW_BITS - int(groups[-1]).bit_length() - len(groups).bit_length()
        if len(rows) <= few or 2 * len(rows) > before or room < _LEAST_BITS:
            table = pa.table({"group": pa.array(groups), "key": keys.take(pa.array(rows))})
            by_group = [("group", "ascending"), ("key", "ascending")]
            order[places] = rows[pc.sort_indices(table, sort_keys=by_group).to_numpy()]
            break
        before = len(rows)
        within, changes, told_bits = _order_windows(_windows(data, offsets, rows, at), groups)
        order[places] = rows[within]
        tied = _tied(changes)
        places, changes = places[tied], changes[tied]
    return order


def seem_distinct(keys: pa.LargeBinaryArray) -> bool:
    """Return whether a sample of the keys has no duplicate, so that duplicates are rare; False for few keys."""
    if len(keys) < 2 * _SAMPLED:
        return False
    places = np.unique(np.random.default_rng(0).integers(0, len(keys), _SAMPLED))
    return bool(pc.count_distinct(keys.take(pa.array(places))).as_py() == len(places))


def sort_distinct(keys: pa.LargeBinaryArray) -> tuple[pa.LargeBinaryArray, Rows, Flags]:
    """Sort keys with few duplicates, faster than by building and sorting a dictionary.

    Returns the distinct keys, ascending; the places of all keys in order; which of these differ from the one before.
    """
    order = order_bytes(keys)
    ordered = keys.take(pa.array(order))
    changes = np.ones(len(ordered), np.bool_)
    changes[1:] = pc.not_equal(ordered[1:], ordered[:-1]).to_numpy(zero_copy_only=False)
    return ordered if changes.all() else ordered.filter(pa.array(changes)), order, changes


def sort_keys(keys: pa.LargeBinaryArray) -> tuple[pa.LargeBinaryArray, Rows]:
    """Return the distinct keys in ascending order, and the rank of each given key; see `sort_distinct`."""
    distinct, order, changes = sort_distinct(keys)
    ranks = np.empty(len(order), np.uint32)
    ranks[order] = np.cumsum(changes, dtype=np.uint32) - np.uint32(1)
    return distinct, ranks


def _windows(data: Bytes, offsets: Ints, rows: Rows | None, at: int) -> Words:
    """Return 8 bytes of some strings (None: all) from byte `at` on, as big-endian numbers, padded with zeros."""
    every = np.ndarray((len(data) - _WINDOW_BYTES + 1,), "<u8", data, strides=(1,))
    begins, ends = offsets[:-1], offsets[1:]
    windows = np.empty(len(begins) if rows is None else len(rows), np.uint64)
    for first, end in stretches(len(windows)):
        span = slice(first, end)
        some = span if rows is None else rows[span]
        starts = begins[some] + at
        own = np.clip(ends[some] - starts, 0, _WINDOW_BYTES)
        inside = np.minimum(starts, len(every) - 1)
        found = every[inside].byteswap()
        # A window that would cross the end of the data is read from earlier bytes, which the shift pushes out. Beyond a
        # shift of 7 bytes the string has no byte left, and the mask clears the window.
        beyond = np.minimum(starts - inside, _WINDOW_BYTES - 1)
        found <<= (8 * beyond).astype(np.uint64)
        found &= _OWN_BITS[own]
        windows[span] = found
    return windows


def _order_windows(windows: Words, groups: Rows | None) -> tuple[Rows, Flags, int]:
    """Order windows by group, then by as many upper bits as fit, then by place.

    Returns the places in order, which windows in order differ from the one before, and the number of compared bits.
    """
    group_bits = 0 if groups is None else int(groups[-1]).bit_length()
    if groups is not None and group_bits:
        windows >>= np.uint64(group_bits)
        windows |= groups.astype(np.uint64) << np.uint64(_WINDOW_BITS - group_bits)
    ordered = order_by_key(windows, int(windows.min()) & _ROUNDED, int(windows.max()), None, len(windows))
    return ordered.rows(), ordered.changes(), _WINDOW_BITS - group_bits - ordered.dropped_bits


def _tied(changes: Flags) -> Flags:
    """Return which strings equal a neighbour in all compared bits."""
    tied = ~changes
    tied[:-1] |= tied[1:]
    return tied
