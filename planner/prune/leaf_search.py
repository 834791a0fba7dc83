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
from planner.prune.leaf_payloads import LeafPayloads, Prepared
from planner.prune.row_sets import FoundRows
from planner.prune.verdicts import Reason
from planner.view.directories import IndexReads, segment_of
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.leaf import SetTest
from puffin_index.kinds.kind import Answer
from puffin_index.kinds.registry import kind_named, kinds_answering
from puffin_index.storage.arrays import Flags, Ints

WIDE_SHARE = 0.02
"""A leaf that matches a greater share of the rows is left for later: narrow leaves may leave few row groups to ask."""

_SAMPLES = (32, 16, 8, 4)
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
        for some in gate.in_turn(costs):
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
            yield self._ask(self.prepare_all(self.works(undecided[some])))
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

    def _met(self, opened: Sequence[Prepared]) -> Ints:
        """The positions where a row matches."""
        positions, counts = self.counts(opened, self.rows_of_all(opened))
        return positions[counts > 0]

    def _worth_asking(self, every: Sequence[Prepared]) -> list[Prepared]:
        """Ask the cost gate, with what the payloads' own directories tell. Wide tests are left for later."""
        worth, others = self._weighed(every)
        if others and self._sample([one for one, estimate in others if self._is_narrow(estimate)]):
            more, others = self._weighed([one for one, _ in others])
            worth += more
        for one, estimate in others:
            if self._is_narrow(estimate):
                self.state.refuse(one.positions, Reason.NOT_WORTH_READING)
        self._learn([(one.positions, estimate) for one, estimate in others])
        return [] if worth and self._takes_longer_than_by_rows(worth) else worth

    def _weighed(self, every: Sequence[Prepared]) -> tuple[list[Prepared], list[tuple[Prepared, Estimate]]]:
        """The payloads that are worth their bytes, and the others with what is expected of them."""
        gate, worth, others = self.state.gate, list[Prepared](), list[tuple[Prepared, Estimate]]()
        learned: list[tuple[Ints, Estimate]] = []
        for one in every:
            estimate = self._expected(one)
            if estimate is None:
                worth.append(one)
                continue
            saved = gate.saved(one.positions, (self.leaf.number, estimate)).sum()
            # Most of what a wide leaf costs is decoding its rows. Where rows are wanted, those of the data cost more.
            is_cheap = estimate.selectivity[0] <= WIDE_SHARE or self.state.limits.rows_wanted
            cost = one.cost if is_cheap else one.cost * self._decoding_weight
            if self._is_narrow(estimate) and gate.worth(saved, cost, one.reads):
                worth.append(one)
                # How many rows a wide leaf has is not known once it is looked up among candidates.
                learned.append((one.positions, estimate))
            else:
                others.append((one, estimate))
        self._learn(learned)
        return worth, others

    def _is_narrow(self, estimate: Estimate) -> bool:
        return bool(estimate.selectivity[0] <= self.widest_share)

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
            first, second = (np.isin(at, self._met(half)) for half in halves)
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
        gate = self.state.gate
        for count in _SAMPLES:
            if 4 * count > len(test.keys):
                continue
            halves: list[list[Prepared]] = []
            for half in (0, 1):
                asked = _some_keys(test, 2 * count, half, 2)
                halves.append(self.prepare_all([(one.blob, one.positions, asked) for one in opened]))
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
        places = None if known.places is None else known.places.copy()
        for positions, estimate in expected:
            selectivity[positions], presence[positions] = estimate.selectivity, estimate.presence
            if places is not None and estimate.places is not None:
                places[positions] = estimate.places
        self.leaf.estimate = Estimate(selectivity, presence, places)

    def _expected(self, one: Prepared) -> Estimate | None:
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
        places = None if own.places is None else own.places * share / np.maximum(own.selectivity, 1 / rows)
        return Estimate(np.full(len(row_groups), share), presence, places)

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
