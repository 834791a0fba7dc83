"""The second bucket: row groups whose part of the answer indexes have.

Row groups that share payloads are answered together, as one unit: all of it, or nothing of it. Groups by one column of
few keys are row sets, so that no key of a row is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

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


def each_unit(
    question: Question,
    rows: KnownRows,
    positions: Ints,
    reads: IndexReads,
    data_costs: Floats,
    limits: Limits,
    ask: Callable[[Unit], Reading[T | None]],
) -> tuple[list[T], Ints]:
    """Ask the units of some positions of the plan, whose matching rows are known; `data_costs` are of each position.

    Returns what units told, and the positions of others: their indexes cost too much, are in trouble or told None.
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

    def answer(self) -> Reading[Partial | None]:
        """Return what indexes tell of the rows; None if an end is a zero, whose sign no index knows."""
        found = yield from self._answer()
        columns = [(number, own) for number, own in enumerate(self.question.columns) if own.value_type.is_floating]
        ends = [found.groups[f"{end} {number}"] for number, own in columns for end in own.ends]
        return None if any(pc.any(pc.equal(keys, 0), min_count=0).as_py() for keys in ends) else found

    def _answer(self) -> Reading[Partial]:
        if not self.question.groups:
            return (yield from self._totals())
        if len(self.payloads) == 1:
            return (yield from self._counts(self.payloads[0]))
        groups = (yield from self._totals_of_groups()) if self.question.has_key_groups else None
        if groups is not None:
            return groups
        keys = yield from self.keys()
        return Partial.of_rows(self.question, keys, next(iter(keys.values())).row_count)

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
        return self._each(own, lambda opened: ask(opened.index, opened.moved(self._rows)))

    def _totals_of_groups(self) -> Reading[Partial | None]:
        """The totals of groups by a column of few keys; None if the column has many."""
        group = self.question.groups[0].column
        by_column = {own.column.column: own for own in self.payloads}
        parts = yield from self._each(by_column[group], self._groups_in)
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        totals: list[dict[ColumnId, list[Totals]]] = [{} for _ in known]
        for asked in self.question.columns:
            found = yield from self._each(by_column[asked.column], partial(_totals_in, known, asked.wanted_totals))
            for at, own_totals in enumerate(totals):
                own = [of_payload[at] for of_payload in found if of_payload[at]]
                own_totals[asked.column] = [join_totals(of_group) for of_group in zip(*own, strict=True)]
        partials = [
            Partial.of_totals(self.question, part.row_counts, own_totals, {}, part.keys)
            for part, own_totals in zip(known, totals, strict=True)
        ]
        return Partial.merged(self.question, partials)

    def _groups_in(self, opened: OpenedKeys) -> Reading[_KeyGroups | None]:
        """The groups of the matching rows; None if the payload has no row sets of its keys."""
        sets = yield from opened.index.sets_of()
        if sets is None:
            return None
        every = [*sets.rows, *([sets.nulls] if sets.nulls else [])]
        rows: dict[int, list[BitMap]] = {}
        for place, base in zip(opened.places, opened.bases, strict=True):
            # The payload may cover other row groups, which are not asked about.
            here = self._rows(place).shift(base)
            rows[place] = [(one & here).shift(-base) for one in every]
        counts = np.sum([[len(one) for one in own] for own in rows.values()], axis=0)
        there = np.flatnonzero(counts)
        keys = _with_null(sets.value_type, sets.keys, bool(sets.nulls)).take(there)
        groups = {place: [own[at] for at in there.tolist()] for place, own in rows.items()}
        return _KeyGroups(keys, counts[there].tolist(), groups)

    def _rows(self, at: int) -> BitMap:
        if at not in self.row_sets:
            self.row_sets[at] = self.rows.of(int(self.positions[at]))
        return self.row_sets[at]

    def _counts(self, own: Payloads) -> Reading[Partial]:
        counts = yield from self._each_asked(own, lambda index, rows: index.counts_of(rows))
        column = join_columns([_with_null(one.value_type, one.keys, one.null_count > 0) for one in counts])
        weights = [np.append(one.counts, one.null_count) if one.null_count else one.counts for one in counts]
        return Partial.of_rows(self.question, {own.column.column: column}, column.row_count, np.concatenate(weights))

    def _totals(self) -> Reading[Partial]:
        totals: dict[ColumnId, list[Totals]] = {}
        distinct: dict[ColumnId, list[KeyArray]] = {}
        for own in self.payloads:
            found, distinct[own.column.column] = yield from self._totals_of(own)
            totals[own.column.column] = [join_totals(found)]
        row_count = int(self.rows.matches[self.positions].sum())
        return Partial.of_totals(self.question, [row_count], totals, distinct)

    def _totals_of(self, own: Payloads) -> Reading[tuple[list[Totals], list[KeyArray]]]:
        asked = own.column
        if not asked.needs_distinct:
            each = yield from self._each_asked(
                own, lambda index, rows: index.totals_of_each([rows], asked.wanted_totals)
            )
            return [one for (one,) in each], []
        if asked.needs_sum:
            counts = yield from self._each_asked(own, lambda index, rows: index.counts_of(rows))
            return [totals_of_counts(one) for one in counts], [one.keys for one in counts]
        keys = yield from self._each_asked(own, lambda index, rows: index.distinct_of(rows))
        return list(map(totals_of_distinct, keys)), [one for one, _ in keys]

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
    """The groups, NULL included, of a payload's row groups: by place in the unit, the matching rows of each group."""

    keys: Column
    row_counts: Sequence[int]
    rows: Mapping[int, Sequence[BitMap]]


def _totals_in(parts: Sequence[_KeyGroups], want: Want, opened: OpenedKeys) -> Reading[list[list[Totals]]]:
    """The totals that a payload tells of the groups of each part; none if it covers none of the part's row groups."""
    found: list[list[Totals]] = []
    for part in parts:
        places = [place for place in opened.places if place in part.rows]
        groups = range(len(part.row_counts) if places else 0)
        sets = [opened.moved({place: part.rows[place][group] for place in places}.get) for group in groups]
        found.append((yield from opened.index.totals_of_each(sets, want)) if sets else [])
    return found


def _with_null(value_type: ValueType, keys: KeyArray, has_null: bool) -> Column:
    """Return distinct keys as a column, with a NULL row at the end if there are NULL rows."""
    if not has_null:
        return Column(value_type, len(keys), keys, None)
    valid: Flags = np.append(np.ones(len(keys), np.bool_), False)
    if isinstance(keys, np.ndarray):
        return Column(value_type, len(valid), np.append(keys, 0), valid)
    return Column(value_type, len(valid), pa.concat_arrays([keys, pa.nulls(1, pa.large_binary())]), valid)
