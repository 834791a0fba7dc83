"""Groups by one column of few keys: the rows of each key, and the totals of other columns over these rows.

No key of a row is decoded: a group is a row set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from planner.aggregates.question import AskedColumn, Question
from planner.view.keys_of_rows import OpenedKeys
from puffin_index.keys.columns import Column, KeyArray
from puffin_index.keys.map_key import ColumnId
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.held_keys import Totals, Want, join_totals
from puffin_index.storage.arrays import Flags, Ints


@dataclass(frozen=True, slots=True, eq=False)
class GroupTotals:
    """The totals of some groups.

    Attributes:
        keys: The key of each group, NULL included.
        row_counts: The number of rows of each group, at least one.
        totals: The totals of each column, group by group.
    """

    keys: Column
    row_counts: Sequence[int]
    totals: Mapping[ColumnId, Sequence[Totals]]


@dataclass(frozen=True, slots=True, eq=False)
class KeyGroups:
    """The groups of the row groups that share a payload of the column to group by.

    Attributes:
        keys: The key of each group, NULL included.
        rows: By the place of a row group in the unit, the rows of each key, numbered from 0 in the row group.
        among: By the place of a row group, the rows of interest; None for all.
    """

    keys: Column
    rows: Mapping[int, Sequence[BitMap]]
    among: Mapping[int, BitMap | None]

    @classmethod
    def of(
        cls, opened: OpenedKeys, rows_at: Callable[[int], BitMap | None], row_counts: Sequence[int]
    ) -> KeyGroups | None:
        """Return the groups of some rows; None if the payload has no row sets of its keys.

        Args:
            opened: The payload.
            rows_at: Returns the rows of interest of the row group at a place, numbered from 0; None for all.
            row_counts: The number of rows of each of the payload's row groups.
        """
        sets = opened.index.sets_of()
        if sets is None:
            return None
        every = [*sets.rows, *([sets.nulls] if sets.nulls else [])]
        rows: dict[int, list[BitMap]] = {}
        among: dict[int, BitMap | None] = {}
        for place, base, row_count in zip(opened.places, opened.bases, row_counts, strict=True):
            own = every
            if len(opened.places) > 1 or base:
                here = BitMap(range(base, base + row_count))
                own = [(one & here).shift(-base) for one in every]
            rows[place], among[place] = own, rows_at(place)
        return cls(with_null(sets.value_type, sets.keys, bool(sets.nulls)), rows, among)

    @property
    def row_counts(self) -> Ints:
        """The number of rows of each group."""
        counts = np.zeros(self.keys.row_count, np.int64)
        for place, own in self.rows.items():
            among = self.among[place]
            counts += [len(one) if among is None else among.intersection_cardinality(one) for one in own]
        return counts

    def totals_in(self, opened: OpenedKeys, groups: Ints, want: Want) -> list[Totals]:
        """Return the totals that a payload tells of some groups; nothing if it covers none of their row groups."""
        places = [place for place in opened.places if place in self.rows]
        if not places:
            return []
        sets = [opened.moved({place: self.rows[place][group] for place in places}.get) for group in groups.tolist()]
        within = None
        if any(self.among[place] is not None for place in places):
            within = opened.moved({place: self._rows_at(place) for place in places}.get)
        return opened.index.totals_of_each(sets, within, want)

    def _rows_at(self, place: int) -> BitMap:
        """The rows of interest of a row group."""
        among = self.among[place]
        return BitMap.union(BitMap(), *self.rows[place]) if among is None else among


def totals_of_groups(
    parts: Sequence[KeyGroups], columns: Sequence[tuple[AskedColumn, Iterable[OpenedKeys]]]
) -> Iterator[GroupTotals]:
    """Yield the totals of the groups of each part.

    Args:
        parts: The groups.
        columns: The payloads of each column, each of which is let go before the next is opened.
    """
    counts = [part.row_counts for part in parts]
    chosen = [np.flatnonzero(own) for own in counts]
    totals: list[dict[ColumnId, list[Totals]]] = [{} for _ in parts]
    for asked, payloads in columns:
        found: list[list[list[Totals]]] = [[] for _ in parts]
        for opened in payloads:
            for part, groups, own in zip(parts, chosen, found, strict=True):
                own.extend([some] if (some := part.totals_in(opened, groups, wanted_of(asked))) else [])
        for own_totals, own in zip(totals, found, strict=True):
            own_totals[asked.column] = [join_totals(of_group) for of_group in zip(*own, strict=True)]
    for part, groups, own_counts, own_totals in zip(parts, chosen, counts, totals, strict=True):
        yield GroupTotals(part.keys.take(groups), own_counts[groups].tolist(), own_totals)


def wanted_of(asked: AskedColumn) -> Want:
    """What a question wants of the totals of a column."""
    sums, ends = Want.SUMS if asked.needs_sum else Want(0), Want.ENDS if asked.ends else Want(0)
    return sums | ends


def has_key_groups(question: Question) -> bool:
    """Whether totals of groups by the keys of one column answer a question."""
    return len(question.groups) == 1 and not any(asked.needs_distinct for asked in question.columns)


def with_null(value_type: ValueType, keys: KeyArray, has_null: bool) -> Column:
    """Return distinct keys as a column, with a NULL row at the end if there are NULL rows."""
    if not has_null:
        return Column(value_type, len(keys), keys, None)
    valid: Flags = np.append(np.ones(len(keys), np.bool_), False)
    if isinstance(keys, np.ndarray):
        return Column(value_type, len(valid), np.append(keys, 0), valid)
    return Column(value_type, len(valid), pa.concat_arrays([keys, pa.nulls(1, pa.large_binary())]), valid)
