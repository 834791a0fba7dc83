"""Payloads of one kind: opening them for one leaf, and reading the rows that match."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from pyroaring import BitMap

from planner.clock import Clock
from planner.prune.row_sets import count_between, rows_between
from planner.prune.state import LeafState, SearchState
from planner.prune.verdicts import Reason
from planner.view.cache import SharedPayloads
from planner.view.directories import IndexReads, KindDirectory, positions_by_number, segment_of
from puffin_index.errors import CorruptFileError
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.leaf import SetTest
from puffin_index.kinds.base import LookUp, OpenIndex, ReadBlocks
from puffin_index.kinds.held_keys import HoldsKeys
from puffin_index.kinds.kind import Answer
from puffin_index.kinds.registry import kind_named
from puffin_index.storage.arrays import Ints
from puffin_index.storage.ranged import Reading

_FEW_ROWS = 65_536
_LITTLE_BYTES = 256 * 1024
_BLOBS_AT_ONCE = 32
"""Payloads whose blocks are searched together."""

BYTES_AT_ONCE = 64 << 20
"""How much is in memory together: blocks, or payloads of one row group each."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A payload that is open, before its rows are read: its number (`KindDirectory.blob`), and what is asked.

    The payload took `nbytes` of memory before this test.
    """

    blob: int
    positions: Ints
    payload: OpenIndex
    asked: AskedTest
    look_up: LookUp
    nbytes: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest number of rows."""
        return self.look_up.bounds

    @property
    def reads(self) -> int:
        """The requests that the rows take."""
        return self.look_up.cost[0]

    @property
    def cost(self) -> int:
        """The bytes that the rows take."""
        return self.look_up.cost[1]


Work: TypeAlias = tuple[int, Ints, AskedTest]
"""A payload's number, the positions that are asked about, and the test."""


