"""The second bucket: row groups whose part of the answer indexes have.

Row groups that share payloads are answered together, as one unit: all of it, or nothing of it. Groups by one column of
few keys are row sets, so that no key of a row is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from planner.aggregates.known_rows import KnownRows
from planner.aggregates.partial import Partial
from planner.aggregates.payloads import Payloads, choose_payloads, is_due, unit_numbers
from planner.aggregates.question import Question
from planner.clock import Clock
from planner.prune.gate import Limits
from planner.view.cache import SharedPayloads
from planner.view.directories import IndexReads, positions_by_number
from planner.view.index_view import IndexView
from planner.view.keys_of_rows import OpenedKeys, decoded_keys, open_keys
from puffin_index.keys.columns import Column, KeyArray, join_columns
from puffin_index.keys.map_key import ColumnId
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.held_keys import HoldsKeys, Totals, Want, join_totals, totals_of_counts, totals_of_distinct
from puffin_index.storage.arrays import Flags, Floats, Ints
from puffin_index.storage.ranged import Reading

T = TypeVar("T")

_ROWS_AT_ONCE: Final = 1 << 20
"""The keys of about this many rows are grouped at once."""


def each_unit(
    question: Question,
    rows: KnownRows,
    positions: Ints,
    reads: IndexReads,
    data_costs: Floats,
    limits: Limits,
    ask: Callable[[Unit], Reading[T | None]],
) -> tuple[list[T], Ints]:
    """Ask the units of some positions of the plan, whose matching rows are known.

    Takes `data_costs` of each position and `limits` as `answer` does. Returns what units told, and the positions of the
    others: their indexes cost too much, are in trouble or told None.
    """
    view, row_groups = rows.scan.view, rows.scan.numbers[positions]
    payloads = [choose_payloads(question, one, rows, positions, reads) for one in question.every_column]
    here = np.flatnonzero(np.logical_and.reduce([own.numbers >= 0 for own in payloads]))
    index_costs = np.sum([own.costs for own in payloads], axis=0)
    saved = data_costs - index_costs
    every_unit = positions_by_number(unit_numbers([own.numbers[here] for own in payloads]))
    units = [
        here[own]
        for _, own in every_unit
        if saved[here[own]].sum() > 0 or is_due(view, payloads, here[own], row_groups, saved)
    ]
    spending = np.sum([own.spending for own in payloads], axis=0)
    within = np.cumsum([spending[unit].sum() for unit in units]) <= limits.byte_budget
    units = units[: int(within.sum())]
    clock = Clock(limits.seconds)
    if reads.shared is not None:
        reads.shared.keep_no_more()

    def told(unit: Ints) -> Reading[T | None]:
        return ask(Unit(view, question, rows, positions[unit], row_groups[unit], payloads, unit, reads.shared))

    def segment_of(unit: Ints) -> int:
        return int(payloads[0].directory_of(unit[0]).segment[row_groups[unit[0]]])

    found: list[T] = []
    is_answered = np.zeros(len(positions), np.bool_)
    for unit, result in zip(units, view.opened.read_each(told, units, segment_of, reads, clock), strict=True):
        if result is not None:
            found.append(result)
            is_answered[unit] = True
    return found, positions[~is_answered]


@dataclass(frozen=True, slots=True, eq=False)
class _GroupTotals:
    """The rows of some groups, at least one of each, and the totals of each column; without `keys`, of all rows.

    `keys` has NULL, too. Distinct keys come in parts, where they are needed.
    """

    row_counts: Sequence[int]
    totals: Mapping[ColumnId, Sequence[Totals]]
    keys: Column | None = None
    distinct: Mapping[ColumnId, Sequence[KeyArray]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class _RowKeys:
    """The keys of rows; a key stands for one row or as many as `weights` says."""

    row_count: int
    columns: Mapping[ColumnId, Column]
    weights: Ints | None = None


Found: TypeAlias = list[_GroupTotals] | _RowKeys
"""What indexes tell of the matching rows of a unit."""


def _has_zero_end(question: Question, found: Found) -> bool:
    """Whether a minimum or maximum is a zero."""
    names = [
        f"{end} {number}"
        for number, asked in enumerate(question.columns)
        if asked.value_type.is_floating
        for end in asked.ends
    ]
    parts = partials_of(question, [found]) if names else ()
    return any(pc.any(pc.equal(part.groups[name], 0), min_count=0).as_py() for part in parts for name in names)


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Row groups that are answered together, their places in the arrays of `payloads`, and matching rows asked for."""

    view: IndexView
    question: Question
    rows: KnownRows
    positions: Ints
    row_groups: Ints
    payloads: Sequence[Payloads]
    places: Ints
    shared: SharedPayloads | None
    row_sets: dict[int, BitMap] = field(default_factory=dict)

    def answer(self) -> Reading[Found | None]:
        """Return what indexes tell of the rows; None if an end is a zero, whose sign no index knows."""
        found = yield from self._answer()
        return None if _has_zero_end(self.question, found) else found

    def _answer(self) -> Reading[Found]:
        if not self.question.groups:
            return (yield from self._totals())
        if len(self.payloads) == 1:
            return (yield from self._counts(self.payloads[0]))
        groups = (yield from self._totals_of_groups()) if self.question.has_key_groups else None
        if groups is not None:
            return groups
        keys = yield from self.keys()
        return _RowKeys(next(iter(keys.values())).row_count, keys)

    def keys(self) -> Reading[dict[ColumnId, Column]]:
        """Return the keys of each column in the matching rows, in the order of the positions."""
        found: dict[ColumnId, Column] = {}
        for own in self.payloads:
            found[own.column.column] = yield from self._keys(own)
        return found

    def _each(self, own: Payloads, ask: Callable[[OpenedKeys], Reading[T]]) -> Reading[list[T]]:
        """Ask each payload of a column; each is released before the next is opened."""
        told: list[T] = []
        for _, unordered in positions_by_number(own.numbers[self.places]):
            place, row_group = self.places[unordered[0]], int(self.row_groups[unordered[0]])
            directory = own.directory_of(place)
            opened = yield from open_keys(self.view, directory, self.row_groups, unordered, self.shared)
            if own.are_decoded[place] and own.may_be_kept and directory.merged[row_group]:
                decoded = yield from decoded_keys(self.view, directory, row_group, opened.index)
                opened = replace(opened, index=decoded)
            elif (within := own.within.get(int(own.numbers[place]))) is not None:
                opened = replace(opened, index=within)
            told.append((yield from ask(opened)))
            self.view.opened.weigh(directory, row_group)
        return told

    def _each_asked(self, own: Payloads, ask: Callable[[HoldsKeys, BitMap], Reading[T]]) -> Reading[list[T]]:
        """Ask each payload of a column for its matching rows."""
        return self._each(own, lambda opened: ask(opened.index, opened.moved(self._rows)))

    def _totals_of_groups(self) -> Reading[list[_GroupTotals] | None]:
        """The totals of groups by a column of few keys; None if the column has many."""
        group = self.question.groups[0].column
        by_column = {own.column.column: own for own in self.payloads}
        parts = yield from self._each(by_column[group], self._groups_in)
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        counts = [part.row_counts for part in known]
        chosen = [np.flatnonzero(own) for own in counts]
        totals: list[dict[ColumnId, list[Totals]]] = [{} for _ in known]
        for asked in self.question.columns:
            in_parts = partial(_totals_in, known, chosen, asked.wanted_totals)
            found = yield from self._each(by_column[asked.column], in_parts)
            for at, own_totals in enumerate(totals):
                own = [of_payload[at] for of_payload in found if of_payload[at]]
                own_totals[asked.column] = [join_totals(of_group) for of_group in zip(*own, strict=True)]
        return [
            _GroupTotals(own_counts[groups].tolist(), own_totals, part.keys.take(groups))
            for part, groups, own_counts, own_totals in zip(known, chosen, counts, totals, strict=True)
        ]

    def _groups_in(self, opened: OpenedKeys) -> Reading[_KeyGroups | None]:
        """The groups of the matching rows; None if the payload has no row sets of its keys."""
        sets = yield from opened.index.sets_of()
        if sets is None:
            return None
        every = [*sets.rows, *([sets.nulls] if sets.nulls else [])]
        rows: dict[int, list[BitMap]] = {}
        row_counts = self.view.row_counts[self.row_groups[list(opened.places)]].tolist()
        for place, base, row_count in zip(opened.places, opened.bases, row_counts, strict=True):
            rows[place] = every
            # The payload may cover other row groups, which are not asked about.
            if base or any(one and one.max() >= row_count for one in every):
                here = BitMap(range(base, base + row_count))
                rows[place] = [(one & here).shift(-base) for one in every]
        among = {at: None if self.rows.is_whole[self.positions[at]] else self._rows(at) for at in rows}
        return _KeyGroups(_with_null(sets.value_type, sets.keys, bool(sets.nulls)), rows, among)

    def _rows(self, at: int) -> BitMap:
        """The matching rows of the row group at a place of the unit."""
        if at not in self.row_sets:
            self.row_sets[at] = self.rows.of(int(self.positions[at]))
        return self.row_sets[at]

    def _counts(self, own: Payloads) -> Reading[Found]:
        """How often each key occurs: the answer to a question about one column."""
        counts = yield from self._each_asked(own, lambda index, rows: index.counts_of(rows))
        column = join_columns([_with_null(one.value_type, one.keys, one.null_count > 0) for one in counts])
        weights = [np.append(one.counts, one.null_count) if one.null_count else one.counts for one in counts]
        return _RowKeys(column.row_count, {own.column.column: column}, np.concatenate(weights))

    def _totals(self) -> Reading[Found]:
        row_count = int(self.rows.matches[self.positions].sum())
        totals: dict[ColumnId, list[Totals]] = {}
        distinct: dict[ColumnId, list[KeyArray]] = {}
        for own in self.payloads:
            asked, column = own.column, own.column.column
            if not asked.needs_distinct:
                totals_of = partial(_totals_of, asked.wanted_totals)
                found = yield from self._each_asked(own, totals_of)
            elif asked.needs_sum:
                counts = yield from self._each_asked(own, lambda index, rows: index.counts_of(rows))
                found, distinct[column] = [totals_of_counts(one) for one in counts], [one.keys for one in counts]
            else:
                keys = yield from self._each_asked(own, lambda index, rows: index.distinct_of(rows))
                found, distinct[column] = list(map(totals_of_distinct, keys)), [own for own, _ in keys]
            totals[column] = [join_totals(found)]
        return [_GroupTotals([row_count], totals, distinct=distinct)]

    def _keys(self, own: Payloads) -> Reading[Column]:
        """The keys of the matching rows, row group by row group, in the order of the positions."""
        parts: dict[int, Column] = {}

        def cut(opened: OpenedKeys) -> Reading[None]:
            column = yield from opened.index.keys_of(opened.moved(self._rows))
            counts = self.rows.matches[self.positions[list(opened.places)]]
            ends = np.cumsum(counts)
            for at, first, end in zip(opened.places, (ends - counts).tolist(), ends.tolist(), strict=True):
                parts[at] = column.part(first, end)

        yield from self._each(own, cut)
        return join_columns([parts[at] for at in range(len(self.positions))])


