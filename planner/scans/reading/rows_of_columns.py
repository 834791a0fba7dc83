"""Wanted rows of some columns of a row group: by pages where that pays, by whole column chunks otherwise."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from planner.scans.reading.data_read import DataRead
from planner.scans.reading.page_choice import can_gain, chosen_pages, promising, saves_enough
from puffin_index.data.file_fields import FileField
from puffin_index.data.pages.fetch import in_turn
from puffin_index.data.pages.page_reader import PageReader, joined
from puffin_index.data.parquet import OpenParquet, coded_by_dictionary, fetch_columns
from puffin_index.errors import CorruptFileError
from puffin_index.jobs.log_lines import level_of_trouble
from puffin_index.storage.arrays import Ints
from puffin_index.storage.files import is_local
from puffin_index.storage.parallel import in_parallel

_log = logging.getLogger(__name__)

_CORES = os.cpu_count() or 1
_FEW_ROWS = 0.1
"""Strings of so small a share of the rows are made after the rows are chosen."""


@dataclass(frozen=True, slots=True)
class RowGroupColumns:
    """The columns of one row group of an open file.

    Attributes:
        opened: The file.
        ordinal: Which row group of the file.
        data_read: Counts what is read.
        side_by_side: Whether whole columns are decoded side by side.
    """

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
        """Read some rows of some columns.

        Args:
            fields: Top-level fields of the file; at least one.
            rows: Rows of the row group, ascending; None for all.

        Raises:
            CorruptFileError: If the file cannot be decoded.
        """
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
        """Whole columns; strings of a dictionary as they are stored, if wanted."""
        # By ordinals of leaves: names may have dots in them.
        leaves = _leaves(fields)
        group = self.opened.parquet.metadata.row_group(self.ordinal)
        for leaf in leaves:
            self.data_read.add_chunk(group.column(leaf).total_compressed_size)
        parquet = self.opened.with_dictionaries(coded_by_dictionary(group, fields) if as_dictionaries else [])
        fetch_columns(parquet, [(self.ordinal, leaves)])
        try:
            return parquet.reader.read_row_group(self.ordinal, column_indices=leaves, use_threads=self.side_by_side)
        except pa.ArrowInvalid as error:
            raise CorruptFileError(f"row group {self.ordinal}: {error}", location=self.opened.file.location) from error

    def _by_pages(self, fields: Sequence[FileField], rows: Ints) -> pa.Table | None:
        """The columns that were read by pages; None if none was."""
        if not can_gain(self.row_count, len(rows)):
            return None
        group = self.opened.parquet.metadata.row_group(self.ordinal)
        paged = [field for field in fields if all(group.column(leaf).has_offset_index for leaf in field.leaves)]
        if not paged:
            return None
        column_bytes = sum(group.column(leaf).total_compressed_size for leaf in _leaves(fields))
        try:
            return self._pages(paged, rows, column_bytes)
        except CorruptFileError as damage:
            level = level_of_trouble(self.opened.file.location)
            _log.log(level, "row group %d is read whole, as its pages cannot be read alone: %s", self.ordinal, damage)
            return None

    def _pages(self, fields: Sequence[FileField], rows: Ints, column_bytes: int) -> pa.Table | None:
        reader = replace(
            PageReader.of(self.opened.parquet, self.opened.file, self.ordinal),
            each=in_turn if is_local(self.opened.file.location) else in_parallel,
            decode_each=in_parallel,
            parts=_CORES if self.side_by_side else 1,
        )
        chunks = reader.chunks(frozenset(_leaves(fields)))
        fields = promising(fields, chunks, rows, self.row_count)
        chosen = chosen_pages(fields, reader, chunks, rows)
        if not chosen or not saves_enough(chosen, column_bytes):
            return None
        table = reader.read([field for field in fields if field.leaves[0] in chosen], chosen, rows)
        for leaf in chosen.values():
            self.data_read.add_pages(len(leaf.pages), leaf.index.page_count, leaf.byte_count, leaf.chunk.size)
        return table


def _leaves(fields: Sequence[FileField]) -> list[int]:
    return [leaf for field in fields for leaf in field.leaves]
