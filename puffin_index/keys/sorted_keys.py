"""Sorted keys as stored in a block or directory: search without a loop over keys, and cutting into blocks."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from puffin_index.keys.leaf import Key
from puffin_index.storage.arrays import Bytes, Ints, ramps
from puffin_index.storage.binary import Buffer


@dataclass(frozen=True, slots=True)
class IntKeys:
    """Ascending 64-bit keys."""

    keys: Ints

    def __len__(self) -> int:
        return len(self.keys)

    def key(self, position: int) -> int:
        """Return one key."""
        return int(self.keys[position])

    def rank(self, key: Key, right: bool) -> int:
        """Return how many keys are less than `key`, or not greater where `right`."""
        return int(np.searchsorted(self.keys, np.int64(key), "right" if right else "left"))


@dataclass(frozen=True, slots=True)
class BytesKeys:
    """Ascending byte strings, each from its start to its end in some bytes."""

    data: memoryview
    starts: Ints
    ends: Ints

    def __len__(self) -> int:
        return len(self.starts)

    def key(self, position: int) -> bytes:
        """Return one key."""
        return bytes(self.data[self.starts[position] : self.ends[position]])

    def array(self) -> pa.LargeBinaryArray:
        """Return all keys without a copy; the keys must follow each other without gaps."""
        offsets = np.append(self.starts, self.ends[-1:] if len(self) else 0)
        return pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(self), [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        )

    def gathered(self) -> pa.LargeBinaryArray:
        """Return a copy of all keys, wherever they lie."""
        lengths = self.ends - self.starts
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        content = np.frombuffer(self.data, np.uint8)[ramps(self.starts, lengths)]
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self), buffers)

    def rank(self, key: Key, right: bool) -> int:
        """Return how many keys are less than `key`, or not greater where `right`."""
        search = bisect_right if right else bisect_left
        return search(range(len(self)), key, key=self.key)


SortedKeys: TypeAlias = IntKeys | BytesKeys


def bytes_of_keys(keys: pa.LargeBinaryArray) -> tuple[Bytes, Ints]:
    """Return the bytes of all keys, and the start of each key followed by the end of the last; without a copy."""
    offsets = np.frombuffer(keys.buffers()[1], np.int64, count=len(keys) + 1, offset=8 * keys.offset)
    content = keys.buffers()[2]
    data = np.empty(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    return data[offsets[0] : offsets[-1]], offsets - offsets[0] if offsets[0] else offsets


def common_prefix(one: Buffer, other: Buffer) -> int:
    """Return the length of the common prefix of two byte strings."""
    length = min(len(one), len(other))
    differ = np.flatnonzero(np.frombuffer(one, np.uint8)[:length] != np.frombuffer(other, np.uint8)[:length])
    return int(differ[0]) if len(differ) else length


def cut_blocks(ends: Ints, limit_bytes: int) -> Ints:
    """Cut entries, by their ends, into blocks of at most `limit_bytes`, or of one larger entry; return first entries.

    The number of entries follows.
    """
    starts = [0] if len(ends) else []
    while starts and starts[-1] < len(ends):
        first = starts[-1]
        begin = int(ends[first - 1]) if first else 0
        starts.append(max(first + 1, int(np.searchsorted(ends, begin + limit_bytes, "right"))))
    return np.array(starts or [0], np.int64)
