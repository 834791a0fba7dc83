"""Probing filters: of one row group at a time, or of many at once where they are merged (into a bloom matrix)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.prune.gate import SURE
from planner.prune.pruning import LeafState, Pruning
from planner.view.directories import IndexTrouble, KindDirectory, or_trouble, positions_by_number
from puffin_index.keys.asked_test import AskedTest
from puffin_index.kinds.base import MergedFilter
from puffin_index.kinds.registry import kind_named
from puffin_index.storage.arrays import Flags, Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A matrix that is open, before it is asked.

    Attributes:
        matrix: The matrix.
        first: The row group of the segment that the matrix begins with.
        reads: Requests that asking takes.
        cost: Bytes that asking takes.
        places: Where the row groups that are asked about stand among the undecided ones.
    """

    matrix: MergedFilter
    first: int
    reads: int
    cost: int
    places: Ints


@dataclass(frozen=True, slots=True)
class Probe:
    """Probes the filters of one column for the keys of a leaf.

    Attributes:
        pruning: The row groups that are judged.
        state: The leaf.
        directory: Of the filters.
    """

    pruning: Pruning
    state: LeafState
    directory: KindDirectory

    def possible(self, undecided: Ints) -> Flags:
        """Say which of some positions may hold a match; a row group whose filter is not asked may."""
        merged = self.directory.merged[self.pruning.row_groups[undecided]]
        unlikely = self.state.estimate.presence[self.pruning.selection(undecided)] < SURE
        possible = np.ones(len(undecided), np.bool_)
        for here, probe in (
            (np.flatnonzero(unlikely & merged), self._probe_matrices),
            (np.flatnonzero(unlikely & ~merged), self._probe_filters),
        ):
            possible[here] = probe(undecided[here])
        return possible

    def _probe_filters(self, undecided: Ints) -> Flags:
        gate, row_groups = self.pruning.gate, self.pruning.row_groups
        lengths = self.directory.length[row_groups[undecided]]
        costs = kind_named(self.directory.kind).cost(self.state.leaf.test, lengths)
        asked = np.flatnonzero(gate.worth(gate.saved(undecided), costs, 1))
        asked = asked[gate.afford(costs[asked])]

        def may_contain(at: int) -> bool | IndexTrouble:
            if self.pruning.clock.is_over:
                return True
            row_group = int(row_groups[at])
            return or_trouble(self._segment(row_group), lambda: self._filter_may_contain(row_group))

        possible = np.ones(len(undecided), np.bool_)
        view = self.pruning.view
        with view.held(view.spans_alone(self.directory, row_groups[undecided[asked]])):
            answers = view.each(may_contain, undecided[asked].tolist())
        possible[asked] = [answer is not False for answer in answers]
        self.pruning.reads.troubles += [answer for answer in answers if isinstance(answer, IndexTrouble)]
        return possible

    def _filter_may_contain(self, row_group: int) -> bool:
        index = self.pruning.view.open_alone(self.state.leaf.field_id, self.directory, row_group)
        return bool(index.evaluate(self.state.leaf.test).rows)

    def _probe_matrices(self, undecided: Ints) -> Flags:
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
                worth.append(replace(opened, places=here))
        asked = [one for one, pays in zip(worth, gate.afford([one.cost for one in worth]), strict=True) if pays]
        possible = np.ones(len(undecided), np.bool_)
        answers = view.each(lambda one: self._ask(one, asked_test, undecided), asked)
        for one, answer in zip(asked, answers, strict=True):
            if isinstance(answer, IndexTrouble):
                troubles.append(answer)
            elif answer is not None:
                possible[one.places] = answer
        return possible

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

    def _ask(self, one: _Asked, test: AskedTest, undecided: Ints) -> Flags | IndexTrouble | None:
        if self.pruning.clock.is_over:
            return None
        row_groups = self.pruning.row_groups[undecided[one.places]]

        def read() -> Flags:
            ordinals = self.pruning.view.ordinals(self.state.leaf.field_id, self.directory.kind, row_groups)
            return one.matrix.possible(test)[ordinals - one.first]

        return or_trouble(self._segment(int(row_groups[0])), read)

    def _segment(self, row_group: int) -> str:
        return self.pruning.view.segments[int(self.directory.segment[row_group])][0]
