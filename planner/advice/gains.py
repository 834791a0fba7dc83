"""Gains: the bytes that a workload no longer reads with some indexes, measured on a sample; the best under a budget.

The gain of an index depends on the others: two kinds of a column do each other's work, and two columns of one WHERE may
help only together. So gains are asked of sets of indexes.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import TypeAlias, TypeVar

import numpy as np
from pyiceberg.schema import Schema

from planner.advice.advised_table import AdvisedTable, Scanned
from planner.advice.candidates import ReadQuery
from planner.advice.sample import AdviceListener, AdviceProgress, IndexSample
from planner.aggregates.question import MOST_GROUPS
from planner.view.directories import IndexReads
from puffin_index.keys.map_key import FieldKind
from puffin_index.storage.arrays import Flags

_SAME_SHARE = 0.002
"""Shares of bytes that differ less count as equal."""


class Gains:
    """Bytes that queries save by any candidates, built over a sample of what Iceberg leaves.

    The shares that plans have measured are kept; `listener` is told how many `plans` there were.
    """

    def __init__(
        self,
        advised: AdvisedTable,
        sample: IndexSample,
        everything: Scanned,
        queries: Sequence[ReadQuery],
        left: Sequence[Scanned],
        listener: AdviceListener,
    ) -> None:
        self.queries = queries
        self.plans = 0
        self._listener = listener
        self._sample = sample
        self._sizes = everything.row_group_bytes[sample.positions]
        paths = np.array([file.path for file in everything.data_files], object)[everything.file_of[sample.positions]]
        self._open: list[Flags] = [np.isin(paths, [file.path for file in own.data_files]) for own in left]
        self.bytes_read = [_bytes_read(one, own, advised.schema) for one, own in zip(queries, left, strict=True)]
        self._shares: list[dict[frozenset[FieldKind], float]] = [{} for _ in queries]
        self._totals: dict[frozenset[FieldKind], float] = {}

    @property
    def total_read(self) -> float:
        """The bytes that the queries read without any index."""
        return sum(size * one.query.times for size, one in zip(self.bytes_read, self.queries, strict=True))

    def total(self, chosen: frozenset[FieldKind]) -> float:
        """Return the bytes that all queries save with some indexes."""
        if chosen not in self._totals:
            self._totals[chosen] = sum(self.of_query(number, chosen) for number in range(len(self.queries)))
        return self._totals[chosen]

    def of_query(self, number: int, chosen: Collection[FieldKind]) -> float:
        """Return the bytes that a query saves with some indexes, as often as it is asked."""
        own = self.queries[number].candidates & frozenset(chosen)
        if not own:
            return 0.0
        needed = self.queries[number].answered_by
        is_answered = bool(needed) and all(part & own for part in needed) and self._has_few_groups(number)
        share = 1.0 if is_answered else self._share_saved(number, own)
        return share * self.bytes_read[number] * self.queries[number].query.times

    def _has_few_groups(self, number: int) -> bool:
        """Whether Spark takes an answer by groups, at the most that the sample's numbers of values allow."""
        groups = 1.0
        for asked in self.queries[number].groups:
            statistics = self._sample.view.statistics(asked.column, asked.value_type.name, IndexReads())
            if statistics is None:
                return False
            distinct = statistics.distinct_count[statistics.known]
            groups *= max(1.0, float(distinct.sum()) * self._sample.growth)
        return groups <= MOST_GROUPS

    def _share_saved(self, number: int, chosen: frozenset[FieldKind]) -> float:
        """Return the share of its bytes that a query saves. Plans that others have decided are not made."""
        known = self._shares[number]
        whole = self.queries[number].candidates
        chosen = self.queries[number].with_idle(chosen)
        if whole not in known:
            known[whole] = self._measured(number, whole)
        if chosen not in known:
            # More indexes never save less, but for the cost gate's estimates.
            least = max((share for some, share in known.items() if some < chosen), default=0.0)
            most = min(share for some, share in known.items() if some > chosen)
            is_open = most - least > _SAME_SHARE
            known[chosen] = max(least, min(most, self._measured(number, chosen))) if is_open else least
        return known[chosen]

    def _measured(self, number: int, chosen: frozenset[FieldKind]) -> float:
        is_open = self._open[number]
        read = float(self._sizes[is_open].sum())
        if not read:
            return 0.0
        self.plans += 1
        self._listener(AdviceProgress(plans=self.plans))
        _, shares = self._sample.plan(self.queries[number].condition, chosen)
        return 1 - float((self._sizes * shares)[is_open].sum()) / read


def _bytes_read(one: ReadQuery, scanned: Scanned, schema: Schema) -> float:
    if one.query.bytes_read is not None:
        return float(one.query.bytes_read)
    names = one.query.columns or ()
    own = [field for field in schema.fields if field.name in names]
    return float(scanned.column_bytes(Schema(*own).field_ids if own else None).sum())


Item = TypeVar("Item")
Gain: TypeAlias = Callable[[frozenset[Item]], float]

MOST_TRIED = 12
"""All sets of at most this many candidates are tried."""

_LEAST_GAIN = 0.01
"""An index that adds less than this share of the gain is left out."""
_MOST_LOST = 0.03
"""What leaving out indexes may lose of the gain, in all."""


def choose(
    sizes: Mapping[Item, int], budget: float, gain: Gain[Item], *, most_tried: int = MOST_TRIED
) -> frozenset[Item]:
    """Choose the items that gain most and fit a budget together, if more items never gain less.

    Of more than `most_tried` items, those go first that lose least for their size.
    """
    items = frozenset(item for item, size in sizes.items() if size <= budget)
    while len(items) > most_tried:
        lost = {item: (gain(items) - gain(items - {item})) / max(1, sizes[item]) for item in sizes if item in items}
        items -= {min(lost, key=lambda item: (lost[item], -sizes[item]))}
    ordered = [item for item in sizes if item in items]
    every = (frozenset(some) for count in range(len(ordered) + 1) for some in combinations(ordered, count))
    # Existing indexes may exceed the budget.
    fitting = (some for some in every if not some or _size(some, sizes) <= budget)
    return without_idle(max(fitting, key=lambda some: (gain(some), -_size(some, sizes))), sizes, gain)


def without_idle(chosen: frozenset[Item], sizes: Mapping[Item, int], gain: Gain[Item]) -> frozenset[Item]:
    """Leave out items without which next to nothing is lost, the largest first."""
    whole = gain(chosen)
    for item in sorted((item for item in sizes if item in chosen), key=lambda item: -sizes[item]):
        left = gain(chosen - {item})
        if left >= gain(chosen) - _LEAST_GAIN * whole and left >= whole * (1 - _MOST_LOST):
            chosen -= {item}
    return chosen


def _size(items: Iterable[Item], sizes: Mapping[Item, int]) -> int:
    return sum(sizes[item] for item in items)
