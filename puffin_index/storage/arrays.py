"""Names for numpy arrays, of one dimension unless told otherwise; parts of arrays; items in groups."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.float64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Words: TypeAlias = npt.NDArray[np.uint64]
"""Unsigned 64-bit integers: packed numbers, hashes, keys."""
Rows: TypeAlias = npt.NDArray[np.uint32]
"""Row numbers."""

Selection: TypeAlias = Ints | slice
"""Elements of an array: their places, or a slice, which numpy takes without a copy."""

_STRETCH = 65_536
_Record = TypeVar("_Record", bound=np.generic)
_Number = TypeVar("_Number", bound=np.integer)


def records_at(data: Bytes, places: Ints, record: np.dtype[_Record]) -> npt.NDArray[_Record]:
    """Copy records from arbitrary, also unaligned, places."""
    found = data[places[:, None] + np.arange(record.itemsize)]
    return np.ascontiguousarray(found).view(record).reshape(-1)


def ramps(starts: Ints, counts: Ints, step: int = 1) -> Ints:
    """Return, for every i in order, the `counts[i]` numbers `starts[i], starts[i] + step, ...`."""
    before = np.cumsum(counts) - counts
    ramp = np.arange(0, step * int(counts.sum()), step, dtype=np.int64)
    ramp += np.repeat(starts - step * before, counts)
    return ramp


def distinct(ascending: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """Return the different numbers among ascending ones. `np.unique` takes ten times as long, as it hashes them."""
    return ascending[are_new(ascending)]


def numbered(ascending: Ints) -> tuple[Ints, Ints]:
    """Return the different numbers among ascending ones, and the place of each ascending one among these."""
    is_new = are_new(ascending)
    return ascending[is_new], np.cumsum(is_new) - 1


def are_new(numbers: npt.NDArray[_Record]) -> Flags:
    """Say which numbers differ from the one before; the first does."""
    changes = np.ones(len(numbers), np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=changes[1:])
    return changes


def stretches(end: int, first: int = 0) -> Iterator[tuple[int, int]]:
    """Yield bounds of parts of an array: copies of them, such as numpy's of indices, stay in the processor's cache."""
    for start in range(first, end, _STRETCH):
        yield start, min(start + _STRETCH, end)


_Item = TypeVar("_Item")


def cut_in_order(
    items: Iterable[_Item], sizes_of: Callable[[_Item], Sequence[int]], limits: Sequence[int]
) -> list[list[_Item]]:
    """Cut items into groups whose sizes add up to no more than some limits; a single item may have more."""
    groups: list[list[_Item]] = []
    room = list(limits)
    for item in items:
        own = sizes_of(item)
        room = [left - size for left, size in zip(room, own, strict=True)]
        if not groups or min(room) < 0:
            groups.append([])
            room = [limit - size for limit, size in zip(limits, own, strict=True)]
        groups[-1].append(item)
    return groups
