"""The second bucket: row groups whose part of the answer indexes have.

Row groups that share payloads are answered together, as one unit: all of it, or nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow.compute as pc
from pyroaring import BitMap

from planner.aggregates.key_groups import (
    GroupTotals,
    KeyGroups,
    has_key_groups,
    totals_of_groups,
    wanted_of,
    with_null,
)
from planner.aggregates.known_rows import KnownRows
from planner.aggregates.partial import Partial
from planner.aggregates.payloads import Payloads, choose_payloads, is_due, unit_numbers
from planner.aggregates.question import Question
from planner.clock import Clock
from planner.prune.gate import Limits
from planner.view.directories import IndexReads, IndexTrouble, positions_by_number
from planner.view.index_view import IndexView
from planner.view.keys_in_memory import PayloadKeys
from planner.view.keys_of_rows import OpenedKeys, open_keys, weigh_keys
from planner.view.shared_payloads import SHARED
from puffin_index.errors import CorruptFileError, NotFoundError, UnsupportedError
from puffin_index.keys.columns import Column, KeyArray, join_columns
from puffin_index.keys.map_key import ColumnId
from puffin_index.kinds.held_keys import (
    HoldsKeys,
    KeyCounts,
    Totals,
    join_totals,
    totals_of_counts,
    totals_of_distinct,
)
from puffin_index.storage.arrays import Floats, Ints

_ROWS_AT_ONCE = 1 << 20
"""The keys of about so many rows are grouped at once."""


def answer_units(
    view: IndexView,
    question: Question,
    rows: KnownRows,
    positions: Ints,
    reads: IndexReads,
    data_costs: Floats | None = None,
    limits: Limits | None = None,
) -> tuple[list[Partial], Ints]:
    """Answer from indexes.

    Args:
        view: The index.
        question: The question.
        rows: The matching rows.
        positions: Row groups of the plan whose matching rows are known, ascending.
        reads: Takes down troubles.
        data_costs: For each position what reading the row group costs, in weighed bytes; None asks indexes anyway.
        limits: How many weighed bytes of index may be read, and for how long; None for no such bounds.

    Returns:
        What each unit gives, and the positions of the row groups that no index answers.
    """
    row_groups = rows.row_groups.numbers[positions]
    payloads = [
        choose_payloads(view, question, one, row_groups, rows, positions, reads) for one in question.every_column
    ]
    here = np.flatnonzero(np.logical_and.reduce([own.numbers >= 0 for own in payloads]))
    index_costs = np.sum([own.costs for own in payloads], axis=0)
    saved = np.full(len(positions), np.inf) if data_costs is None else data_costs - index_costs
    every_unit = positions_by_number(unit_numbers([own.numbers[here] for own in payloads]))
    units = [
        here[own]
        for _, own in every_unit
        if saved[here[own]].sum() > 0 or is_due(view, payloads, here[own], row_groups, saved)
    ]
    if limits is not None:
        spending = np.sum([own.spending for own in payloads], axis=0)
        within = np.cumsum([spending[unit].sum() for unit in units]) <= limits.byte_budget
        units = units[: int(within.sum())]
    clock = Clock(np.inf if limits is None else limits.seconds)
    if (shared := SHARED.get()) is not None:
        shared.keep_no_more()

    def answer(unit: Ints) -> _Found | IndexTrouble | None:
        if clock.is_over:
            return None
        first = payloads[0]
        segment = int(first.directory_of(unit[0]).segment[row_groups[unit[0]]])
        try:
            found = _Unit(view, question, rows, positions[unit], row_groups[unit], payloads, unit).answer()
        except (CorruptFileError, UnsupportedError, NotFoundError, OSError) as error:
            return IndexTrouble.of(view.segments[segment][0], error)
        return None if found.has_zero_end(question) else found

    found: list[_Found] = []
    is_answered = np.zeros(len(positions), np.bool_)
    for unit, result in zip(units, view.each(answer, units), strict=True):
        if isinstance(result, _Found):
            found.append(result)
            is_answered[unit] = True
        elif result is not None:
            reads.troubles.append(result)
    return list(_partials(question, found)), positions[~is_answered]


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """What indexes tell of the matching rows of a unit: totals of all rows or of groups, otherwise keys.

    Attributes:
        row_count: The number of rows, or of keys with weights.
        totals: The totals of each column.
        groups: The totals of groups, in parts.
        distinct: The distinct keys of each column whose distinct keys are needed, in parts.
        columns: The keys of each column.
        weights: How many rows each key stands for; None for one.
    """

    row_count: int
    totals: Mapping[ColumnId, Totals] = field(default_factory=dict)
    groups: Sequence[GroupTotals] = ()
    distinct: Mapping[ColumnId, Sequence[KeyArray]] = field(default_factory=dict)
    columns: Mapping[ColumnId, Column] = field(default_factory=dict)
    weights: Ints | None = None

    def has_zero_end(self, question: Question) -> bool:
        """Whether a minimum or maximum is a zero, whose sign no index knows."""
        asked = [
            (number, one) for number, one in enumerate(question.columns) if one.value_type.is_floating and one.ends
        ]
        if not asked:
            return False
        if not question.groups or self.groups:
            every = [self.totals] if not question.groups else []
            ends = [(own[one.column], one.ends) for _, one in asked for own in every]
            ends += [(total, one.ends) for _, one in asked for own in self.groups for total in own.totals[one.column]]
            return any(
                (total.minimum == 0 and "least" in own) or (total.maximum == 0 and "greatest" in own)
                for total, own in ends
            )
        groups = Partial.of_rows(question, self.columns, self.row_count, self.weights).groups
        keys = [groups[f"{end} {number}"] for number, one in asked for end in one.ends]
        return any(pc.any(pc.equal(own, 0), min_count=0).as_py() for own in keys)


@dataclass(frozen=True, slots=True, eq=False)
class _Unit:
    """Row groups that are answered together.

    Attributes:
        view: The index.
        question: The question.
        rows: The matching rows.
        positions: The row groups of the plan.
        row_groups: The same as row groups of the view.
        payloads: The payloads of each column.
        places: The places of the row groups in the arrays of `payloads`.
        row_sets: The matching rows of row groups that were asked for, by position.
    """

    view: IndexView
    question: Question
    rows: KnownRows
    positions: Ints
    row_groups: Ints
    payloads: Sequence[Payloads]
    places: Ints
    row_sets: dict[int, BitMap] = field(default_factory=dict)

    def answer(self) -> _Found:
        """Return what indexes tell of the rows."""
        if not self.question.groups:
            return self._totals()
        if len(self.payloads) == 1:
            return self._counts(self.payloads[0])
        groups = self._totals_of_groups() if has_key_groups(self.question) else None
        if groups is not None:
            return _Found(sum(sum(own.row_counts) for own in groups), groups=groups)
        keys = {own.column.column: self._keys(own) for own in self.payloads}
        return _Found(next(iter(keys.values())).row_count, columns=keys)

    def _opened(self, own: Payloads) -> Iterator[OpenedKeys]:
        """Yield each payload of a column."""
        for _, unordered in positions_by_number(own.numbers[self.places]):
            place, row_group = self.places[unordered[0]], int(self.row_groups[unordered[0]])
            directory, column = own.directory_of(place), own.column.column
            opened = open_keys(self.view, column, directory, self.row_groups, unordered)
            if own.are_decoded[place] and own.may_be_kept and directory.merged[row_group]:
                keys = PayloadKeys(self.view, column, directory, row_group)
                opened = replace(opened, index=keys.kept or keys.decoded(opened.index))
            elif (within := own.within.get(int(own.numbers[place]))) is not None:
                opened = replace(opened, index=within)
            yield opened
            weigh_keys(self.view, column, directory, row_group)

    def _asked(self, own: Payloads) -> Iterator[tuple[HoldsKeys, Sequence[int], BitMap]]:
        """Yield each payload of a column, the places of its row groups in the unit, and the matching rows."""
        for opened in self._opened(own):
            yield opened.index, opened.places, opened.moved(self._rows)

    def _totals_of_groups(self) -> list[GroupTotals] | None:
        """The totals of groups by a column of few keys; None if the column has many."""
        group = self.question.groups[0].column
        by_column = {own.column.column: own for own in self.payloads}
        parts: list[KeyGroups] = []
        for opened in self._opened(by_column[group]):
            counts = self.view.row_counts[self.row_groups[list(opened.places)]].tolist()
            part = KeyGroups.of(opened, self._rows_unless_whole, counts)
            if part is None:
                return None
            parts.append(part)
        columns = [(asked, self._opened(by_column[asked.column])) for asked in self.question.columns]
        return list(totals_of_groups(parts, columns))

    def _rows_unless_whole(self, at: int) -> BitMap | None:
        return None if self.rows.is_whole[self.positions[at]] else self._rows(at)

    def _rows(self, at: int) -> BitMap:
        """The matching rows of the row group at a place of the unit."""
        if at not in self.row_sets:
            self.row_sets[at] = self.rows.of(int(self.positions[at]))
        return self.row_sets[at]

    def _counts(self, own: Payloads) -> _Found:
        """All that a question about one column needs: how often each key occurs."""
        counts = [opened.counts_of(rows) for opened, _, rows in self._asked(own)]
        column = join_columns([_with_null(one) for one in counts])
        weights = np.concatenate([_weights(one) for one in counts])
        return _Found(column.row_count, columns={own.column.column: column}, weights=weights)

    def _totals(self) -> _Found:
        row_count = int(self.rows.matches[self.positions].sum())
        totals: dict[ColumnId, Totals] = {}
        distinct: dict[ColumnId, list[KeyArray]] = {}
        for own in self.payloads:
            column = own.column.column
            if not own.column.needs_distinct:
                want = wanted_of(own.column)
                totals[column] = join_totals([opened.totals_of(rows, want) for opened, _, rows in self._asked(own)])
                continue
            if own.column.needs_sum:
                counts = [opened.counts_of(rows) for opened, _, rows in self._asked(own)]
                totals[column] = join_totals([totals_of_counts(one) for one in counts])
                distinct[column] = [one.keys for one in counts]
                continue
            found = [opened.distinct_of(rows) for opened, _, rows in self._asked(own)]
            totals[column] = join_totals([totals_of_distinct(one) for one in found])
            distinct[column] = [one.keys for one in found]
        return _Found(row_count, totals=totals, distinct=distinct)

    def _keys(self, own: Payloads) -> Column:
        """The keys of the matching rows, row group by row group, in the order of the positions."""
        parts: dict[int, Column] = {}
        for opened, here, rows in self._asked(own):
            column = opened.keys_of(rows)
            counts = self.rows.matches[self.positions[list(here)]]
            ends = np.cumsum(counts)
            for at, first, end in zip(here, (ends - counts).tolist(), ends.tolist(), strict=True):
                parts[at] = column.part(first, end)
        return join_columns([parts[at] for at in range(len(self.positions))])


def _with_null(counts: KeyCounts) -> Column:
    """The distinct keys as a column, with a NULL row at the end if rows are NULL."""
    return with_null(counts.value_type, counts.keys, counts.null_count > 0)


def _weights(counts: KeyCounts) -> Ints:
    return np.append(counts.counts, counts.null_count) if counts.null_count else counts.counts


def _partials(question: Question, found: Sequence[_Found]) -> Iterator[Partial]:
    """Make partial answers of many rows at once."""
    if not question.groups:
        if found:
            totals = {asked.column: [one.totals[asked.column] for one in found] for asked in question.columns}
            distinct = {
                asked.column: [keys for one in found for keys in one.distinct[asked.column]]
                for asked in question.columns
                if asked.needs_distinct
            }
            yield Partial.of_totals(question, [one.row_count for one in found], totals, distinct)
        return
    groups = [own for one in found for own in one.groups]
    if groups:
        yield _of_groups(question, groups)
    found = [one for one in found if not one.groups]
    ends = np.cumsum([one.row_count for one in found])
    for _, here in positions_by_number(ends // _ROWS_AT_ONCE):
        some = [found[at] for at in here.tolist()]
        columns = {
            asked.column: join_columns([one.columns[asked.column] for one in some]) for asked in question.every_column
        }
        known = [one.weights for one in some if one.weights is not None]
        weights = np.concatenate(known) if known else None
        yield Partial.of_rows(question, columns, sum(one.row_count for one in some), weights)


def _of_groups(question: Question, groups: Sequence[GroupTotals]) -> Partial:
    totals = {
        asked.column: [total for own in groups for total in own.totals[asked.column]] for asked in question.columns
    }
    row_counts = [count for own in groups for count in own.row_counts]
    return Partial.of_totals(question, row_counts, totals, {}, join_columns([own.keys for own in groups]))
