"""Pruning: which row groups can hold a match. Each stage is vectorised and sees only what the one before left alive.

Stages: zone maps (directories only), sorted postings (one look-up a segment), bloom filters, row level. A cost gate
stands before all but the first: where statistics say that nothing will be dropped, or that reading the index costs more
bytes than it can save, no index byte is read.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import assert_never

import numpy as np
import numpy.typing as npt

from planner.directories import IndexReads, IndexTrouble, KindDirectory
from planner.estimate import Estimate, both, either, estimate_leaf
from planner.evaluate import RowEvaluator, comparable, exact_directories, index_cost_bytes, keys_agree
from planner.found_rows import FoundRows
from planner.predicate import Conjunction, Disjunction, Everything, Leaf, Nothing, Predicate, leaves
from planner.view import IndexView
from planner.zone_map import Verdicts, judge_by_zone_map, nothing_known
from puffin_index.errors import CorruptFileError, NotFoundError, PuffinIndexError, UnsupportedError
from puffin_index.kinds.postings import Postings
from puffin_index.leaf import SetTest
from puffin_index.storage import READ_COUNT

_log = logging.getLogger(__name__)

_READ_SHARE = 0.25
"""Share of a row group's bytes that a typical query reads: a few of its columns."""

_COST_WEIGHT = 0.25
"""An index byte is cheaper than a data byte: it is neither decompressed, decoded nor shipped through tasks."""

_ROW_GROUP_OVERHEAD_BYTES = 128 * 1024
"""What a row group costs besides its bytes, in bytes: a request for each column, its share of a task."""

_WIDE_SHARE = 0.02
"""Share of a segment's rows from which on a leaf is too wide to list its rows."""

_REQUEST_BYTES = 16 * 1024
"""What a request costs besides its bytes, in bytes."""

_SURE = 0.98
"""Probability of a match from which on looking for its absence is not worth a read."""


class Reason(IntEnum):
    """Why a row group is kept or dropped."""

    ROWS_MATCH = 0
    ALL_ROWS_MATCH = 1
    MAY_MATCH = 2
    NOT_WORTH_READING = 3
    INDEX_UNREADABLE = 4
    UNINDEXED = 5
    NO_PREDICATE = 6
    ZONE_MAP = 7
    BLOOM = 8
    ROWS_EMPTY = 9

    @property
    def code(self) -> str:
        """The reason as users see it."""
        return self.name.lower().replace("_", "-")

    @property
    def drops(self) -> bool:
        """Whether a row group is dropped for this reason."""
        return self in _DROPPING


