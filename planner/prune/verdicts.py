"""What pruning says: the verdict on each row group with its reason, and the funnel of stages behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, TypeAlias

import numpy as np
from pyroaring import BitMap

from planner.condition.tree.nodes import EVERY_ROW, Predicate
from planner.prune.row_sets import RowSets
from planner.view.directories import IndexTrouble
from puffin_index.keys.map_key import ColumnId
from puffin_index.kinds.base import RowSet
from puffin_index.storage.arrays import Bytes, Flags, Ints

Used: TypeAlias = tuple[ColumnId, str]
"""A column, and the kind of its index that decided something; `ZONE_MAPS` for statistics alone."""

ZONE_MAPS: Final = "zone-map"


class Reason(IntEnum):
    """Why a row group is kept or dropped."""

    ROWS_MATCH = 0
    ALL_ROWS_MATCH = 1
    MAY_MATCH = 2
    NOT_WORTH_READING = 3
    INDEX_UNREADABLE = 4
    UNINDEXED = 5
    NO_PREDICATE = 6
    ZONE_MAP = 7
    BLOOM = 8
    ROWS_EMPTY = 9
    OVER_BUDGET = 10
    ALL_DELETED = 11
    TIME_BUDGET = 12
    READ_WHOLE = 13
    ENOUGH_ROWS = 14
    ANSWERED = 15
    NOT_TRUSTED = 16

    @property
    def code(self) -> str:
        """The reason as users see it."""
        return self.name.lower().replace("_", "-")

    @classmethod
    def of(cls, code: str) -> Reason:
        """The reason of a code."""
        return cls[code.upper().replace("-", "_")]

    @property
    def drops(self) -> bool:
        """Whether a row group is dropped for this reason."""
        return self in _DROPPING


_DROPPING = frozenset(
    {Reason.ZONE_MAP, Reason.BLOOM, Reason.ROWS_EMPTY, Reason.ALL_DELETED, Reason.ENOUGH_ROWS, Reason.ANSWERED}
)


def kept_mask(reasons: Bytes) -> Flags:
    """Which row groups are read, by the reason (`Reason` value) of each."""
    return ~np.isin(reasons, [int(reason) for reason in _DROPPING])


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the funnel (`zone-map`, `postings`, `bloom`, `rows`, `deletes`), and the row groups that it saw."""

    name: str
    entered: int
    dropped: int
    reads: int
    bytes_read: int
    seconds: float


@dataclass(frozen=True, slots=True)
class FirstFound:
    """What holds for the first rows wanted, as text and (ordered) predicate; row groups of the view without them."""

    text: str
    threshold: Predicate | None
    dropped: Ints
    seconds: float
    bytes_read: int


@dataclass(frozen=True, slots=True)
class Pruned:
    """The verdict on each row group that was asked about: a `Reason`, and matching rows, -1 where not known exactly.

    Beside these, the rows where an index gave them, what dropped row groups or had a part in that, and troubles;
    `warnings` are of delete files that could not be read; `first` is there if row groups have all the rows wanted.
    """

    reasons: Bytes
    matches: Ints
    stages: tuple[Stage, ...]
    troubles: tuple[IndexTrouble, ...]
    row_sets: RowSets = field(default_factory=RowSets)
    used: frozenset[Used] = frozenset()
    warnings: tuple[str, ...] = ()
    first: FirstFound | None = None

    @property
    def kept(self) -> Flags:
        """Which row groups survive."""
        return kept_mask(self.reasons)

    @property
    def threshold(self) -> Predicate | None:
        """What the first rows of an order satisfy, if that is known."""
        return None if self.first is None else self.first.threshold

    def rows_of(self, at: int, row_group: int, row_count: int, predicate: Predicate = EVERY_ROW) -> RowSet | None:
        """The rows, deleted ones among them, of the row group at a place that can match; None if no index said."""
        reason = Reason(int(self.reasons[at]))
        if reason.drops:
            return RowSet(BitMap(), exact=True)
        if reason in (Reason.ALL_ROWS_MATCH, Reason.NO_PREDICATE):
            return RowSet(BitMap(range(row_count)), exact=reason == Reason.ALL_ROWS_MATCH or predicate == EVERY_ROW)
        return self.row_sets.of(row_group)
