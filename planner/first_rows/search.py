"""Pruning for queries that want only some rows: `LIMIT k`, and `ORDER BY column LIMIT k`.

Both need a proof by counting: at least the wanted number of rows satisfies the whole predicate. Exact row sets count
them. A row group whose rows may be deleted counts as empty. Without an order, row groups with k rows are enough.

With an order, the proof gives a threshold: at least k rows have this key or one before it, so a row after it is not
among the first k, whatever the other columns of the order say. Rows with the threshold itself stay, ties included. The
threshold is one more conjunct of the predicate.
"""

import time
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np

from planner.clock import Clock
from planner.condition.tree.nodes import Conjunction, Everything, Leaf, Predicate, is_exact
from planner.condition.tree.simplify import conjunction, disjunction
from planner.first_rows.counting import WIDE_SHARE, Counting
from planner.first_rows.threshold_guess import Guess
from planner.prune.distributed import Executors, prune_row_groups
from planner.prune.gate import Limits
from planner.prune.statistics_search import expected_matches
from planner.prune.verdicts import FirstFound, Pruned, Reason
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


_Found: TypeAlias = tuple[Pruned, str, Predicate | None]
"""Row groups that have all the rows that a query wants; what holds for these rows, as text and (ordered) predicate."""


def prune_first_rows(
    view: IndexView,
    predicate: Predicate,
    row_groups: Ints,
    is_countable: Flags,
    wanted: FirstRows | None,
    limits: Limits,
    executors: Executors | None = None,
    shared: SharedPayloads | None = None,
) -> Pruned:
    """Judge row groups of the view (int64), here or on executors, for a query that may want only some rows.

    An unknown part leaves the predicate alone to prune. `is_countable` says where no row is deleted.
    """
    clock = Clock(limits.seconds)
    plain = prune_row_groups(view, predicate, row_groups, limits, executors, shared)
    if wanted is None or not is_exact(predicate) or not 0 < wanted.count <= MOST_ROWS:
        return plain
    if np.count_nonzero(plain.kept) < 2 or clock.is_over:
        return plain
    started = time.perf_counter()
    counting = Counting(view, row_groups, is_countable, clock, replace(limits, rows_wanted=True), executors)
    if wanted.order is None:
        found = _any_rows(counting, predicate, plain, wanted.count)
    else:
        found = _first_of(counting, predicate, plain, wanted.count, wanted.order)
    if found is None:
        return plain
    pruned, text, threshold = found
    dropped, seconds = row_groups[plain.kept & ~pruned.kept], time.perf_counter() - started
    return replace(pruned, first=FirstFound(text, threshold, dropped, seconds, counting.bytes_read))


def _first_of(counting: Counting, predicate: Predicate, plain: Pruned, wanted: int, order: Order) -> _Found | None:
    statistics = counting.view.statistics(order.field_id, order.value_type, IndexReads())
    if statistics is None:
        return None
    parts = predicate.children if isinstance(predicate, Conjunction) else (predicate,)
    own = conjunction([one for one in parts if isinstance(one, Leaf) and one.field_id == order.field_id])
    kept, is_text = counting.row_groups[plain.kept], order.value_type == "string"
    guess = Guess(statistics, kept, own, descending=order.descending, is_text=is_text)
    search = _Search(counting, predicate, plain, wanted, order, own, guess)
    search.run()
    return (search.pruned, search.text, search.threshold) if search.text else None


def _any_rows(counting: Counting, predicate: Predicate, plain: Pruned, wanted: int) -> _Found | None:
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
        return None
    order = np.argsort(-counts, kind="stable")
    enough = order[: int(np.searchsorted(np.cumsum(counts[order]), wanted)) + 1]
    others = plain.kept.copy()
    others[enough] = False
    reasons, matches = plain.reasons.copy(), plain.matches.copy()
    reasons[others], matches[others] = Reason.ENOUGH_ROWS, -1
    return replace(plain, reasons=reasons, matches=matches), f"{counts[enough].sum()} rows are enough", None


