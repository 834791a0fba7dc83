"""Pruning for queries that want only some rows: `LIMIT k`, and `ORDER BY column LIMIT k`.

Both need a proof by counting: at least the wanted number of rows satisfies the whole predicate. Exact row sets count
them. A row group whose rows may be deleted counts as empty. Without an order, row groups with k rows are enough.

With an order, the proof gives a threshold: at least k rows have this key or one before it, so a row after it is not
among the first k, whatever the other columns of the order say. Rows with the threshold itself stay, ties included. The
threshold is one more conjunct of the predicate.
"""

import time
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from planner.clock import Clock
from planner.condition.implied import Cost, Implied, Source
from planner.condition.tree.nodes import Conjunction, Everything, Leaf, Predicate, is_exact
from planner.condition.tree.simplify import conjunction, disjunction
from planner.first_rows.counting import WIDE_SHARE, Counting
from planner.first_rows.threshold_guess import Guess
from planner.prune.distributed import Executors, prune_row_groups
from planner.prune.gate import Limits
from planner.prune.statistics_search import expected_matches
from planner.prune.verdicts import Pruned, Reason
from planner.view.cache import SharedPayloads
from planner.view.directories import IndexReads
from planner.view.index_view import IndexView
from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest
from puffin_index.keys.map_key import ColumnId
from puffin_index.keys.value_types import value_type_named
from puffin_index.keys.values import value_of
from puffin_index.storage.arrays import Flags, Ints

MOST_ROWS: Final = 1_000_000
"""A query that wants more rows reads most row groups anyway."""

_MOST_COUNTS = 48
"""A search for a threshold counts at most this many times."""

_GOOD_ENOUGH = 0.1
"""A threshold that is reached by less than this share of rows too many is not made better."""

_FEW_ROWS = 100
"""Each row too many may keep one more row group, so few wanted rows are compared with the row groups that are left."""

_MARGIN = 1.05
"""Aims at a few more rows than are wanted, because too few rows prove nothing."""

_GUESS_GROWTH = 4
"""After a key that too few rows reach, the next key is one that this many times the rows may reach."""

_MISSED_GROWTH = 2
"""The same if some rows reached the key: counting too many rows takes longer than one more count."""

_FIRST_ROW_GROUPS = 4


@dataclass(frozen=True, slots=True)
class Order:
    """The first column of an ORDER BY, its direction, and whether NULL comes before all keys."""

    field_id: ColumnId
    value_type: str
    descending: bool
    nulls_first: bool

    def leaf(self, test: LeafTest) -> Leaf:
        """A test of the column."""
        return Leaf(self.field_id, test, self.value_type)

    def nulls(self) -> Leaf:
        """The predicate that is true for NULL."""
        return self.leaf(NullTest(is_null=True))

    def up_to(self, key: Key) -> Predicate:
        """The predicate that is true for a key and for all that comes before it."""
        keys = self.leaf(RangeTest(key, None) if self.descending else RangeTest(None, key))
        return disjunction([self.nulls(), keys]) if self.nulls_first else keys


@dataclass(frozen=True, slots=True)
class FirstRows:
    """How many rows a query wants, those that OFFSET skips included, and in what order; None: any rows."""

    count: int
    order: Order | None
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Enough:
    """Row groups that have all the rows that a query wants; what holds for these rows, as text and (ordered) predicate.

    The cost is that of finding it, besides judging by the predicate.
    """

    pruned: Pruned
    implied: str = ""
    threshold: Predicate | None = None
    dropped: Flags | None = None
    cost: Cost = field(default_factory=Cost)

    def as_implied(self, wanted: str, kept: Flags) -> tuple[Implied, ...]:
        """What was found of the wanted rows, if anything."""
        if self.dropped is None:
            return ()
        only = int(np.count_nonzero(self.dropped & ~kept))
        text = f"{wanted}: {self.implied}"
        source: Source = "limit" if self.threshold is None else "top-k"
        return (Implied(source, text, only, self.cost.seconds, self.cost.bytes_read),)


