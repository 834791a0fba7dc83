"""The rows of a scan that are known without reading data: exact row sets without deleted rows."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from pyroaring import BitMap

from planner.condition.tree.nodes import EVERY_ROW, Predicate
from planner.prune.row_sets import RowSets
from planner.prune.verdicts import Reason, kept_mask
from planner.snapshot.scan import Scan
from puffin_index.data.deletes import deleted_positions
from puffin_index.storage.arrays import Bytes, Flags, Ints, Rows

_EVERY_ROW: Final = tuple(map(int, (Reason.ALL_ROWS_MATCH, Reason.NO_PREDICATE)))


@dataclass(frozen=True, slots=True, eq=False)
class KnownRows:
    """The matching rows of row groups, where they are known exactly.

    For each row group: its `Reason`, its matching rows less deleted ones (-1: not known), and whether all match and
    none is deleted. `positions` are kept row groups whose matching rows are known; deleted rows are still in
    `row_sets.of`.
    """

    scan: Scan
    predicate: Predicate
    reasons: Bytes
    matches: Ints
    row_sets: RowSets
    positions: Ints = field(init=False)
    is_whole: Flags = field(init=False)

    def __post_init__(self) -> None:
        """Say what is known."""
        # A count of matches is exact only where deleted rows could be subtracted.
        is_known = kept_mask(self.reasons) & (self.matches >= 0) & self.scan.is_indexed
        object.__setattr__(self, "is_whole", is_known & (self.matches == self.scan.row_counts))
        # The rows have to be kept, and not only their count.
        some = np.flatnonzero(is_known & ~self.is_whole & ~np.isin(self.reasons, _EVERY_ROW)).tolist()
        is_known[[at for at in some if not self.row_sets.is_kept(int(self.scan.numbers[at]))]] = False
        object.__setattr__(self, "positions", np.flatnonzero(is_known))

    def count(self) -> tuple[int, Flags]:
        """How many rows match in row groups where that is known, and which these are.

        Manifests tell the rows of files without an index.
        """
        known = self.matches >= 0
        count = int(self.matches[known].sum())
        if self.predicate == EVERY_ROW:
            listed = ~known & ~self.scan.is_indexed & ~self.scan.has_deletes
            files = np.unique(self.scan.file_of[listed]).tolist()
            count += sum(self.scan.files[number].file.record_count for number in files)
            known |= listed
        return count, known

    def of(self, at: int) -> BitMap:
        """The matching rows of a row group, numbered from 0 in it.

        Raises PuffinIndexError if deleted rows can no longer be read.
        """
        scan = self.scan
        row_count = int(scan.row_counts[at])
        if self.is_whole[at]:
            return BitMap(range(row_count))
        found = None if int(self.reasons[at]) in _EVERY_ROW else self.row_sets.of(int(scan.numbers[at]))
        rows = BitMap(range(row_count)) if found is None else found.rows
        rows = rows - self.row_sets.deleted.get(int(scan.numbers[at]), BitMap())
        file = scan.deletes_of(at)
        if file is None or not file.deletes:
            return rows
        first = int(scan.first_rows[at])
        deleted = deleted_positions(scan.io, file.file.path, file.deletes)
        return rows - (deleted & BitMap(range(first, first + row_count))).shift(-first)

    def located(self, positions: Ints) -> tuple[Ints, Ints]:
        """The matching rows of some row groups, one after the other: their data files' numbers, their places in these.

        Raises what `of` raises.
        """
        scan, rows = self.scan, [self.of(at) for at in positions.tolist()]
        counts = np.array([len(own) for own in rows], np.int64)
        numbers: list[Rows] = [np.frombuffer(own.to_array(), np.uint32) for own in (BitMap(), *rows)]
        files, firsts = (np.repeat(own[positions], counts) for own in (scan.file_of, scan.first_rows))
        return files, np.concatenate(numbers) + firsts
