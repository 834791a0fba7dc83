"""What the stages of one search share: leaves, row groups, what is known of both so far, and the funnel."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from planner.clock import Clock
from planner.condition.tree.nodes import Leaf
from planner.condition.tree.tree import PredicateTree
from planner.prune.estimate import Estimate
from planner.prune.gate import CostGate, Limits
from planner.prune.row_sets import FoundRows
from planner.prune.verdicts import Reason, Stage, Used
from planner.prune.zone_map import JoinedVerdicts, Verdicts
from planner.view.directories import FieldStatistics, IndexReads, KindDirectory, selection_among
from planner.view.index_view import IndexView
from puffin_index.errors import PuffinIndexError
from puffin_index.jobs.log_lines import level_of_trouble
from puffin_index.storage.arrays import Bytes, Flags, Ints, Selection

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class LeafState:
    """All that is known of one leaf: its statistics, verdicts, estimate, and the rows that look-ups found, of `kinds`.

    Look-ups leave out what verdicts have settled. `sampled` says for each position whether its estimate comes from a
    sample of the leaf's keys.
    """

    leaf: Leaf
    number: int
    _joined_verdicts: JoinedVerdicts
    _gate: CostGate
    statistics: FieldStatistics | None = None
    found: FoundRows | None = None
    sampled: Flags | None = None
    kinds: set[str] = field(default_factory=set)

    @property
    def verdicts(self) -> Verdicts:
        """What is known for certain, one element for each position. Setting it changes what follows for the tree."""
        return self._joined_verdicts.of_leaf(self.number)

    @verdicts.setter
    def verdicts(self, verdicts: Verdicts) -> None:
        self._joined_verdicts.put(self.number, verdicts)

    @property
    def estimate(self) -> Estimate:
        """What to expect, one element for each position. Setting it changes what follows for the tree."""
        return self._gate.estimates.of_leaf(self.number)

    @estimate.setter
    def estimate(self, estimate: Estimate) -> None:
        self._gate.estimates.put(self.number, estimate)


@dataclass(slots=True, eq=False)
class SearchState:
    """Some row groups that are judged for one predicate. Positions are places among these row groups.

    Attributes:
        row_groups: The row groups of the view (int64).
        gate: Weighs what reading an index saves; has the estimates.
        leaves: What is known of each leaf, by number.
        reasons: A `Reason` for each position (uint8).
        matches: Matching rows where they are known exactly, else -1.
        alive: The positions that are still to be judged, ascending.
        used: What has dropped row groups so far, or had a part in that.
        stages: The funnel so far, of this search and those that it came from.
    """

    view: IndexView
    tree: PredicateTree
    row_groups: Ints
    limits: Limits
    clock: Clock
    reads: IndexReads
    verdicts: JoinedVerdicts = field(init=False)
    gate: CostGate = field(init=False)
    leaves: list[LeafState] = field(init=False)
    reasons: Bytes = field(init=False)
    matches: Ints = field(init=False)
    alive: Ints = field(init=False)
    used: set[Used] = field(init=False, default_factory=set)
    stages: list[Stage] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        """Know nothing: all row groups are to be judged."""
        count = len(self.row_groups)
        self.verdicts = JoinedVerdicts(self.tree, count)
        self.matches = np.full(count, -1, np.int64)
        self.gate = CostGate(self.view, self.tree, self.row_groups, self.limits, self.matches, self.reads)
        self.leaves = [
            LeafState(leaf, number, self.verdicts, self.gate) for number, leaf in enumerate(self.tree.leaves)
        ]
        self.reasons = np.full(count, Reason.MAY_MATCH, np.uint8)
        self.alive = np.arange(count)

    @property
    def is_finished(self) -> bool:
        """Whether a stage ends here: no row group or no time is left."""
        return not len(self.alive) or self.clock.is_over

    def selection(self, positions: Ints) -> Selection:
        """Ascending positions as an index into arrays."""
        return selection_among(positions, len(self.row_groups))

    def undecided(self, state: LeafState) -> Ints:
        """The positions still to be judged where a leaf is neither certain nor impossible."""
        verdicts = state.verdicts.at(self.selection(self.alive))
        return self.alive[verdicts.possible & ~verdicts.certain]

    def directory(self, leaf: Leaf, kind: str) -> KindDirectory | None:
        """Where the payloads of a kind lie that may answer a leaf; None without any."""
        return self.view.directory(leaf.field_id, leaf.value_type, kind, self.reads)

    def refuse(self, positions: Ints, reasons: Reason | Bytes) -> None:
        """Write down why an index is not read that might have dropped row groups; other verdicts stay."""
        is_open = self.reasons[positions] == Reason.MAY_MATCH
        self.reasons[positions[is_open]] = np.broadcast_to(reasons, positions.shape)[is_open]

    def settle(self, reason: Reason) -> None:
        """Write down what the leaves' verdicts settle; this is the reason where no row can match."""
        verdicts = self.verdicts.root.at(self.selection(self.alive))
        impossible, certain = ~verdicts.possible, verdicts.certain & verdicts.possible
        if not impossible.any() and not certain.any():
            return
        dropped: Flags | Ints = impossible
        kept: Flags | Ints = certain
        # Masks of all positions are faster than positions.
        if len(self.alive) < len(self.row_groups):
            dropped, kept = self.alive[impossible], self.alive[certain]
        self.reasons[dropped], self.matches[dropped] = reason, 0
        self.reasons[kept], self.matches[kept] = Reason.ALL_ROWS_MATCH, self.view.row_counts[self.row_groups[kept]]
        self.alive = self.alive[~impossible & ~certain]

    def rest(self) -> SearchState:
        """Return the row groups that are alive as a search of their own, so that all further arrays are short."""
        here = self.selection(self.alive)
        rest = SearchState(self.view, self.tree, self.row_groups[here], self.limits, self.clock, self.reads)
        rest.used, rest.stages = self.used, self.stages
        for state, own in zip(self.leaves, rest.leaves, strict=True):
            own.statistics, own.verdicts = state.statistics, state.verdicts.at(here)
        return rest

    def take(self, rest: SearchState) -> None:
        """Write down what is known of the `rest` by now."""
        self.reasons[self.alive], self.matches[self.alive] = rest.reasons, rest.matches

    @contextmanager
    def stage(self, name: str, reason: Reason) -> Iterator[None]:
        """Run one stage of the funnel as the body of a `with` statement; what it drops, it drops for this reason.

        Index trouble is a warning. Raises PuffinIndexError on it, if the limits are strict.
        """
        count, entered = self.reads.count, self.alive
        started, requests, read_bytes = time.perf_counter(), count.requests, count.bytes
        troubles = len(self.reads.troubles)
        yield
        dropped = int(np.count_nonzero(self.reasons[self.selection(entered)] == int(reason)))
        seconds = time.perf_counter() - started
        self.stages.append(
            Stage(name, len(entered), dropped, count.requests - requests, count.bytes - read_bytes, seconds)
        )
        for trouble in self.reads.troubles[troubles:]:
            if self.limits.strict:
                raise PuffinIndexError(str(trouble))
            _log.log(level_of_trouble(trouble.segment), "index not used, its row groups are kept: %s", trouble)
