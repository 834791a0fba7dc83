"""The rows that satisfy a predicate in segments, at least and at most, by what look-ups have found of its leaves."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from planner.condition.tree.nodes import UNKNOWN, Everything, Nothing
from planner.condition.tree.tree import PredicateTree
from planner.prune.row_sets import FoundRows, rows_between
from planner.prune.state import LeafState, SearchState
from planner.view.directories import positions_by_number
from puffin_index.storage.arrays import Flags, Ints


def join_rows(
    search: SearchState,
    tree: PredicateTree,
    leaves: Sequence[LeafState],
    positions: Ints,
    segment: npt.NDArray[np.integer],
    first: Ints,
) -> tuple[FoundRows, FoundRows]:
    """Join the rows of leaves to the rows that satisfy a tree of these leaves, at some positions: a segment at a time.

    `segment` and `first` say, for each row group of the view, in which segment's row space the result numbers its rows;
    -1 leaves it out. Returns the rows that match at least, and those that match at most.
    """
    row_groups, row_counts = search.row_groups[positions], search.view.row_counts
    least, most = FoundRows.nothing(row_counts), FoundRows.nothing(row_counts)
    for number, here in positions_by_number(segment[row_groups].astype(np.int64)):
        own = _Segment(search, positions[here], number, first[row_groups[here]])
        bounds = [own.bounds(leaf) for leaf in leaves]
        upper = lower = own.joined(tree, [rows for _, rows in bounds], is_most=True)
        if any(below is not above for below, above in bounds) or any(node.content == UNKNOWN for node in tree.nodes):
            lower = own.joined(tree, [rows for rows, _ in bounds], is_most=False)
        for found, rows in ((least, lower), (most, upper)):
            found.add(own.row_groups, number, own.first, {number: [rows]})
    return least, most


class _Segment:
    """Row groups that lie in one segment: their positions in a search, and the first row of each in the row space."""

    def __init__(self, search: SearchState, positions: Ints, number: int, first: Ints) -> None:
        self.row_groups, self.first = search.row_groups[positions], first
        self._positions, self._number = positions, number
        self._ends = first + search.view.row_counts[self.row_groups]

    def _whole(self, chosen: Flags | slice = slice(None)) -> BitMap:
        """All rows of some of the row groups."""
        return rows_between(self.first[chosen], self._ends[chosen])

    def bounds(self, leaf: LeafState) -> tuple[BitMap, BitMap]:
        """The rows that satisfy a leaf at least, and at most: one set where the rows of all row groups are known."""
        found, verdicts = leaf.found, leaf.verdicts.at(self._positions)
        known = np.zeros(len(self.first), np.bool_)
        least = BitMap()
        if found is not None:
            known = found.are_known(self.row_groups)
            is_here = found.segment[self.row_groups] == self._number
            elsewhere = known & ~is_here
            # The set has rows of other row groups, too, and perhaps not all of these.
            if is_here.any():
                least = found.rows[self._number] if is_here.all() else found.rows[self._number] & self._whole(is_here)
            if elsewhere.any():
                least = least | found.moved(self.row_groups[elsewhere], self.first[elsewhere])
        certain, possible = ~known & verdicts.certain, ~known & verdicts.possible & ~verdicts.certain
        least = least | self._whole(certain) if certain.any() else least
        return least, least | self._whole(possible) if possible.any() else least

    def joined(self, tree: PredicateTree, leaves: Sequence[BitMap], *, is_most: bool) -> BitMap:
        """The rows that satisfy a tree, given those of its leaves."""

        def of(number: int) -> BitMap:
            node = tree.nodes[number]
            match node.content:
                case int(leaf):
                    return leaves[leaf]
                case Everything(exact):
                    return self._whole() if exact or is_most else BitMap()
                case Nothing():
                    return BitMap()
            parts = sorted(map(of, node.parts), key=len)
            return BitMap.intersection(*parts) if node.is_and else BitMap.union(*parts)

        return of(tree.root)
