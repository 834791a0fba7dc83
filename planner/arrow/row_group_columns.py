"""Wanted rows of the columns of one row group: by pages where that pays, by whole column chunks otherwise."""

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa

from puffin_index.data.file_fields import FileField
from puffin_index.data.page_index import ColumnChunk, most_pages
from puffin_index.data.page_reader import LeafPages, PageReader, can_assemble, joined
from puffin_index.data.parquet import OpenParquet, coded_by_dictionary, fetch_columns
from puffin_index.display import format_bytes
from puffin_index.errors import CorruptFileError
from puffin_index.jobs.log_lines import level_of_trouble
from puffin_index.storage.arrays import Ints
from puffin_index.storage.files import is_local
from puffin_index.storage.parallel import MOST_AT_ONCE

_log = logging.getLogger(__name__)

_CORES: Final = os.cpu_count() or 1

_FEW_ROWS: Final = 0.1
"""Where at most this share of the rows is wanted, strings are made after the rows are chosen."""

_LARGEST_SHARE: Final = 0.6
"""Of the bytes of a column. At this share, pages take 0.7 of the processor time of the whole; at 0.95, all of it."""

_LEAST_SAVING: Final = 0.25
"""Of the bytes of all columns: less did not pay for a second way to read."""


@dataclass(slots=True)
class DataRead:
    """Bytes, and data pages of chunks read by pages, summed up over row groups and threads."""

    pages: int = 0
    pages_read: int = 0
    chunks: int = 0
    bytes: int = 0
    bytes_read: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, bytes_read: int, chunk_bytes: int, *, pages_read: int = 0, pages: int = 0, chunks: int = 0) -> None:
        """Count a column chunk that was read whole or by pages."""
        with self._lock:
            self.pages_read += pages_read
            self.pages += pages
            self.chunks += chunks
            self.bytes_read += bytes_read
            self.bytes += chunk_bytes

    def __str__(self) -> str:
        of_bytes = f"{format_bytes(self.bytes_read)} of {format_bytes(self.bytes)}"
        return f"{self.pages_read:,} of {self.pages:,} pages and {self.chunks:,} whole column chunks, {of_bytes}"


