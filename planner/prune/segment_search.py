"""The rows that satisfy a predicate in one row space: a whole segment's, or that of a row group.

A search is a `Reading`: it yields what it has to read, so that searches of many segments read side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from pyroaring import BitMap

from planner.condition.tree.nodes import Everything, Leaf, Nothing
from planner.condition.tree.tree import PredicateTree
from planner.prune.row_sets import FoundRows
from planner.prune.state import SearchState
from planner.prune.verdicts import Used
from planner.view.directories import IndexReads, IndexTrouble, KindDirectory
from planner.view.index_view import IndexView
from puffin_index.errors import READ_ERRORS
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.leaf import LeafTest
from puffin_index.kinds.base import RowSet
from puffin_index.kinds.kind import Answer
from puffin_index.kinds.registry import kind_named, kinds_answering
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.ranged import Reading, at_once, run


class RowSpace(Protocol):
    """Rows with numbers, and which of them satisfy the leaves of a tree."""

    @property
    def row_count(self) -> int:
        """The number of rows, at most."""

    def every(self) -> BitMap:
        """Return all rows."""

    def rank(self, node: int) -> float:
        """Return about which share of the rows satisfies a node."""

    def rows(self, leaf: int, candidates: BitMap | None) -> Reading[RowSet]:
        """Return the rows that satisfy a leaf, among candidates if some are given."""


def search(tree: PredicateTree, space: RowSpace, number: int, candidates: BitMap | None = None) -> Reading[RowSet]:
    """Return the rows that satisfy a node of a tree, reading only what can still change the answer."""
    node = tree.nodes[number]
    match node.content:
        case int(leaf):
            return (yield from space.rows(leaf, candidates))
        case Everything(exact):
            return RowSet(space.every() if candidates is None else candidates, exact)
        case Nothing():
            return RowSet(BitMap(), exact=True)
    found, exact = BitMap(), True
    most = 0 if node.is_and else space.row_count if candidates is None else len(candidates)
    for part in sorted(node.parts, key=space.rank, reverse=not node.is_and):
        result = yield from search(tree, space, part, candidates)
        exact = exact and result.exact
        if not node.is_and:
            found |= result.rows
        else:
            found = candidates = result.rows
        if len(found) == most:
            # An empty upper bound is an exact answer, whatever the other parts are.
            return RowSet(found, exact or node.is_and)
    return RowSet(found, exact)


@dataclass(slots=True)
class RowGroups:
    """Searches row groups one by one, and notes, by position, what comes of that.

    By position: where an index could not be used, or was not read for want of time, and what had a part in the rows.
    """

    state: SearchState
    troubled: dict[int, list[IndexTrouble]] = field(default_factory=dict)
    late: set[int] = field(default_factory=set)
    used: dict[int, list[Used]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Bring estimates up to date before nodes are ranked."""
        _ = self.state.gate.estimates.root

    def search(self, position: int) -> Reading[RowSet]:
        """Return the rows of a row group that satisfy the predicate."""
        return search(self.state.tree, _RowGroup(self, position), self.state.tree.root)


@dataclass(frozen=True, slots=True)
class _RowGroup:
    """A row group, whose rows are numbered from 0."""

    searched: RowGroups
    position: int

    @property
    def row_count(self) -> int:
        state = self.searched.state
        return int(state.view.row_counts[state.row_groups[self.position]])

    def every(self) -> BitMap:
        return BitMap(range(self.row_count))

    def rank(self, node: int) -> float:
        return float(self.searched.state.gate.estimates.of_node(node).selectivity[self.position])

    def rows(self, leaf: int, candidates: BitMap | None) -> Reading[RowSet]:
        own, row_group = self.searched.state.leaves[leaf], int(self.searched.state.row_groups[self.position])
        if not own.verdicts.possible[self.position]:
            return RowSet(BitMap(), exact=True)
        if own.verdicts.certain[self.position]:
            return RowSet(self.every() if candidates is None else candidates, exact=True)
        found = own.found.of(row_group) if own.found is not None else None
        if found is not None:
            self._note((own.leaf.field_id, own.kind))
            return RowSet(found if candidates is None else found & candidates, exact=True)
        return (yield from self._read(own.leaf, row_group, candidates))

    def _read(self, leaf: Leaf, row_group: int, candidates: BitMap | None) -> Reading[RowSet]:
        state = self.searched.state
        for directory in exact_directories(state.view, leaf, state.reads):
            if directory.segment[row_group] < 0 or directory.merged[row_group]:
                continue
            if state.clock.is_over:
                self.searched.late.add(self.position)
                break
            try:
                opened = yield from state.view.opened.open(directory, row_group, state.reads.shared)
                look_up = yield from opened.prepare(AskedTest(leaf.test))
                rows = yield from look_up.rows(candidates)
            except READ_ERRORS as error:
                location = state.view.segments[int(directory.segment[row_group])][0]
                self.searched.troubled.setdefault(self.position, []).append(IndexTrouble.of(location, error))
            else:
                self._note((leaf.field_id, directory.kind))
                return rows
        return RowSet(self.every() if candidates is None else candidates, exact=False)

    def _note(self, used: Used) -> None:
        self.searched.used.setdefault(self.position, []).append(used)


@dataclass(frozen=True, slots=True)
class _Segment:
    """The row space of a segment in which all leaves were looked up."""

    found: Sequence[BitMap]
    tree: PredicateTree
    row_count: int = 1 << 32

    def every(self) -> BitMap:
        return BitMap.union(BitMap(), *self.found)

    def rank(self, node: int) -> float:
        leaf = self.tree.nodes[node].content
        return len(self.found[leaf]) if isinstance(leaf, int) else np.inf

    def rows(self, leaf: int, candidates: BitMap | None) -> Reading[RowSet]:
        own = self.found[leaf]
        return at_once(RowSet(own if candidates is None else own & candidates, exact=True))


def joint_rows(tree: PredicateTree, found: Sequence[FoundRows | None], row_groups: Ints) -> FoundRows | None:
    """Join the rows of leaves to the rows that satisfy a predicate, exactly: a segment at a time, not a row group.

    Look-ups answered each leaf for `row_groups`. The result covers those whose leaves were all found in one segment. It
    is None without such row groups, or if the predicate has a part that is no leaf, or a leaf that was not looked up.
    """
    known = [part for part in found if part is not None]
    is_constant = any(isinstance(node.content, Everything | Nothing) for node in tree.nodes)
    if not len(row_groups) or len(known) < len(tree.leaves) or is_constant:
        return None
    first = known[0].directory
    numbers = first.segment[row_groups]
    same = np.logical_and.reduce([part.directory.segment[row_groups] == numbers for part in known])
    segment = np.full(len(first.segment), -1, np.int32)
    segment[row_groups[same]] = numbers[same]
    # The joint rows of a segment stand for one payload, entry 0.
    directory = replace(first, segment=segment, entry=np.zeros_like(first.entry))
    rows: dict[int, BitMap] = {}
    for number in np.unique(numbers[same]).tolist():
        space = _Segment([part.of_segment(number) for part in known], tree)
        rows[number << 32] = run(search(tree, space, tree.root)).rows
    return FoundRows(directory, known[0].row_counts, rows)


def exact_directories(view: IndexView, leaf: Leaf, reads: IndexReads) -> list[KindDirectory]:
    """The directories of kinds that answer a leaf exactly, the one that reads the fewest bytes first."""
    found = [
        view.directory(leaf.field_id, leaf.value_type, kind.name, reads)
        for kind in kinds_answering(leaf.test, Answer.EXACT)
    ]
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
