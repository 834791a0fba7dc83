"""Look-ups in merged payloads: one search answers a leaf for all row groups that share a payload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from pyroaring import BitMap

from planner.clock import Clock
from planner.prune.estimate import Estimate, estimate_by_payload, estimate_by_sample, keys_within
from planner.prune.evaluate import exact_directories
from planner.prune.found_rows import FoundRows
from planner.prune.pruning import LeafState, Pruning
from planner.prune.verdicts import Reason
from planner.view.cache import SHARED, SharedPayloads
from planner.view.directories import IndexReads, KindDirectory, positions_by_number, segment_of
from puffin_index.errors import CorruptFileError, PuffinIndexError
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.leaf import SetTest
from puffin_index.kinds.base import MergedIndex, PreparedLookUp, ReadBlocks
from puffin_index.kinds.held_keys import HoldsKeys
from puffin_index.kinds.registry import kind_named
from puffin_index.storage.arrays import Ints

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
class _Opened:
    """A payload that is open, before its rows are read.

    Attributes:
        blob: The payload's number (`KindDirectory.blob`).
        positions: The positions that are asked about.
        asked: The leaf's test.
        test: The same test of this payload.
        bounds: The least and the greatest number of rows that may match.
        reads: Requests that reading the rows takes.
        cost: Bytes that reading the rows takes.
        nbytes: The memory that the payload took before this test.
    """

    blob: int
    positions: Ints
    payload: MergedIndex
    asked: AskedTest
    test: PreparedLookUp
    bounds: tuple[int, int]
    reads: int
    cost: int
    nbytes: int


_Work: TypeAlias = tuple[int, Ints, AskedTest]
"""A payload's number, the positions that are asked about, and the test."""


def read_directories(look_ups: Sequence[tuple[LookUp, Ints]]) -> None:
    """Read what look-ups at some positions need of directories, for all of them at once.

    One after the other, each look-up would wait for a store. What is in trouble is told by the look-ups themselves.
    """
    works: list[tuple[LookUp, _Work]] = []
    for look_up, undecided in look_ups:
        blobs = positions_by_number(look_up.directory.blob[look_up.pruning.row_groups[undecided]])
        works += [(look_up, work) for work in look_up._works(blobs, undecided) if not look_up._is_known(work)]
    pruning = look_ups[0][0].pruning
    pruning.view.try_each(
        lambda one: one[0]._open(one[1]),
        works,
        lambda one: segment_of(one[1][0]),
        IndexReads(),
        pruning.clock,
        ahead=True,
    )


