"""Probing filters: of one row group at a time, or of many at once where they are merged (into a bloom matrix)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.prune.pruning import LeafState, Pruning
from planner.prune.verdicts import Reason
from planner.view.directories import KindDirectory, positions_by_number
from puffin_index.keys.asked import AskedTest
from puffin_index.kinds.base import MergedFilter
from puffin_index.kinds.registry import kind_named
from puffin_index.storage.arrays import Flags, Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A matrix that is open before it is asked, its segment, and the row group of this that it begins with."""

    matrix: MergedFilter
    segment: int
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
        for some in pruning.gate.in_turn(costs):
            left[some] = False
            asked = undecided[some]
            answers = pruning.try_each(self._may_contain, row_groups[asked].tolist(), self._segment, ahead=True)
            yield asked, np.array([answer is not False for answer in answers], np.bool_)
        self._refuse(undecided[left], costs[left])

    def _refuse(self, positions: Ints, costs: Ints) -> None:
        for reason in (Reason.OVER_BUDGET, Reason.NOT_WORTH_READING):
            self.pruning.refuse(positions[self.pruning.gate.refusals(costs) == reason], reason)

    def _may_contain(self, row_group: int) -> bool:
        index = self.pruning.view.open_alone(self.directory, row_group)
        return bool(index.evaluate(self.state.leaf.test).rows)

    def _probe_matrices(self, undecided: Ints) -> Iterator[tuple[Ints, Flags]]:
        pruning, test = self.pruning, AskedTest(self.state.leaf.test)
        row_groups, saved = pruning.row_groups[undecided], pruning.gate.saved(undecided)
        groups = [here for _, here in positions_by_number(self.directory.blob[row_groups])]
        worth: list[_Asked] = []
        matrices = pruning.try_each(
            lambda here: self._open(test, undecided[here]), groups, lambda here: self._segment(row_groups[here[0]])
        )
        for here, opened in zip(groups, matrices, strict=True):
            if opened is not None and pruning.gate.worth(saved[here].sum(), opened.cost, opened.reads):
                worth.append(opened)
            elif opened is not None:
                pruning.refuse(undecided[here], Reason.NOT_WORTH_READING)
        costs, left = np.array([one.cost for one in worth], np.int64), np.ones(len(worth), np.bool_)
        for some in pruning.gate.in_turn(costs):
            left[some] = False
            asked = [worth[place] for place in some.tolist()]
            answers = pruning.try_each(lambda one: self._ask(one, test), asked, lambda one: one.segment)
            found = [(one.positions, flags) for one, flags in zip(asked, answers, strict=True) if flags is not None]
            if found:
                yield np.concatenate([at for at, _ in found]), np.concatenate([flags for _, flags in found])
        for place in np.flatnonzero(left).tolist():
            self._refuse(worth[place].positions, np.full(len(worth[place].positions), costs[place]))

    def _open(self, test: AskedTest, positions: Ints) -> _Asked:
        view, row_group = self.pruning.view, int(self.pruning.row_groups[positions[0]])
        matrix, first = view.open_filter(self.directory, row_group)
        nbytes = matrix.nbytes
        reads, cost = matrix.cost(test)
        if matrix.nbytes != nbytes:
            view.weigh(self.directory, row_group)
        return _Asked(matrix, self._segment(row_group), first, reads, cost, positions)

    def _ask(self, one: _Asked, test: AskedTest) -> Flags:
        row_groups = self.pruning.row_groups[one.positions]
        ordinals = self.pruning.view.ordinals(self.directory, row_groups)
        return one.matrix.possible(test)[ordinals - one.first]

    def _segment(self, row_group: int) -> int:
        return int(self.directory.segment[row_group])
