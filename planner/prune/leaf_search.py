"""Look-ups of one leaf in the payloads of one kind: what each tells before it is read, and what is worth reading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pyroaring import BitMap

from planner.prune.estimate import (
    Estimate,
    estimate_by_first_keys,
    estimate_by_payload,
    estimate_by_sample,
    keys_within,
)
from planner.prune.leaf_payloads import BYTES_AT_ONCE, LeafPayloads, Prepared
from planner.prune.row_sets import FoundRows
from planner.prune.verdicts import Reason
from planner.view.directories import IndexReads, positions_by_number, segment_of
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.leaf import SetTest
from puffin_index.kinds.kind import Answer
from puffin_index.kinds.registry import kind_named, kinds_answering
from puffin_index.storage.arrays import Flags, Floats, Ints

WIDE_SHARE = 0.02
"""A leaf that matches a greater share of the rows is left for later: narrow leaves may leave few row groups to ask."""

_SAMPLES = (4, 8, 16, 32)
"""How many keys each of two samples has: the most that may be lost, and half of all keys together."""

_LIKELY = 0.5
_FIRST_KEYS = 8
"""Where a match is this likely, this many of twice as many keys or more are looked up before the others."""

_CHEAP_BYTES = 256 * 1024
_DECODING_WEIGHT = 16
"""Decoding a byte that is found by key takes as long as reading and combining this many bytes of other kinds."""

_REMOTE_DECODING_WEIGHT = 4
"""The same where bytes come over a network."""


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


@dataclass(frozen=True, slots=True, eq=False)
class _Expected:
    """What to expect of payloads: the share of rows of each, and an estimate at their row groups' ascending positions.

    `owners` has the place among the payloads of each position's payload.
    """

    payloads: list[Prepared]
    shares: Floats
    positions: Ints
    owners: Ints
    estimate: Estimate

    def only(self, some: Flags) -> _Expected:
        """What to expect of some of the payloads."""
        here = np.flatnonzero(some[self.owners])
        payloads = [one for one, is_one in zip(self.payloads, some.tolist(), strict=True) if is_one]
        owners = (np.cumsum(some) - 1)[self.owners[here]]
        return _Expected(payloads, self.shares[some], self.positions[here], owners, self.estimate.at(here))


@dataclass(frozen=True, slots=True)
class LeafSearch(LeafPayloads):
    """Looks one leaf up in payloads of one kind, unless its share of the rows is too great."""

    def find(self, undecided: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Look the leaf up where that is worth its bytes and there is time, some payloads at a time.

        Yields positions that were asked, and how many rows match at each: at most, if the kind gives upper bounds. The
        rows of other kinds are added to those of the leaf: all of these positions, or those among the candidates.
        """
        is_merged = self.directory.merged[self.state.row_groups[undecided]]
        for find, here in ((self._find_merged, undecided[is_merged]), (self._find_alone, undecided[~is_merged])):
            if len(here):
                yield from find(here)

    def _find_merged(self, undecided: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Look the leaf up in payloads of several row groups: their directories tell what the rows take."""
        gate = self.state.gate
        every = self.prepare_all(self.works(self._without_met(undecided)))
        prepared = self._worth_asking(every)
        costs, left = np.array([one.cost for one in prepared], np.int64), np.ones(len(prepared), np.bool_)
        for some in gate.in_turn(costs, is_first=self.leaf.found is None):
            left[some] = False
            yield self._ask([prepared[place] for place in some.tolist()])
        for place, reason in zip(np.flatnonzero(left).tolist(), gate.refusals(costs[left]), strict=True):
            self.state.refuse(prepared[place].positions, reason)
        for one in every:
            if one.payload.nbytes != one.nbytes:
                self.state.view.opened.weigh(self.directory, self.row_group_of(one.positions))

    def _find_alone(self, undecided: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Look the leaf up in payloads of one row group each: what each takes is known before it is opened."""
        gate, row_groups = self.state.gate, self.state.row_groups[undecided]
        costs = kind_named(self.directory.kind).cost(self.leaf.leaf.test, self.directory.length[row_groups])
        is_narrow = self.leaf.estimate.selectivity[undecided] <= self.widest_share
        worth = is_narrow & gate.worth(gate.saved(undecided), costs, 1)
        self.state.refuse(undecided[is_narrow & ~worth], Reason.NOT_WORTH_READING)
        undecided, costs = undecided[worth], costs[worth]
        left = np.ones(len(costs), np.bool_)
        for some in gate.in_turn(costs):
            left[some] = False
            # A payload holds what is read of it.
            for _, part in positions_by_number(np.cumsum(costs[some]) // BYTES_AT_ONCE):
                yield self._ask(self.prepare_all(self.works(undecided[some[part]])))
        self.state.refuse(undecided[left], gate.refusals(costs[left]))

    def _ask(self, prepared: Sequence[Prepared]) -> tuple[Ints, Ints]:
        rows = self.rows_of_all(prepared)
        reason = Reason.TIME_BUDGET if self.state.clock.is_over else Reason.INDEX_UNREADABLE
        for one in prepared:
            if one.blob not in rows:
                self.state.refuse(one.positions, reason)
        positions, counts = self.counts(prepared, rows)
        if self.is_exact and rows:
            if self.leaf.found is None:
                self.leaf.found = FoundRows.nothing(self.state.view.row_counts)
            self._add(self.leaf.found, positions, rows)
        return positions, counts

    def _add(self, found: FoundRows, positions: Ints, rows: Mapping[int, BitMap]) -> None:
        """Add the rows of payloads to those of segments."""
        by_segment: dict[int, list[BitMap]] = {}
        for blob, own in rows.items():
            by_segment.setdefault(segment_of(blob), []).append(own)
        row_groups = self.state.row_groups[positions]
        found.add(row_groups, self.directory.segment[row_groups], self.directory.first[row_groups], by_segment)

    def _without_met(self, undecided: Ints) -> Ints:
        """Leave payloads out whose row groups all have one of a few keys, where the other keys are not worth reading.

        A payload is asked about all of its undecided row groups, as the rows that it gives count as all of theirs.
        """
        search, state, test = self.state, self.leaf, self.leaf.leaf.test
        if not self.is_exact or search.limits.rows_wanted:
            return undecided
        if not isinstance(test, SetTest) or test.negated or len(test.keys) < 2 * _FIRST_KEYS:
            return undecided
        likely = undecided[state.estimate.presence[search.selection(undecided)] >= _LIKELY]
        opened = self.prepare_all(self.works(likely, _some_keys(test, _FIRST_KEYS)))
        # Most of what may be lost is left for a sample, which tells more where few keys are met.
        if not search.gate.may_lose(4 * sum(one.cost for one in opened), 4 * sum(one.reads for one in opened)):
            return undecided
        with search.gate.spending():
            self._learn_from(opened)
        is_asked = self._are_to_be_asked(undecided)
        search.refuse(undecided[~is_asked], Reason.NOT_WORTH_READING)
        return undecided[is_asked]

    def _learn_from(self, opened: Sequence[Prepared]) -> None:
        """Look a few keys up, and learn where rows match and how far these are spread."""
        rows, row_counts = self.rows_of_all(opened), self.state.view.row_counts
        positions, counts = self.counts(opened, rows)
        met, counts = positions[counts > 0], counts[counts > 0]
        found = FoundRows.nothing(row_counts)
        self._add(found, positions, rows)
        gaps = found.widest_gaps(self.state.row_groups[met])
        self.leaf.estimate = estimate_by_first_keys(
            self.leaf.estimate, row_counts[self.state.row_groups], met, counts, gaps
        )
        self._note_sampled(met)

    def _note_sampled(self, positions: Ints) -> None:
        if self.leaf.sampled is None:
            self.leaf.sampled = np.zeros(len(self.state.row_groups), np.bool_)
        self.leaf.sampled[positions] = True

    def _are_to_be_asked(self, undecided: Ints) -> Flags:
        """Where a payload has a row group without a sampled key, or its rows may be worth their share of its bytes."""
        assert self.leaf.sampled is not None
        row_groups, gate = self.state.row_groups[undecided], self.state.gate
        _, firsts, owners = np.unique(self.directory.blob[row_groups], return_index=True, return_inverse=True)
        is_open = np.bincount(owners, ~self.leaf.sampled[undecided]) > 0
        shares = np.bincount(owners, self.leaf.estimate.selectivity[undecided]) / np.bincount(owners)
        weights = np.where(shares > WIDE_SHARE, self._decoding_weight, 1)
        costs = (self.directory.length[row_groups[firsts]] * shares * weights).astype(np.int64)
        saved = np.bincount(owners, gate.saved(undecided)).astype(np.float64)
        may_pay = gate.worth(saved, costs, 1)
        return np.asarray((is_open | may_pay)[owners], np.bool_)

    def _worth_asking(self, every: Sequence[Prepared]) -> list[Prepared]:
        """Ask the cost gate, with what the payloads' own directories tell. Wide tests are left for later."""
        worth, others = self._weighed(every)
        if self._sample(others.only(others.shares <= self.widest_share).payloads):
            more, others = self._weighed(others.payloads)
            worth += more
        self.state.refuse(others.only(others.shares <= self.widest_share).positions, Reason.NOT_WORTH_READING)
        self._learn(others)
        return [] if worth and self._takes_longer_than_by_rows(worth) else worth

    def _weighed(self, every: Sequence[Prepared]) -> tuple[list[Prepared], _Expected]:
        """The payloads that are worth their bytes, those without a match included, and what is expected of the others.

        What is expected of the first is learned.
        """
        expected = self._expected([one for one in every if one.bounds[1]])
        payloads, gate, number = expected.payloads, self.state.gate, self.leaf.number
        saved = gate.saved(expected.positions, (number, expected.estimate))
        saved = np.bincount(expected.owners, saved, len(payloads)).astype(np.float64, copy=False)
        # Most of what a wide leaf costs is decoding its rows. Where rows are wanted, those of the data cost more.
        is_cheap = (expected.shares <= WIDE_SHARE) | self.state.limits.rows_wanted
        costs = np.array([one.cost for one in payloads], np.int64) * np.where(is_cheap, 1, self._decoding_weight)
        is_worth = gate.worth(saved, costs, np.array([one.reads for one in payloads], np.int64))
        # How many rows a wide leaf has is not known once it is looked up among candidates.
        is_worth &= expected.shares <= self.widest_share
        self._learn(expected.only(is_worth))
        others = expected.only(~is_worth)
        left = set(map(id, others.payloads))
        return [one for one in every if id(one) not in left], others

    def _sample(self, refused: Sequence[Prepared]) -> bool:
        """Look some of many keys up, as many as may be lost, and estimate where the others are; whether that was done.

        No statistics tell whether keys lie together, as the newest ones of a table do.
        """
        search, state = self.state, self.leaf
        test, statistics = state.leaf.test, state.statistics
        if not isinstance(test, SetTest) or test.negated or statistics is None or not refused:
            return False
        if not self.is_exact or search.limits.rows_wanted:
            return False
        at = np.sort(np.concatenate([one.positions for one in refused]))
        if state.sampled is not None and state.sampled[at].all():
            return False
        row_groups, nowhere = search.row_groups[at], np.zeros(len(at))
        saved = search.gate.saved(at, (state.number, Estimate(nowhere, nowhere))).sum()
        cost, reads = sum(one.cost for one in refused), sum(one.reads for one in refused)
        count, halves = self._samples(refused, test) if search.gate.worth(saved, cost, reads) else (0, [])
        if not halves:
            return False
        with search.gate.spending():
            counted = [self.counts(half, self.rows_of_all(half)) for half in halves]
        first, second = (np.isin(at, positions[counts > 0]) for positions, counts in counted)
        left = keys_within(test, statistics, row_groups) * (1 - 2 * count / len(test.keys))
        presence = state.estimate.presence.copy()
        presence[at] = estimate_by_sample(first, second, count, left)
        state.estimate = replace(state.estimate, presence=presence)
        self._note_sampled(at)
        return True

    def _samples(self, opened: Sequence[Prepared], test: SetTest) -> tuple[int, list[list[Prepared]]]:
        """Payloads opened for two samples of the keys, each from all of their range, and the number of keys of each.

        None are opened if no sample may be lost.
        """
        gate, least = self.state.gate, _SAMPLES[0]
        if 4 * least > len(test.keys):
            return 0, []
        halves = self._halves(opened, test, least)
        every = [one for half in halves for one in half]
        cost, reads = sum(one.cost for one in every), sum(one.reads for one in every)
        # Fewer are in trouble, or late.
        if len(every) < 2 * len(opened) or not gate.may_lose(cost, reads):
            return 0, []
        times = [count // least for count in _SAMPLES if 4 * count <= len(test.keys)]
        most = max(many for many in times if many == 1 or gate.may_lose(many * cost, many * reads))
        return most * least, halves if most == 1 else self._halves(opened, test, most * least)

    def _halves(self, opened: Sequence[Prepared], test: SetTest, count: int) -> list[list[Prepared]]:
        asked = [_some_keys(test, 2 * count, half, 2) for half in (0, 1)]
        return [self.prepare_all([(one.blob, one.positions, half) for one in opened]) for half in asked]

    def _learn(self, expected: _Expected) -> None:
        """Let later stages know what the directories of payloads tell."""
        if not expected.payloads:
            return
        known, positions = self.leaf.estimate, expected.positions
        selectivity, presence = known.selectivity.copy(), known.presence.copy()
        places = None if known.places is None else known.places.copy()
        selectivity[positions], presence[positions] = expected.estimate.selectivity, expected.estimate.presence
        if places is not None and expected.estimate.places is not None:
            places[positions] = expected.estimate.places
        self.leaf.estimate = Estimate(selectivity, presence, places)

    def _expected(self, payloads: list[Prepared]) -> _Expected:
        """What to expect of payloads that have a match."""
        state, statistics = self.leaf, self.leaf.statistics
        positions = np.concatenate([np.zeros(0, np.int64), *[one.positions for one in payloads]])
        owners = np.repeat(np.arange(len(payloads)), [len(one.positions) for one in payloads])
        order = np.argsort(positions)
        positions, owners = positions[order], owners[order]
        row_groups, here = self.state.row_groups[positions], self.state.selection(positions)
        row_counts, own = self.state.view.row_counts[row_groups], state.estimate.at(here)
        bounds = np.array([one.bounds for one in payloads], np.int64).reshape(-1, 2)
        # A payload that does not tell its sizes has no keys here.
        sizes = np.array([one.payload.sizes or (0, 0) for one in payloads], np.int64).reshape(-1, 2)
        rows = np.bincount(owners, row_counts, len(payloads))
        shares = np.bincount(owners, own.selectivity * row_counts, len(payloads)) / rows
        # The bounds are of all row groups of the payload; perhaps only some are asked about.
        least = bounds[:, 0] / np.where(sizes[:, 0] > 0, sizes[:, 0], rows)
        shares = np.minimum(np.maximum(shares, least), np.minimum(bounds[:, 1] / rows, 1))
        presence = own.presence
        if statistics is not None:
            presence = estimate_by_payload(state.leaf.test, own, statistics, row_groups, sizes[owners], bounds[owners])
            if state.sampled is not None:
                is_sampled = np.bincount(owners, ~state.sampled[here], len(payloads)) == 0
                presence = np.where(is_sampled[owners], own.presence, presence)
        share = shares[owners]
        places = None if own.places is None else own.places * share / np.maximum(own.selectivity, 1 / rows[owners])
        return _Expected(payloads, shares, positions, owners, Estimate(share, presence, places))

    def _takes_longer_than_by_rows(self, opened: list[Prepared]) -> bool:
        """Whether somebody wants the rows, and a kind that is not found by key gives them in less time.

        Such a kind has about the same bytes for every test, which are combined as they are.
        """
        search, leaf = self.state, self.leaf.leaf
        cost = sum(one.cost for one in opened)
        if not self.is_found_by_key or not search.limits.rows_wanted or cost < _CHEAP_BYTES:
            return False
        kinds = [kind.name for kind in kinds_answering(leaf.test, Answer.EXACT) if not kind.is_found_by_key]
        other = search.directory(leaf, kinds[0]) if kinds else None
        row_groups = search.row_groups[np.concatenate([one.positions for one in opened])]
        if other is None or not other.known[row_groups].all():
            return False
        _, firsts = np.unique(other.blob[row_groups], return_index=True)
        return cost * self._decoding_weight > int(other.length[row_groups[firsts]].sum())

    @property
    def _decoding_weight(self) -> int:
        """How many bytes that are combined as they are take as long as decoding one byte of these payloads."""
        if not self.is_found_by_key:
            return 1
        return _DECODING_WEIGHT if self.state.view.opened.is_local else _REMOTE_DECODING_WEIGHT


def _some_keys(test: SetTest, count: int, first: int = 0, step: int = 1) -> AskedTest:
    """Ask for every n-th of some keys that lie evenly among all keys of a test."""
    places = np.linspace(0, len(test.keys) - 1, count).astype(np.int64).tolist()
    return AskedTest(replace(test, keys=tuple(test.keys[at] for at in places[first::step])))
