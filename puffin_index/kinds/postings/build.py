"""Build a postings blob, and decide when postings pay."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from puffin_index.errors import BuildError
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import Key
from puffin_index.keys.sorted_keys import bytes_of_keys, common_prefix
from puffin_index.kinds.base import Payload
from puffin_index.kinds.postings.blocks import Sizes, WrittenBlock, write_blocks
from puffin_index.kinds.postings.pages import BYTES_KEYS, INT_KEYS, Children, write_directory
from puffin_index.kinds.postings.sort import OrderedRows, RowNumbers, order_rows
from puffin_index.roaring.write import serialize_row_sets
from puffin_index.storage.binary import Buffer
from puffin_index.storage.parts import LAYOUT_VERSION, checksum32

POSTINGS = "puffin-index-postings-v1"
DEFAULT_SIZES = Sizes()
MAXIMUM_ROWS = 2**32
_FULL_SEPARATOR_BYTES = 256
_ROWS_OF_A_KEY = 2048


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """The column of one row group, and its first row in the segment's row space, a multiple of 65,536."""

    base: int
    column: SortedColumn


class PlacedBlock(NamedTuple):
    """The numbers of a block whose bytes are in the blob; small, as a blob may have hundreds of thousands of blocks."""

    end: int
    row_count: int
    key_count: int
    first_key: int
    checksum: int


def build_postings(columns: Sequence[PlacedColumn], sizes: Sizes = DEFAULT_SIZES) -> Payload:
    """Build the payload of all row groups of a segment: columns of one type, by ascending base.

    Raises BuildError if the rows exceed the row space, or the columns cannot be of one segment.
    """
    _check(columns)
    form = BYTES_KEYS if columns[0].column.column.value_type.domain == "bytes" else INT_KEYS
    numbers = RowNumbers.of([(placed.base, placed.column.column.row_count) for placed in columns])
    if numbers.limit > MAXIMUM_ROWS:
        raise BuildError(f"{numbers.limit} numbers of rows in a segment, which has {MAXIMUM_ROWS}")
    ordered = order_rows([placed.column for placed in columns], numbers, form == BYTES_KEYS)
    data = bytearray()
    blocks = append_blocks(data, write_blocks(ordered, sizes))
    children = children_of_blocks(blocks, *separators_of_blocks(ordered, blocks))
    return finish_postings(POSTINGS, data, children, _write_nulls(columns), form == BYTES_KEYS, numbers, sizes)


def append_blocks(data: bytearray, blocks: Iterable[WrittenBlock]) -> list[PlacedBlock]:
    """Append blocks to a blob as they come, so that memory holds each block only once."""
    placed: list[PlacedBlock] = []
    for block in blocks:
        data += block.data
        placed.append(PlacedBlock(len(data), block.row_count, block.key_count, block.first_key, checksum32(block.data)))
    return placed


def children_of_blocks(blocks: Sequence[PlacedBlock], separators: Sequence[Key], are_exact: Sequence[bool]) -> Children:
    """Return the directory's description of blocks."""
    return Children(
        0,
        [block.end for block in blocks],
        [block.row_count for block in blocks],
        [block.key_count for block in blocks],
        [block.checksum for block in blocks],
        separators,
        are_exact,
    )


def finish_postings(
    blob_type: str,
    data: bytearray,
    children: Children,
    nulls: Buffer,
    is_bytes: bool,
    numbers: RowNumbers,
    sizes: Sizes,
    layout_forms: int = 0,
) -> Payload:
    """Complete a payload from the bytes and descriptions of its blocks, and the serialised set of NULL rows, if any.

    `layout_forms` is added to the form of the keys for the form in the layout.
    """
    form = BYTES_KEYS if is_bytes else INT_KEYS
    nulls_from = children.ends[-1] if children.ends else 0
    pages_from = nulls_from + len(nulls)
    pages, root = write_directory(children, form, pages_from, sizes.root_bytes, sizes.page_bytes)
    root_from = pages_from + sum(len(page) for page in pages)
    row_count = sum(children.row_counts)
    counts = [row_count, numbers.row_count - row_count, numbers.checksum]
    places = [nulls_from, checksum32(nulls), pages_from, root_from, checksum32(root)]
    layout = np.array([LAYOUT_VERSION, layout_forms + form, *counts, *places], np.int64)
    for part in (nulls, *pages, root):
        data += part
    return Payload(blob_type, data, layout)