@dataclass(frozen=True, slots=True)
class RowGroupColumns:
    """The columns of one row group of an open file; with `side_by_side`, whole columns are decoded side by side."""

    opened: OpenParquet
    ordinal: int
    data_read: DataRead
    side_by_side: bool

    @property
    def row_count(self) -> int:
        """The rows of the row group."""
        return int(self.opened.parquet.metadata.row_group(self.ordinal).num_rows)

    @property
    def first_row(self) -> int:
        """The position in the file of the first row."""
        footer = self.opened.parquet.metadata
        return sum(footer.row_group(before).num_rows for before in range(self.ordinal))

    def read(self, fields: Sequence[FileField], rows: Ints | None) -> pa.Table:
        """Read some rows (ascending; None for all) of some top-level fields, or raise CorruptFileError."""
        if rows is None:
            return self._whole(fields)
        if not len(rows):
            return pa.schema([field.field for field in fields]).empty_table()
        table = self._by_pages(fields, rows)
        names = set() if table is None else set(table.column_names)
        rest = [field for field in fields if field.field.name not in names]
        if table is not None and not rest:
            return table
        few = len(rows) <= _FEW_ROWS * self.row_count
        whole = self._whole(rest, as_dictionaries=few).take(pa.array(rows))
        if few:
            whole = whole.cast(pa.schema([field.field for field in rest]))
        return whole if table is None else joined(table, whole)

    def _whole(self, fields: Sequence[FileField], *, as_dictionaries: bool = False) -> pa.Table:
        # By ordinals of leaves: names may have dots in them.
        leaves = _leaves(fields)
        group = self.opened.parquet.metadata.row_group(self.ordinal)
        for leaf in leaves:
            size = group.column(leaf).total_compressed_size
            self.data_read.add(size, size, chunks=1)
        parquet = self.opened.with_dictionaries(coded_by_dictionary(group, fields) if as_dictionaries else [])
        fetch_columns(parquet, [(self.ordinal, leaves)])
        try:
            return parquet.reader.read_row_group(self.ordinal, column_indices=leaves, use_threads=self.side_by_side)
        except pa.ArrowInvalid as error:
            raise CorruptFileError(f"row group {self.ordinal}: {error}", location=self.opened.file.location) from error

    def _by_pages(self, fields: Sequence[FileField], rows: Ints) -> pa.Table | None:
        """The columns that were read by pages; None if none was."""
        if len(rows) > _LARGEST_SHARE * self.row_count:
            return None
        try:
            return self._pages(fields, rows)
        except CorruptFileError as damage:
            level = level_of_trouble(self.opened.file.location)
            _log.log(level, "row group %d is read whole, as its pages cannot be read alone: %s", self.ordinal, damage)
            return None

    def _pages(self, fields: Sequence[FileField], rows: Ints) -> pa.Table | None:
        reader = replace(
            PageReader.of(self.opened.parquet, self.opened.file, self.ordinal),
            requests_at_once=1 if is_local(self.opened.file.location) else MOST_AT_ONCE,
            parts=_CORES if self.side_by_side else 1,
        )
        chunks = reader.chunks(frozenset(_leaves(fields)))
        # Columns that are encrypted, or lie elsewhere, are no chunks here and are read in another way.
        column_bytes = sum(chunk.size for chunk in chunks.values())
        fields = _may_gain([field for field in fields if can_assemble(field.field.type)], chunks, rows, self.row_count)
        chosen = _chosen_pages(fields, reader, chunks, rows)
        saved = sum(own.chunk.size - own.byte_count for own in chosen.values())
        if not chosen or saved < _LEAST_SAVING * column_bytes:
            return None
        table = reader.read([field for field in fields if field.leaves[0] in chosen], chosen)
        for leaf in chosen.values():
            self.data_read.add(
                leaf.byte_count, leaf.chunk.size, pages_read=len(leaf.held.pages), pages=leaf.index.page_count
            )
        return table


def _leaves(fields: Sequence[FileField]) -> list[int]:
    return [leaf for field in fields for leaf in field.leaves]


def _may_gain(
    fields: Sequence[FileField], chunks: Mapping[int, ColumnChunk], rows: Ints, row_count: int
) -> list[FileField]:
    """The fields with offset indexes that may be read by pages in fewer bytes."""

    @cache
    def share(pages: int) -> float:
        # More pages than there are give a smaller share, so that a column that can gain is not left out.
        return (1 + int(np.count_nonzero(np.diff(rows * pages // row_count)))) / pages

    found: list[FileField] = []
    for one in fields:
        own = [chunks[leaf] for leaf in one.leaves if leaf in chunks and chunks[leaf].offset_index is not None]
        if len(own) == len(one.leaves):
            needed = sum(chunk.size * share(most_pages(chunk)) for chunk in own)
            if needed <= _LARGEST_SHARE * sum(chunk.size for chunk in own):
                found.append(one)
    return found


def _chosen_pages(
    fields: Sequence[FileField], reader: PageReader, chunks: Mapping[int, ColumnChunk], rows: Ints
) -> dict[int, LeafPages]:
    """Choose the pages of each leaf of the fields that are to be read by pages; reads their offset indexes."""
    indexes = reader.offset_indexes({leaf: chunks[leaf] for field in fields for leaf in field.leaves})
    pages = reader.pages(chunks, indexes, rows)
    chosen: dict[int, LeafPages] = {}
    for one in fields:
        if all(leaf in pages for leaf in one.leaves):
            own = {leaf: pages[leaf] for leaf in one.leaves}
            most_bytes = _LARGEST_SHARE * sum(leaf.chunk.size for leaf in own.values())
            if sum(leaf.byte_count for leaf in own.values()) <= most_bytes:
                chosen |= own
    return chosen
