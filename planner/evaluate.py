"""Row level: the row set of a predicate in one row group, by intersecting and uniting the rows of its leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from planner.directories import IndexReads, IndexTrouble, KindDirectory
from planner.estimate import Estimate
from planner.found_rows import FoundRows
from planner.key_types import comparable
from planner.predicate import Conjunction, Disjunction, Everything, Leaf, Nothing, Predicate
from planner.view import IndexView
from planner.zone_map import Verdicts
from puffin_index.errors import CorruptFileError, NotFoundError, UnsupportedError
from puffin_index.kinds.base import RowSet
from puffin_index.leaf import LeafTest, NullTest, RangeTest, SetTest

_BITMAP_LOOKUP_BYTES = 48 * 1024
"""A look-up in a bitmap index reads its header, one block and one bitmap."""


@dataclass(slots=True)
class RowEvaluator:
    """Evaluates a predicate row group by row group, reading only what it needs.

    Attributes:
        view: The index.
        position: Where a row group of the view stands in the arrays of `verdicts` and `estimates`.
        verdicts: What earlier stages know of each leaf.
        estimates: Of each leaf.
        reads: Counts what is read and takes down troubles.
        found: Rows that sorted postings gave already.
        troubled: Row groups of which some index could not be used.
    """

    view: IndexView
    position: Mapping[int, int]
    verdicts: Mapping[Leaf, Verdicts]
    estimates: Mapping[Leaf, Estimate]
    reads: IndexReads
    found: Mapping[Leaf, FoundRows] = field(default_factory=dict)
    troubled: set[int] = field(default_factory=set)

    def evaluate(self, predicate: Predicate, row_group: int, candidates: BitMap | None = None) -> RowSet:
        """Return the rows of a row group that satisfy the predicate, among the candidates if there are any given."""
        match predicate:
            case Leaf():
                return self._evaluate_leaf(predicate, row_group, candidates)
            case Everything(exact):
                return RowSet(self._all(row_group, candidates), exact)
            case Nothing():
                return RowSet(BitMap(), exact=True)
            case Conjunction(children):
                return self._evaluate_conjunction(children, row_group, candidates)
            case Disjunction(children):
                return self._evaluate_disjunction(children, row_group, candidates)
            case _:
                assert_never(predicate)

    def _all(self, row_group: int, candidates: BitMap | None) -> BitMap:
        return BitMap(range(int(self.view.row_counts[row_group]))) if candidates is None else candidates

    def _evaluate_conjunction(
        self, children: tuple[Predicate, ...], row_group: int, candidates: BitMap | None
    ) -> RowSet:
        exact = True
        for child in sorted(children, key=lambda child: self._selectivity(child, row_group)):
            result = self.evaluate(child, row_group, candidates)
            if not result.rows:
                # An empty upper bound is an exact answer, whatever the other children are.
                return RowSet(result.rows, exact=True)
            candidates, exact = result.rows, exact and result.exact
        assert candidates is not None
        return RowSet(candidates, exact)

    def _evaluate_disjunction(
        self, children: tuple[Predicate, ...], row_group: int, candidates: BitMap | None
    ) -> RowSet:
        rows, exact = BitMap(), True
        everything = len(self._all(row_group, candidates))
        for child in sorted(children, key=lambda child: -self._selectivity(child, row_group)):
            result = self.evaluate(child, row_group, candidates)
            rows |= result.rows
            exact = exact and result.exact
            if len(rows) == everything and not exact:
                break
        return RowSet(rows, exact)

    def _selectivity(self, predicate: Predicate, row_group: int) -> float:
        match predicate:
            case Leaf():
                estimate = self.estimates.get(predicate)
                return 1.0 if estimate is None else float(estimate.selectivity[self.position[row_group]])
            case Everything():
                return 1.0
            case Nothing():
                return 0.0
            case Conjunction(children):
                return float(np.prod([self._selectivity(child, row_group) for child in children]))
            case Disjunction(children):
                return min(1.0, sum(self._selectivity(child, row_group) for child in children))
            case _:
                assert_never(predicate)

    def _evaluate_leaf(self, leaf: Leaf, row_group: int, candidates: BitMap | None) -> RowSet:
        verdicts, at = self.verdicts[leaf], self.position[row_group]
        if not verdicts.possible[at]:
            return RowSet(BitMap(), exact=True)
        if verdicts.certain[at]:
            return RowSet(self._all(row_group, candidates), exact=True)
        found = self.found[leaf].of(row_group) if leaf in self.found else None
        if found is not None:
            return RowSet(found if candidates is None else found & candidates, exact=True)
        for directory in exact_directories(self.view, leaf, self.reads):
            if directory.segment[row_group] < 0 or directory.merged[row_group]:
                continue
            try:
                return self.view.open_blob(leaf.field_id, directory, row_group).evaluate(leaf.test, candidates)
            except (CorruptFileError, UnsupportedError, NotFoundError, OSError) as error:
                self.troubled.add(row_group)
                location = self.view.segments[int(directory.segment[row_group])][0]
                self.reads.troubles.append(IndexTrouble(location, str(error)))
        return RowSet(self._all(row_group, candidates), exact=False)


def exact_directories(view: IndexView, leaf: Leaf, reads: IndexReads) -> list[KindDirectory]:
    """The directories of kinds that answer a leaf exactly, the one that reads the fewest bytes first."""
    found = [view.directory(leaf.field_id, kind, reads) for kind in _exact_kinds(leaf.test)]
    return [directory for directory in found if directory is not None and keys_agree(directory, leaf)]


def has_exact_index(view: IndexView, leaf: Leaf, row_groups: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether row groups have an index that answers a leaf exactly, as far as is known without reading anything."""
    there = np.zeros(len(row_groups), np.bool_)
    for kind in _exact_kinds(leaf.test):
        there |= view.has(leaf.field_id, kind, row_groups)
    return there


def _exact_kinds(test: LeafTest) -> tuple[str, ...]:
    match test:
        case NullTest() | SetTest():
            return ("bitmap", "bsi")
        case RangeTest():
            return ("bsi", "bitmap")
        case _:
            assert_never(test)


def keys_agree(directory: KindDirectory, leaf: Leaf) -> bool:
    """Whether an index was built in the key domain of the leaf; a promotion may have changed the column's type."""
    return comparable(directory.value_type.name, leaf.value_type)


def index_cost_bytes(
    test: LeafTest, directory: KindDirectory, row_groups: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """About how many bytes answering a leaf reads, for each row group; 0 where there is no index."""
    known = (directory.segment[row_groups] >= 0) & ~directory.merged[row_groups]
    length = np.where(known, directory.length[row_groups], 0)
    if directory.kind == "bitmap" and not isinstance(test, RangeTest):
        keys = len(test.keys) if isinstance(test, SetTest) else 1
        return np.minimum(length, _BITMAP_LOOKUP_BYTES * max(1, keys))
    return length