@dataclass(frozen=True, slots=True, eq=False)
class _KeyGroups:
    """The groups, NULL included, of row groups that share a payload of the column to group by.

    By the place of a row group in the unit: the rows of each key, and the rows of interest (None: all), numbered from 0
    in it.
    """

    keys: Column
    rows: Mapping[int, Sequence[BitMap]]
    among: Mapping[int, BitMap | None]

    @property
    def row_counts(self) -> Ints:
        """The number of rows of each group."""
        counts = np.zeros(self.keys.row_count, np.int64)
        for place, own in self.rows.items():
            among = self.among[place]
            counts += [len(one) if among is None else among.intersection_cardinality(one) for one in own]
        return counts

    def totals_in(self, opened: OpenedKeys, groups: Ints, want: Want) -> Reading[list[Totals]]:
        """Return the totals that a payload tells of some groups; nothing if it covers none of their row groups."""
        places = [place for place in opened.places if place in self.rows]
        if not places:
            return []
        sets = [opened.moved({place: self._wanted(place, group) for place in places}.get) for group in groups.tolist()]
        return (yield from opened.index.totals_of_each(sets, want))

    def _wanted(self, place: int, group: int) -> BitMap:
        """The rows of interest of a group in a row group."""
        rows, among = self.rows[place][group], self.among[place]
        return rows if among is None else rows & among