def prune_first_rows(
    view: IndexView,
    predicate: Predicate,
    row_groups: Ints,
    is_countable: Flags,
    wanted: FirstRows | None,
    limits: Limits,
    executors: Executors | None = None,
    shared: SharedPayloads | None = None,
) -> Enough:
    """Judge row groups of the view (int64), here or on executors, for a query that may want only some rows.

    If any part of the predicate is unknown, this prunes for the predicate alone. `is_countable` says where no row is
    deleted.
    """
    clock = Clock(limits.seconds)
    plain = prune_row_groups(view, predicate, row_groups, limits, executors, shared)
    if wanted is None or not is_exact(predicate) or not 0 < wanted.count <= MOST_ROWS:
        return Enough(plain)
    if np.count_nonzero(plain.kept) < 2 or clock.is_over:
        return Enough(plain)
    started = time.perf_counter()
    counting = Counting(view, row_groups, is_countable, clock, replace(limits, rows_wanted=True), executors)
    if wanted.order is None:
        enough = _any_rows(counting, predicate, plain, wanted.count)
    else:
        enough = _first_of(counting, predicate, plain, wanted.count, wanted.order)
    if not enough.implied:
        return enough
    cost = Cost(time.perf_counter() - started, counting.bytes_read)
    return replace(enough, dropped=plain.kept & ~enough.pruned.kept, cost=cost)


def _first_of(counting: Counting, predicate: Predicate, plain: Pruned, wanted: int, order: Order) -> Enough:
    """Keep the row groups that have the first rows of an order."""
    statistics = counting.view.statistics(order.field_id, order.value_type, IndexReads())
    if statistics is None:
        return Enough(plain)
    guess = Guess(
        statistics,
        counting.row_groups[plain.kept],
        _tests_of(predicate, order),
        descending=order.descending,
        is_text=order.value_type == "string",
    )
    search = _Search(counting, predicate, plain, wanted, order, guess)
    search.run()
    return search.enough


def _any_rows(counting: Counting, predicate: Predicate, plain: Pruned, wanted: int) -> Enough:
    """Keep the row groups with the most matches, as many as it takes."""
    counts = np.where(plain.kept & counting.is_countable, np.maximum(plain.matches, 0), 0)
    unknown = np.flatnonzero(plain.kept & counting.is_countable & (plain.matches < 0))
    step = _FIRST_ROW_GROUPS
    while counts.sum() < wanted and len(unknown) and not counting.clock.is_over:
        here, unknown = unknown[:step], unknown[step:]
        counted = counting.of(predicate, here)
        counts[here] = counted.counts
        if counted.pruned.kept.any() and not counts[here].any():
            break
        step *= 4
    if counts.sum() < wanted:
        return Enough(plain)
    order = np.argsort(-counts, kind="stable")
    enough = order[: int(np.searchsorted(np.cumsum(counts[order]), wanted)) + 1]
    others = plain.kept.copy()
    others[enough] = False
    reasons, matches = plain.reasons.copy(), plain.matches.copy()
    reasons[others], matches[others] = Reason.ENOUGH_ROWS, -1
    return Enough(replace(plain, reasons=reasons, matches=matches), f"{counts[enough].sum()} rows are enough")