@dataclass(frozen=True, slots=True)
class LookUp:
    """Looks one leaf up in merged payloads, unless its share of the rows is too great.

    A wide leaf is looked for among candidates only, where these are known.
    """

    pruning: Pruning
    state: LeafState
    directory: KindDirectory
    widest_share: float = 1.0
    candidates: FoundRows | None = None

    def find(self, undecided: Ints) -> Iterator[tuple[FoundRows, Ints]]:
        """Look the leaf up where that is worth its bytes and there is time, some payloads at a time.

        Yields, at least once, the matching rows so far, complete for the positions that were asked and among the
        candidates (payloads may add other rows), and how many rows match at each position, -1 where nobody asked.
        """
        pruning, view = self.pruning, self.pruning.view
        row_groups = pruning.row_groups[undecided]
        blobs = positions_by_number(self.directory.blob[row_groups])
        every = self._open_all(self._works(blobs, undecided))
        opened = self._worth_asking(every)
        found, left = FoundRows(self.directory, view.row_counts), set(range(len(opened)))
        costs = np.array([one.cost for one in opened], np.int64)
        for some in pruning.gate.in_turn(costs):
            left -= set(some.tolist())
            found.rows.update(self._rows_of_all([opened[place] for place in some.tolist()]))
            if left:
                yield found, found.counts(row_groups, blobs)
        for place, reason in zip(sorted(left), pruning.gate.refusals(costs[sorted(left)]), strict=True):
            pruning.refuse(opened[place].positions, reason)
        for one in every:
            if one.payload.nbytes != one.nbytes:
                view.weigh(self.directory, self._row_group(one.positions))
        yield found, found.counts(row_groups, blobs)

    def _works(self, blobs: list[tuple[int, Ints]], undecided: Ints) -> list[_Work]:
        test = AskedTest(self.state.leaf.test)
        return [(blob, undecided[here], test) for blob, here in blobs]

    def _is_known(self, work: _Work) -> bool:
        """Whether memory has the directory of a payload. Opening reports the trouble of any of them."""
        with suppress(PuffinIndexError, OSError):
            row_group = self._row_group(work[1])
            return self.pruning.view.open_index(self.directory, row_group).is_directory_known
        return True

    def _open_all(self, works: Sequence[_Work]) -> list[_Opened]:
        pruning = self.pruning
        # What is open when the time is over was opened for nothing. So half of the time is left for reading rows.
        clock = Clock(pruning.clock.seconds_left / 2)
        results = pruning.view.try_each(
            self._open, works, lambda work: segment_of(work[0]), pruning.reads, clock, ahead=True
        )
        if clock.is_over and self.widest_share == 1:
            for work, result in zip(works, results, strict=True):
                if result is None:
                    pruning.refuse(work[1], Reason.TIME_BUDGET)
        return [result for result in results if result is not None]

    def _open(self, work: _Work) -> _Opened:
        blob, positions, asked = work
        payload = self.pruning.view.open_index(self.directory, self._row_group(positions))
        nbytes = payload.nbytes
        test = payload.prepare(asked)
        bounds = test.count_bounds()
        reads, cost = (0, 0) if bounds[1] == 0 else test.cost()
        return _Opened(blob, positions, payload, asked, test, bounds, reads, cost, nbytes)

    def _rows_of_all(self, asked: list[_Opened]) -> dict[int, BitMap]:
        """The rows by payload, where they could be read. Payloads with little to decode share array operations."""
        found: dict[int, BitMap] = {}
        for some in self._read_together(asked if len(asked) > 1 and self._sharing is None else []):
            read = zip(some, self.pruning.view.each_ahead(self._blocks, some), strict=True)
            every = [(one.blob, blocks) for one, blocks in read if blocks is not None]
            for first in range(0, len(every), _BLOBS_AT_ONCE):
                little = every[first : first + _BLOBS_AT_ONCE]
                try:
                    rows = little[0][1].rows_of_all([blocks for _, blocks in little])
                except CorruptFileError:
                    continue  # one of them is damaged; asked one by one, that one says so
                found |= dict(zip([blob for blob, _ in little], rows, strict=True))
        others = [one for one in asked if one.blob not in found]
        read_alone = zip(
            others, self.pruning.try_each(self._rows, others, lambda one: segment_of(one.blob)), strict=True
        )
        return found | {one.blob: own for one, own in read_alone if own is not None}

    def _read_together(self, asked: list[_Opened]) -> Iterator[list[_Opened]]:
        """Cut payloads into lists whose blocks fit into memory: a store is asked for each list once."""
        little = np.array([min(one.cost, _LITTLE_BYTES) for one in asked], np.int64)
        most = _BLOBS_AT_ONCE * _LITTLE_BYTES if self.pruning.view.is_local else _BYTES_AT_ONCE
        for _, here in positions_by_number(np.cumsum(little) // most):
            yield [asked[at] for at in here.tolist()]

    def _blocks(self, one: _Opened) -> ReadBlocks | None:
        if self.pruning.clock.is_over or not 0 < one.bounds[1] <= _FEW_ROWS:
            return None
        try:
            return one.test.read(_LITTLE_BYTES)
        except (PuffinIndexError, OSError):
            return None

    @property
    def _sharing(self) -> SharedPayloads | None:
        """Where the keys of rows are kept, if somebody will ask for these: decoding both takes twice as long."""
        shared, test = SHARED.get(), self.state.leaf.test
        is_set = isinstance(test, SetTest) and not test.negated
        return shared if shared is not None and is_set and self.directory.column in shared.columns else None

    def _rows(self, one: _Opened) -> BitMap:
        if one.bounds[1] == 0:
            return BitMap()
        shared, payload = self._sharing, one.payload
        if shared is not None and one.bounds[1] <= _FEW_ROWS and isinstance(payload, HoldsKeys):
            within = payload.within(one.asked)
            if within is not None:
                rows, kept = within.read_once()
                shared.within[self.directory.column, self.directory.kind, one.blob] = (self.state.leaf.test, kept)
                return rows
        # Rows of a wide leaf take space, so only the candidates are asked for.
        candidates = self._candidates(one) if one.bounds[1] > _FEW_ROWS else None
        return one.test.rows(candidates)

    def _candidates(self, one: _Opened) -> BitMap:
        """The rows that may match in the asked row groups, in the row space of their segment."""
        row_groups, segment = self.pruning.row_groups[one.positions], segment_of(one.blob)
        bases = self.directory.base[row_groups]
        rows = BitMap()
        ends = bases + self.pruning.view.row_counts[row_groups]
        for first, end in zip(bases.tolist(), ends.tolist(), strict=True):
            rows.add_range(first, end)
        if self.candidates is not None and self.candidates.are_known(row_groups, segment):
            rows &= self.candidates.of_segment(segment)
        return rows

    def _row_group(self, positions: Ints) -> int:
        """One of the row groups that a payload covers: names the payload to the view."""
        return int(self.pruning.row_groups[positions[0]])

    def _worth_asking(self, every: Sequence[_Opened]) -> list[_Opened]:
        """Ask the cost gate, with what the payloads' own directories tell. Wide tests are left for later."""
        worth, others = self._weighed(every)
        if others and self._sample([one for one, estimate in others if self._is_narrow(estimate)]):
            more, others = self._weighed([one for one, _ in others])
            worth += more
        if self.widest_share == 1:
            for one, _ in others:
                self.pruning.refuse(one.positions, Reason.NOT_WORTH_READING)
        self._learn([(one.positions, estimate) for one, estimate in others])
        return [] if worth and self._takes_longer_than_by_rows(worth) else worth

    def _weighed(self, every: Sequence[_Opened]) -> tuple[list[_Opened], list[tuple[_Opened, Estimate]]]:
        """The payloads that are worth their bytes, and the others with what is expected of them."""
        gate, worth, others = self.pruning.gate, list[_Opened](), list[tuple[_Opened, Estimate]]()
        for one in every:
            estimate = self._expected(one)
            if estimate is None:
                worth.append(one)
                continue
            saved = gate.saved(one.positions, (self.state.number, estimate)).sum()
            if self._is_narrow(estimate) and gate.worth(saved, one.cost, one.reads):
                worth.append(one)
            else:
                others.append((one, estimate))
        return worth, others

    def _is_narrow(self, estimate: Estimate) -> bool:
        return bool(estimate.selectivity[0] <= self.widest_share)

    def _sample(self, refused: Sequence[_Opened]) -> bool:
        """Look some of many keys up, as many as may be lost, and estimate where the others are; whether that was done.

        No statistics tell whether keys lie together, as the newest ones of a table do.
        """
        pruning, state = self.pruning, self.state
        test, statistics = state.leaf.test, state.statistics
        if not isinstance(test, SetTest) or test.negated or statistics is None or not refused:
            return False
        if state.sampled is not None or pruning.limits.rows_wanted:
            return False
        at = np.sort(np.concatenate([one.positions for one in refused]))
        row_groups, nowhere = pruning.row_groups[at], np.zeros(len(at))
        saved = pruning.gate.saved(at, (state.number, Estimate(nowhere, nowhere))).sum()
        cost, reads = sum(one.cost for one in refused), sum(one.reads for one in refused)
        count, halves = self._samples(refused, test) if pruning.gate.worth(saved, cost, reads) else (0, [])
        if not halves:
            return False
        with pruning.gate.spending():
            rows = [self._rows_of_all(half) for half in halves]
        first, second = (FoundRows(self.directory, pruning.view.row_counts, own).counts(row_groups) > 0 for own in rows)
        left = keys_within(test, statistics, row_groups) * (1 - 2 * count / len(test.keys))
        presence = state.estimate.presence.copy()
        presence[at] = estimate_by_sample(first, second, count, left)
        state.estimate = Estimate(state.estimate.selectivity, presence)
        state.sampled = np.zeros(len(presence), np.bool_)
        state.sampled[at] = True
        return True

    def _samples(self, opened: Sequence[_Opened], test: SetTest) -> tuple[int, list[list[_Opened]]]:
        """Payloads opened for two samples of the keys, each from all of their range, and the number of keys of each.

        None are opened if no sample may be lost.
        """
        gate = self.pruning.gate
        for count in _SAMPLES:
            if 4 * count > len(test.keys):
                continue
            places = np.linspace(0, len(test.keys) - 1, 2 * count).astype(np.int64).tolist()
            halves: list[list[_Opened]] = []
            for half in (places[0::2], places[1::2]):
                asked = AskedTest(replace(test, keys=tuple(test.keys[at] for at in half)))
                halves.append(self._open_all([(one.blob, one.positions, asked) for one in opened]))
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
        known = self.state.estimate
        selectivity, presence = known.selectivity.copy(), known.presence.copy()
        for positions, estimate in expected:
            selectivity[positions], presence[positions] = estimate.selectivity, estimate.presence
        self.state.estimate = Estimate(selectivity, presence)

    def _expected(self, one: _Opened) -> Estimate | None:
        """What to expect at the positions of a payload; None if the payload has no match."""
        state, statistics = self.state, self.state.statistics
        (least, most), here = one.bounds, self.pruning.selection(one.positions)
        if most == 0:
            return None
        row_groups = self.pruning.row_groups[one.positions]
        row_counts = self.pruning.view.row_counts[row_groups]
        rows, own = int(row_counts.sum()), state.estimate.at(here)
        share, sizes = float((own.selectivity * row_counts).sum()) / rows, one.payload.sizes
        # The bounds are of all row groups of the payload; perhaps only some are asked about.
        share = min(max(share, least / max(rows if sizes is None else sizes[0], 1)), most / rows, 1.0)
        presence, is_sampled = own.presence, state.sampled is not None and state.sampled[here].all()
        if sizes is not None and statistics is not None and not is_sampled:
            presence = estimate_by_payload(state.leaf.test, own, statistics, row_groups, sizes, one.bounds)
        return Estimate(np.full(len(row_groups), share), presence)

    def _takes_longer_than_by_rows(self, opened: list[_Opened]) -> bool:
        """Whether somebody wants the rows, and a kind that is not found by key gives them in less time.

        Such a kind has about the same bytes for every test, which are combined as they are.
        """
        pruning, leaf = self.pruning, self.state.leaf
        cost = sum(one.cost for one in opened)
        is_found_by_key = kind_named(self.directory.kind).is_found_by_key
        # Once a leaf has rows of one kind, no other kind is asked for the rest.
        is_open = is_found_by_key and self.state.found is None
        if not is_open or not pruning.limits.rows_wanted or cost < _CHEAP_BYTES:
            return False
        other = exact_directories(pruning.view, leaf, pruning.reads)[0]
        row_groups = pruning.row_groups[np.concatenate([one.positions for one in opened])]
        if kind_named(other.kind).is_found_by_key or not other.known[row_groups].all():
            return False
        _, firsts = np.unique(other.blob[row_groups], return_index=True)
        weight = _DECODING_WEIGHT if pruning.view.is_local else _REMOTE_DECODING_WEIGHT
        return cost * weight > int(other.length[row_groups[firsts]].sum())
