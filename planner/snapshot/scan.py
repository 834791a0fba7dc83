"""A scan: the row groups of its data files, as a view knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pyiceberg.io import FileIO

from planner.prune.verdicts import Reason, kept_mask
from planner.snapshot.files import FileWithDeletes
from planner.view.directories import selection_of
from planner.view.index_view import IndexView
from puffin_index.data.data_table import DataFile
from puffin_index.storage.arrays import Bytes, Flags, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """What a query may have to read of one table: row groups, data file by data file.

    A file without an index counts the row groups that it lists.

    Attributes:
        numbers: For each row group its number in the view, -1 where it has no index.
        file_of: For each row group its data file, as a number among those of the scan.
        files: The data files by number; those without deletes may be missing.
        unlisted: How many more row groups there are, which have no index.
        by_ranges: Spark reads the rows, by ranges of bytes, so that some data files are read whole or not at all.
        row_counts: For each row group its rows, 0 where it has no index.
        first_rows: For each row group the position of its first row in the data file, 0 where it has no index.
        is_read_whole: For each row group whether its data file is read whole or not at all.
    """

    view: IndexView
    numbers: Ints
    file_of: Ints
    ordinals: Ints
    has_deletes: Flags
    paths: tuple[str, ...]
    files: Mapping[int, FileWithDeletes]
    io: FileIO
    table: str = ""
    snapshot_id: int | None = None
    unlisted: int = 0
    unlisted_files: int = 0
    by_ranges: bool = False
    is_indexed: Flags = field(init=False)
    row_counts: Ints = field(init=False)
    first_rows: Ints = field(init=False)
    row_group_bytes: Ints = field(init=False)
    is_read_whole: Flags = field(init=False)

    def __post_init__(self) -> None:
        """Say what the view knows of the row groups."""
        indexed = self.numbers >= 0
        object.__setattr__(self, "is_indexed", indexed)
        here = selection_of(self.numbers) if indexed.all() else None
        for name in ("row_counts", "first_rows", "row_group_bytes", "is_read_whole"):
            of_view = getattr(self.view, name)
            own = np.zeros(len(indexed), of_view.dtype) if here is None else of_view[here]
            if here is None:
                own[indexed] = of_view[self.numbers[indexed]]
            object.__setattr__(self, name, own)
        if not self.by_ranges:
            object.__setattr__(self, "is_read_whole", np.zeros(len(indexed), np.bool_))

    @classmethod
    def of_files(
        cls,
        view: IndexView,
        files: Sequence[DataFile],
        known: Sequence[FileWithDeletes] = (),
        io: FileIO | None = None,
        table: str = "",
        snapshot_id: int | None = None,
        *,
        by_ranges: bool = False,
    ) -> Scan:
        """The scan of some data files, with their delete files if these are to be subtracted."""
        found = [view.row_groups_of(file) for file in files]
        counts = np.array(
            [max(1, len(f.split_offsets)) if own is None else len(own) for f, own in zip(files, found, strict=True)],
            np.int64,
        )
        file_of = np.repeat(np.arange(len(files)), counts)
        ordinals = np.arange(len(file_of)) - np.repeat(np.cumsum(counts) - counts, counts)
        first = np.array([-1 if own is None else own.start for own in found], np.int64)[file_of]
        numbers = np.where(first >= 0, first + ordinals, -1)
        # A snapshot may have a data file twice, and the view knows its rows once.
        again = np.setdiff1d(np.arange(len(numbers)), np.unique(numbers, return_index=True)[1])
        numbers[again] = -1
        has_deletes = np.array([file.has_deletes for file in files], np.bool_)[file_of]
        paths, own = tuple(file.path for file in files), dict(enumerate(known))
        rows = (numbers, file_of, ordinals, has_deletes)
        return cls(view, *rows, paths, own, io or view.io, table, snapshot_id, by_ranges=by_ranges)

    @classmethod
    def of_view(
        cls,
        view: IndexView,
        numbers: Ints,
        files: Mapping[int, FileWithDeletes] | None = None,
        has_deletes: Flags | None = None,
        io: FileIO | None = None,
    ) -> Scan:
        """Spark's scan of some row groups of a view, whose deletes are known by the view's numbers of data files.

        Without `files`, deletes are not to be subtracted; without `has_deletes`, they are where `files` has some.
        """
        here = selection_of(numbers)
        file_of = view.file_of[here]
        if has_deletes is None:
            has_deletes = np.isin(file_of, list(files or ()))
        ordinals = view.ordinals_in_file[here]
        own_files, own_io = files or {}, io or view.io
        return cls(view, numbers, file_of, ordinals, has_deletes, view.paths, own_files, own_io, by_ranges=True)

    def part(self, place: Ints) -> Scan:
        """The scan of some of its row groups."""
        names = ("numbers", "file_of", "ordinals", "has_deletes")
        return replace(self, **{name: getattr(self, name)[place] for name in names})

    def deletes_of(self, at: int) -> FileWithDeletes | None:
        """The data file of a row group with what deletes its rows; None if nothing does."""
        file = self.files.get(int(self.file_of[at]))
        return file if file is not None and file.has_deletes else None


def keep_whole_files(reasons: Bytes, file_of: Ints, is_read_whole: Flags) -> Bytes:
    """Return the reasons for a reader that has to read row groups because another of the same whole file is kept."""
    if not is_read_whole.any():
        return reasons
    kept = kept_mask(reasons)
    is_read_along = ~kept & is_read_whole & np.isin(file_of, file_of[kept])
    return np.where(is_read_along, np.uint8(Reason.READ_WHOLE), reasons)
