"""The stage `deletes`: deleted rows leave the row sets; a row group whose matches are all deleted is dropped.

Reading delete files has to pay. The stage reads them for row groups whose matching rows are known and are no more than
the deleted rows, and only if the delete files have fewer bytes than these row groups. Where exact counts are wanted,
the stage reads all delete files of row groups whose matching rows are known.

The values of equality deletes become a predicate, and the index says which rows satisfy it. Where the index cannot say
that exactly, nothing is subtracted.
"""

import logging
import time
from dataclasses import dataclass, field, replace

import numpy as np
from pyroaring import BitMap

from planner.clock import Clock
from planner.condition.tree.nodes import EVERY_ROW, Predicate, necessary_leaves
from planner.condition.tree.simplify import conjunction
from planner.prune.distributed import prune_row_groups
from planner.prune.gate import Limits
from planner.prune.verdicts import Pruned, Reason, Stage
from planner.snapshot.equality_deletes import deleting
from planner.snapshot.files import FileWithDeletes
from planner.snapshot.scan import Scan
from planner.view.directories import IndexTrouble
from puffin_index.data.deletes import DeleteFile, EqualityDelete, deleted_positions, is_kept
from puffin_index.errors import READ_ERRORS
from puffin_index.storage.arrays import Bytes, Ints

_log = logging.getLogger(__name__)


def subtract_deletes(scan: Scan, predicate: Predicate, pruned: Pruned, clock: Clock, limits: Limits) -> Pruned:
    """Run the stage, until the time is over unless exact counts are wanted, whatever the deletes cost.

    If strict, raises if a delete file cannot be read, instead of keeping its row groups.
    """
    if not any(file.has_deletes for file in scan.files.values()):
        return pruned
    started = time.perf_counter()
    stage = _DeletesStage(scan, predicate, pruned, limits)
    alive = np.flatnonzero(pruned.kept & scan.is_indexed)
    candidates = [at for at in alive.tolist() if stage.can_know(at)]
    if limits.rows_wanted or stage.is_worth_reading(candidates):
        stage.look_up_equal(candidates, clock)
        for at in candidates:
            if clock.is_over and not limits.rows_wanted:
                break
            stage.judge(at)
    dropped = int((stage.reasons == Reason.ALL_DELETED).sum())
    seconds = time.perf_counter() - started
    told = Stage("deletes", len(alive), dropped, stage.reads, stage.bytes_read, seconds)
    return replace(
        pruned,
        reasons=stage.reasons,
        matches=stage.matches,
        stages=(*pruned.stages, told),
        troubles=(*pruned.troubles, *stage.index_troubles),
        warnings=tuple(stage.troubles),
    )


