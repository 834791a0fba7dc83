"""Row level: the row set of a predicate in one row group. Row sets of leaves are intersected and united."""

from dataclasses import dataclass, field
from typing import assert_never

import numpy as np
from pyroaring import BitMap

from planner.condition.tree.nodes import Everything, Leaf, Nothing
from planner.prune.pruning import LeafState, Pruning
from planner.prune.verdicts import Used
from planner.view.directories import IndexReads, IndexTrouble, KindDirectory
from planner.view.index_view import IndexView
from puffin_index.errors import READ_ERRORS
from puffin_index.keys.leaf import LeafTest
from puffin_index.kinds.base import RowSet
from puffin_index.kinds.kind import Answer
from puffin_index.kinds.registry import kind_named, kinds_answering
from puffin_index.storage.arrays import Flags, Ints


@dataclass(slots=True)
class RowEvaluator:
    """Evaluates a predicate row group by row group, reading only the indexes that can still change the answer.

    By position: where an index could not be used, or was not read for want of time, and what had a part in the rows.
    """

    pruning: Pruning
    troubled: dict[int, list[IndexTrouble]] = field(default_factory=dict)
    late: set[int] = field(default_factory=set)
    used: dict[int, list[Used]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Bring estimates up to date before several threads read them."""
        _ = self.pruning.gate.estimates.root

    def evaluate(self, position: int) -> RowSet:
        """Return the rows of a row group that satisfy the predicate."""
        # The same position is evaluated again if the first time only said what is to be read.
        self.troubled.pop(position, None)
        return self._evaluate(self.pruning.tree.root, position, None)

    def _evaluate(self, number: int, position: int, candidates: BitMap | None) -> RowSet:
        """Return the rows that satisfy a node, among the candidates if any are given."""
        node = self.pruning.tree.nodes[number]
        match node.content:
            case int(leaf):
                return self._evaluate_leaf(self.pruning.leaves[leaf], position, candidates)
            case Everything(exact):
                return RowSet(self._all(position, candidates), exact)
            case Nothing():
                return RowSet(BitMap(), exact=True)
            case None if node.is_and:
                return self._evaluate_conjunction(node.parts, position, candidates)
            case None:
                return self._evaluate_disjunction(node.parts, position, candidates)
            case _:
                assert_never(node.content)

    def _all(self, position: int, candidates: BitMap | None) -> BitMap:
        if candidates is not None:
            return candidates
        return BitMap(range(int(self.pruning.view.row_counts[self.pruning.row_groups[position]])))

    def _evaluate_conjunction(self, parts: tuple[int, ...], position: int, candidates: BitMap | None) -> RowSet:
        exact = True
        for part in sorted(parts, key=lambda part: self._selectivity(part, position)):
            result = self._evaluate(part, position, candidates)
            if not result.rows:
                # An empty upper bound is an exact answer, whatever the other parts are.
                return RowSet(result.rows, exact=True)
            candidates, exact = result.rows, exact and result.exact
        assert candidates is not None
        return RowSet(candidates, exact)

    def _evaluate_disjunction(self, parts: tuple[int, ...], position: int, candidates: BitMap | None) -> RowSet:
        rows, exact = BitMap(), True
        everything = len(self._all(position, candidates))
        for part in sorted(parts, key=lambda part: -self._selectivity(part, position)):
            result = self._evaluate(part, position, candidates)
            rows |= result.rows
            exact = exact and result.exact
            if len(rows) == everything:
                break
        return RowSet(rows, exact)

    def _selectivity(self, node: int, position: int) -> float:
        return float(self.pruning.gate.estimates.of_node(node).selectivity[position])

    def _evaluate_leaf(self, state: LeafState, position: int, candidates: BitMap | None) -> RowSet:
        verdicts = state.verdicts
        if not verdicts.possible[position]:
            return RowSet(BitMap(), exact=True)
        if verdicts.certain[position]:
            return RowSet(self._all(position, candidates), exact=True)
        row_group = int(self.pruning.row_groups[position])
        found = state.found.of(row_group) if state.found is not None else None
        if found is not None:
            self._note(position, (state.leaf.field_id, state.kind))
            return RowSet(found if candidates is None else found & candidates, exact=True)
        return self._read_leaf(state.leaf, position, candidates)

    def _read_leaf(self, leaf: Leaf, position: int, candidates: BitMap | None) -> RowSet:
        view, reads = self.pruning.view, self.pruning.reads
        row_group = int(self.pruning.row_groups[position])
        for directory in exact_directories(view, leaf, reads):
            if directory.segment[row_group] < 0 or directory.merged[row_group]:
                continue
            if self.pruning.clock.is_over:
                self.late.add(position)
                break
            try:
                rows = view.open_alone(directory, row_group).evaluate(leaf.test, candidates)
            except READ_ERRORS as error:
                location = view.segments[int(directory.segment[row_group])][0]
                self.troubled.setdefault(position, []).append(IndexTrouble.of(location, error))
            else:
                self._note(position, (leaf.field_id, directory.kind))
                return rows
        return RowSet(self._all(position, candidates), exact=False)

    def _note(self, position: int, used: Used) -> None:
        self.used.setdefault(position, []).append(used)


def exact_directories(view: IndexView, leaf: Leaf, reads: IndexReads) -> list[KindDirectory]:
    """The directories of kinds that answer a leaf exactly, the one that reads the fewest bytes first."""
    found = [view.directory(leaf, kind.name, reads) for kind in kinds_answering(leaf.test, Answer.EXACT)]
    return [directory for directory in found if directory is not None]


def has_exact_index(view: IndexView, leaf: Leaf, row_groups: Ints) -> Flags:
    """Whether row groups have an index that may answer a leaf exactly. Nothing is read to tell."""
    there = np.zeros(len(row_groups), np.bool_)
    for kind in kinds_answering(leaf.test, Answer.EXACT):
        there |= view.has(leaf.field_id, kind.name, row_groups)
    return there


def index_cost_bytes(test: LeafTest, directory: KindDirectory, row_groups: Ints) -> Ints:
    """About how many bytes answering a leaf reads, for each row group; 0 where there is no index."""
    known = (directory.segment[row_groups] >= 0) & ~directory.merged[row_groups]
    return kind_named(directory.kind).cost(test, np.where(known, directory.length[row_groups], 0))
