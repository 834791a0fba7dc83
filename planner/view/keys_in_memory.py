"""Keys of rows that are kept in memory.

Postings are ordered by key: to tell the key of one row, all of a payload is decoded. That pays only once several
questions ask. So each question that reads data instead adds what the data cost it. When these costs reach the price of
decoding, the payload is decoded and its keys are kept: nobody ever pays more than twice what the best choice costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.view.directories import FieldStatistics, KindDirectory
from planner.view.index_view import IndexView
from puffin_index.keys.map_key import ColumnId
from puffin_index.kinds.held_keys import HoldsKeys, KeysInMemory
from puffin_index.storage.arrays import Flags, Ints

_SHARE_OF_CACHE: Final = 0.5
"""The keys that one question asks for may fill so much of the cache."""


@dataclass(frozen=True, slots=True, eq=False)
class _Decoded:
    """The keys of the rows of a payload."""

    keys: KeysInMemory

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return self.keys.nbytes


@dataclass(slots=True)
class _Spent:
    """What questions have cost that read data because nobody had decoded a payload, in weighed bytes."""

    cost: float = 0.0
    nbytes: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class PayloadKeys:
    """The keys of the rows of one payload.

    Attributes:
        view: The index.
        column: The column.
        directory: Tells of the payload.
        row_group: A row group of the view that the payload covers.
    """

    view: IndexView
    column: ColumnId
    directory: KindDirectory
    row_group: int

    @property
    def kept(self) -> KeysInMemory | None:
        """The keys, if they are in memory."""
        found = self.view.kept(self.column, self.directory, self.row_group, _Decoded)
        return None if found is None else found.keys

    def decoded(self, opened: HoldsKeys) -> HoldsKeys:
        """Decode the keys of the opened payload and keep them; a payload that need not be decoded is returned.

        Raises:
            CorruptFileError: If the payload is damaged.
        """
        found = opened.in_memory()
        if found is None:
            return opened
        self.view.keep(self.column, self.directory, self.row_group, _Decoded(found), _Decoded)
        return found

    def add_cost(self, cost: float) -> float:
        """Add what a question costs without these keys; return what all questions have cost, in weighed bytes."""
        spent = self.view.kept(self.column, self.directory, self.row_group, _Spent) or _Spent()
        spent.cost += cost
        self.view.keep(self.column, self.directory, self.row_group, spent, _Spent)
        return spent.cost


def are_in_memory(view: IndexView, column: ColumnId, directory: KindDirectory, row_groups: Ints) -> Flags:
    """Return for each of some row groups whether the keys of its payload are in memory."""
    blobs, firsts, owners = np.unique(directory.blob[row_groups], return_index=True, return_inverse=True)
    chosen = zip(blobs.tolist(), row_groups[firsts].tolist(), strict=True)
    kept = [blob >= 0 and PayloadKeys(view, column, directory, first).kept is not None for blob, first in chosen]
    return np.array(kept, np.bool_)[owners]


def may_be_kept(view: IndexView, statistics: FieldStatistics, directory: KindDirectory, row_groups: Ints) -> bool:
    """Return whether there is room for the keys of all payloads that some row groups have."""
    covered = np.isin(directory.blob, directory.blob[row_groups])
    rows = int(view.row_counts[covered].sum())
    # One code a row, of the fewest bytes.
    bounds = statistics.bounds
    keys = rows if bounds is None else bounds[1] - bounds[0] + 1
    return rows * np.min_scalar_type(min(keys, rows)).itemsize <= view.cache_bytes * _SHARE_OF_CACHE
