"""The rows of a scan that are known without reading data: exact row sets without deleted rows."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from pyroaring import BitMap

from planner.condition.tree.nodes import EVERY_ROW, Predicate
from planner.prune.verdicts import Pruned, Reason
from planner.snapshot.scan import Scan
from puffin_index.storage.arrays import Flags, Ints, Rows

_EVERY_ROW: Final = tuple(map(int, (Reason.ALL_ROWS_MATCH, Reason.NO_PREDICATE)))


@dataclass(frozen=True, slots=True, eq=False)
class KnownRows:
    """The matching rows of row groups, where they are known exactly.

    `positions` are kept row groups whose matching rows, less deleted ones, are known; `is_whole` says of each row group
    of the scan whether all rows match and none is deleted.
    """

    scan: Scan
    predicate: Predicate
    pruned: Pruned
    positions: Ints = field(init=False)
    is_whole: Flags = field(init=False)

    def __post_init__(self) -> None:
        """Say what is known."""
        # A count of matches is exact only where deleted rows could be subtracted.
        is_known = self.pruned.kept & (self.matches >= 0) & self.scan.is_indexed
        object.__setattr__(self, "is_whole", is_known & (self.matches == self.scan.row_counts))
        # The rows have to be kept, and not only their count.
        some = np.flatnonzero(is_known & ~self.is_whole & ~np.isin(self.pruned.reasons, _EVERY_ROW)).tolist()
        is_known[[at for at in some if not self.pruned.row_sets.is_kept(int(self.scan.numbers[at]))]] = False
        object.__setattr__(self, "positions", np.flatnonzero(is_known))

    @property
    def matches(self) -> Ints:
        """The matching rows of each row group less deleted ones; -1 where not known."""
        return self.pruned.matches

    def count(self) -> tuple[int, Flags]:
        """How many rows match where that is known, and where; manifests tell the rows of files without an index."""
        known = self.matches >= 0
        count = int(self.matches[known].sum())
        if self.predicate == EVERY_ROW:
            listed = ~known & ~self.scan.is_indexed & ~self.scan.has_deletes
            files = np.unique(self.scan.file_of[listed]).tolist()
            count += sum(self.scan.files[number].file.record_count for number in files)
            known |= listed
        return count, known

    def of(self, at: int) -> BitMap:
        """The matching rows of a row group, numbered from 0; raise PuffinIndexError if deletes cannot be read."""
        scan, number, row_count = self.scan, int(self.scan.numbers[at]), int(self.scan.row_counts[at])
        if self.is_whole[at]:
            return BitMap(range(row_count))
        found = self.pruned.rows_of(at, number, row_count, self.predicate)
        assert found is not None, "one of `positions`"
        rows = found.rows - self.pruned.row_sets.deleted.get(number, BitMap())
        file = scan.deletes_of(at)
        return rows if file is None else rows - file.deleted_rows(scan.io, int(scan.first_rows[at]), row_count)

    def located(self, positions: Ints) -> tuple[Ints, Ints]:
        """The matching rows of some row groups, one after the other: numbers of data files, and places in these."""
        scan, rows = self.scan, [self.of(at) for at in positions.tolist()]
        counts = np.array([len(own) for own in rows], np.int64)
        numbers: list[Rows] = [np.frombuffer(own.to_array(), np.uint32) for own in (BitMap(), *rows)]
        files, firsts = (np.repeat(own[positions], counts) for own in (scan.file_of, scan.first_rows))
        return files, np.concatenate(numbers) + firsts
