"""The sorted dictionary of a row group's keys, read block by block (docs/payloads.md, Dictionary).

The code of a key is its rank. Opened bit slices of codes compare keys of any type by the slices of their codes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import zstandard
from pyroaring import BitMap

from puffin_index.errors import BuildError, UnsupportedError
from puffin_index.keys.asked import AskedTest, Intervals, complement, union
from puffin_index.keys.columns import Column, KeyArray, join_keys
from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.sorted_keys import (
    IntKeys,
    SortedKeys,
    bytes_of_keys,
    check_separators,
    common_prefix,
    cut_blocks,
    parse_block_of_bytes,
    parse_separators,
)
from puffin_index.keys.value_types import Domain, ValueType
from puffin_index.kinds.base import LookUp, OpenIndex, RowSet
from puffin_index.kinds.bsi.bit_sliced import BitSlicedIndex
from puffin_index.kinds.held_keys import DistinctKeys, HoldsKeys, KeySets, Totals, Want
from puffin_index.storage.arrays import Bytes, Ints
from puffin_index.storage.binary import ByteCursor, write_int32_be, write_uint8
from puffin_index.storage.parts import Part, checksum32, content_of_frame, corrupt, parts_of
from puffin_index.storage.ranged import Blob, Reading, at_once

VERSION = 1
INT_KEYS, BYTES_KEYS = 0, 1
HEADER_BYTES = 20
_DIRECTORY_COLUMNS = 4
_INT_BLOCK_KEYS = 2048
_BLOCK_LIMIT_BYTES = 32 * 1024
_MAXIMUM_BYTES = 2**31 - 1
_LEVEL = 3


def serialize_dictionary(keys: KeyArray) -> tuple[bytearray, int]:
    """Return a dictionary of distinct keys, ascending, and the length of its header and directory."""
    if isinstance(keys, np.ndarray):
        starts = np.append(np.arange(0, len(keys), _INT_BLOCK_KEYS), len(keys))
        # Neighbouring keys differ mostly in their low bytes: a plane of each byte compresses better than whole keys.
        blocks = (keys[low:high].astype(">i8").view(np.uint8) for low, high in pairwise(starts.tolist()))
        contents = (block.reshape(-1, 8).T.tobytes() for block in blocks)
        separators = keys[starts[:-1]].astype(">i8").tobytes()
    else:
        data, offsets = bytes_of_keys(keys)
        starts = cut_blocks(offsets[1:] + 4 * np.arange(1, len(keys) + 1), _BLOCK_LIMIT_BYTES)
        ends = (offsets[low : high + 1] for low, high in pairwise(starts.tolist()))
        contents = (np.diff(own).astype(">u4").tobytes() + data[own[0] : own[-1]].tobytes() for own in ends)
        separators = _separators(data, offsets, starts[:-1].tolist())
    block_count = len(starts) - 1
    directory = np.zeros((_DIRECTORY_COLUMNS, block_count), ">u4")
    directory_bytes = directory.nbytes + len(separators)
    blocks_from = HEADER_BYTES + directory_bytes
    dictionary = bytearray(blocks_from)
    compressor = zstandard.ZstdCompressor(level=_LEVEL)
    for block, content in enumerate(contents):
        frame = content if starts[block + 1] - starts[block] == 1 else compressor.compress(content)
        stored = frame if len(frame) < len(content) else content
        dictionary += stored
        blocks_bytes = len(dictionary) - blocks_from
        if blocks_bytes > _MAXIMUM_BYTES:
            raise BuildError(f"the dictionary of {len(keys)} keys takes more than {_MAXIMUM_BYTES} bytes")
        directory[:, block] = starts[block], blocks_bytes, len(content), checksum32(stored)
    form = INT_KEYS if isinstance(keys, np.ndarray) else BYTES_KEYS
    head = write_uint8(VERSION) + write_uint8(form) + bytes(2) + write_int32_be(len(keys)) + write_int32_be(block_count)
    head += write_int32_be(directory_bytes) + write_int32_be(len(dictionary) - blocks_from)
    dictionary[:blocks_from] = head + directory.tobytes() + separators
    return dictionary, blocks_from


def _separators(data: Bytes, offsets: Ints, starts: Sequence[int]) -> bytes:
    """Encode, for each block, the shortest prefix of its first key that is greater than the key before."""
    view = data.data
    separators: list[memoryview] = []
    for first in starts:
        key = view[offsets[first] : offsets[first + 1]]
        before = view[offsets[first - 1] : offsets[first]] if first else view[:0]
        separators.append(key[: common_prefix(before, key) + 1])
    ends = np.cumsum([len(separator) for separator in separators], dtype=np.int64)
    if len(ends) and ends[-1] > _MAXIMUM_BYTES:
        raise BuildError(f"the separators of {len(starts)} dictionary blocks take {ends[-1]} bytes")
    return ends.astype(">u4").tobytes() + b"".join(separators)


@dataclass(frozen=True, slots=True)
class _Directory:
    key_count: int
    codes: Ints
    key_counts: Ints
    parts: tuple[Part, ...]
    content_lengths: Ints
    separators: SortedKeys


class DictionaryReader:
    """Find the ranks of keys of the dictionary's domain; read its directory and each needed block only once."""

    def __init__(self, blob: Blob, directory: Part, domain: Domain) -> None:
        self._blob, self._part = blob, directory
        self._form = INT_KEYS if domain == "int64" else BYTES_KEYS
        self._directory: _Directory | None = None
        self._blocks: dict[int, SortedKeys] = {}

    def ranks(self, queries: Sequence[tuple[Key, bool]]) -> Reading[list[int]]:
        """Return, for each (key, right), how many keys are less than the key, or not greater where `right`."""
        directory = yield from self.opened()
        blocks = [directory.separators.rank(key, True) - 1 for key, _ in queries]
        yield from self._read_blocks(sorted({block for block in blocks if block >= 0}))
        return [
            int(directory.codes[block]) + self._blocks[block].rank(key, right) if block >= 0 else 0
            for block, (key, right) in zip(blocks, queries, strict=True)
        ]

    def key(self, code: Key | None) -> Reading[Key]:
        """Return the key of a code, or raise CorruptFileError if there is none."""
        directory = yield from self.opened()
        if not isinstance(code, int) or not 0 <= code < directory.key_count:
            raise corrupt(self._blob, "codes that the dictionary does not have")
        codes = directory.codes
        block = int(np.searchsorted(codes, code, "right")) - 1
        yield from self._read_blocks([block])
        return self._blocks[block].key(code - int(codes[block]))

    def keys(self) -> Reading[KeyArray]:
        """Return all keys, ascending."""
        directory = yield from self.opened()
        numbers = range(len(directory.parts))
        yield from self._read_blocks(numbers)
        blocks = [self._blocks[block] for block in numbers]
        check_separators(self._blob, directory.separators, blocks)
        return join_keys([block.array() for block in blocks], self._form == BYTES_KEYS)

    def opened(self) -> Reading[_Directory]:
        """Return the directory."""
        if self._directory is None:
            (data,) = yield from parts_of(self._blob, [self._part])
            self._directory = _parse_directory(self._blob, data, self._form)
        return self._directory

    def _read_blocks(self, blocks: Sequence[int]) -> Reading[None]:
        directory = yield from self.opened()
        missing = [block for block in blocks if block not in self._blocks]
        parts = [directory.parts[block] for block in missing]
        contents = yield from parts_of(self._blob, parts)
        for block, part, stored in zip(missing, parts, contents, strict=True):
            length, content = int(directory.content_lengths[block]), stored
            if len(stored) != length:
                content = content_of_frame(self._blob, stored, part.offset, length, length)
            self._blocks[block] = self._parse_block(content, part.offset, int(directory.key_counts[block]))

    def _parse_block(self, content: memoryview, offset: int, count: int) -> SortedKeys:
        if self._form == BYTES_KEYS:
            return parse_block_of_bytes(self._blob, content, offset, count, ">")
        if len(content) != 8 * count:
            raise corrupt(self._blob, f"{count} keys in {len(content)} bytes", offset)
        planes = np.frombuffer(content, np.uint8).reshape(8, count)
        return IntKeys(np.ascontiguousarray(planes.T).view(">i8").reshape(-1).astype(np.int64))


