"""Which columns of a row group are read by pages: those of which the wanted rows need a small share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from puffin_index.data.file_fields import FileField
from puffin_index.data.pages.footer import ColumnChunk
from puffin_index.data.pages.nested import can_assemble
from puffin_index.data.pages.offset_index import most_pages
from puffin_index.data.pages.page_reader import LeafPages, PageReader
from puffin_index.storage.arrays import Ints

LARGEST_SHARE: Final = 0.6
"""Of the bytes of a column. At this share, pages take 0.7 of the processor time of the whole; at 0.95, all of it."""

LEAST_SAVING: Final = 0.25
"""Of the bytes of all columns: less did not pay for a second way to read."""


def can_gain(row_count: int, rows: int) -> bool:
    """Whether so many rows of a row group can leave out pages at all, however they lie."""
    return rows <= LARGEST_SHARE * row_count


def promising(
    fields: Sequence[FileField], chunks: Mapping[int, ColumnChunk], rows: Ints, row_count: int
) -> list[FileField]:
    """Choose the fields whose offset indexes are worth a read.

    Args:
        fields: Top-level fields of the file.
        chunks: Column chunks by leaf.
        rows: The wanted rows of the row group, ascending.
        row_count: The rows of the row group.
    """
    return [field for field in fields if can_assemble(field.field.type) and _may_gain(field, chunks, rows, row_count)]


def _may_gain(field: FileField, chunks: Mapping[int, ColumnChunk], rows: Ints, row_count: int) -> bool:
    if any(leaf not in chunks or chunks[leaf].offset_index is None for leaf in field.leaves):
        return False
    pages = [most_pages(chunks[leaf]) for leaf in field.leaves]
    sizes = [chunks[leaf].size for leaf in field.leaves]
    # More pages than there are give a smaller share, so that a column that can gain is not left out.
    needed = sum(size * _needed(rows, row_count, count) / count for size, count in zip(sizes, pages, strict=True))
    return needed <= LARGEST_SHARE * sum(sizes)


def _needed(rows: Ints, row_count: int, pages: int) -> int:
    """How many pages of equal length hold some ascending rows."""
    bounds = np.arange(pages + 1) * row_count // pages
    return int(np.count_nonzero(np.diff(np.searchsorted(rows, bounds))))


def chosen_pages(
    fields: Sequence[FileField], reader: PageReader, chunks: Mapping[int, ColumnChunk], rows: Ints
) -> dict[int, LeafPages]:
    """Choose the pages to read; their offset indexes are read for that.

    Args:
        fields: Top-level fields of the file, which are promising.
        reader: The row group.
        chunks: Column chunks by leaf.
        rows: The wanted rows of the row group, ascending.

    Returns:
        The pages of each leaf of the fields that are to be read by pages.
    """
    indexes = reader.offset_indexes({leaf: chunks[leaf] for field in fields for leaf in field.leaves})
    chosen: dict[int, LeafPages] = {}
    for field in fields:
        if indexes.keys() >= set(field.leaves):
            leaves = {leaf: reader.pages(leaf, chunks[leaf], indexes[leaf], rows) for leaf in field.leaves}
            own = leaves.values()
            if sum(leaf.byte_count for leaf in own) <= LARGEST_SHARE * sum(leaf.chunk.size for leaf in own):
                chosen |= leaves
    return chosen


def saves_enough(chosen: Mapping[int, LeafPages], column_bytes: int) -> bool:
    """Whether pages save enough of the bytes of all columns that are read."""
    return sum(own.chunk.size - own.byte_count for own in chosen.values()) >= LEAST_SAVING * column_bytes
