"""Look-ups of one leaf in the payloads of one kind: what each tells before it is read, and what is worth reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from pyroaring import BitMap

from planner.clock import Clock
from planner.prune.estimate import Estimate, estimate_by_payload, estimate_by_sample, keys_within
from planner.prune.row_sets import FoundRows
from planner.prune.segment_search import exact_directories
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

WIDE_SHARE = 0.02
"""A leaf that matches a greater share of the rows is left for later: narrow leaves may leave few row groups to ask."""

_SAMPLES = (32, 16, 8, 4)
"""How many keys each of two samples has: the most that may be lost, and half of all keys together."""

_FEW_ROWS = 65_536
_LITTLE_BYTES = 256 * 1024
_CHEAP_BYTES = 256 * 1024
_BLOBS_AT_ONCE = 32
"""Payloads whose blocks are searched together."""

_BYTES_AT_ONCE = 64 << 20
"""Blocks that are in memory together."""

_DECODING_WEIGHT = 16
"""Decoding a byte that is found by key takes as long as reading and combining this many bytes of other kinds."""

_REMOTE_DECODING_WEIGHT = 4
"""The same where bytes come over a network."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A payload that is open, before its rows are read: its number (`KindDirectory.blob`), and what is asked."""

    blob: int
    positions: Ints
    payload: OpenIndex
    asked: AskedTest
    look_up: LookUp
    nbytes: int
    """The memory that the payload took before this test."""

    @property
    def bounds(self) -> tuple[int, int]:
        return self.look_up.bounds

    @property
    def reads(self) -> int:
        return self.look_up.cost[0]

    @property
    def cost(self) -> int:
        return self.look_up.cost[1]


_Work: TypeAlias = tuple[int, Ints, AskedTest]
"""A payload's number, the positions that are asked about, and the test."""


def read_directories(searches: Sequence[tuple[LeafSearch, Ints]]) -> None:
    """Read what searches at some positions need of directories, for all of them at once.

    One after the other, each search would wait for a store. What is in trouble is told by the searches themselves.
    """
    works = [(one, work) for one, undecided in searches for work in one.works(undecided)]
    state = searches[0][0].state
    state.view.opened.read_each(
        lambda one: one[0].prepare(one[1]),
        works,
        lambda one: segment_of(one[1][0]),
        IndexReads(state.reads.count),
        state.clock,
    )


