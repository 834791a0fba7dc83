"""Probing filters: of one row group at a time, or of many at once where they are merged (into a bloom matrix)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.prune.pruning import LeafState, Pruning
from planner.prune.verdicts import Reason
from planner.view.directories import IndexTrouble, KindDirectory, or_trouble, positions_by_number
from puffin_index.keys.asked import AskedTest
from puffin_index.kinds.base import MergedFilter
from puffin_index.kinds.registry import kind_named
from puffin_index.storage.arrays import Flags, Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A matrix that is open before it is asked, and the row group of the segment that it begins with."""

    matrix: MergedFilter
    first: int
    reads: int
    cost: int
    positions: Ints


@dataclass(frozen=True, slots=True)
class Probe:
    """Probes the filters of one column for the keys of a leaf."""

    pruning: Pruning
    state: LeafState
    directory: KindDirectory

    def ask(self, undecided: Ints) -> Iterator[tuple[Ints, Flags]]:
        """Yield those of some positions whose filters were asked, and where a row may match; some at a time."""
        pruning = self.pruning
        unsure = undecided[self.state.estimate.presence[pruning.selection(undecided)] < 1]
        merged = self.directory.merged[pruning.row_groups[unsure]]
        yield from self._probe_matrices(unsure[merged])
        yield from self._probe_filters(unsure[~merged])

    def _probe_filters(self, undecided: Ints) -> Iterator[tuple[Ints, Flags]]:
        pruning, row_groups = self.pruning, self.pruning.row_groups
        lengths = self.directory.length[row_groups[undecided]]
        costs = kind_named(self.directory.kind).cost(self.state.leaf.test, lengths)
        worth = pruning.gate.worth(pruning.gate.saved(undecided), costs, 1)
        pruning.refuse(undecided[~worth], Reason.NOT_WORTH_READING)
        undecided, costs = undecided[worth], costs[worth]
        left = np.ones(len(undecided), np.bool_)

        def may_contain(at: int) -> bool | IndexTrouble:
            if pruning.clock.is_over:
                return True
            row_group = int(row_groups[at])
            return or_trouble(self._segment(row_group), lambda: self._filter_may_contain(row_group))

        for some in pruning.gate.in_turn(costs):
            left[some] = False
            asked = undecided[some]
            answers = pruning.view.each_ahead(may_contain, asked.tolist())
            pruning.reads.troubles += [answer for answer in answers if isinstance(answer, IndexTrouble)]
            yield asked, np.array([answer is not False for answer in answers], np.bool_)
        self._refuse(undecided[left], costs[left])

    def _refuse(self, positions: Ints, costs: Ints) -> None:
        for reason in (Reason.OVER_BUDGET, Reason.NOT_WORTH_READING):
            self.pruning.refuse(positions[self.pruning.gate.refusals(costs) == reason], reason)

    def _filter_may_contain(self, row_group: int) -> bool:
        index = self.pruning.view.open_alone(self.state.leaf.field_id, self.directory, row_group)
        return bool(index.evaluate(self.state.leaf.test).rows)

    def _probe_matrices(self, undecided: Ints) -> Iterator[tuple[Ints, Flags]]:
        view, gate, troubles = self.pruning.view, self.pruning.gate, self.pruning.reads.troubles
        saved, asked_test = gate.saved(undecided), AskedTest(self.state.leaf.test)
        blobs = self.directory.blob[self.pruning.row_groups[undecided]]
        groups = [here for _, here in positions_by_number(blobs)]
        worth: list[_Asked] = []
        matrices = view.each(lambda here: self._open(asked_test, undecided[here]), groups)
        for here, opened in zip(groups, matrices, strict=True):
            if isinstance(opened, IndexTrouble):
                troubles.append(opened)
            elif opened is not None and gate.worth(saved[here].sum(), opened.cost, opened.reads):
                worth.append(opened)
            elif opened is not None:
                self.pruning.refuse(undecided[here], Reason.NOT_WORTH_READING)
        costs, left = np.array([one.cost for one in worth], np.int64), np.ones(len(worth), np.bool_)
        for some in gate.in_turn(costs):
            left[some] = False
            asked = [worth[place] for place in some.tolist()]
            answers = view.each(lambda one: self._ask(one, asked_test), asked)
            troubles += [answer for answer in answers if isinstance(answer, IndexTrouble)]
            found = [pair for pair in zip(asked, answers, strict=True) if isinstance(pair[1], np.ndarray)]
            if found:
                yield np.concatenate([one.positions for one, _ in found]), np.concatenate([flags for _, flags in found])
        for place in np.flatnonzero(left).tolist():
            self._refuse(worth[place].positions, np.full(len(worth[place].positions), costs[place]))

    def _open(self, test: AskedTest, positions: Ints) -> _Asked | IndexTrouble | None:
        if self.pruning.clock.is_over:
            return None
        view, row_group = self.pruning.view, int(self.pruning.row_groups[positions[0]])

        def read() -> _Asked:
            matrix, first = view.open_filter(self.state.leaf.field_id, self.directory, row_group)
            nbytes = matrix.nbytes
            reads, cost = matrix.cost(test)
            if matrix.nbytes != nbytes:
                view.weigh(self.state.leaf.field_id, self.directory, row_group)
            return _Asked(matrix, first, reads, cost, positions)

        return or_trouble(self._segment(row_group), read)

    def _ask(self, one: _Asked, test: AskedTest) -> Flags | IndexTrouble | None:
        if self.pruning.clock.is_over:
            return None
        row_groups = self.pruning.row_groups[one.positions]

        def read() -> Flags:
            ordinals = self.pruning.view.ordinals(self.state.leaf.field_id, self.directory.kind, row_groups)
            return one.matrix.possible(test)[ordinals - one.first]

        return or_trouble(self._segment(int(row_groups[0])), read)

    def _segment(self, row_group: int) -> str:
        return self.pruning.view.segments[int(self.directory.segment[row_group])][0]
