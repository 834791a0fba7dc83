"""The rows that satisfy a predicate in a row group, by reading indexes; and in a segment whose leaves are known."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pyroaring import BitMap

from planner.condition.tree.nodes import Everything, Leaf, Nothing
from planner.condition.tree.tree import PredicateTree
from planner.prune.row_sets import FoundRows
from planner.prune.state import LeafState, SearchState
from planner.prune.verdicts import Used
from planner.view.directories import IndexReads, IndexTrouble, KindDirectory
from planner.view.index_view import IndexView
from puffin_index.errors import READ_ERRORS
from puffin_index.keys.asked import AskedTest
from puffin_index.kinds.base import RowSet
from puffin_index.kinds.kind import Answer
from puffin_index.kinds.registry import kinds_answering
from puffin_index.storage.arrays import Ints
from puffin_index.storage.ranged import Reading


@dataclass(slots=True)
class RowGroups:
    """Searches row groups one by one, reading only what can still change the answer, and notes what comes of that.

    By position: where an index could not be used or was not read in time, and what had a part in the rows.
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
        row_count = int(self.state.view.row_counts[self.state.row_groups[position]])
        return self._node(position, self.state.tree.root, BitMap(range(row_count)))

    def _node(self, position: int, number: int, candidates: BitMap) -> Reading[RowSet]:
        node, estimates = self.state.tree.nodes[number], self.state.gate.estimates
        match node.content:
            case int(leaf):
                return (yield from self._leaf(position, self.state.leaves[leaf], candidates))
            case Everything(exact):
                return RowSet(candidates, exact)
            case Nothing():
                return RowSet(BitMap(), exact=True)
        found, exact = BitMap(), True
        most = 0 if node.is_and else len(candidates)
        shares = {part: float(estimates.of_node(part).selectivity[position]) for part in node.parts}
        for part in sorted(shares, key=shares.__getitem__, reverse=not node.is_and):
            result = yield from self._node(position, part, candidates)
            exact = exact and result.exact
            if not node.is_and:
                found |= result.rows
            else:
                found = candidates = result.rows
            if len(found) == most:
                # An empty upper bound is an exact answer, whatever the other parts are.
                return RowSet(found, exact or node.is_and)
        return RowSet(found, exact)

    def _leaf(self, position: int, own: LeafState, candidates: BitMap) -> Reading[RowSet]:
        state, row_group, leaf = self.state, int(self.state.row_groups[position]), own.leaf
        if not own.verdicts.possible[position]:
            return RowSet(BitMap(), exact=True)
        if own.verdicts.certain[position]:
            return RowSet(candidates, exact=True)
        found = own.found.of(row_group) if own.found is not None else None
        if found is not None:
            self.used.setdefault(position, []).append((leaf.field_id, own.kind))
            return RowSet(found & candidates, exact=True)
        for directory in exact_directories(state.view, leaf, state.reads):
            if directory.segment[row_group] < 0 or directory.merged[row_group]:
                continue
            if state.clock.is_over:
                self.late.add(position)
                break
            try:
                opened = yield from state.view.opened.open(directory, row_group, state.reads.shared)
                look_up = yield from opened.prepare(AskedTest(leaf.test))
                is_all = len(candidates) == state.view.row_counts[row_group]
                rows = yield from look_up.rows(None if is_all else candidates)
            except READ_ERRORS as error:
                location = state.view.segments[int(directory.segment[row_group])][0]
                self.troubled.setdefault(position, []).append(IndexTrouble.of(location, error))
            else:
                self.used.setdefault(position, []).append((leaf.field_id, directory.kind))
                return rows
        return RowSet(candidates, exact=False)


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
    rows = {
        number << 32: _joined(tree, [part.of_segment(number) for part in known], tree.root)
        for number in np.unique(numbers[same]).tolist()
    }
    return FoundRows(directory, known[0].row_counts, rows)


def _joined(tree: PredicateTree, found: Sequence[BitMap], number: int) -> BitMap:
    node = tree.nodes[number]
    if isinstance(node.content, int):
        return found[node.content]
    parts = sorted((_joined(tree, found, part) for part in node.parts), key=len)
    return BitMap.intersection(*parts) if node.is_and else BitMap.union(*parts)


def exact_directories(view: IndexView, leaf: Leaf, reads: IndexReads) -> list[KindDirectory]:
    """The directories of kinds that answer a leaf exactly, the one that reads the fewest bytes first."""
    found = [
        view.directory(leaf.field_id, leaf.value_type, kind.name, reads)
        for kind in kinds_answering(leaf.test, Answer.EXACT)
    ]
    return [directory for directory in found if directory is not None]