_DROPPING = frozenset({Reason.ZONE_MAP, Reason.BLOOM, Reason.ROWS_EMPTY})


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the funnel.

    Attributes:
        name: `zone-map`, `bloom` or `rows`.
        entered: Row groups that it saw.
        dropped: Row groups that it dropped.
        reads: Index reads that it made.
        bytes_read: Index bytes that it read.
        seconds: Its time.
    """

    name: str
    entered: int
    dropped: int
    reads: int
    bytes_read: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Pruned:
    """The verdict on each row group asked about, in that order.

    Attributes:
        reasons: `Reason` values (uint8).
        matches: Matching rows where they are known exactly, else -1.
        stages: The funnel.
        troubles: What could not be read, and why.
    """

    reasons: npt.NDArray[np.uint8]
    matches: npt.NDArray[np.int64]
    stages: tuple[Stage, ...]
    troubles: tuple[IndexTrouble, ...]

    @property
    def kept(self) -> npt.NDArray[np.bool_]:
        """Which row groups survive."""
        return ~np.isin(self.reasons, [int(reason) for reason in _DROPPING])


_Judge = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]]


class Pruner:
    """Prunes row groups of one view for one predicate.

    Args:
        view: The index.
        predicate: What to look for.
        row_groups: Which row groups of the view to judge (int64).
        strict: Raise on index trouble instead of keeping the row group.
    """

    def __init__(
        self, view: IndexView, predicate: Predicate, row_groups: npt.NDArray[np.int64], *, strict: bool = False
    ) -> None:
        self._view = view
        self._predicate = predicate
        self._row_groups = row_groups
        self._strict = strict
        self._reads = IndexReads()
        self._stages: list[Stage] = []
        self._leaves = tuple(dict.fromkeys(leaves(predicate)))
        self._verdicts: dict[Leaf, Verdicts] = {}
        self._estimates: dict[Leaf, Estimate] = {}
        self._found: dict[Leaf, FoundRows] = {}
        self._reasons = np.full(len(row_groups), Reason.MAY_MATCH, np.uint8)
        self._matches = np.full(len(row_groups), -1, np.int64)

    def prune(self) -> Pruned:
        """Run the stages."""
        token = READ_COUNT.set(self._reads.count)
        try:
            return self._prune()
        finally:
            READ_COUNT.reset(token)

    def _prune(self) -> Pruned:
        alive = self._stage("zone-map", Reason.ZONE_MAP, np.arange(len(self._row_groups)), self._by_zone_map)
        alive = self._stage("postings", Reason.ROWS_EMPTY, alive, self._by_postings)
        alive = self._stage("bloom", Reason.BLOOM, alive, self._by_bloom)
        self._stage("rows", Reason.ROWS_EMPTY, alive, self._by_rows)
        troubles = tuple(self._reads.troubles)
        if troubles and self._strict:
            raise PuffinIndexError(f"{troubles[0].segment}: {troubles[0].reason}")
        return Pruned(self._reasons, self._matches, tuple(self._stages), troubles)

    def _stage(self, name: str, reason: Reason, alive: npt.NDArray[np.int64], judge: _Judge) -> npt.NDArray[np.int64]:
        """Run one stage on the positions that are alive; return those that remain to be judged."""
        started, reads, bytes_read = time.perf_counter(), self._reads.count.requests, self._reads.count.bytes
        remaining = judge(alive) if len(alive) else alive
        dropped = int((self._reasons[alive] == reason).sum())
        self._stages.append(
            Stage(
                name,
                len(alive),
                dropped,
                self._reads.count.requests - reads,
                self._reads.count.bytes - bytes_read,
                time.perf_counter() - started,
            )
        )
        return remaining

    def _by_zone_map(self, alive: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        for leaf in self._leaves:
            statistics = self._view.statistics(leaf.field_id, self._reads)
            if statistics is None or not comparable(statistics.value_type.name, leaf.value_type):
                self._verdicts[leaf] = nothing_known(len(self._row_groups))
            else:
                self._verdicts[leaf] = judge_by_zone_map(leaf.test, statistics, self._row_groups)
                estimate = estimate_leaf(leaf.test, statistics, self._row_groups)
                unknown = ~statistics.known[self._row_groups]
                estimate.presence[unknown] = 1.0
                estimate.selectivity[unknown] = 1.0
                self._estimates[leaf] = estimate
        return self._settle(alive, Reason.ZONE_MAP)

    def _settle(self, alive: npt.NDArray[np.int64], reason: Reason) -> npt.NDArray[np.int64]:
        """Write down what the leaves' verdicts settle; return the positions that stay open."""
        verdicts = self._combine(self._predicate)
        impossible, certain = ~verdicts.possible[alive], verdicts.certain[alive]
        self._reasons[alive[impossible]] = reason
        self._matches[alive[impossible]] = 0
        self._reasons[alive[certain]] = Reason.ALL_ROWS_MATCH
        self._matches[alive[certain]] = self._view.row_counts[self._row_groups[alive[certain]]]
        return alive[~impossible & ~certain]

    def _combine(self, predicate: Predicate) -> Verdicts:
        count = len(self._row_groups)
        match predicate:
            case Leaf():
                return self._verdicts[predicate]
            case Everything(exact):
                return Verdicts(np.ones(count, np.bool_), np.full(count, exact))
            case Nothing():
                return Verdicts(np.zeros(count, np.bool_), np.zeros(count, np.bool_))
            case Conjunction(children):
                parts = [self._combine(child) for child in children]
                return Verdicts(
                    np.logical_and.reduce([part.possible for part in parts]),
                    np.logical_and.reduce([part.certain for part in parts]),
                )
            case Disjunction(children):
                parts = [self._combine(child) for child in children]
                return Verdicts(
                    np.logical_or.reduce([part.possible for part in parts]),
                    np.logical_or.reduce([part.certain for part in parts]),
                )
            case _:
                assert_never(predicate)

    def _by_postings(self, alive: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Look leaves up in sorted postings, the most selective first: one search answers a whole segment."""
        for leaf in sorted(self._leaves, key=self._mean_selectivity):
            directory = self._view.directory(leaf.field_id, "bitmap", self._reads)
            if directory is not None and keys_agree(directory, leaf) and directory.merged.any() and len(alive):
                self._look_up(leaf, directory, alive)
                alive = self._settle(alive, Reason.ROWS_EMPTY)
        return alive

    def _mean_selectivity(self, leaf: Leaf) -> float:
        estimate = self._estimates.get(leaf)
        return 1.0 if estimate is None else float(estimate.selectivity.mean())

    def _look_up(self, leaf: Leaf, directory: KindDirectory, alive: npt.NDArray[np.int64]) -> None:
        verdicts = self._verdicts[leaf]
        undecided = alive[verdicts.possible[alive] & ~verdicts.certain[alive]]
        undecided = undecided[directory.merged[self._row_groups[undecided]]]
        segments = directory.segment[self._row_groups[undecided]]
        found = FoundRows(directory, self._view.row_counts)
        for segment in np.unique(segments).tolist():
            try:
                postings = self._view.open_postings(leaf.field_id, directory, segment)
                if self._worth_looking_up(leaf, postings, undecided[segments == segment]):
                    found.rows[segment] = np.frombuffer(postings.rows(leaf.test).to_array(), np.uint32)
            except (CorruptFileError, UnsupportedError, NotFoundError, OSError) as error:
                self._take_down(error, segment)
        counts = found.counts(self._row_groups)
        asked = counts >= 0
        self._found[leaf] = found
        self._verdicts[leaf] = Verdicts(
            np.where(asked, counts > 0, verdicts.possible),
            np.where(asked, counts == self._view.row_counts[self._row_groups], verdicts.certain),
        )
        if self._predicate == leaf:
            matching = undecided[counts[undecided] > 0]
            self._reasons[matching], self._matches[matching] = Reason.ROWS_MATCH, counts[matching]

    def _worth_looking_up(self, leaf: Leaf, postings: Postings, undecided: npt.NDArray[np.int64]) -> bool:
        """The cost gate of a look-up, with the count of matches that the postings' own directory tells."""
        least, most = postings.count_bounds(leaf.test)
        if most == 0:
            return True
        reads, cost = postings.cost(leaf.test)
        row_groups = self._row_groups[undecided]
        count, row_counts = len(self._row_groups), self._view.row_counts[row_groups]
        estimate = self._estimates.get(leaf)
        guess = (least + most) / 2 if estimate is None else float((estimate.selectivity[undecided] * row_counts).sum())
        matches = min(max(guess, least), most)
        if matches > _WIDE_SHARE * int(row_counts.sum()):
            # In a conjunction it is cheaper to check a wide leaf on the few rows of a narrow one.
            return False
        # Matches spread over the segment's row groups: an estimate of how many of those have one.
        presence = 1 - math.exp(-matches / len(undecided))
        known = Estimate(np.full(count, min(1.0, matches / int(row_counts.sum()))), np.full(count, presence))
        expected = self._estimate(self._predicate, {leaf: known}).presence[undecided]
        saved = ((1 - expected) * self._bytes_without(row_groups)).sum()
        return bool(saved > cost * _COST_WEIGHT + reads * _REQUEST_BYTES)

    def _take_down(self, error: Exception, segment: int) -> None:
        """Note index trouble; its row groups are kept."""
        if self._strict:
            raise error
        self._reads.troubles.append(IndexTrouble(self._view.segments[segment][0], str(error)))
        _log.warning("index not used: %s", error)

    def _bytes_without(self, row_groups: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """About how many bytes a query reads of each row group, requests counted as bytes."""
        read = self._view.row_group_bytes()[row_groups] * _READ_SHARE + _ROW_GROUP_OVERHEAD_BYTES
        return np.asarray(read, np.float64)

    def _by_bloom(self, alive: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        for leaf in self._leaves:
            if isinstance(leaf.test, SetTest) and not leaf.test.negated:
                self._probe_bloom(leaf, alive)
        return self._settle(alive, Reason.BLOOM)

    def _probe_bloom(self, leaf: Leaf, alive: npt.NDArray[np.int64]) -> None:
        directory = self._view.directory(leaf.field_id, "bloom", self._reads)
        if directory is None or not keys_agree(directory, leaf):
            return
        bitmap = self._view.directory(leaf.field_id, "bitmap", self._reads)
        possible = self._verdicts[leaf].possible.copy()
        estimate = self._estimates.get(leaf)
        presence = np.zeros(len(self._row_groups)) if estimate is None else estimate.presence
        for at in alive:
            row_group = int(self._row_groups[at])
            # A bitmap answers exactly for about the same bytes; postings were asked already.
            has_bitmap = bitmap is not None and bitmap.segment[row_group] >= 0
            if has_bitmap or directory.segment[row_group] < 0 or not possible[at] or presence[at] > _SURE:
                continue
            try:
                index = self._view.open_blob(directory, row_group, self._reads)
                possible[at] = bool(index.evaluate(leaf.test).rows)
            except (CorruptFileError, UnsupportedError, NotFoundError, OSError) as error:
                self._take_down(error, int(directory.segment[row_group]))
        self._verdicts[leaf] = Verdicts(possible, self._verdicts[leaf].certain)

    def _by_rows(self, alive: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        # A leaf that postings answered alone has its verdict.
        alive = alive[self._reasons[alive] != Reason.ROWS_MATCH]
        worth = alive[self._worth_reading(alive)]
        evaluator = RowEvaluator(
            self._view,
            {int(self._row_groups[at]): int(at) for at in worth},
            self._verdicts,
            self._estimates,
            self._reads,
            self._strict,
            self._found,
        )
        for at in worth:
            row_group = int(self._row_groups[at])
            result = evaluator.evaluate(self._predicate, row_group)
            if not result.rows:
                self._reasons[at], self._matches[at] = Reason.ROWS_EMPTY, 0
            elif result.exact:
                self._reasons[at], self._matches[at] = Reason.ROWS_MATCH, len(result.rows)
            elif row_group in evaluator.troubled:
                self._reasons[at] = Reason.INDEX_UNREADABLE
        return worth

    def _worth_reading(self, alive: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """The cost gate: compare what an index read is expected to save with what it costs, in bytes."""
        row_groups = self._row_groups[alive]
        cost = np.zeros(len(alive), np.int64)
        found = np.zeros(len(alive), np.bool_)
        for leaf in self._leaves:
            if leaf in self._found:
                found |= self._found[leaf].counts(row_groups) >= 0
            for directory in exact_directories(self._view, leaf, self._reads)[:1]:
                needed = self._verdicts[leaf].possible[alive] & ~self._verdicts[leaf].certain[alive]
                cost += np.where(needed, index_cost_bytes(leaf.test, directory, row_groups), 0)
        presence = self._estimate(self._predicate).presence[alive]
        saved = (1 - presence) * self._bytes_without(row_groups)
        worth = (saved > cost * _COST_WEIGHT) & (presence < _SURE)
        self._reasons[alive[~worth & (cost > 0)]] = Reason.NOT_WORTH_READING
        return np.asarray((worth & (cost > 0)) | (found & (cost == 0)), np.bool_)

    def _estimate(self, predicate: Predicate, known: Mapping[Leaf, Estimate] = MappingProxyType({})) -> Estimate:
        count = len(self._row_groups)
        match predicate:
            case Leaf():
                sure = Estimate(np.ones(count), np.ones(count))
                return known.get(predicate) or self._estimates.get(predicate, sure)
            case Everything():
                return Estimate(np.ones(count), np.ones(count))
            case Nothing():
                return Estimate(np.zeros(count), np.zeros(count))
            case Conjunction(children):
                rows = self._view.row_counts[self._row_groups].astype(np.float64)
                return both([self._estimate(child, known) for child in children], rows)
            case Disjunction(children):
                return either([self._estimate(child, known) for child in children])
            case _:
                assert_never(predicate)