def _totals_of(want: Want, index: HoldsKeys, rows: BitMap) -> Reading[Totals]:
    (found,) = yield from index.totals_of_each([rows], want)
    return found


def _totals_in(
    parts: Sequence[_KeyGroups], chosen: Sequence[Ints], want: Want, opened: OpenedKeys
) -> Reading[list[list[Totals]]]:
    """The totals that a payload tells of the chosen groups of each part."""
    found: list[list[Totals]] = []
    for part, groups in zip(parts, chosen, strict=True):
        found.append((yield from part.totals_in(opened, groups, want)))
    return found


def _with_null(value_type: ValueType, keys: KeyArray, has_null: bool) -> Column:
    """Return distinct keys as a column, with a NULL row at the end if there are NULL rows."""
    if not has_null:
        return Column(value_type, len(keys), keys, None)
    valid: Flags = np.append(np.ones(len(keys), np.bool_), False)
    if isinstance(keys, np.ndarray):
        return Column(value_type, len(valid), np.append(keys, 0), valid)
    return Column(value_type, len(valid), pa.concat_arrays([keys, pa.nulls(1, pa.large_binary())]), valid)


def partials_of(question: Question, found: Sequence[Found]) -> Iterator[Partial]:
    """Make partial answers of many rows at once."""
    groups = [own for one in found if isinstance(one, list) for own in one]
    if groups:
        totals = {
            asked.column: [total for own in groups for total in own.totals[asked.column]] for asked in question.columns
        }
        distinct = {
            asked.column: [keys for own in groups for keys in own.distinct[asked.column]]
            for asked in question.columns
            if asked.needs_distinct
        }
        row_counts = [count for own in groups for count in own.row_counts]
        keys = [own.keys for own in groups if own.keys is not None]
        yield Partial.of_totals(question, row_counts, totals, distinct, join_columns(keys) if keys else None)
    rows = [one for one in found if isinstance(one, _RowKeys)]
    for _, here in positions_by_number(np.cumsum([one.row_count for one in rows]) // _ROWS_AT_ONCE):
        some = [rows[at] for at in here.tolist()]
        columns = {
            asked.column: join_columns([one.columns[asked.column] for one in some]) for asked in question.every_column
        }
        known = [one.weights for one in some if one.weights is not None]
        weights = np.concatenate(known) if known else None
        yield Partial.of_rows(question, columns, sum(one.row_count for one in some), weights)
