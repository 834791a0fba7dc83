"""Some row groups of a data file, numbered anew, in place of the whole file; samples index these alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from puffin_index.data.data_table import DataFile
from puffin_index.data.located_column import LocatedColumn
from puffin_index.data.row_groups import OpenDataFile
from puffin_index.keys.value_types import ValueType


@dataclass(frozen=True, slots=True)
class ChosenRowGroups:
    """An opened data file that seems to have the chosen row groups only.

    Attributes:
        file: The data file with the rows, and about the bytes, of the chosen row groups.
        row_counts: The number of rows of each chosen row group.
        row_group_offsets: The start of each chosen row group's byte range.
        whole: The data file.
        chosen: The ordinal of each chosen row group in the data file.
    """

    file: DataFile
    row_counts: tuple[int, ...]
    row_group_offsets: tuple[int, ...]
    whole: OpenDataFile
    chosen: tuple[int, ...]

    @classmethod
    def of(cls, whole: OpenDataFile, chosen: Sequence[int]) -> ChosenRowGroups:
        """Choose row groups by their ordinals; ordinals that the file lacks are left out."""
        kept = tuple(ordinal for ordinal in chosen if ordinal < len(whole.row_counts))
        row_counts = tuple(whole.row_counts[ordinal] for ordinal in kept)
        file, rows = whole.file, sum(row_counts)
        size = file.file_size * rows // max(1, file.record_count)
        part = replace(file, file_size=size, record_count=rows, split_offsets=())
        return cls(part, row_counts, tuple(whole.row_group_offsets[ordinal] for ordinal in kept), whole, kept)

    def locate(self, field_id: int) -> LocatedColumn:
        """Find a column of the table."""
        return self.whole.locate(field_id)

    def check_type(self, field_id: int, value_type: ValueType | None = None) -> None:
        """Check that Iceberg reads the values that are stored as Arrow does."""
        self.whole.check_type(field_id, value_type)

    def fetch(self, row_groups: Sequence[int], field_id: int) -> None:
        """Begin to read a column of some chosen row groups."""
        self.whole.fetch([self.chosen[one] for one in row_groups], field_id)

    def read_column(self, row_group: int, field_id: int, map_key: str | None = None) -> Iterator[pa.Array]:
        """Read one column of one chosen row group."""
        return self.whole.read_column(self.chosen[row_group], field_id, map_key)