@dataclass(frozen=True, slots=True)
class LeafPayloads:
    """Opens payloads of one kind for one leaf, and reads its rows: of a wide leaf those among candidates only.

    A leaf whose share of the rows is greater than `widest_share` is left for later. Rows and candidates are numbered in
    the row spaces of segments; candidates are given by segment.
    """

    state: SearchState
    leaf: LeafState
    directory: KindDirectory
    widest_share: float = 1.0
    candidates: Mapping[int, BitMap] | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the rows are no upper bounds."""
        return kind_named(self.directory.kind).answers(self.leaf.leaf.test) == Answer.EXACT

    @property
    def is_found_by_key(self) -> bool:
        """Whether a test reads only the part of a payload that has its keys."""
        return kind_named(self.directory.kind).is_found_by_key

    def works(self, undecided: Ints, asked: AskedTest | None = None) -> list[Work]:
        """What is to be looked up at some positions: the leaf's test, unless another one is asked."""
        test = AskedTest(self.leaf.leaf.test) if asked is None else asked
        blobs = positions_by_number(self.directory.blob[self.state.row_groups[undecided]])
        return [(blob, undecided[here], test) for blob, here in blobs]

    def prepare_all(self, works: Sequence[Work]) -> list[Prepared]:
        """Open payloads side by side; without those in trouble, or not reached in time."""
        state = self.state
        # What is open when the time is over was opened for nothing. So half of the time is left for reading rows.
        clock = Clock(state.clock.seconds_left / 2)
        results = state.view.opened.read_each(self.prepare, works, lambda work: segment_of(work[0]), state.reads, clock)
        for work, result in zip(works, results, strict=True):
            if result is None and (self.widest_share == 1 or not clock.is_over):
                state.refuse(work[1], Reason.TIME_BUDGET if clock.is_over else Reason.INDEX_UNREADABLE)
        return [result for result in results if result is not None]

    def prepare(self, work: Work) -> Reading[Prepared]:
        """Open a payload, and read what the test takes of its directory."""
        blob, positions, asked = work
        payload = yield from self.state.view.opened.open(
            self.directory, self.row_group_of(positions), self.state.reads.shared
        )
        nbytes = payload.nbytes
        look_up = yield from payload.prepare(asked)
        return Prepared(blob, positions, payload, asked, look_up, nbytes)

    def rows_of_all(self, asked: Sequence[Prepared]) -> dict[int, BitMap]:
        """The rows by payload, where they could be read. Payloads with little to decode share array operations."""
        found: dict[int, BitMap] = {}
        state, opened = self.state, self.state.view.opened
        little = [
            one
            for one in asked
            if one.look_up.blocks is not None and 0 < one.bounds[1] <= _FEW_ROWS and one.cost <= _LITTLE_BYTES
        ]
        for some in self._read_together(little if len(asked) > 1 and self._sharing is None else []):
            # What is in trouble is asked once more, alone, and says so then.
            first_try = IndexReads(state.reads.count)
            read = opened.read_each(_blocks, some, lambda one: segment_of(one.blob), first_try, state.clock)
            every = [(one.blob, blocks) for one, blocks in zip(some, read, strict=True) if blocks is not None]
            for first in range(0, len(every), _BLOBS_AT_ONCE):
                together = every[first : first + _BLOBS_AT_ONCE]
                try:
                    rows = together[0][1].rows_of_all([blocks for _, blocks in together])
                except CorruptFileError:
                    continue  # one of them is damaged; asked one by one, that one says so
                found |= dict(zip([blob for blob, _ in together], rows, strict=True))
        others = [one for one in asked if one.blob not in found]
        read_alone = opened.read_each(self._rows, others, lambda one: segment_of(one.blob), state.reads, state.clock)
        found |= {one.blob: own for one, own in zip(others, read_alone, strict=True) if own is not None}
        return {one.blob: _moved(found[one.blob], self._offset(one)) for one in asked if one.blob in found}

    def counts(self, asked: Sequence[Prepared], rows: Mapping[int, BitMap]) -> tuple[Ints, Ints]:
        """The positions of those payloads whose rows were read, and how many rows each position has."""
        read = [one for one in asked if one.blob in rows]
        positions = np.concatenate([np.zeros(0, np.int64), *[one.positions for one in read]])
        counts = [np.zeros(0, np.int64)]
        for one in read:
            row_groups = self.state.row_groups[one.positions]
            firsts = self.directory.first[row_groups]
            counts.append(count_between(rows[one.blob], firsts, firsts + self.state.view.row_counts[row_groups]))
        return positions, np.concatenate(counts)

    def _offset(self, one: Prepared) -> int:
        """What to add to a row's number in a payload to get its number in the segment's row space."""
        row_group = self.row_group_of(one.positions)
        return int(self.directory.first[row_group] - self.directory.base[row_group])

    def _read_together(self, asked: list[Prepared]) -> Iterator[list[Prepared]]:
        """Cut payloads into lists whose blocks fit into memory: a store is asked for each list once."""
        little = np.array([one.cost for one in asked], np.int64)
        most = _BLOBS_AT_ONCE * _LITTLE_BYTES if self.state.view.opened.is_local else BYTES_AT_ONCE
        for _, here in positions_by_number(np.cumsum(little) // most):
            yield [asked[at] for at in here.tolist()]

    @property
    def _sharing(self) -> SharedPayloads | None:
        """Where the keys of rows are kept, if somebody will ask for these: decoding both takes twice as long."""
        shared, test = self.state.reads.shared, self.leaf.leaf.test
        is_set = isinstance(test, SetTest) and not test.negated
        return shared if shared is not None and is_set and self.directory.column in shared.columns else None

    def _rows(self, one: Prepared) -> Reading[BitMap]:
        if one.bounds[1] == 0:
            return BitMap()
        shared, payload = self._sharing, one.payload
        if shared is not None and one.bounds[1] <= _FEW_ROWS and isinstance(payload, HoldsKeys):
            within = yield from payload.within(one.asked)
            if within is not None:
                rows, kept = yield from within.read_once()
                shared.within[self.directory.column, self.directory.kind, one.blob] = (self.leaf.leaf.test, kept)
                return rows
        # Rows of a wide leaf take space, so only the candidates are asked for. Few candidates need few bit slices.
        is_among = one.bounds[1] > _FEW_ROWS or not (self.candidates is None or self.is_found_by_key)
        found = yield from one.look_up.rows(self._candidates(one) if is_among and self.is_exact else None)
        return found.rows

    def _candidates(self, one: Prepared) -> BitMap:
        """The rows that may match in the asked row groups, as the payload numbers them."""
        row_groups = self.state.row_groups[one.positions]
        firsts = self.directory.first[row_groups]
        rows = rows_between(firsts, firsts + self.state.view.row_counts[row_groups])
        if self.candidates is not None:
            rows &= self.candidates[segment_of(one.blob)]
        return _moved(rows, -self._offset(one))

    def row_group_of(self, positions: Ints) -> int:
        """One of the row groups that a payload covers: names the payload to the view."""
        return int(self.state.row_groups[positions[0]])


def _moved(rows: BitMap, offset: int) -> BitMap:
    return rows.shift(offset) if offset else rows


def _blocks(one: Prepared) -> Reading[ReadBlocks]:
    assert one.look_up.blocks is not None
    return one.look_up.blocks()
