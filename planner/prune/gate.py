"""The cost gate: which look-ups are made, and how many bytes a query may lose by them.

Estimates, which come from directories alone, say which look-ups are worth their bytes. They may be wrong, so they do
not say how much is spent: look-ups that drop nothing end when they have taken a small share of what the scan reads
anyway. Each row group that is dropped pays for more of them. Data bytes, index bytes and requests are counted in bytes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Self

import numpy as np

from planner.clock import DEFAULT_MILLISECONDS
from planner.condition.tree.tree import PredicateTree
from planner.prune.estimate import Estimate, JoinedEstimates
from planner.prune.few_rows import MOST_PAGES, share_of_pages
from planner.prune.verdicts import Reason
from planner.view.directories import IndexReads, selection_among, selection_of
from planner.view.index_view import IndexView
from puffin_index.storage.arrays import Bytes, Flags, Floats, Ints, Selection

DEFAULT_BYTE_BUDGET: Final = 256 * 1024 * 1024
"""How many index bytes a query may read, unless it is told otherwise."""

ROWS_BYTE_BUDGET: Final = 4 * 1024 * 1024 * 1024
"""How many index bytes a count or aggregate may read: what the index does not answer is read from the data."""

DEFAULT_REGRET_SHARE: Final = 0.02
"""What look-ups that drop nothing may take of the bytes that a scan reads."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one plan.

    Attributes:
        strict: Raise on index trouble instead of keeping the row groups.
        byte_budget: How many index bytes may be read, directories not counted. Row groups beyond the budget are kept.
        rows_wanted: Somebody will count the rows. An index is then worth its bytes even where no row group is dropped.
        seconds: How long judging may take; a row group that is undecided by then is kept. The clock is asked between
            pieces of work (a leaf, a payload, a row group), so the last piece may end later.
        regret_share: Look-ups end when they have taken this share of the bytes that the scan reads, or those of its
            largest row group, and the bytes of what was dropped. One look-up of each test may take more than is left.
        pages: The scan reads only the pages with matching rows where these are few, in Spark or without it. Pages that
            it leaves out count as dropped bytes.
    """

    strict: bool = False
    byte_budget: int = DEFAULT_BYTE_BUDGET
    rows_wanted: bool = False
    seconds: float = DEFAULT_MILLISECONDS / 1000
    regret_share: float = DEFAULT_REGRET_SHARE
    pages: bool = False

    def of_scan(self, data_bytes: int) -> Self:
        """These limits for a scan of so many bytes: those of a large scan grow in proportion, up to five times."""
        times = min(max(1.0, data_bytes / _LARGE_BYTES), 5.0)
        return replace(self, byte_budget=int(self.byte_budget * times), seconds=self.seconds * times)


DEFAULT_LIMITS: Final = Limits()
_LARGE_BYTES = 4 << 30

_READ_SHARE = 0.25
"""Share of a row group's bytes that a typical query reads: a few of its columns."""

_COST_WEIGHT = 0.25
"""An index byte is cheaper than a data byte: it is neither decompressed, decoded nor shipped through tasks."""

_ROW_GROUP_OVERHEAD_BYTES = 128 * 1024
"""What a row group costs besides its bytes, in bytes: requests for its columns, and a share of a task."""

_REQUEST_BYTES = 16 * 1024
"""What a request costs besides its bytes, in bytes."""

_GOLDEN_RATIO = (5**0.5 - 1) / 2


