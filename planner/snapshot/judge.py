"""The verdicts on all row groups of a scan. In the stage `deletes`, deleted rows leave the row sets.

Row groups whose matches are all deleted are dropped. Reading delete files has to pay: they are read for row groups
whose matching rows are known and are no more than the deleted rows, if the delete files have fewer bytes than these row
groups. Where exact counts are wanted, all delete files of row groups whose matching rows are known are read.

The values of equality deletes become a predicate, and the index says which rows satisfy it. Where the index cannot say
that exactly, nothing is subtracted.
"""

import logging
import time
from dataclasses import dataclass, field, replace

import numpy as np
from pyroaring import BitMap

from planner.clock import Clock
from planner.condition.tree.nodes import Predicate, necessary_leaves
from planner.condition.tree.simplify import conjunction
from planner.first_rows.search import FirstRows, prune_first_rows
from planner.prune.distributed import Executors, prune_row_groups
from planner.prune.gate import Limits
from planner.prune.verdicts import Pruned, Reason, Stage
from planner.snapshot.equality_deletes import deleting
from planner.snapshot.files import FileWithDeletes
from planner.snapshot.scan import Scan, keep_whole_files
from planner.view.cache import SharedPayloads
from planner.view.directories import IndexTrouble
from puffin_index.data.deletes import DeleteFile, EqualityDelete, deleted_positions, is_kept
from puffin_index.errors import READ_ERRORS
from puffin_index.kinds.base import RowSet
from puffin_index.storage.arrays import Bytes, Ints

_log = logging.getLogger(__name__)


def judge(
    scan: Scan,
    predicate: Predicate,
    limits: Limits,
    wanted: FirstRows | None = None,
    executors: Executors | None = None,
    shared: SharedPayloads | None = None,
) -> Pruned:
    """Judge the row groups of a scan, those without an index included, and subtract deletes."""
    clock, here = Clock(limits.seconds), slice(None) if scan.is_indexed.all() else scan.is_indexed
    pruned = prune_first_rows(
        scan.view, predicate, scan.numbers[here], ~scan.has_deletes[here], wanted, limits, executors, shared
    )
    count = len(scan.numbers)
    reasons, matches = np.full(count, Reason.UNINDEXED, np.uint8), np.full(count, -1, np.int64)
    reasons[here], matches[here] = pruned.reasons, pruned.matches
    # With deletes, a count is an upper bound until deleted rows are subtracted.
    matches[scan.has_deletes & (matches > 0)] = -1
    pruned = _subtract_deletes(scan, predicate, replace(pruned, reasons=reasons, matches=matches), clock, limits)
    return replace(pruned, reasons=keep_whole_files(pruned.reasons, scan.file_of, scan.is_read_whole))


def _subtract_deletes(scan: Scan, predicate: Predicate, pruned: Pruned, clock: Clock, limits: Limits) -> Pruned:
    """Run the stage, until the time is over unless exact counts are wanted, whatever the deletes cost."""
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
        most = sum(delete.record_count for delete in _delete_files(file))
        return self.limits.rows_wanted or len(matching.rows) <= most

    def _file(self, at: int) -> FileWithDeletes:
        return self.scan.files[int(self.scan.file_of[at])]

    def _matching(self, at: int) -> RowSet | None:
        return self.pruned.rows_of(at, int(self.scan.numbers[at]), int(self.scan.row_counts[at]), self.predicate)

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
        matching, deleted = self._matching(at), self._deleted_rows(int(self.scan.file_of[at]))
        equal = self._equal.get(at) if self._file(at).equality_deletes else BitMap()
        if matching is None or deleted is None or equal is None:
            return
        first = int(self.scan.first_rows[at])
        if equal:
            deleted = deleted | equal.shift(first)
        left = len(matching.rows) - matching.rows.shift(first).intersection_cardinality(deleted)
        if left == 0:
            self.reasons[at], self.matches[at] = Reason.ALL_DELETED, 0
        elif matching.exact:
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
                number, row_count = int(self.scan.numbers[at]), int(self.scan.row_counts[at])
                rows = found.rows_of(place, number, row_count, predicate)
                if rows is not None and rows.exact:
                    self._equal[at] = rows.rows

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
