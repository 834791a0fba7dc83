"""What the rows of a column contain, as keys: several a row, or none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from puffin_index.errors import BuildError, UnsupportedError
from puffin_index.keys.arrow_keys import gather_column, given_up
from puffin_index.keys.columns import Column, SortedColumn
from puffin_index.keys.map_key import Part
from puffin_index.keys.order import positions_of
from puffin_index.keys.value_types import ValueType
from puffin_index.keys.words import words_of_blocks
from puffin_index.storage.arrays import Flags, Ints, Rows

WORD_BLOCK_ROWS, LEAST_BLOCK_ROWS, MOST_BLOCK_ROWS = 4096, 1024, 16_384
"""Words are known to a block of this many rows, unless an option says otherwise: a fifth of a page, and few enough that
rare words tell rows apart."""

BLOCK_ROWS: Final = "block-rows"
"""The option of an index of words."""


@dataclass(frozen=True, slots=True, eq=False)
class ContentColumn:
    """What the rows of a column contain in one row group.

    Attributes:
        keys: One key for each value that is not NULL, row by row.
        blocks: The block of rows of each key, ascending.
        null_rows: The rows that are NULL.
        empty_rows: The rows that contain nothing, not even NULL. Nobody asks that of words.
        open_rows: The rows that contain NULL, of which nobody can say that they lack a key.
        block_rows: The rows of a block: 1 where keys are known to the row.
    """

    row_count: int
    keys: Column
    blocks: Rows
    null_rows: Rows
    empty_rows: Rows
    open_rows: Rows
    block_rows: int = 1


class SortedContents(SortedColumn):
    """The distinct keys that rows contain, in order. `rows` and `codes` are of the keys of `contents`, not of rows."""

    def __init__(self, contents: ContentColumn) -> None:
        super().__init__(contents.keys)
        self.contents = contents

    @property
    def row_count(self) -> int:
        """The number of rows of the row group."""
        return self.contents.row_count

    @property
    def null_count(self) -> int:
        """The number of rows that are NULL."""
        return len(self.contents.null_rows)


def gather_contents(
    batches: Iterable[pa.Array], part: Part, value_type: ValueType, row_count: int, block_rows: int = WORD_BLOCK_ROWS
) -> ContentColumn:
    """Return what the rows of a column contain, given in batches with `row_count` rows in all; words by blocks.

    Raises UnsupportedError for values of another type, BuildError for another number of rows.
    """
    if part == "words":
        return _gather_words(batches, value_type, row_count, block_rows)
    values: list[pa.Array] = []
    lengths: list[Ints] = []
    nulls: list[Flags] = []
    for lists in (_lists_of(batch, part) for batch in batches):
        nulls.append(_flags(lists.is_null()))
        lengths.append(
            np.asarray(pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False), np.int64)
        )
        values.append(pc.list_flatten(lists))
    is_null, counts = np.concatenate([np.empty(0, np.bool_), *nulls]), np.concatenate([np.empty(0, np.int64), *lengths])
    if len(counts) != row_count:
        raise BuildError(f"{len(counts)} rows of a row group of {row_count} were read")
    rows = np.repeat(np.arange(row_count, dtype=np.uint32), counts)
    lacking = np.concatenate([np.empty(0, np.bool_), *(_flags(one.is_null()) for one in values)])
    open_rows = np.unique(rows[lacking])
    rows = rows[~lacking]
    keys = gather_column(map(pa.Array.drop_null, given_up(values)), value_type, len(rows))
    return ContentColumn(
        row_count, keys, rows, positions_of(is_null), positions_of(~is_null & (counts == 0)), open_rows
    )


def _gather_words(texts: Iterable[pa.Array], value_type: ValueType, row_count: int, block_rows: int) -> ContentColumn:
    words: list[pa.Array] = []
    blocks: list[Ints] = []
    nulls: list[Flags] = []
    first_row = 0
    for batch in texts:
        found, own = words_of_blocks(batch, first_row, block_rows)
        words.append(found)
        blocks.append(own)
        nulls.append(_flags(batch.is_null()))
        first_row += len(batch)
    if first_row != row_count:
        raise BuildError(f"{first_row} rows of a row group of {row_count} were read")
    of_blocks = np.concatenate([np.empty(0, np.int64), *blocks]).astype(np.uint32)
    keys = gather_column(map(pa.Array.drop_null, given_up(words)), value_type, len(of_blocks))
    null_rows, none = positions_of(np.concatenate([np.empty(0, np.bool_), *nulls])), np.empty(0, np.uint32)
    return ContentColumn(row_count, keys, of_blocks, null_rows, none, none, block_rows)


def _lists_of(array: pa.Array, part: Part) -> pa.Array:
    """Return arrays or maps as lists of what they contain."""
    if isinstance(array, pa.MapArray):
        # The children of a slice are those of the whole array. Offsets of a slice are not accepted beside a mask.
        offsets = pa.array(array.offsets.to_numpy())
        return pa.ListArray.from_arrays(offsets, array.keys if part == "keys" else array.items, mask=array.is_null())
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
        return array
    raise UnsupportedError(f"a column of Arrow {array.type} has no {part}")


def _flags(flags: pa.Array) -> Flags:
    return np.asarray(flags.to_numpy(zero_copy_only=False), np.bool_)