@dataclass(slots=True)
class _DeletesStage:
    scan: Scan
    predicate: Predicate
    pruned: Pruned
    limits: Limits
    reasons: Bytes = field(init=False)
    matches: Ints = field(init=False)
    troubles: list[str] = field(default_factory=list)
    reads: int = 0
    bytes_read: int = 0
    index_troubles: list[IndexTrouble] = field(default_factory=list)
    _deleted: dict[int, BitMap | None] = field(default_factory=dict)
    _equal: dict[int, BitMap] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reasons, self.matches = self.pruned.reasons.copy(), self.pruned.matches.copy()

    def can_know(self, at: int) -> bool:
        """Whether the matching rows of a row group are known, and have to be counted or may all be deleted."""
        file = self.scan.deletes_of(at)
        if file is None:
            return False
        matching = self._matching(at)
        if matching is None:
            return False
        count = len(matching[0]) if matching[0] is not None else int(self.scan.row_counts[at])
        return self.limits.rows_wanted or count <= sum(delete.record_count for delete in _delete_files(file))

    def _file(self, at: int) -> FileWithDeletes:
        return self.scan.files[int(self.scan.file_of[at])]

    def _matching(self, at: int) -> tuple[BitMap | None, bool] | None:
        """The matching rows (None for all) and whether they are exact; None if they are not known."""
        if self.reasons[at] == Reason.ALL_ROWS_MATCH:
            return None, True
        if self.reasons[at] == Reason.NO_PREDICATE:
            return None, self.predicate == EVERY_ROW
        rows = self.pruned.row_sets.of(int(self.scan.numbers[at]))
        return None if rows is None else (rows.rows, rows.exact)

    def is_worth_reading(self, candidates: list[int]) -> bool:
        """Whether the delete files that are not in memory have fewer bytes than the row groups in question."""
        file_numbers = {int(self.scan.file_of[at]) for at in candidates}
        deletes = {delete for number in file_numbers for delete in _delete_files(self.scan.files[number])}
        unread = {delete for delete in deletes if not is_kept(delete)}
        saved = sum(
            self._file(at).file.file_size * int(self.scan.row_counts[at]) // max(1, self._file(at).file.record_count)
            for at in candidates
        )
        return bool(sum(delete.file_size for delete in unread) < saved)

    def judge(self, at: int) -> None:
        """Subtract the deleted rows of one row group."""
        matching, deleted = self._matching(at), self._deleted_rows(int(self.scan.file_of[at]))
        equal = self._equal.get(at) if self._file(at).equality_deletes else BitMap()
        if matching is None or deleted is None or equal is None:
            return
        rows, exact = matching
        first, count = int(self.scan.first_rows[at]), int(self.scan.row_counts[at])
        if equal:
            deleted = deleted | equal.shift(first)
        if rows is None:
            left = count - deleted.range_cardinality(first, first + count)
        else:
            left = len(rows) - rows.shift(first).intersection_cardinality(deleted)
        if left == 0:
            self.reasons[at], self.matches[at] = Reason.ALL_DELETED, 0
        elif exact:
            self.matches[at] = left
            if equal:
                self.pruned.row_sets.deleted[int(self.scan.numbers[at])] = equal

    def look_up_equal(self, candidates: list[int], clock: Clock) -> None:
        """Look up which rows equality deletes delete, for all row groups with the same deletes at once."""
        by_deletes: dict[tuple[EqualityDelete, ...], list[int]] = {}
        for at in candidates:
            if self._file(at).equality_deletes:
                by_deletes.setdefault(self._file(at).equality_deletes, []).append(at)
        for deletes, places in by_deletes.items():
            # Indexes of columns that were dropped are not kept up.
            is_known = all(column.is_live for delete in deletes for column in delete.columns)
            predicate = self._deleting(deletes) if is_known and not clock.is_over else None
            if predicate is None:
                continue
            limits = replace(self.limits, rows_wanted=True, seconds=clock.seconds_left)
            found = prune_row_groups(self.scan.view, predicate, self.scan.numbers[places], limits)
            self.index_troubles += found.troubles
            self.reads += sum(one.reads for one in found.stages)
            self.bytes_read += sum(one.bytes_read for one in found.stages)
            for place, at in enumerate(places):
                rows = self._found(found, place, at)
                if rows is not None:
                    self._equal[at] = rows

    def _deleting(self, deletes: tuple[EqualityDelete, ...]) -> Predicate | None:
        """The rows that equality deletes delete, those left out that tests of the same columns rule out anyway."""
        self._count([delete for delete in deletes if not is_kept(delete)])
        try:
            deleted = deleting(self.scan.io, deletes)
        except READ_ERRORS as error:
            self._note(error)
            return None
        columns = {column.field_id for delete in deletes for column in delete.columns}
        return conjunction([*(leaf for leaf in necessary_leaves(self.predicate) if leaf.field_id in columns), deleted])

    def _found(self, found: Pruned, place: int, at: int) -> BitMap | None:
        """The rows of a row group that satisfy a predicate; None if they are not known exactly."""
        if not found.kept[place]:
            return BitMap()
        if found.reasons[place] == Reason.ALL_ROWS_MATCH:
            return BitMap(range(int(self.scan.row_counts[at])))
        rows = found.row_sets.of(int(self.scan.numbers[at]))
        return rows.rows if rows is not None and rows.exact else None

    def _deleted_rows(self, number: int) -> BitMap | None:
        if number not in self._deleted:
            file = self.scan.files[number]
            self._count([delete for delete in file.deletes if not is_kept(delete)])
            self._deleted[number] = None
            try:
                self._deleted[number] = deleted_positions(self.scan.io, file.file.path, file.deletes)
            except READ_ERRORS as error:
                self._note(error)
        return self._deleted[number]

    def _count(self, unread: list[DeleteFile]) -> None:
        self.reads += len(unread)
        self.bytes_read += sum(delete.file_size for delete in unread)

    def _note(self, error: Exception) -> None:
        if self.limits.strict:
            raise error
        if str(error) not in self.troubles:
            self.troubles.append(str(error))
            _log.warning("deletes not subtracted: %s", error)


def _delete_files(file: FileWithDeletes) -> tuple[DeleteFile, ...]:
    return *file.deletes, *file.equality_deletes
