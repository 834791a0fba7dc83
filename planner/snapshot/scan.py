"""A scan: the row groups that a query of one table may have to read, as an index view knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from pyiceberg.io import FileIO

from planner.snapshot.snapshot_files import FileWithDeletes
from planner.view.directories import selection_of
from planner.view.index_view import IndexView
from puffin_index.data.data_table import DataFile
from puffin_index.storage.arrays import Flags, Ints


@dataclass(frozen=True, slots=True)
class ScanRowGroups:
    """The row groups of a scan, data file by data file. A file without an index counts the row groups that it lists.

    Attributes:
        file_of: For each row group its data file, as a number among those of the scan.
        ordinals: For each row group its ordinal in the data file.
        numbers: For each row group its number in the view, -1 where it has no index.
        row_counts: For each row group its rows, 0 where it has no index.
        first_rows: For each row group the position of its first row in the data file; undefined where it has no index.
        is_read_whole: For each row group whether readers of byte ranges read its data file whole or not at all.
    """

    file_of: Ints
    ordinals: Ints
    numbers: Ints
    row_counts: Ints
    first_rows: Ints
    is_read_whole: Flags

    @classmethod
    def of(cls, view: IndexView, files: Sequence[DataFile]) -> ScanRowGroups:
        """Find the row groups of some data files in a view."""
        known = [view.row_groups_of(file) for file in files]
        counts = np.array(
            [max(1, len(f.split_offsets)) if own is None else len(own) for f, own in zip(files, known, strict=True)],
            np.int64,
        )
        file_of = np.repeat(np.arange(len(files)), counts)
        ordinals = np.arange(len(file_of)) - np.repeat(np.cumsum(counts) - counts, counts)
        first = np.array([-1 if own is None else own.start for own in known], np.int64)[file_of]
        numbers = np.where(first >= 0, first + ordinals, -1)
        if not view.row_group_count:
            zeros = np.zeros_like(numbers)
            return cls(file_of, ordinals, numbers, zeros, zeros, zeros.astype(np.bool_))
        indexed = numbers >= 0
        row_counts, is_read_whole = view.row_counts[numbers] * indexed, view.is_read_whole[numbers] & indexed
        return cls(file_of, ordinals, numbers, row_counts, view.first_rows[numbers], is_read_whole)

    @classmethod
    def of_view(cls, view: IndexView, numbers: Ints) -> ScanRowGroups:
        """Some row groups of a view; their data files have the view's numbers."""
        here = selection_of(numbers)
        return cls(
            view.file_of[here],
            view.ordinals_in_file[here],
            numbers,
            view.row_counts[here],
            view.first_rows[here],
            view.is_read_whole[here],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """What a query may have to read of one table.

    Attributes:
        paths: Locations of the data files, by the numbers that `row_groups.file_of` has.
        files: The data files by the same numbers; those without deletes may be missing.
        has_deletes: For each row group whether some of its rows may be deleted.
        snapshot_id: The snapshot; None for an empty table, and where it is not known.
        unlisted: How many more row groups there are, which have no index.
    """

    view: IndexView
    row_groups: ScanRowGroups
    paths: tuple[str, ...]
    files: Mapping[int, FileWithDeletes]
    has_deletes: Flags
    io: FileIO
    table: str = ""
    snapshot_id: int | None = None
    unlisted: int = 0
    unlisted_files: int = 0
    is_indexed: Flags = field(init=False)

    def __post_init__(self) -> None:
        """Say which row groups have an index."""
        object.__setattr__(self, "is_indexed", self.row_groups.numbers >= 0)

    @classmethod
    def of_files(
        cls,
        view: IndexView,
        files: Sequence[DataFile],
        known: Sequence[FileWithDeletes] = (),
        io: FileIO | None = None,
        table: str = "",
        snapshot_id: int | None = None,
    ) -> Scan:
        """The scan of some data files, with their delete files if these are to be subtracted."""
        row_groups = ScanRowGroups.of(view, files)
        has_deletes = np.array([file.has_deletes for file in files], np.bool_)[row_groups.file_of]
        paths = tuple(file.path for file in files)
        return cls(view, row_groups, paths, dict(enumerate(known)), has_deletes, io or view.io, table, snapshot_id)

    @classmethod
    def of_view(
        cls,
        view: IndexView,
        numbers: Ints,
        files: Mapping[int, FileWithDeletes] | None = None,
        has_deletes: Flags | None = None,
        io: FileIO | None = None,
    ) -> Scan:
        """The scan of some row groups of a view, whose deletes are known by the view's numbers of data files.

        Without `files`, deletes are not to be subtracted; without `has_deletes`, they are where `files` has some.
        """
        row_groups = ScanRowGroups.of_view(view, numbers)
        if has_deletes is None:
            has_deletes = np.isin(row_groups.file_of, list(files or ()))
        return cls(view, row_groups, view.paths, files or {}, has_deletes, io or view.io)

    def deletes_of(self, at: int) -> FileWithDeletes | None:
        """The data file of a row group with what deletes its rows; None if nothing does."""
        file = self.files.get(int(self.row_groups.file_of[at]))
        return file if file is not None and file.deletes else None
