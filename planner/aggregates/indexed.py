"""The second bucket: row groups whose part of the answer indexes have.

Row groups that share payloads are answered together, as one unit: all of it, or nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from planner.aggregates.known_rows import KnownRows
from planner.aggregates.partial import Partial
from planner.aggregates.question import AskedColumn, Question
from planner.aggregates.settled import leaf_of
from planner.view.directories import IndexReads, IndexTrouble, KindDirectory, positions_by_number
from planner.view.index_view import IndexView
from puffin_index.errors import CorruptFileError, NotFoundError, UnsupportedError
from puffin_index.keys.columns import Column, join_columns
from puffin_index.keys.map_key import ColumnId
from puffin_index.kinds.held_keys import HoldsKeys, KeyCounts, Totals, join_totals, totals_of_counts
from puffin_index.kinds.registry import kinds_holding_keys
from puffin_index.storage.arrays import Flags, Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Payloads:
    """The payloads that hold the keys of one column.

    Attributes:
        column: The column.
        directories: Of the kinds that have some.
        chosen: For each position the directory that tells of its payload, as a place in `directories`; -1 if none does.
        numbers: For each position a number of its payload; -1 if there is none.
    """

    column: AskedColumn
    directories: tuple[KindDirectory, ...]
    chosen: Ints
    numbers: Ints


def answer_units(
    view: IndexView, question: Question, rows: KnownRows, positions: Ints, reads: IndexReads
) -> tuple[list[Partial], Ints]:
    """Answer from indexes.

    Args:
        view: The index.
        question: The question.
        rows: The matching rows.
        positions: Row groups of the plan whose matching rows are known, ascending.
        reads: Takes down troubles.

    Returns:
        What each unit gives, and the positions of the row groups that no index answers.
    """
    row_groups = rows.planned.row_groups.numbers[positions]
    by_key_first = len(question.every_column) == 1
    payloads = [_payloads(view, one, row_groups, by_key_first, reads) for one in question.every_column]
    has_all = np.logical_and.reduce([own.numbers >= 0 for own in payloads])
    left = positions[~has_all]
    here = np.flatnonzero(has_all)
    units = [here[own] for _, own in positions_by_number(_unit_numbers([own.numbers[here] for own in payloads]))]

    def answer(unit: Ints) -> Partial | IndexTrouble | None:
        first = payloads[0]
        segment = int(first.directories[first.chosen[unit[0]]].segment[row_groups[unit[0]]])
        try:
            return _Unit(view, question, rows, positions[unit], row_groups[unit], payloads, unit).answer()
        except (CorruptFileError, UnsupportedError, NotFoundError, OSError) as error:
            return IndexTrouble(view.segments[segment][0], str(error))

    found: list[Partial] = []
    for unit, result in zip(units, view.each(answer, units), strict=True):
        if isinstance(result, Partial):
            found.append(result)
            continue
        left = np.union1d(left, positions[unit])
        if result is not None:
            reads.troubles.append(result)
    return found, left


def _payloads(
    view: IndexView, asked: AskedColumn, row_groups: Ints, by_key_first: bool, reads: IndexReads
) -> _Payloads:
    kinds = sorted(kinds_holding_keys(), key=lambda kind: by_key_first and not kind.is_found_by_key)
    found = [view.directory(leaf_of(asked), kind.name, reads) for kind in kinds]
    directories = tuple(directory for directory in found if directory is not None)
    chosen = np.full(len(row_groups), -1, np.int64)
    numbers = np.full(len(row_groups), -1, np.int64)
    for place, directory in enumerate(directories):
        here = np.flatnonzero((chosen < 0) & directory.known[row_groups])
        chosen[here] = place
        # The places of segments take 31 bits and those of entries 32; there are few kinds.
        numbers[here] = directory.blob[row_groups[here]] * len(directories) + place
    return _Payloads(asked, directories, chosen, numbers)


def _unit_numbers(payloads: Sequence[Ints]) -> Ints:
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
    """

    view: IndexView
    question: Question
    rows: KnownRows
    positions: Ints
    row_groups: Ints
    payloads: Sequence[_Payloads]
    places: Ints

    def answer(self) -> Partial | None:
        """Return what the rows give; None if a minimum or maximum is a zero whose sign no index knows."""
        if len(self.payloads) == 1:
            partial = self._from_counts(self.payloads[0])
        elif not self.question.groups:
            partial = self._from_totals()
        else:
            keys = {own.column.column: self._keys(own) for own in self.payloads}
            partial = Partial.of_rows(self.question, keys, next(iter(keys.values())).row_count)
        return None if _has_zero_end(partial) else partial

    def _asked(self, own: _Payloads) -> Iterator[tuple[HoldsKeys, Ints, BitMap]]:
        """Yield each payload of a column, the places of its row groups in the unit, and the matching rows."""
        for _, unordered in positions_by_number(own.numbers[self.places]):
            directory = own.directories[own.chosen[self.places[unordered[0]]]]
            here = unordered[np.argsort(directory.base[self.row_groups[unordered]], kind="stable")]
            first = int(self.row_groups[here[0]])
            if directory.merged[first]:
                opened: object = self.view.open_index(own.column.column, directory, first)
                rows = BitMap.union(
                    BitMap(),
                    *(
                        self.rows.of(int(self.positions[at])).shift(int(directory.base[self.row_groups[at]]))
                        for at in here.tolist()
                    ),
                )
            else:
                opened = self.view.open_alone(own.column.column, directory, first)
                rows = self.rows.of(int(self.positions[here[0]]))
            if not isinstance(opened, HoldsKeys):
                raise UnsupportedError(f"a payload of kind {directory.kind} that holds no keys")
            yield opened, here, rows
            if directory.merged[first]:
                self.view.weigh(own.column.column, directory, first)

    def _from_counts(self, own: _Payloads) -> Partial:
        """All that a question about one column needs: how often each key occurs."""
        parts = []
        for opened, _, rows in self._asked(own):
            counts = opened.counts_of(rows)
            parts.append(Partial.of_rows(self.question, {own.column.column: _with_null(counts)}, *_weights(counts)))
        return Partial.merged(self.question, parts)

    def _from_totals(self) -> Partial:
        row_count = int(self.rows.planned.plan.matches[self.positions].sum())
        totals: dict[ColumnId, Totals] = {}
        distinct: dict[ColumnId, pa.Array] = {}
        for own in self.payloads:
            column = own.column.column
            if not own.column.needs_distinct:
                totals[column] = join_totals([opened.totals_of(rows) for opened, _, rows in self._asked(own)])
                continue
            counts = [opened.counts_of(rows) for opened, _, rows in self._asked(own)]
            totals[column] = join_totals([totals_of_counts(one) for one in counts])
            distinct[column] = pa.chunked_array([pa.array(one.keys) for one in counts])
        return Partial.of_totals(self.question, row_count, totals, distinct)

    def _keys(self, own: _Payloads) -> Column:
        """The keys of the matching rows, row group by row group, in the order of the positions."""
        parts: dict[int, Column] = {}
        for opened, here, rows in self._asked(own):
            column = opened.keys_of(rows)
            counts = self.rows.planned.plan.matches[self.positions[here]]
            ends = np.cumsum(counts)
            for at, first, end in zip(here.tolist(), (ends - counts).tolist(), ends.tolist(), strict=True):
                parts[at] = column.part(first, end)
        return join_columns([parts[at] for at in range(len(self.positions))])


def _with_null(counts: KeyCounts) -> Column:
    """The distinct keys as a column, with a NULL row at the end if rows are NULL."""
    keys = counts.keys
    if not counts.null_count:
        return Column(counts.value_type, len(keys), keys, None)
    valid: Flags = np.append(np.ones(len(keys), np.bool_), False)
    if isinstance(keys, np.ndarray):
        return Column(counts.value_type, len(valid), np.append(keys, 0), valid)
    return Column(counts.value_type, len(valid), pa.concat_arrays([keys, pa.nulls(1, pa.large_binary())]), valid)


def _weights(counts: KeyCounts) -> tuple[int, Ints]:
    weights = np.append(counts.counts, counts.null_count) if counts.null_count else counts.counts
    return len(weights), weights


def _has_zero_end(partial: Partial) -> bool:
    ends = [
        partial.groups[f"{end} {number}"]
        for number, asked in enumerate(partial.question.columns)
        if asked.value_type.is_floating
        for end in asked.ends
    ]
    return any(pc.any(pc.equal(keys, 0), min_count=0).as_py() for keys in ends)