class _Search:
    """Looks for a key that at least the wanted rows reach, and not many more. Keys are numbers as in `Guess`.

    Attributes:
        enough: The row groups that have the rows found; those of the predicate until enough rows are found.
    """

    def __init__(
        self, counting: Counting, predicate: Predicate, plain: Pruned, wanted: int, order: Order, guess: Guess
    ) -> None:
        self._counting = counting
        self._predicate = predicate
        self._plain = plain
        self._wanted = wanted
        self._order = order
        self._guess = guess
        self.enough = Enough(plain)
        # At least the wanted rows reach `sure`, fewer reach `beyond`. The row groups of the former are at `_left`.
        self._own = _tests_of(predicate, order)
        self._sure: int | None = None
        self._beyond = guess.first_key + (1 if order.descending else -1)
        self._found, self._fewer = 0, 0
        self._is_even = True
        self._left = np.flatnonzero(plain.kept)

    def run(self) -> None:
        """Count until the key is good enough, or time or hope are over."""
        if self._order.nulls_first:
            self._count(self._order.nulls())
            if self.enough.implied:
                return
        rows_a_match = self._rows_a_match() if self._guess.has_keys else None
        if rows_a_match is None:
            return
        rows = self._wanted * rows_a_match
        for _ in range(_MOST_COUNTS):
            if self._counting.clock.is_over:
                return
            if self._sure is None:
                key = self._guess.key(rows)
                while key == self._beyond and rows <= self._guess.row_count:
                    rows *= _GUESS_GROWTH
                    key = self._guess.key(rows)
                if key == self._beyond or not self._count_up_to(key):
                    return
                growth = _MISSED_GROWTH if self._fewer else _GUESS_GROWTH
                rows = max(rows, self._guess.reach(key)) * growth
            else:
                between = self._between(self._sure)
                if between is None or len(self._left) == 1 or self._is_good_enough():
                    return
                self._count_up_to(between)

    def _is_good_enough(self) -> bool:
        base = self._wanted if self._wanted > _FEW_ROWS else min(self._wanted, len(self._left))
        return self._found - self._wanted < base * _GOOD_ENOUGH

    def _rows_a_match(self) -> float | None:
        """How many rows there are for each row that satisfies the predicate; None if too few rows do."""
        if isinstance(self._predicate, Everything):
            return 1.0
        view, row_groups = self._counting.view, self._counting.row_groups[self._left]
        expected = expected_matches(view, self._predicate, row_groups)
        if expected > WIDE_SHARE * view.row_counts[row_groups].sum():
            return max(self._guess.row_count / expected, 1.0)
        counted = self._counting.of(self._predicate, self._left)
        if counted.total < self._wanted:
            return None
        self._counting.narrow(counted)
        return max(self._guess.row_count / counted.total, 1.0)

    def _between(self, sure: int) -> int | None:
        """A key between the one that enough rows reach and the one that too few reach; None if they are neighbours."""
        width = abs(self._beyond - sure)
        if width < 2:
            return None
        # As if keys were spread evenly. Where this does not halve what is left, the middle is next.
        share = (self._wanted - self._fewer) / (self._found - self._fewer) if self._is_even else 0.5
        step = min(max(int(width * min(share * _MARGIN, 1.0)), 1), width - 1)
        return self._beyond - step if self._order.descending else self._beyond + step

    def _count_up_to(self, key: int) -> bool:
        """Count the rows that reach a key; say whether counting is of use here."""
        before = abs(self._beyond - self._sure) if self._sure is not None else None
        own = self._guess.key_at(key)
        found, is_of_use = self._count(self._order.up_to(own))
        if found < self._wanted:
            self._beyond, self._fewer = key, found
        else:
            self._sure = key
            value = value_of(own, value_type_named(self._order.value_type))
            implied = f"{found} rows are {'>=' if self._order.descending else '<='} {value}"
            self.enough = replace(self.enough, implied=implied)
        self._is_even = before is None or self._sure is None or 2 * abs(self._beyond - self._sure) <= before
        return is_of_use

    def _count(self, first: Predicate) -> tuple[int, bool]:
        """Count the rows that come first; say whether counting is of use here. Enough rows settle row groups."""
        tests = conjunction([self._own, first])
        column = self._order.field_id, self._order.value_type
        counted = self._counting.first(self._predicate, tests, self._left, column)
        found, pruned = counted.total, counted.pruned
        if found < self._wanted:
            return found, found > 0 or not (pruned.kept & (pruned.matches < 0)).any()
        before, self._found = self.enough.pruned, found
        reasons, matches = before.reasons.copy(), before.matches.copy()
        reasons[self._left], matches[self._left] = pruned.reasons, pruned.matches
        stages, used = (*self._plain.stages, *pruned.stages), before.used | pruned.used
        verdicts = replace(self._plain, reasons=reasons, matches=matches, stages=stages, used=used)
        self.enough = Enough(verdicts, f"{found} rows are NULL", first)
        self._left = self._left[pruned.kept]
        if not isinstance(self._predicate, Everything):
            self._counting.narrow(counted)
        return found, True


def _tests_of(predicate: Predicate, order: Order) -> Predicate:
    """What a predicate says of the column of an order, whatever else it says."""
    parts = predicate.children if isinstance(predicate, Conjunction) else (predicate,)
    return conjunction([part for part in parts if isinstance(part, Leaf) and part.field_id == order.field_id])
