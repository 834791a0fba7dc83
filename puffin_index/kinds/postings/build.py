"""Build a postings blob."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from puffin_index.errors import BuildError
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import Key
from puffin_index.keys.sorted_keys import bytes_of_keys, common_prefix
from puffin_index.kinds.base import Payload
from puffin_index.kinds.postings.blocks import Sizes, WrittenBlock, write_blocks
from puffin_index.kinds.postings.pages import Child, append_directory
from puffin_index.kinds.postings.sort import OrderedRows, RowNumbers, order_rows
from puffin_index.roaring import serialize_row_sets
from puffin_index.storage.arrays import Ints, Rows
from puffin_index.storage.parts import LAYOUT_VERSION, checksum32

POSTINGS = "puffin-index-postings-v1"
DEFAULT_SIZES = Sizes()
MAXIMUM_ROWS = 2**32
_ROWS_OF_A_KEY = 2048
_FULL_SEPARATOR_BYTES = 256

PlacedColumn: TypeAlias = tuple[int, SortedColumn]
"""The column of one row group, behind its first row in the segment's row space, a multiple of 65,536."""


def most_set_keys(row_count: int) -> int:
    """Return for how many keys row sets pay, given the number of rows; keys count in each row group that has them.

    Measured with 2 M random rows in row groups of 250,000 and 50 keys: `=` takes 0.6 ms with row sets of 2 bytes a row,
    and 4 ms with runs of 1.3 bytes a row.
    """
    return max(row_count - 1, 0) // _ROWS_OF_A_KEY


def build_postings(columns: Sequence[PlacedColumn], sizes: Sizes = DEFAULT_SIZES) -> Payload:
    """Build the payload of all row groups of a segment: columns of one type, by ascending base.

    Raises BuildError if the rows exceed the row space.
    """
    is_bytes = columns[0][1].column.value_type.domain == "bytes"
    numbers = number_rows([(base, own.column.row_count) for base, own in columns])
    ordered = order_rows([own for _, own in columns], numbers, is_bytes)
    data = bytearray()
    blocks = append_blocks(data, ordered, numbers, sizes)
    nulls = np.concatenate([own.column.null_rows + np.uint32(base) for base, own in columns])
    return finish_postings(data, blocks, nulls, is_bytes, numbers, sizes)


def number_rows(spans: Sequence[tuple[int, int]] | Ints) -> RowNumbers:
    """Number the rows of a segment, as `RowNumbers.of` does, or raise BuildError if they exceed the row space."""
    numbers = RowNumbers.of(spans)
    if max(numbers.limit, numbers.row_limit) > MAXIMUM_ROWS:
        raise BuildError(f"{numbers.row_limit} rows in the row space of a segment, which has {MAXIMUM_ROWS}")
    return numbers


def append_blocks(
    data: bytearray,
    ordered: OrderedRows,
    numbers: RowNumbers,
    sizes: Sizes,
    before_all: bytes | None = None,
    *,
    are_sets: bool | None = None,
) -> list[Child]:
    """Append the blocks of some rows to a blob as they come, so that memory holds each block only once.

    In the bytes domain, `before_all` is the last key of earlier blocks. With `are_sets`, all blocks are row sets; None
    where these are all rows, of which that depends.
    """
    if are_sets is None:
        groups = max(int(np.count_nonzero(numbers.row_counts)), 1)
        are_sets = ordered.has_keys(most_set_keys(len(ordered)) // groups)
    separate = _separators_of(ordered, before_all)
    children: list[Child] = []
    for block in write_blocks(ordered, numbers, sizes, are_sets=are_sets):
        data += block.data
        counts = block.row_count, block.key_count, checksum32(block.data)
        children.append(Child(len(data), *counts, *separate(block), block.is_set))
    return children


def finish_postings(
    data: bytearray, blocks: Sequence[Child], null_rows: Rows, is_bytes: bool, numbers: RowNumbers, sizes: Sizes
) -> Payload:
    """Complete a payload from the bytes and descriptions of its blocks, and the NULL rows of the row space."""
    _, places = append_others(data, [null_rows], blocks, is_bytes, sizes)
    row_count = sum(block.row_count for block in blocks)
    counts = [row_count, numbers.row_count - row_count, numbers.checksum]
    layout = np.array([LAYOUT_VERSION, is_bytes, *counts, *places], np.int64)
    return Payload(POSTINGS, data, layout, len(numbers.bases))


def append_others(
    data: bytearray, others: Sequence[Rows], blocks: Sequence[Child], is_bytes: bool, sizes: Sizes
) -> tuple[list[int], list[int]]:
    """Append sets of other rows, and the directory of the blocks.

    Return the length of each set; start and checksum of all sets, and what `append_directory` returns.
    """
    sets = [serialize_row_sets(own, (0, len(own)))[0] if len(own) else b"" for own in others]
    sets_from, content = len(data), b"".join(sets)
    data += content
    return list(map(len, sets)), [sets_from, checksum32(content), *append_directory(data, blocks, is_bytes, sizes)]


def _separators_of(ordered: OrderedRows, before_all: bytes | None) -> Callable[[WrittenBlock], tuple[Key, bool]]:
    """Return a function that gives the separator of a block, and whether it is the block's first key."""
    if ordered.dictionary is None:
        return lambda block: (ordered.least + block.first_key, True)
    data, offsets = bytes_of_keys(ordered.dictionary)

    def separate(block: WrittenBlock) -> tuple[Key, bool]:
        begin, end = offsets[block.first_key : block.first_key + 2].tolist()
        key = data[begin:end]
        before = data[offsets[block.first_key - 1] : begin].data if block.first_key else before_all or b""
        # A block of one short key gets the whole key as its separator: the directory alone then tells misses.
        is_full = block.is_set or (block.key_count == 1 and len(key) <= _FULL_SEPARATOR_BYTES)
        length = len(key) if is_full else min(len(key), common_prefix(before, key.data) + 1)
        return key[:length].tobytes(), length == len(key)

    return separate
