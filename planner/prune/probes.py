"""Probing bloom filters: of one row group at a time, or of many at once where they are merged into a matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.clock import Clock
from planner.prune.gate import SURE, CostGate
from planner.prune.leaf_state import LeafState
from planner.view.directories import IndexTrouble, KindDirectory, or_trouble, positions_by_number
from planner.view.index_view import IndexView
from puffin_index.keys.asked_test import AskedTest
from puffin_index.keys.leaf import SetTest
from puffin_index.kinds.base import MergedFilter
from puffin_index.storage.arrays import Flags, Ints

_PAGE_BYTES = 16 * 1024
"""About what a probe of one filter reads: some pages of a large one."""


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A matrix, the row group of its segment that it begins with, what asking it takes, and about which positions."""

    matrix: MergedFilter
    first: int
    reads: int
    cost: int
    places: Ints


@dataclass(frozen=True, slots=True)
class Probe:
    """Probes the filters of one column for the keys of a leaf.

    Attributes:
        view: The index.
        gate: Says what is worth reading.
        state: The leaf that is looked for.
        test: Its test.
        clock: Says when no more filters are asked.
        directory: Of the filters.
        row_groups: The row groups of the view that are judged; positions are places in this array.
    """

    view: IndexView
    gate: CostGate
    state: LeafState
    test: SetTest
    clock: Clock
    directory: KindDirectory
    row_groups: Ints

    def possible(self, undecided: Ints) -> tuple[Flags, list[IndexTrouble]]:
        """Say which of some positions may hold a match, and what could not be read; what is not asked may."""
        merged = self.directory.merged[self.row_groups[undecided]]
        unlikely = self.gate.presence(self.state.number, undecided) < SURE
        possible = np.ones(len(undecided), np.bool_)
        troubles: list[IndexTrouble] = []
        for here, probe in (
            (np.flatnonzero(unlikely & merged), self._probe_matrices),
            (np.flatnonzero(unlikely & ~merged), self._probe_filters),
        ):
            possible[here], missed = probe(undecided[here])
            troubles += missed
        return possible, troubles

    def _probe_filters(self, undecided: Ints) -> tuple[Flags, list[IndexTrouble]]:
        lengths = self.directory.length[self.row_groups[undecided]]
        costs = np.minimum(lengths, _PAGE_BYTES * max(1, len(self.test.keys)))
        asked = np.flatnonzero(self.gate.worth(self.gate.saved(undecided), costs, 1))
        asked = asked[self.gate.afford(costs[asked])]

        def may_contain(at: int) -> bool | IndexTrouble:
            if self.clock.is_over:
                return True
            row_group = int(self.row_groups[at])
            return or_trouble(self._segment(row_group), lambda: self._filter_may_contain(row_group))

        possible = np.ones(len(undecided), np.bool_)
        answers = self.view.each(may_contain, undecided[asked].tolist())
        possible[asked] = [answer is not False for answer in answers]
        return possible, [answer for answer in answers if isinstance(answer, IndexTrouble)]

    def _filter_may_contain(self, row_group: int) -> bool:
        index = self.view.open_alone(self.state.leaf.field_id, self.directory, row_group)
        return bool(index.evaluate(self.test).rows)

    def _probe_matrices(self, undecided: Ints) -> tuple[Flags, list[IndexTrouble]]:
        saved, keys = self.gate.saved(undecided), AskedTest(self.test)
        groups = [here for _, here in positions_by_number(self.directory.blob[self.row_groups[undecided]])]
        troubles: list[IndexTrouble] = []
        worth: list[_Asked] = []
        matrices = self.view.each(lambda here: self._open(keys, undecided[here]), groups)
        for here, opened in zip(groups, matrices, strict=True):
            if isinstance(opened, IndexTrouble):
                troubles.append(opened)
            elif opened is not None and self.gate.worth(saved[here].sum(), opened.cost, opened.reads):
                worth.append(replace(opened, places=here))
        asked = [one for one, pays in zip(worth, self.gate.afford([one.cost for one in worth]), strict=True) if pays]
        possible = np.ones(len(undecided), np.bool_)
        answers = self.view.each(lambda one: self._ask(one, keys, undecided), asked)
        for one, answer in zip(asked, answers, strict=True):
            if isinstance(answer, IndexTrouble):
                troubles.append(answer)
            elif answer is not None:
                possible[one.places] = answer
        return possible, troubles

    def _open(self, keys: AskedTest, positions: Ints) -> _Asked | IndexTrouble | None:
        if self.clock.is_over:
            return None
        row_group = int(self.row_groups[positions[0]])

        def read() -> _Asked:
            matrix, first = self.view.open_filter(self.state.leaf.field_id, self.directory, row_group)
            nbytes = matrix.nbytes
            reads, cost = matrix.cost(keys)
            if matrix.nbytes != nbytes:
                self.view.weigh(self.state.leaf.field_id, self.directory, row_group)
            return _Asked(matrix, first, reads, cost, positions)

        return or_trouble(self._segment(row_group), read)

    def _ask(self, one: _Asked, keys: AskedTest, undecided: Ints) -> Flags | IndexTrouble | None:
        if self.clock.is_over:
            return None
        row_groups = self.row_groups[undecided[one.places]]

        def read() -> Flags:
            ordinals = self.view.ordinals(self.state.leaf.field_id, self.directory.kind, row_groups)
            return one.matrix.possible(keys)[ordinals - one.first]

        return or_trouble(self._segment(int(row_groups[0])), read)

    def _segment(self, row_group: int) -> str:
        return self.view.segments[int(self.directory.segment[row_group])][0]