@dataclass(slots=True)
class _Search:
    """Looks for a key (as in `Guess`) that the wanted rows reach, and not many more; `pruned` has the rows found."""

    counting: Counting
    predicate: Predicate
    plain: Pruned
    wanted: int
    order: Order
    own: Predicate
    guess: Guess
    pruned: Pruned = field(init=False)
    text: str = ""
    threshold: Predicate | None = None
    # At least the wanted rows reach `sure`, fewer reach `beyond`. The row groups of the former are at `left`.
    sure: int | None = None
    beyond: int = field(init=False)
    left: Ints = field(init=False)
    found: int = 0
    fewer: int = 0
    is_even: bool = True

    def __post_init__(self) -> None:
        self.pruned, self.left = self.plain, np.flatnonzero(self.plain.kept)
        self.beyond = self.guess.first_key + (1 if self.order.descending else -1)

    def run(self) -> None:
        """Count until the key is good enough, or time or hope are over."""
        if self.order.nulls_first:
            self._count(self.order.nulls())
            if self.text:
                return
        rows_a_match = self._rows_a_match() if self.guess.has_keys else None
        if rows_a_match is None:
            return
        rows = self.wanted * rows_a_match
        for _ in range(_MOST_COUNTS):
            if self.counting.clock.is_over:
                return
            if self.sure is None:
                key = self.guess.key(rows)
                while key == self.beyond and rows <= self.guess.row_count:
                    rows *= _GUESS_GROWTH
                    key = self.guess.key(rows)
                if key == self.beyond or not self._count_up_to(key):
                    return
                growth = _MISSED_GROWTH if self.fewer else _GUESS_GROWTH
                rows = max(rows, self.guess.reach(key)) * growth
            else:
                between = self._between(self.sure)
                base = self.wanted if self.wanted > _FEW_ROWS else min(self.wanted, len(self.left))
                is_good_enough = self.found - self.wanted < base * _GOOD_ENOUGH
                if between is None or len(self.left) == 1 or is_good_enough:
                    return
                self._count_up_to(between)

    def _rows_a_match(self) -> float | None:
        """How many rows there are for each row that satisfies the predicate; None if too few rows do."""
        if isinstance(self.predicate, Everything):
            return 1.0
        view, row_groups = self.counting.view, self.counting.row_groups[self.left]
        expected = expected_matches(view, self.predicate, row_groups)
        if expected > WIDE_SHARE * view.row_counts[row_groups].sum():
            return max(self.guess.row_count / expected, 1.0)
        counted = self.counting.of(self.predicate, self.left)
        if counted.total < self.wanted:
            return None
        self.counting.narrow(counted)
        return max(self.guess.row_count / counted.total, 1.0)

    def _between(self, sure: int) -> int | None:
        """A key between the one that enough rows reach and the one that too few reach; None if they are neighbours."""
        width = abs(self.beyond - sure)
        if width < 2:
            return None
        # As if keys were spread evenly. Where this does not halve what is left, the middle is next.
        share = (self.wanted - self.fewer) / (self.found - self.fewer) if self.is_even else 0.5
        step = min(max(int(width * min(share * _MARGIN, 1.0)), 1), width - 1)
        return self.beyond - step if self.order.descending else self.beyond + step

    def _count_up_to(self, key: int) -> bool:
        """Count the rows that reach a key; say whether counting is of use here."""
        before = abs(self.beyond - self.sure) if self.sure is not None else None
        own = self.guess.key_at(key)
        found, is_of_use = self._count(self.order.up_to(own))
        if found < self.wanted:
            self.beyond, self.fewer = key, found
        else:
            self.sure = key
            value = value_of(own, value_type_named(self.order.value_type))
            self.text = f"{found} rows are {'>=' if self.order.descending else '<='} {value}"
        self.is_even = before is None or self.sure is None or 2 * abs(self.beyond - self.sure) <= before
        return is_of_use

    def _count(self, first: Predicate) -> tuple[int, bool]:
        """Count the rows that come first; say whether counting is of use here. Enough rows settle row groups."""
        tests = conjunction([self.own, first])
        column = self.order.field_id, self.order.value_type
        counted = self.counting.first(self.predicate, tests, self.left, column)
        found, pruned = counted.total, counted.pruned
        if found < self.wanted:
            return found, found > 0 or not (pruned.kept & (pruned.matches < 0)).any()
        before, self.found = self.pruned, found
        reasons, matches = before.reasons.copy(), before.matches.copy()
        reasons[self.left], matches[self.left] = pruned.reasons, pruned.matches
        stages, used = (*self.plain.stages, *pruned.stages), before.used | pruned.used
        # All row groups that are left were counted just now.
        rows = pruned.row_sets
        self.pruned = replace(self.plain, reasons=reasons, matches=matches, stages=stages, used=used, row_sets=rows)
        self.text, self.threshold = f"{found} rows are NULL", first
        self.left = self.left[pruned.kept]
        if not isinstance(self.predicate, Everything):
            self.counting.narrow(counted)
        return found, True
