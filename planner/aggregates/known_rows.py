"""The rows of a planned scan that are known without reading data: exact row sets without deleted rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from pyiceberg.io import FileIO
from pyroaring import BitMap

from planner.prune.pruned import Reason
from planner.scans.planned_scan import PlannedScan
from puffin_index.data.deletes import deleted_positions
from puffin_index.storage.arrays import Flags, Ints


@dataclass(frozen=True, slots=True, eq=False)
class KnownRows:
    """The matching rows of row groups, where they are known exactly.

    Attributes:
        planned: The scan; exact rows were wanted.
        io: The FileIO of the data table.
        positions: The kept row groups of the plan whose matching rows are known, ascending.
        is_whole: For each row group of the plan whether all of its rows match and none is deleted.
    """

    planned: PlannedScan
    io: FileIO
    positions: Ints = field(init=False)
    is_whole: Flags = field(init=False)

    def __post_init__(self) -> None:
        """Say what is known."""
        plan, row_groups = self.planned.plan, self.planned.row_groups
        # The plan's count of matches is exact only where deleted rows could be subtracted.
        is_known = plan.kept_mask & (plan.matches >= 0) & (row_groups.numbers >= 0)
        object.__setattr__(self, "is_whole", is_known & (plan.matches == plan.row_counts))
        some = np.flatnonzero(is_known & ~self.is_whole).tolist()
        is_known[[at for at in some if not self._is_kept(at)]] = False
        object.__setattr__(self, "positions", np.flatnonzero(is_known))

    def _is_kept(self, at: int) -> bool:
        """Whether the plan has kept the rows, and not only their count."""
        return self._is_every_row(at) or self.planned.row_sets.is_kept(int(self.planned.row_groups.numbers[at]))

    def _is_every_row(self, at: int) -> bool:
        return self.planned.plan.reasons[at] in (Reason.ALL_ROWS_MATCH, Reason.NO_PREDICATE)

    def of(self, at: int) -> BitMap:
        """The matching rows of a row group, numbered from 0 in it.

        Raises:
            PuffinIndexError: If deleted rows can no longer be read.
        """
        plan, row_groups = self.planned.plan, self.planned.row_groups
        row_count = int(plan.row_counts[at])
        if self.is_whole[at]:
            return BitMap(range(row_count))
        found = None if self._is_every_row(at) else self.planned.row_sets.of(int(row_groups.numbers[at]))
        rows = BitMap(range(row_count)) if found is None else found.rows
        file = self.planned.files[int(plan.file_of[at])]
        if not file.deletes:
            return rows
        first = int(row_groups.first_rows[at])
        deleted = deleted_positions(self.io, file.file.path, file.deletes) & BitMap(range(first, first + row_count))
        return rows - deleted.shift(-first)