@dataclass(eq=False)
class CostGate:
    """Weighs what reading an index saves against what it costs, for some row groups of a view.

    `matches` has the matching rows of each position, -1 where they are not known. Look-ups write into this array: where
    it is 0, a row group was dropped.
    """

    _view: IndexView
    _tree: PredicateTree
    _row_groups: Ints
    _limits: Limits
    _matches: Ints
    _reads: IndexReads
    _spent: int = 0
    _spent_requests: int = 0

    def __post_init__(self) -> None:
        """Know nothing but what the view tells."""
        self._has_pages = self._view.has_pages[selection_of(self._row_groups)]
        # The share of each row group that the scan reads, as far as look-ups have told.
        self._read = np.ones(len(self._row_groups))

    @cached_property
    def estimates(self) -> JoinedEstimates:
        """Estimates of the leaves, joined. A leaf is unknown until an estimate is put. Zone maps need none."""
        return JoinedEstimates(self._tree, self._row_counts)

    @cached_property
    def _row_counts(self) -> Ints:
        return self._view.row_counts[selection_of(self._row_groups)]

    @cached_property
    def _bytes_without(self) -> Floats:
        """About how many bytes a query reads of each row group, requests counted as bytes."""
        read = self._view.row_group_bytes[selection_of(self._row_groups)] * _READ_SHARE + _ROW_GROUP_OVERHEAD_BYTES
        return np.asarray(read, np.float64)

    def saved(self, at: Ints, known: tuple[int, Estimate] | None = None) -> Floats:
        """The bytes that dropping row groups at some ascending positions is expected to save.

        `known` is the number of a leaf, and a better estimate of it there.
        """
        here = selection_among(at, len(self._row_groups))
        if self._limits.rows_wanted:
            return self._bytes_without[here]
        estimates = self.estimates
        expected = estimates.root.at(here) if known is None else estimates.root_if(*known, here)
        share = self._share(expected.presence, expected.selectivity * self._row_counts[here], here)
        return np.asarray(np.maximum(self._read[here] - share, 0) * self._bytes_without[here], np.float64)

    def note(self, at: Ints, counts: Ints) -> None:
        """Write down how many rows match at most, at ascending positions."""
        if self._limits.pages:
            here = selection_among(at, len(self._row_groups))
            self._read[here] = np.minimum(self._read[here], self._share(np.minimum(counts, 1), counts, here))

    def _share(self, presence: Floats | Ints, rows: Floats | Ints, here: Selection) -> Floats:
        """The share of each row group that the scan reads, given how likely a row matches and how many rows do."""
        if not self._limits.pages:
            return np.asarray(presence, np.float64)
        share = share_of_pages(rows, self._row_counts[here]) + _ROW_GROUP_OVERHEAD_BYTES / self._bytes_without[here]
        return np.where(self._has_pages[here] & (share < MOST_PAGES), share * presence, presence)

    def worth(self, saved: Floats | float, cost: Ints | int, reads: Ints | int) -> Flags:
        """Whether bytes that are saved outweigh index bytes and requests."""
        return np.asarray(np.asarray(saved) > np.asarray(cost) * _COST_WEIGHT + reads * _REQUEST_BYTES, np.bool_)

    def in_turn(self, costs: Ints, *, is_first: bool = True) -> Iterator[Ints]:
        """Yield the places of look-ups to make now, as often as there are any; the caller settles what these found.

        The cheapest come first, by the bytes that each is about to read; what it has read is what it has spent. Among
        look-ups of about one cost, neighbours are far apart in turn: what the first few find then stands for all.
        `is_first` says that none was made of this test.
        """
        scattered = np.arange(len(costs)) * _GOLDEN_RATIO % 1
        left, least = np.lexsort((scattered, np.frexp(costs)[1])), int(is_first)
        while len(left):
            spent = np.cumsum(costs[left])
            pays = spent <= self._limits.byte_budget - self._spent
            if not self._limits.rows_wanted:
                # The first one is made in any case: the tests of an OR drop nothing one by one.
                pays &= (spent - costs[left] < max(self._allowance(), least)) | (spent == 0)
            least = 0
            count = int(np.count_nonzero(pays))
            if not count:
                return
            with self.spending():
                yield np.sort(left[:count])
            left = left[count:]

    def may_lose(self, cost: int, reads: int) -> bool:
        """Whether look-ups may take some index bytes and requests for nothing, as it were."""
        return cost + reads * _REQUEST_BYTES < min(self._allowance(), self._limits.byte_budget - self._spent)

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Count what is read in the body of a `with` statement as spent."""
        count = self._reads.count
        bytes_before, requests_before = count.bytes, count.requests
        yield
        self._spent += count.bytes - bytes_before
        self._spent_requests += count.requests - requests_before

    def refusals(self, costs: Ints) -> Bytes:
        """The reasons for which look-ups are not made that are worth their bytes."""
        is_over = costs > self._limits.byte_budget - self._spent
        return np.where(is_over, Reason.OVER_BUDGET, Reason.NOT_WORTH_READING).astype(np.uint8)

    def _allowance(self) -> float:
        """What look-ups may have taken when another one begins."""
        read = self._bytes_without
        regret = max(self._limits.regret_share * float(read.sum()), float(read.max(initial=0)))
        spent = self._spent + self._spent_requests * _REQUEST_BYTES
        return regret + float((read * np.where(self._matches == 0, 1, 1 - self._read)).sum()) - spent