def _check(columns: Sequence[PlacedColumn]) -> None:
    if not columns:
        raise BuildError("postings of no row group")
    names = {placed.column.column.value_type.name for placed in columns}
    if len(names) > 1:
        raise BuildError(f"postings of row groups of different types: {', '.join(sorted(names))}")
    end = 0
    for placed in columns:
        if placed.base < end:
            raise BuildError(f"a row group at base {placed.base}, where rows up to {end} are another's")
        end = placed.base + placed.column.column.row_count
    if end > MAXIMUM_ROWS:
        raise BuildError(f"{end} rows in the row space of a segment, which has {MAXIMUM_ROWS}")


def _write_nulls(columns: Sequence[PlacedColumn]) -> bytes:
    rows = np.concatenate([placed.column.column.null_rows + np.uint32(placed.base) for placed in columns])
    return serialize_row_sets(rows, np.array([0, len(rows)])).data.tobytes() if len(rows) else b""


def separators_of_blocks(
    ordered: OrderedRows, blocks: Sequence[PlacedBlock], before_all: bytes | None = None
) -> tuple[list[Key], list[bool]]:
    """Return the separator of each block, and whether it is the block's first key.

    In the bytes domain, `before_all` is the last key of earlier blocks.
    """
    if ordered.dictionary is None:
        return [ordered.least + block.first_key for block in blocks], [True] * len(blocks)
    data, offsets = bytes_of_keys(ordered.dictionary)
    first_before = np.frombuffer(before_all or b"", np.uint8)
    separators: list[Key] = []
    are_exact: list[bool] = []
    for block in blocks:
        begin, end = offsets[block.first_key : block.first_key + 2].tolist()
        key = data[begin:end]
        before = data[offsets[block.first_key - 1] : begin] if block.first_key else first_before
        # A block of one short key gets the whole key as its separator: the directory alone then tells misses.
        is_full = block.key_count == 1 and len(key) <= _FULL_SEPARATOR_BYTES
        length = len(key) if is_full else min(len(key), common_prefix(before.data, key.data) + 1)
        separators.append(key[:length].tobytes())
        are_exact.append(length == len(key))
    return separators, are_exact


def postings_pay(distinct_counts: Sequence[int], value_counts: Sequence[int]) -> bool:
    """Tell whether the bitmap kind should write postings of a segment instead of one bitmap per value and row group.

    Postings pay if a key has at most 2,048 rows in a row group, on average. The table gives bytes a row and the time of
    `=` over 6 M random rows in row groups of 245,760 (bitmaps take 72 to 75 reads, postings 1 and the directory):

    | distinct | rows a key | bitmaps | postings | bitmaps | postings |
    | --- | --- | --- | --- | --- | --- |
    | 8 | 30,720 | 1.07 | 1.01 | 3.2 ms | 33 ms |
    | 64 | 3,840 | 2.02 | 1.41 | 2.9 ms | 4.7 ms |
    | 128 | 1,920 | 2.03 | 1.49 | 2.9 ms | 2.7 ms |
    | 1,024 | 240 | 2.25 | 1.84 | 2.9 ms | 0.9 ms |
    | 4,096 | 60 | 3.01 | 2.04 | 2.8 ms | 0.8 ms |
    | 65,536 | 4 | 14.0 | 2.50 | 4.1 ms | 0.9 ms |

    Postings lose with frequent keys because a look-up reads and decodes all rows of the key, in every row group, even
    where few row groups are still undecided.

    Args:
        distinct_counts: The number of distinct keys of each row group.
        value_counts: The number of non-NULL rows of each row group.
    """
    return sum(value_counts) <= _ROWS_OF_A_KEY * sum(distinct_counts)