@dataclass(frozen=True, slots=True)
class LeafSearch:
    """Looks one leaf up in payloads of one kind, unless its share of the rows is too great.

    A wide leaf is looked for among candidates only, where these are known.
    """

    state: SearchState
    leaf: LeafState
    directory: KindDirectory
    widest_share: float = 1.0
    candidates: FoundRows | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the rows are no upper bounds."""
        return kind_named(self.directory.kind).answers(self.leaf.leaf.test) == Answer.EXACT

    def find(self, undecided: Ints) -> Iterator[tuple[FoundRows, Ints]]:
        """Look the leaf up where that is worth its bytes and there is time, some payloads at a time.

        All payloads cover several row groups. Yields, at least once, the matching rows so far, complete for the
        positions that were asked and among the candidates (payloads may add other rows), and how many rows match at
        each position, -1 where nobody asked.
        """
        state, view = self.state, self.state.view
        row_groups = state.row_groups[undecided]
        blobs = positions_by_number(self.directory.blob[row_groups])
        every = self._prepare_all(self.works(undecided))
        prepared = self._worth_asking(every)
        found, left = FoundRows(self.directory, view.row_counts), set(range(len(prepared)))
        costs = np.array([one.cost for one in prepared], np.int64)
        for some in state.gate.in_turn(costs):
            left -= set(some.tolist())
            found.rows.update(self._rows_of_all([prepared[place] for place in some.tolist()]))
            if left:
                yield found, found.counts(row_groups, blobs)
        for place, reason in zip(sorted(left), state.gate.refusals(costs[sorted(left)]), strict=True):
            state.refuse(prepared[place].positions, reason)
        for one in every:
            if one.payload.nbytes != one.nbytes:
                view.opened.weigh(self.directory, self._row_group(one.positions))
        yield found, found.counts(row_groups, blobs)

    def find_alone(self, undecided: Ints) -> Iterator[Ints]:
        """Look the leaf up in payloads of one row group each: what each takes is known before it is opened.

        Yields how many rows may match at each position, -1 where nobody asked, some more each time.
        """
        state, row_groups = self.state, self.state.row_groups[undecided]
        costs = kind_named(self.directory.kind).cost(self.leaf.leaf.test, self.directory.length[row_groups])
        worth = state.gate.worth(state.gate.saved(undecided), costs, 1)
        state.refuse(undecided[~worth], Reason.NOT_WORTH_READING)
        asked = AskedTest(self.leaf.leaf.test)
        works = [(int(self.directory.blob[row_groups[at]]), undecided[[at]], asked) for at in np.flatnonzero(worth)]
        costs, counts = costs[worth], np.full(len(undecided), -1, np.int64)
        left, places = np.ones(len(costs), np.bool_), np.flatnonzero(worth)
        for some in state.gate.in_turn(costs):
            left[some] = False
            answers = state.read_each(
                self._count_alone, [works[at] for at in some.tolist()], lambda work: segment_of(work[0])
            )
            counts[places[some]] = [-1 if answer is None else answer for answer in answers]
            yield counts
        for at, reason in zip(np.flatnonzero(left).tolist(), state.gate.refusals(costs[left]), strict=True):
            state.refuse(works[at][1], reason)

    def _count_alone(self, work: _Work) -> Reading[int]:
        prepared = yield from self.prepare(work)
        found = yield from prepared.look_up.rows(None)
        return len(found.rows)

    def works(self, undecided: Ints) -> list[_Work]:
        """What is to be looked up at some positions."""
        test = AskedTest(self.leaf.leaf.test)
        blobs = positions_by_number(self.directory.blob[self.state.row_groups[undecided]])
        return [(blob, undecided[here], test) for blob, here in blobs]

    def _prepare_all(self, works: Sequence[_Work]) -> list[_Prepared]:
        state = self.state
        # What is open when the time is over was opened for nothing. So half of the time is left for reading rows.
        clock = Clock(state.clock.seconds_left / 2)
        results = state.view.opened.read_each(self.prepare, works, lambda work: segment_of(work[0]), state.reads, clock)
        if clock.is_over and self.widest_share == 1:
            for work, result in zip(works, results, strict=True):
                if result is None:
                    state.refuse(work[1], Reason.TIME_BUDGET)
        return [result for result in results if result is not None]

    def prepare(self, work: _Work) -> Reading[_Prepared]:
        """Open a payload, and read what the test takes of its directory."""
        blob, positions, asked = work
        payload = yield from self.state.view.opened.open(
            self.directory, self._row_group(positions), self.state.reads.shared
        )
        nbytes = payload.nbytes
        look_up = yield from payload.prepare(asked)
        return _Prepared(blob, positions, payload, asked, look_up, nbytes)

    def _rows_of_all(self, asked: list[_Prepared]) -> dict[int, BitMap]:
        """The rows by payload, where they could be read. Payloads with little to decode share array operations."""
        found: dict[int, BitMap] = {}
        little = [
            one
            for one in asked
            if one.look_up.blocks is not None and 0 < one.bounds[1] <= _FEW_ROWS and one.cost <= _LITTLE_BYTES
        ]
        for some in self._read_together(little if len(asked) > 1 and self._sharing is None else []):
            # What is in trouble is asked once more, alone, and says so then.
            read = self.state.view.opened.read_each(
                _blocks, some, lambda one: segment_of(one.blob), IndexReads(self.state.reads.count), self.state.clock
            )
            every = [(one.blob, blocks) for one, blocks in zip(some, read, strict=True) if blocks is not None]
            for first in range(0, len(every), _BLOBS_AT_ONCE):
                together = every[first : first + _BLOBS_AT_ONCE]
                try:
                    rows = together[0][1].rows_of_all([blocks for _, blocks in together])
                except CorruptFileError:
                    continue  # one of them is damaged; asked one by one, that one says so
                found |= dict(zip([blob for blob, _ in together], rows, strict=True))
        others = [one for one in asked if one.blob not in found]
        read_alone = self.state.read_each(self._rows, others, lambda one: segment_of(one.blob))
        return found | {one.blob: own for one, own in zip(others, read_alone, strict=True) if own is not None}

    def _read_together(self, asked: list[_Prepared]) -> Iterator[list[_Prepared]]:
        """Cut payloads into lists whose blocks fit into memory: a store is asked for each list once."""
        little = np.array([one.cost for one in asked], np.int64)
        most = _BLOBS_AT_ONCE * _LITTLE_BYTES if self.state.view.opened.is_local else _BYTES_AT_ONCE
        for _, here in positions_by_number(np.cumsum(little) // most):
            yield [asked[at] for at in here.tolist()]

    @property
    def _sharing(self) -> SharedPayloads | None:
        """Where the keys of rows are kept, if somebody will ask for these: decoding both takes twice as long."""
        shared, test = self.state.reads.shared, self.leaf.leaf.test
        is_set = isinstance(test, SetTest) and not test.negated
        return shared if shared is not None and is_set and self.directory.column in shared.columns else None

    def _rows(self, one: _Prepared) -> Reading[BitMap]:
        if one.bounds[1] == 0:
            return BitMap()
        shared, payload = self._sharing, one.payload
        if shared is not None and one.bounds[1] <= _FEW_ROWS and isinstance(payload, HoldsKeys):
            within = yield from payload.within(one.asked)
            if within is not None:
                rows, kept = yield from within.read_once()
                shared.within[self.directory.column, self.directory.kind, one.blob] = (self.leaf.leaf.test, kept)
                return rows
        # Rows of a wide leaf take space, so only the candidates are asked for.
        candidates = self._candidates(one) if one.bounds[1] > _FEW_ROWS and self.is_exact else None
        found = yield from one.look_up.rows(candidates)
        return found.rows

    def _candidates(self, one: _Prepared) -> BitMap:
        """The rows that may match in the asked row groups, in the row space of their segment."""
        row_groups, segment = self.state.row_groups[one.positions], segment_of(one.blob)
        bases = self.directory.base[row_groups]
        rows = BitMap()
        ends = bases + self.state.view.row_counts[row_groups]
        for first, end in zip(bases.tolist(), ends.tolist(), strict=True):
            rows.add_range(first, end)
        if self.candidates is not None and self.candidates.are_known(row_groups, segment):
            rows &= self.candidates.of_segment(segment)
        return rows

    def _row_group(self, positions: Ints) -> int:
        """One of the row groups that a payload covers: names the payload to the view."""
        return int(self.state.row_groups[positions[0]])

    def _worth_asking(self, every: Sequence[_Prepared]) -> list[_Prepared]:
        """Ask the cost gate, with what the payloads' own directories tell. Wide tests are left for later."""
        if not self.is_exact:
            return self._worth_filtering(every)
        worth, others = self._weighed(every)
        if others and self._sample([one for one, estimate in others if self._is_narrow(estimate)]):
            more, others = self._weighed([one for one, _ in others])
            worth += more
        if self.widest_share == 1:
            for one, _ in others:
                self.state.refuse(one.positions, Reason.NOT_WORTH_READING)
        self._learn([(one.positions, estimate) for one, estimate in others])
        return [] if worth and self._takes_longer_than_by_rows(worth) else worth

    def _worth_filtering(self, every: Sequence[_Prepared]) -> list[_Prepared]:
        gate, worth = self.state.gate, list[_Prepared]()
        for one in every:
            if gate.worth(gate.saved(one.positions).sum(), one.cost, one.reads):
                worth.append(one)
            else:
                self.state.refuse(one.positions, Reason.NOT_WORTH_READING)
        return worth

    def _weighed(self, every: Sequence[_Prepared]) -> tuple[list[_Prepared], list[tuple[_Prepared, Estimate]]]:
        """The payloads that are worth their bytes, and the others with what is expected of them."""
        gate, worth, others = self.state.gate, list[_Prepared](), list[tuple[_Prepared, Estimate]]()
        for one in every:
            estimate = self._expected(one)
            if estimate is None:
                worth.append(one)
                continue
            saved = gate.saved(one.positions, (self.leaf.number, estimate)).sum()
            if self._is_narrow(estimate) and gate.worth(saved, one.cost, one.reads):
                worth.append(one)
            else:
                others.append((one, estimate))
        return worth, others

    def _is_narrow(self, estimate: Estimate) -> bool:
        return bool(estimate.selectivity[0] <= self.widest_share)

    def _sample(self, refused: Sequence[_Prepared]) -> bool:
        """Look some of many keys up, as many as may be lost, and estimate where the others are; whether that was done.

        No statistics tell whether keys lie together, as the newest ones of a table do.
        """
        search, state = self.state, self.leaf
        test, statistics = state.leaf.test, state.statistics
        if not isinstance(test, SetTest) or test.negated or statistics is None or not refused:
            return False
        if state.sampled is not None or search.limits.rows_wanted:
            return False
        at = np.sort(np.concatenate([one.positions for one in refused]))
        row_groups, nowhere = search.row_groups[at], np.zeros(len(at))
        saved = search.gate.saved(at, (state.number, Estimate(nowhere, nowhere))).sum()
        cost, reads = sum(one.cost for one in refused), sum(one.reads for one in refused)
        count, halves = self._samples(refused, test) if search.gate.worth(saved, cost, reads) else (0, [])
        if not halves:
            return False
        with search.gate.spending():
            rows = [self._rows_of_all(half) for half in halves]
        first, second = (FoundRows(self.directory, search.view.row_counts, own).counts(row_groups) > 0 for own in rows)
        left = keys_within(test, statistics, row_groups) * (1 - 2 * count / len(test.keys))
        presence = state.estimate.presence.copy()
        presence[at] = estimate_by_sample(first, second, count, left)
        state.estimate = Estimate(state.estimate.selectivity, presence)
        state.sampled = np.zeros(len(presence), np.bool_)
        state.sampled[at] = True
        return True

    def _samples(self, opened: Sequence[_Prepared], test: SetTest) -> tuple[int, list[list[_Prepared]]]:
        """Payloads opened for two samples of the keys, each from all of their range, and the number of keys of each.

        None are opened if no sample may be lost.
        """
        gate = self.state.gate
        for count in _SAMPLES:
            if 4 * count > len(test.keys):
                continue
            places = np.linspace(0, len(test.keys) - 1, 2 * count).astype(np.int64).tolist()
            halves: list[list[_Prepared]] = []
            for half in (places[0::2], places[1::2]):
                asked = AskedTest(replace(test, keys=tuple(test.keys[at] for at in half)))
                halves.append(self._prepare_all([(one.blob, one.positions, asked) for one in opened]))
            every = [one for half in halves for one in half]
            if len(every) < 2 * len(opened):
                break  # in trouble, or late
            if gate.may_lose(sum(one.cost for one in every), sum(one.reads for one in every)):
                return count, halves
        return 0, []

    def _learn(self, expected: Sequence[tuple[Ints, Estimate]]) -> None:
        """Let later stages know what the directories of payloads tell that are not asked."""
        if not expected:
            return
        known = self.leaf.estimate
        selectivity, presence = known.selectivity.copy(), known.presence.copy()
        for positions, estimate in expected:
            selectivity[positions], presence[positions] = estimate.selectivity, estimate.presence
        self.leaf.estimate = Estimate(selectivity, presence)

    def _expected(self, one: _Prepared) -> Estimate | None:
        """What to expect at the positions of a payload; None if the payload has no match."""
        state, statistics = self.leaf, self.leaf.statistics
        (least, most), here = one.bounds, self.state.selection(one.positions)
        if most == 0:
            return None
        row_groups = self.state.row_groups[one.positions]
        row_counts = self.state.view.row_counts[row_groups]
        rows, own = int(row_counts.sum()), state.estimate.at(here)
        share, sizes = float((own.selectivity * row_counts).sum()) / rows, one.payload.sizes
        # The bounds are of all row groups of the payload; perhaps only some are asked about.
        share = min(max(share, least / max(rows if sizes is None else sizes[0], 1)), most / rows, 1.0)
        presence, is_sampled = own.presence, state.sampled is not None and state.sampled[here].all()
        if sizes is not None and statistics is not None and not is_sampled:
            presence = estimate_by_payload(state.leaf.test, own, statistics, row_groups, sizes, one.bounds)
        return Estimate(np.full(len(row_groups), share), presence)

    def _takes_longer_than_by_rows(self, opened: list[_Prepared]) -> bool:
        """Whether somebody wants the rows, and a kind that is not found by key gives them in less time.

        Such a kind has about the same bytes for every test, which are combined as they are.
        """
        search, leaf = self.state, self.leaf.leaf
        cost = sum(one.cost for one in opened)
        is_found_by_key = kind_named(self.directory.kind).is_found_by_key
        # Once a leaf has rows of one kind, no other kind is asked for the rest.
        is_open = is_found_by_key and self.leaf.found is None
        if not is_open or not search.limits.rows_wanted or cost < _CHEAP_BYTES:
            return False
        other = exact_directories(search.view, leaf, search.reads)[0]
        row_groups = search.row_groups[np.concatenate([one.positions for one in opened])]
        if kind_named(other.kind).is_found_by_key or not other.known[row_groups].all():
            return False
        _, firsts = np.unique(other.blob[row_groups], return_index=True)
        weight = _DECODING_WEIGHT if search.view.opened.is_local else _REMOTE_DECODING_WEIGHT
        return cost * weight > int(other.length[row_groups[firsts]].sum())


def _blocks(one: _Prepared) -> Reading[ReadBlocks]:
    assert one.look_up.blocks is not None
    return one.look_up.blocks()
