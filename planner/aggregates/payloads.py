"""Which payload of a column tells the keys of each row group: the one that costs least."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.aggregates.known_rows import KnownRows
from planner.aggregates.question import AskedColumn, Question
from planner.condition.tree.nodes import necessary_leaves
from planner.view.directories import FieldStatistics, IndexReads, KindDirectory, positions_by_number, segment_of
from planner.view.index_view import IndexView
from planner.view.keys_of_rows import add_cost, are_in_memory, may_be_kept
from puffin_index.keys.asked import AskedTest
from puffin_index.kinds.held_keys import HoldsKeys, KeysWithin, most_key_sets
from puffin_index.kinds.registry import kinds_holding_keys
from puffin_index.storage.arrays import Flags, Floats, Ints
from puffin_index.storage.ranged import Reading

_INDEX_WEIGHT = 0.5
"""An index byte is cheaper than a data byte, which is decompressed and decoded."""

_BY_ROW_WEIGHT = 4.0
"""A payload that is ordered by key is decoded as a whole to find the keys of rows."""

_MERGED_BY_ROW_WEIGHT = 2.0
"""The same of one payload of many row groups, which is decoded in large pieces."""

_FEW_ROWS = 64
"""Where fewer than one row in 64 is wanted, their keys are looked up by a test of the same column."""


@dataclass(frozen=True, slots=True, eq=False)
class Payloads:
    """The payloads that hold the keys of one column. Costs are weighed bytes.

    Attributes:
        numbers: For each position the number of its payload; -1 without one. The remainder of a division by the number
            of directories is the place of the directory that tells of the payload.
        costs: For each position its share of the cost of its payload.
        spending: For each position its share of what its payload takes of the byte budget: all index bytes weigh alike.
        are_decoded: For each position whether all keys of its payload are decoded for an answer.
        must_decode: For each position whether this is still to be done, as the keys are not in memory.
        within: By the number of a payload, the keys of those rows that satisfy a test that all matching rows satisfy.
        may_be_kept: Whether there is room for decoded keys.
    """

    column: AskedColumn
    directories: tuple[KindDirectory, ...]
    numbers: Ints
    costs: Floats
    spending: Floats
    are_decoded: Flags
    must_decode: Flags
    within: Mapping[int, KeysWithin]
    may_be_kept: bool

    def directory_of(self, place: int) -> KindDirectory:
        """The directory that tells of the payload of a position."""
        return self.directories[int(self.numbers[place]) % len(self.directories)]


def is_due(view: IndexView, payloads: Sequence[Payloads], unit: Ints, row_groups: Ints, saved: Floats) -> bool:
    """Whether to decode keys now that later questions find in memory, by what the index saves at each place."""
    decoded = [own for own in payloads if own.must_decode[unit].any()]
    price = sum(float(own.costs[unit].sum()) for own in decoded)
    spent = price + float(saved[unit].sum())
    if not decoded or spent <= 0 or not all(own.may_be_kept for own in decoded):
        return False
    firsts = [
        (own, place)
        for own in decoded
        for _, places in positions_by_number(own.numbers[unit])
        if own.must_decode[(place := int(unit[places[0]]))]
    ]
    # Only payloads of several row groups are kept open.
    if not all(own.directory_of(place).merged[row_groups[place]] for own, place in firsts):
        return False
    totals = [add_cost(view, own.directory_of(place), int(row_groups[place]), spent) for own, place in firsts]
    return min(totals) >= price


def choose_payloads(
    question: Question, asked: AskedColumn, rows: KnownRows, positions: Ints, reads: IndexReads
) -> Payloads:
    """Choose the payload of each row group: of the kind that costs least, where there is one."""
    view, row_groups, count = rows.scan.view, rows.scan.numbers[positions], len(positions)
    # Where all rows of a payload that is ordered by key match, the rows of each key are counted without decoding them.
    is_counted = asked.needs_distinct or bool(question.groups)
    can_count = is_counted and (not question.groups or len(question.every_column) == 1)
    statistics = view.statistics(asked.column, asked.value_type.name, reads)
    has_sets = _has_few_keys(view, question, statistics, row_groups)
    is_whole = rows.is_whole[positions]
    # A test that all matching rows satisfy.
    tests = (leaf for leaf in necessary_leaves(rows.predicate) if leaf.value_type == asked.value_type.name)
    test = next((AskedTest(leaf.test) for leaf in tests if leaf.field_id == asked.column), None)
    known: list[_OfKind] = []
    may_keep = True
    for kind in kinds_holding_keys():
        directory = view.directory(asked.column, asked.value_type.name, kind.name, reads)
        if directory is None or not directory.known[row_groups].any():
            continue
        blobs = directory.blob[row_groups]
        _, owners, counts = np.unique(blobs, return_inverse=True, return_counts=True)
        are_decoded = ~has_sets if kind.is_found_by_key else np.zeros(count, np.bool_)
        if kind.is_found_by_key and can_count:
            every, covered = np.unique(directory.blob, return_counts=True)
            whole = np.bincount(owners, is_whole)[owners]
            are_decoded &= whole != covered[np.searchsorted(every, blobs)]
        by_row = np.where(directory.merged[row_groups], _MERGED_BY_ROW_WEIGHT, _BY_ROW_WEIGHT)
        weight = np.where(are_decoded, by_row, _INDEX_WEIGHT)
        lengths = directory.length[row_groups] / counts[owners]
        must_decode = are_decoded
        if are_decoded.any():
            must_decode = are_decoded & ~are_in_memory(view, directory, row_groups)
            lengths[are_decoded & ~must_decode] = 0.0
            may_keep &= statistics is not None and may_be_kept(view, statistics, directory, row_groups[are_decoded])
        costs = np.where(directory.known[row_groups], weight * lengths, np.inf)
        known.append(_OfKind(directory, costs, _INDEX_WEIGHT * lengths, are_decoded, must_decode))
        if kind.is_found_by_key and test is not None:
            known.append(_within(directory, test, rows, positions, reads))
    known = [own for own in known if np.isfinite(own.costs).any()]
    known.sort(key=lambda one: float(one.costs[np.isfinite(one.costs)].mean()))
    numbers, costs, spending = np.full(count, -1, np.int64), np.full(count, np.inf), np.zeros(count)
    are_decoded, must_decode = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    within: dict[int, KeysWithin] = {}
    for place, own in enumerate(known):
        # Segment numbers take 31 bits and entries 32; there are few kinds.
        within |= {blob * len(known) + place: keys for blob, keys in own.within.items()}
        here = np.flatnonzero((numbers < 0) & np.isfinite(own.costs))
        costs[here], spending[here] = own.costs[here], own.spending[here]
        are_decoded[here], must_decode[here] = own.are_decoded[here], own.must_decode[here]
        numbers[here] = own.directory.blob[row_groups[here]] * len(known) + place
    directories = tuple(own.directory for own in known)
    return Payloads(asked, directories, numbers, costs, spending, are_decoded, must_decode, within, may_keep)


@dataclass(frozen=True, slots=True, eq=False)
class _OfKind:
    """The payloads of one kind, position by position; attributes as in `Payloads`, but `within` by `blob`."""

    directory: KindDirectory
    costs: Floats
    spending: Floats
    are_decoded: Flags
    must_decode: Flags
    within: Mapping[int, KeysWithin] = field(default_factory=dict)


def _has_few_keys(view: IndexView, question: Question, statistics: FieldStatistics | None, row_groups: Ints) -> Flags:
    """Whether a column has so few keys that the row set of each, and not the key of each row, gives the answer."""
    is_of_pairs = bool(question.groups) and len(question.every_column) > 1 and not question.has_key_groups
    if statistics is None or is_of_pairs:
        return np.zeros(len(row_groups), np.bool_)
    few = statistics.distinct_count[row_groups] <= most_key_sets(view.row_counts[row_groups])
    return np.asarray(few & statistics.known[row_groups], np.bool_)


def _within(directory: KindDirectory, test: AskedTest, rows: KnownRows, positions: Ints, reads: IndexReads) -> _OfKind:
    """Payloads that only have to give a few rows, with keys that a test narrows down."""
    view, row_groups, matches = rows.scan.view, rows.scan.numbers[positions], rows.matches[positions]
    none = np.zeros(len(row_groups), np.bool_)
    lengths, costs = np.zeros(len(row_groups)), np.full(len(row_groups), np.inf)
    found: dict[int, KeysWithin] = {}
    few: list[tuple[int, Ints]] = []
    for blob, here in positions_by_number(directory.blob[row_groups]):
        are_few = _FEW_ROWS * matches[here].sum() < view.row_counts[row_groups[here]].sum()
        if are_few and directory.merged[row_groups[here[0]]]:
            few.append((blob, here))

    def within(one: tuple[int, Ints]) -> Reading[KeysWithin | None]:
        blob, here = one
        # The look-up of the test may have kept them.
        before = None if reads.shared is None else reads.shared.within.get((directory.column, directory.kind, blob))
        if before is not None and before[0] == test.test:
            return before[1]
        opened = yield from view.opened.open(directory, int(row_groups[here[0]]), reads.shared)
        return (yield from opened.within(test)) if isinstance(opened, HoldsKeys) else None

    # If a payload is asked for all of its keys, its trouble is told then.
    every = view.opened.read_each(within, few, lambda one: segment_of(one[0]), IndexReads(reads.count))
    for (blob, here), keys in zip(few, every, strict=True):
        if keys is not None:
            found[blob] = keys
            lengths[here] = keys.cost_bytes / len(here)
            costs[here] = lengths[here] * _MERGED_BY_ROW_WEIGHT
    return _OfKind(directory, costs, _INDEX_WEIGHT * lengths, none, none, found)


def unit_numbers(payloads: Sequence[Ints]) -> Ints:
    """Give positions that share a payload one number, directly or through other positions: that of their unit."""
    units = np.arange(len(payloads[0]))
    labels = [np.unique(numbers, return_inverse=True)[1] for numbers in payloads]
    while True:
        before = units
        for label in labels:
            least = np.full(int(label.max(initial=-1)) + 1, len(units))
            np.minimum.at(least, label, units)
            units = least[label]
        if np.array_equal(units, before):
            return units