def _parse_directory(blob: Blob, data: memoryview, asked_form: int) -> _Directory:
    cursor = ByteCursor(data, blob.location, blob.offset)
    version, form, flags = cursor.uint8(), cursor.uint8(), cursor.uint16_be()
    if version != VERSION or form != asked_form or flags:
        raise UnsupportedError(
            f"{blob.location}: a dictionary of version {version}, form {form}, flags {flags} cannot be asked for keys "
            f"of form {asked_form}"
        )
    key_count, block_count, directory_bytes, blocks_bytes = (cursor.uint32_be() for _ in range(4))
    if directory_bytes != cursor.remaining:
        raise cursor.corrupt(f"a directory of {directory_bytes} bytes lies in {cursor.remaining}")
    cursor.count(block_count, 4 * 4 + (8 if form == INT_KEYS else 4), "blocks")
    codes, ends, lengths, checksums = (
        np.frombuffer(cursor.bytes(4 * block_count), ">u4").astype(np.int64) for _ in range(4)
    )
    starts = np.concatenate(([0], ends[:-1])) if block_count else ends
    separators = parse_separators(cursor, block_count, form == BYTES_KEYS, ">")
    cursor.expect_end()
    counts = np.diff(codes, append=key_count)
    limited = (lengths <= _BLOCK_LIMIT_BYTES) | ((counts == 1) & (lengths == ends - starts))
    first = int(codes[0]) if block_count else key_count
    last = int(ends[-1]) if block_count else 0
    if first or last != blocks_bytes or (counts <= 0).any() or (ends < starts).any() or not limited.all():
        raise cursor.corrupt("a directory that describes no blocks")
    base = HEADER_BYTES + directory_bytes
    parts = tuple(
        Part(base + start, end - start, checksum)
        for start, end, checksum in zip(starts.tolist(), ends.tolist(), checksums.tolist(), strict=True)
    )
    return _Directory(key_count, codes, counts, parts, lengths, separators)


