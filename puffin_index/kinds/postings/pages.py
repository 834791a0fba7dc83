"""The pages of a postings directory: the place and content of each block (docs/payloads.md, Postings, "Page").

The root page is of level 0, or it is of level 1 and its children are pages of level 0. This release writes a root of
level 0 if the root then takes at most 24 KiB, and other pages of about 8 KiB. A separator of bytes is the shortest
prefix of the first key that tells it from earlier keys. It is the whole key if the block has no other key, and this
one at most 256 bytes; and for a block that is a row set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from puffin_index.errors import BuildError, UnsupportedError
from puffin_index.keys.leaf import Key
from puffin_index.keys.sorted_keys import SortedKeys, parse_separators
from puffin_index.kinds.postings.blocks import Sizes
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.binary import ByteCursor, write_uint8, write_uint32_le, write_uint64_le
from puffin_index.storage.parts import checksum32, corrupt
from puffin_index.storage.ranged import Blob

VERSION = 2
BLOCKS, PAGES = 0, 1
_LEAST_PAGE_BLOCKS = 2
_CHILD_BYTES = 8 + 4 + 4 + 4
_LEAST_BLOCK_BYTES = 10
_UINT32_MAXIMUM = 2**32 - 1
_MOST_ROWS = 2**32
"""Only contents can have more: a row counts for each key that it contains."""


class Child(NamedTuple):
    """A child of a page, a block or a page; `is_exact` says whether the separator is its first key.

    It begins where the one before ends. `is_set` says whether it is the row set of its only key, the separator. Small,
    as a blob may have hundreds of thousands of blocks.
    """

    end: int
    row_count: int
    key_count: int
    checksum: int
    separator: Key
    is_exact: bool
    is_set: bool = False


def append_directory(data: bytearray, blocks: Sequence[Child], is_bytes: bool, sizes: Sizes) -> tuple[int, int, int]:
    """Append a directory to a blob; return where its pages and its root begin, and the root's checksum.

    Raises BuildError for more rows of keys than pages can count.
    """
    count, row_count = len(blocks), sum(block.row_count for block in blocks)
    if row_count > _MOST_ROWS:
        raise BuildError(f"{row_count} rows of all keys in one payload, which can count {_MOST_ROWS}")
    pages_from, root = len(data), _write_page(blocks, 0, is_bytes, BLOCKS, 1, count)
    if len(root) > sizes.root_bytes:
        page_blocks = max(_LEAST_PAGE_BLOCKS, sizes.page_bytes * count // len(root))
        children: list[Child] = []
        start = 0
        for first in range(0, count, page_blocks):
            part = blocks[first : first + page_blocks]
            page = _write_page(part, start, is_bytes, BLOCKS, 1, len(part))
            data += page
            start = part[-1].end
            rows, keys = sum(block.row_count for block in part), sum(block.key_count for block in part)
            children.append(Child(len(data), rows, keys, checksum32(page), part[0].separator, part[0].is_exact))
        root = _write_page(children, pages_from, is_bytes, PAGES, page_blocks, count)
    root_from = len(data)
    data += root
    return pages_from, root_from, checksum32(root)


def _write_page(
    children: Sequence[Child], start: int, is_bytes: bool, level: int, child_blocks: int, block_count: int
) -> bytes:
    rows = np.cumsum([0, *(child.row_count for child in children)])
    header = (
        write_uint8(VERSION) + write_uint8(is_bytes) + write_uint8(level) + write_uint8(0),
        write_uint32_le(len(children)) + write_uint32_le(child_blocks) + write_uint32_le(block_count),
        write_uint64_le(int(rows[-1])) + write_uint64_le(start),
    )
    numbers = [(c.end, 4 * c.key_count + 2 * c.is_set + c.is_exact, c.checksum) for c in children]
    ends, keys, checksums = np.array(numbers, np.int64).reshape(-1, 3).T
    columns = (ends.astype("<u8"), *(column.astype("<u4") for column in (rows[:-1], keys, checksums)))
    data = [column.tobytes() for column in columns]
    return b"".join((*header, *data, _write_separators([child.separator for child in children], is_bytes)))


def _write_separators(separators: Sequence[Key], is_bytes: bool) -> bytes:
    if not is_bytes:
        return np.array(separators, "<i8").tobytes()
    texts = [separator for separator in separators if isinstance(separator, bytes)]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    if len(ends) and ends[-1] > _UINT32_MAXIMUM:
        raise BuildError(f"the separators of {len(texts)} blocks take {ends[-1]} bytes")
    return ends.astype("<u4").tobytes() + b"".join(texts)


@dataclass(frozen=True, slots=True)
class Page:
    """A parsed page: numbers of each child, which are `BLOCKS` or `PAGES` by its level.

    `offsets` and `rows` (before each child) have the end of all behind them. `are_exact` says whether the separator is
    the child's first key, `are_sets` whether the child is the row set of that key.
    """

    child_blocks: int
    block_count: int
    level: int
    offsets: Ints
    rows: Ints
    keys: Ints
    are_exact: Flags
    are_sets: Flags
    checksums: Ints
    separators: SortedKeys

    def __len__(self) -> int:
        return len(self.keys)


def parse_page(blob: Blob, data: memoryview, offset: int, is_bytes: bool) -> Page:
    """Parse the page at an offset of the blob, or raise UnsupportedError or CorruptFileError."""
    cursor = ByteCursor(data, blob.location, blob.offset + offset)
    version, of_form, level, flags = (cursor.uint8() for _ in range(4))
    if version != VERSION or of_form != is_bytes or level not in (BLOCKS, PAGES) or flags:
        raise UnsupportedError(
            f"{blob.location}: a postings directory of version {version}, form {of_form}, level {level}, flags {flags} "
            f"cannot be read as one of version {VERSION}, form {int(is_bytes)}"
        )
    count, child_blocks, block_count = (cursor.uint32_le() for _ in range(3))
    row_count, start = cursor.uint64_le(), cursor.uint64_le()
    cursor.count(count, _CHILD_BYTES + (4 if is_bytes else 8), "children")
    ends = np.frombuffer(cursor.bytes(8 * count), "<u8")
    rows, keys, checksums = (np.frombuffer(cursor.bytes(4 * count), "<u4").astype(np.int64) for _ in range(3))
    separators = parse_separators(cursor, count, is_bytes, "<")
    cursor.expect_end()
    largest = max(start, int(ends.max(initial=0)))
    if largest > blob.length or row_count > _MOST_ROWS or block_count > blob.length // _LEAST_BLOCK_BYTES:
        raise corrupt(blob, "a directory page that describes more than the blob can hold", offset)
    offsets = np.concatenate(([start], ends.astype(np.int64)))
    all_rows = np.append(rows, row_count)
    children = -(-block_count // child_blocks) if child_blocks else -1
    ascending = not bool((np.diff(offsets) < 0).any() or (np.diff(all_rows) < 0).any())
    if not ascending or all_rows[0] or children != count or (level == BLOCKS and child_blocks != 1):
        raise corrupt(blob, "a directory page that describes no blocks", offset)
    are_exact, are_sets, keys = keys & 1 == 1, keys & 2 == 2, keys >> 2
    if bool((are_sets & ~((keys == 1) & are_exact & (level == BLOCKS))).any()):
        raise corrupt(blob, "a row set that is not of one key", offset)
    return Page(child_blocks, block_count, level, offsets, all_rows, keys, are_exact, are_sets, checksums, separators)
