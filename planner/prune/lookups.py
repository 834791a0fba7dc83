"""Look-ups in merged payloads: one search answers a leaf for all row groups that share a payload."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from planner.clock import Clock
from planner.prune.estimate import Estimate
from planner.prune.found_rows import FoundRows
from planner.prune.gate import CostGate
from planner.prune.leaf_state import LeafState
from planner.view.directories import IndexTrouble, KindDirectory, or_trouble, positions_by_number
from planner.view.index_view import IndexView
from puffin_index.errors import CorruptFileError, PuffinIndexError
from puffin_index.keys.asked_test import AskedTest
from puffin_index.kinds.base import MergedIndex, PreparedLookUp, ReadBlocks
from puffin_index.roaring.read import row_set_of_ascending
from puffin_index.storage.arrays import Ints, Rows

WIDE_SHARE = 0.02
"""Share of the rows from which on a leaf is left for later: narrow ones may leave few row groups to ask about."""

_FEW_ROWS = 65_536
_LITTLE_BYTES = 256 * 1024
_BLOBS_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class _Opened:
    """A payload, the positions that it is asked about, what the leaf may match in it and what asking it takes.

    `nbytes` is the memory that the payload took before it was asked.
    """

    blob: int
    positions: Ints
    payload: MergedIndex
    test: PreparedLookUp
    bounds: tuple[int, int]
    reads: int
    cost: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class LookUp:
    """Looks one leaf up in merged payloads.

    Attributes:
        view: The index.
        gate: Says what is worth reading.
        state: The leaf that is looked up.
        clock: Says when no more payloads are asked.
        directory: Of the payloads.
        row_groups: The row groups of the view that are judged; positions are places in this array.
        widest_share: Share of the rows from which on the leaf is not looked up.
        candidates: What may still match, where it is known: of a wide leaf, no other rows are looked for.
    """

    view: IndexView
    gate: CostGate
    state: LeafState
    clock: Clock
    directory: KindDirectory
    row_groups: Ints
    widest_share: float = 1.0
    candidates: FoundRows | None = None

    def find(self, undecided: Ints) -> tuple[FoundRows, Ints, list[IndexTrouble]]:
        """Look the leaf up for some positions.

        Returns:
            The matching rows of these positions and among the candidates at least, where it was worth asking and there
            was time; how many there are at each position, -1 where it was not; and what could not be read.
        """
        row_groups = self.row_groups[undecided]
        blobs = positions_by_number(self.directory.blob[row_groups])
        opened: list[_Opened] = []
        troubles: list[IndexTrouble] = []
        test = AskedTest(self.state.leaf.test)
        for result in self.view.each(self._open, [(blob, undecided[here], test) for blob, here in blobs]):
            if isinstance(result, IndexTrouble):
                troubles.append(result)
            elif result is not None and self._worth_asking(result):
                opened.append(result)
        affordable = self.gate.afford([one.cost for one in opened])
        asked = [one for one, pays in zip(opened, affordable, strict=True) if pays]
        found = FoundRows(self.directory, self.view.row_counts)
        for one, rows in zip(asked, self._rows_of_all(asked), strict=True):
            if isinstance(rows, IndexTrouble):
                troubles.append(rows)
            elif rows is not None:
                found.rows[one.blob] = rows
        for one in asked:
            if one.payload.nbytes != one.nbytes:
                self.view.weigh(self.state.leaf.field_id, self.directory, int(self.row_groups[one.positions[0]]))
        return found, found.counts(row_groups, blobs), troubles

    def _open(self, work: tuple[int, Ints, AskedTest]) -> _Opened | IndexTrouble | None:
        if self.clock.is_over:
            return None
        blob, positions, asked = work

        def read() -> _Opened:
            payload = self.view.open_index(self.state.leaf.field_id, self.directory, int(self.row_groups[positions[0]]))
            nbytes = payload.nbytes
            test = payload.prepare(asked)
            bounds = test.count_bounds()
            reads, cost = (0, 0) if bounds[1] == 0 else test.cost()
            return _Opened(blob, positions, payload, test, bounds, reads, cost, nbytes)

        return or_trouble(self._segment(blob), read)

    def _rows_of_all(self, asked: list[_Opened]) -> list[Rows | IndexTrouble | None]:
        """The rows of each payload, those of little to decode by the same array operations; None for want of time."""
        found: dict[int, Rows | IndexTrouble | None] = {}
        several = asked if len(asked) > 1 else []
        for first in range(0, len(several), _BLOBS_AT_ONCE):
            some = several[first : first + _BLOBS_AT_ONCE]
            read = zip(some, self.view.each(self._blocks, some), strict=True)
            little = [(one.blob, blocks) for one, blocks in read if blocks is not None]
            try:
                rows = little[0][1].rows_of_all([blocks for _, blocks in little]) if little else []
            except CorruptFileError:
                continue  # asked one by one, the payload that it is will say so
            arrays = [np.frombuffer(own.to_array(), np.uint32) for own in rows]
            found |= dict(zip([blob for blob, _ in little], arrays, strict=True))
        others = [one for one in asked if one.blob not in found]
        found |= {one.blob: rows for one, rows in zip(others, self.view.each(self._rows, others), strict=True)}
        return [found[one.blob] for one in asked]

    def _blocks(self, one: _Opened) -> ReadBlocks | None:
        if self.clock.is_over or not 0 < one.bounds[1] <= _FEW_ROWS:
            return None
        try:
            return one.test.read(_LITTLE_BYTES)
        except (PuffinIndexError, OSError):
            return None

    def _rows(self, one: _Opened) -> Rows | IndexTrouble | None:
        if self.clock.is_over:
            return None

        def read() -> Rows:
            if one.bounds[1] == 0:
                return np.empty(0, np.uint32)
            # Of a wide leaf, only what is asked for takes space.
            candidates = self._candidates(one) if one.bounds[1] > _FEW_ROWS else None
            return np.frombuffer(one.test.rows(candidates).to_array(), np.uint32)

        return or_trouble(self._segment(one.blob), read)

    def _candidates(self, one: _Opened) -> BitMap:
        """The rows of the positions that may match, in the row space of their segment; a payload may have others."""
        row_groups, segment = self.row_groups[one.positions], one.blob >> 32
        bases = self.directory.base[row_groups]
        rows = BitMap()
        for first, end in zip(bases.tolist(), (bases + self.view.row_counts[row_groups]).tolist(), strict=True):
            rows.add_range(first, end)
        if self.candidates is not None and self.candidates.are_known(row_groups, segment):
            rows &= row_set_of_ascending(self.candidates.of_segment(segment))
        return rows

    def _segment(self, blob: int) -> str:
        return self.view.segments[blob >> 32][0]

    def _worth_asking(self, one: _Opened) -> bool:
        """The cost gate, with the count of matches that the payload's own directory tells."""
        undecided = one.positions
        least, most = one.bounds
        if most == 0:
            return True
        row_counts = self.view.row_counts[self.row_groups[undecided]]
        rows = int(row_counts.sum())
        estimate = self.gate.estimates.of_leaf(self.state.number)
        guess = float((estimate.selectivity[undecided] * row_counts).sum())
        matches = min(max(guess, least), most)
        if matches > self.widest_share * rows:
            return False
        # Matches spread over the payload's row groups: an estimate of how many of those have one.
        count = len(undecided)
        presence = 1 - math.exp(-matches / count)
        known = Estimate(np.full(count, min(1.0, matches / rows)), np.full(count, presence))
        return bool(self.gate.worth(self.gate.saved(undecided, (self.state.number, known)).sum(), one.cost, one.reads))
