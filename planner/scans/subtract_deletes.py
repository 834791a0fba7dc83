"""The stage `deletes`: deleted rows leave the row sets; a row group whose matches are all deleted is dropped.

Positional deletes and deletion vectors are read only where a row set is known, can lie in the deleted rows as a whole,
and the delete files have fewer bytes than the row groups in question; or where exact counts are asked for.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace

import numpy as np
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyroaring import BitMap

from planner.clock import Clock
from planner.prune.pruned import Reason, Stage
from planner.scans.planned_scan import PlannedScan
from planner.scans.scan_plan import ScanPlan
from puffin_index.data.deletes import DeleteFile, deleted_positions, is_kept
from puffin_index.errors import CorruptFileError, NotFoundError, UnsupportedError
from puffin_index.storage.arrays import Bytes, Ints

_log = logging.getLogger(__name__)


def subtract_deletes(
    planned: PlannedScan, io: FileIO, clock: Clock, *, strict: bool = False, always: bool = False
) -> ScanPlan:
    """Run the stage.

    Args:
        planned: The scan after all other stages.
        io: The FileIO of the data table.
        clock: Says when no more row groups are judged, unless exact counts are wanted.
        strict: Raise if a delete file cannot be read, instead of keeping its row groups.
        always: Read the deletes whatever they cost: exact counts are wanted.
    """
    plan = planned.plan
    if not any(file.deletes for file in planned.files):
        return plan
    started = time.perf_counter()
    stage = _DeletesStage(planned, io, strict)
    alive = np.flatnonzero(plan.kept_mask & (planned.row_groups >= 0))
    candidates = [at for at in alive.tolist() if stage.can_know(at, always=always)]
    if always or stage.is_worth_reading(candidates):
        for at in candidates:
            if clock.is_over and not always:
                break
            stage.judge(at)
    dropped = int((stage.reasons == Reason.ALL_DELETED).sum())
    return replace(
        plan,
        reasons=stage.reasons,
        matches=stage.matches,
        funnel=(
            *plan.funnel,
            Stage("deletes", len(alive), dropped, stage.reads, stage.bytes_read, time.perf_counter() - started),
        ),
        warnings=(*plan.warnings, *stage.troubles),
    )


@dataclass(slots=True)
class _DeletesStage:
    planned: PlannedScan
    io: FileIO
    strict: bool
    reasons: Bytes = field(init=False)
    matches: Ints = field(init=False)
    troubles: list[str] = field(default_factory=list)
    reads: int = 0
    bytes_read: int = 0
    _deleted: dict[int, BitMap | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reasons, self.matches = self.planned.plan.reasons.copy(), self.planned.plan.matches.copy()

    def can_know(self, at: int, *, always: bool) -> bool:
        """Whether the rows of a row group are known and may all be deleted, or have to be counted."""
        file = self.planned.files[self.planned.plan.file_of[at]]
        if not file.deletes:
            return False
        matching = self._matching(at)
        if matching is None:
            return False
        count = len(matching[0]) if matching[0] is not None else int(self.planned.plan.row_counts[at])
        return always or count <= sum(delete.record_count for delete in file.deletes)

    def _matching(self, at: int) -> tuple[BitMap | None, bool] | None:
        """The matching rows (None for all) and whether they are exact; None if they are not known."""
        if self.reasons[at] == Reason.ALL_ROWS_MATCH:
            return None, True
        if self.reasons[at] == Reason.NO_PREDICATE:
            return None, isinstance(self.planned.expression, AlwaysTrue)
        rows = self.planned.row_sets.of(int(self.planned.row_groups[at]))
        return None if rows is None else (rows.rows, rows.exact)

    def is_worth_reading(self, candidates: list[int]) -> bool:
        """Whether the delete files that are not in memory have fewer bytes than the row groups in question."""
        plan, files = self.planned.plan, self.planned.files
        file_numbers = {int(plan.file_of[at]) for at in candidates}
        unread = {delete for number in file_numbers for delete in files[number].deletes if not is_kept(delete)}
        saved = sum(
            files[plan.file_of[at]].file.file_size
            * int(plan.row_counts[at])
            // max(1, files[plan.file_of[at]].file.record_count)
            for at in candidates
        )
        return bool(sum(delete.file_size for delete in unread) < saved)

    def judge(self, at: int) -> None:
        """Subtract the deleted rows of one row group."""
        plan = self.planned.plan
        matching, deleted = self._matching(at), self._deleted_rows(int(plan.file_of[at]))
        if matching is None or deleted is None:
            return
        rows, exact = matching
        first, count = int(self.planned.first_rows[at]), int(plan.row_counts[at])
        if rows is None:
            left = count - deleted.range_cardinality(first, first + count)
        else:
            left = len(rows) - rows.shift(first).intersection_cardinality(deleted)
        if left == 0:
            self.reasons[at], self.matches[at] = Reason.ALL_DELETED, 0
        elif exact and not self.planned.files[plan.file_of[at]].has_equality_deletes:
            self.matches[at] = left

    def _deleted_rows(self, number: int) -> BitMap | None:
        if number not in self._deleted:
            self._deleted[number] = self._read(number)
        return self._deleted[number]

    def _read(self, number: int) -> BitMap | None:
        file = self.planned.files[number]
        for delete in file.deletes:
            self._count_read(delete)
        try:
            return deleted_positions(self.io, file.file.path, file.deletes)
        except (CorruptFileError, UnsupportedError, NotFoundError, OSError) as error:
            if self.strict:
                raise
            if str(error) not in self.troubles:
                self.troubles.append(str(error))
                _log.warning("deletes not subtracted: %s", error)
            return None

    def _count_read(self, delete: DeleteFile) -> None:
        if not is_kept(delete):
            self.reads += 1
            self.bytes_read += delete.file_size