class DictionaryCodedIndex(OpenIndex, HoldsKeys):
    """Answer tests of keys from a dictionary and the slices of codes; `value_count` rows have a key."""

    def __init__(self, blob: Blob, directory: Part, codes: BitSlicedIndex, value_type: ValueType) -> None:
        self._blob = blob
        self._value_type = value_type
        self._dictionary = DictionaryReader(blob, directory, value_type.domain)
        self._codes = codes
        self.value_count = codes.value_count

    def prepare(self, asked: AskedTest) -> Reading[LookUp]:
        """Prepare a test; nothing is read for that."""
        # The dictionary takes two requests before the slices: for its directory and for some of its blocks.
        return at_once(LookUp((0, self._codes.row_count), (3, self._blob.length), partial(self._rows, asked.test)))

    def _rows(self, test: LeafTest, candidates: BitMap | None) -> Reading[RowSet]:
        if isinstance(test, NullTest):
            return RowSet((yield from self._codes.null_rows(test.is_null, candidates)), True)
        if candidates is not None and not candidates:
            return RowSet(BitMap(), True)
        intervals = yield from self._code_intervals(test)
        return RowSet((yield from self._codes.search(intervals, candidates)), True)

    def keys(self, most: int) -> Reading[KeyArray | None]:
        """Return the keys of the dictionary; None if there are more than `most`."""
        directory = yield from self._dictionary.opened()
        return None if directory.key_count > most else (yield from self._dictionary.keys())

    def keys_of(self, rows: BitMap | None) -> Reading[Column]:
        """Return the keys of some rows."""
        codes, valid = yield from self._codes.numbers(rows)
        keys = yield from self._dictionary.keys()
        known = codes if valid is None else codes[valid]
        if len(known) and not 0 <= int(known.min()) <= int(known.max()) < len(keys):
            raise corrupt(self._blob, "codes that the dictionary does not have")
        if isinstance(keys, np.ndarray):
            found = keys[codes] if len(keys) else codes
        else:
            found = keys.take(pa.array(codes, mask=None if valid is None else ~valid))
        return Column(self._value_type, len(codes), found, valid)

    def sets_of(self) -> Reading[KeySets | None]:
        """Return the rows of each key; None if there are many keys."""
        found = yield from self._codes.sets_of()
        if found is None:
            return None
        keys = yield from self._dictionary.keys()
        if not isinstance(found.keys, np.ndarray) or not np.array_equal(found.keys, np.arange(len(keys))):
            raise corrupt(self._blob, "codes that the dictionary does not have")
        return KeySets(self._value_type, keys, found.rows, found.nulls)

    def distinct_of(self, rows: BitMap) -> Reading[DistinctKeys]:
        """Return the distinct keys of some rows; of all rows from the dictionary alone."""
        if len(rows) < self._codes.row_count:
            return (yield from super().distinct_of(rows))
        return (yield from self._dictionary.keys()), self.value_count

    def totals_of_each(self, groups: Sequence[BitMap], want: Want = Want.ALL) -> Reading[list[Totals]]:
        """Return the totals of each of some sets of rows; without sums, by counting in each slice of the codes."""
        # Sums of codes are no sums of keys.
        if Want.SUMS in want and (self._value_type.is_decimal or self._value_type.name in ("int", "long")):
            return (yield from super().totals_of_each(groups, want))
        found: list[Totals] = []
        for codes in (yield from self._codes.totals_of_each(groups, want & Want.ENDS)):
            if codes.minimum is None:
                found.append(codes)
                continue
            minimum = yield from self._dictionary.key(codes.minimum)
            maximum = yield from self._dictionary.key(codes.maximum)
            found.append(Totals(codes.value_count, minimum=minimum, maximum=maximum))
        return found

    def _code_intervals(self, test: SetTest | RangeTest) -> Reading[Intervals]:
        if isinstance(test, SetTest):
            queries = [(key, right) for key in test.keys for right in (False, True)]
        else:
            queries = [] if test.low is None else [(test.low, not test.low_inclusive)]
            queries += [] if test.high is None else [(test.high, test.high_inclusive)]
        ranks = yield from self._dictionary.ranks(queries)
        key_count = (yield from self._dictionary.opened()).key_count
        if isinstance(test, RangeTest):
            ranks = [*([0] if test.low is None else []), *ranks, *([key_count] if test.high is None else [])]
        pairs = zip(ranks[0::2], ranks[1::2], strict=True)
        found = union((low, high - 1) for low, high in pairs if low < high)
        return complement(found, 0, key_count - 1) if test.negated else found
