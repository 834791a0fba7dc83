"""Sorted keys as stored in a block or directory: search without a loop over keys, and cutting into blocks."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa

from puffin_index.keys.leaf import Key
from puffin_index.storage.arrays import Bytes, Ints, ramps
from puffin_index.storage.binary import Buffer, ByteCursor
from puffin_index.storage.parts import corrupt
from puffin_index.storage.ranged import Blob


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

    def array(self) -> Ints:
        """Return all keys."""
        return self.keys


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
        """Return all keys; without a copy if they follow each other without gaps."""
        content: Buffer = self.data
        offsets = np.append(self.starts, self.ends[-1:] if len(self) else 0)
        if not np.array_equal(offsets[1:], self.ends):
            lengths = self.ends - self.starts
            offsets = np.concatenate(([0], np.cumsum(lengths)))
            content = np.frombuffer(self.data, np.uint8)[ramps(self.starts, lengths)].data
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self), buffers)

    def rank(self, key: Key, right: bool) -> int:
        """Return how many keys are less than `key`, or not greater where `right`."""
        search = bisect_right if right else bisect_left
        return search(range(len(self)), key, key=self.key)


SortedKeys: TypeAlias = IntKeys | BytesKeys


def parse_separators(cursor: ByteCursor, count: int, is_bytes: bool, order: Literal["<", ">"]) -> SortedKeys:
    """Parse the separators of some blocks, up to the end: int64s, or the uint32 ends of byte strings and these.

    Raises CorruptFileError if byte strings overlap or do not reach the end.
    """
    if not is_bytes:
        return IntKeys(np.frombuffer(cursor.bytes(8 * count), f"{order}i8").astype(np.int64))
    ends = np.frombuffer(cursor.bytes(4 * count), f"{order}u4").astype(np.int64)
    content = cursor.bytes(cursor.remaining)
    starts = np.concatenate((np.zeros(1, np.int64), ends))[:count]
    if (ends < starts).any() or (int(ends[-1]) if count else 0) != len(content):
        raise cursor.corrupt("separators that overlap")
    return BytesKeys(content, starts, ends)


def parse_block_of_bytes(
    blob: Blob, content: memoryview, offset: int, count: int, order: Literal["<", ">"]
) -> BytesKeys:
    """Parse the uint32 lengths of a block's keys and the keys, or raise CorruptFileError if they do not fill it."""
    if len(content) < 4 * count:
        raise corrupt(blob, f"{count} keys in {len(content)} bytes", offset)
    ends = 4 * count + np.cumsum(np.frombuffer(content[: 4 * count], f"{order}u4"), dtype=np.int64)
    if int(ends[-1]) != len(content):
        raise corrupt(blob, f"keys of {ends[-1]} bytes in {len(content)}", offset)
    return BytesKeys(content, np.append(4 * count, ends[:-1]), ends)


def check_separators(blob: Blob, separators: SortedKeys, blocks: Sequence[SortedKeys]) -> None:
    """Check that a search by separators finds the first and last key of each block, or raise CorruptFileError."""
    for block, keys in enumerate(blocks):
        ends = (keys.key(0), keys.key(-1)) if len(keys) else ()
        if any(separators.rank(end, True) != block + 1 for end in ends):
            raise corrupt(blob, "keys that lie in other blocks than the directory says")


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
    """Cut entries, by ends, into blocks of up to a limit or of one entry; return first entries, and their number."""
    starts = [0] if len(ends) else []
    while starts and starts[-1] < len(ends):
        first = starts[-1]
        begin = int(ends[first - 1]) if first else 0
        starts.append(max(first + 1, int(np.searchsorted(ends, begin + limit_bytes, "right"))))
    return np.array(starts or [0], np.int64)
