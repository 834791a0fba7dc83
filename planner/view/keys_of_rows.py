"""The keys of rows, from an index that holds the key of each row.

Postings are ordered by key: to tell the key of one row, all of a payload is decoded. That pays only once several
queries ask. So each query that reads data instead adds what the data cost it. When these costs reach the price of
decoding, the payload is decoded and its keys are kept: nobody ever pays more than twice what the best choice costs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from pyroaring import BitMap

from planner.view.cache import SharedPayloads
from planner.view.directories import FieldStatistics, IndexReads, KindDirectory, positions_by_number
from planner.view.index_view import IndexView
from puffin_index.errors import UnsupportedError
from puffin_index.keys.columns import Column
from puffin_index.keys.map_key import ColumnId
from puffin_index.kinds.held_keys import HoldsKeys, KeysInMemory
from puffin_index.kinds.registry import kinds_holding_keys
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.ranged import Reading

_SHARE_OF_CACHE: Final = 0.5
"""The keys that one query asks for may fill this share of the cache."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenedKeys:
    """An opened payload of a column, the places in a question of its row groups, and the first row of each."""

    index: HoldsKeys
    places: Sequence[int]
    bases: Sequence[int]

    def moved(self, rows_at: Callable[[int], BitMap | None]) -> BitMap:
        """Number rows as the payload does; `rows_at` returns the rows of the row group at a place, numbered from 0."""
        if len(self.places) == 1 and not self.bases[0]:
            return rows_at(self.places[0]) or BitMap()
        moved = [
            rows.shift(base) for place, base in zip(self.places, self.bases, strict=True) if (rows := rows_at(place))
        ]
        return BitMap.union(BitMap(), *moved)


def open_keys(
    view: IndexView, directory: KindDirectory, row_groups: Ints, places: Ints, shared: SharedPayloads | None = None
) -> Reading[OpenedKeys]:
    """Open the payload that the row groups at some places share; `OpenSegments.weigh` notes how large it became."""
    here = places[np.argsort(directory.base[row_groups[places]], kind="stable")]
    first = int(row_groups[here[0]])
    opened = yield from view.opened.open(directory, first, shared)
    if not isinstance(opened, HoldsKeys):
        raise UnsupportedError(f"a payload of kind {directory.kind} that holds no keys")
    return OpenedKeys(opened, here.tolist(), directory.base[row_groups[here]].tolist())


def keys_of_rows(
    view: IndexView,
    column: ColumnId,
    value_type: str,
    rows: Mapping[int, BitMap],
    byte_budget: float,
    reads: IndexReads,
) -> dict[int, Column] | None:
    """Return the keys of some rows of a column, by row group of the view, in the order of the rows.

    Returns None if no index has the keys of all of them without decoding the keys of all other rows, if that takes more
    bytes of payloads than `byte_budget`, or if an index cannot be read.
    """
    row_groups = np.array(list(rows), np.int64)
    for kind in kinds_holding_keys():
        directory = None if kind.is_found_by_key else view.directory(column, value_type, kind.name, reads)
        if directory is None or not directory.known[row_groups].all():
            continue
        payloads = [places for _, places in positions_by_number(directory.blob[row_groups])]
        if sum(int(directory.length[row_groups[places[0]]]) for places in payloads) <= byte_budget:
            break
    else:
        return None
    segments = directory.segment[row_groups]
    read = partial(_read, view, directory, row_groups, rows)
    found: dict[int, Column] = {}
    for part in view.opened.read_each(read, payloads, lambda places: int(segments[places[0]]), reads):
        if part is None:
            return None
        found.update(part)
    return found


def _read(
    view: IndexView, directory: KindDirectory, row_groups: Ints, rows: Mapping[int, BitMap], places: Ints
) -> Reading[dict[int, Column]]:
    opened = yield from open_keys(view, directory, row_groups, places)
    keys = yield from opened.index.keys_of(opened.moved(lambda place: rows[int(row_groups[place])]))
    view.opened.weigh(directory, int(row_groups[places[0]]))
    own = [int(row_groups[place]) for place in opened.places]
    ends = np.cumsum([len(rows[one]) for one in own]).tolist()
    return {one: keys.part(first, end) for one, first, end in zip(own, [0, *ends[:-1]], ends, strict=True)}


def decoded_keys(view: IndexView, directory: KindDirectory, row_group: int, opened: HoldsKeys) -> Reading[HoldsKeys]:
    """The keys of a row group's payload in memory, decoded and kept unless they are there or need not be decoded."""
    if (kept := _kept_keys(view, directory, row_group)) is not None:
        return kept
    found = yield from opened.in_memory()
    if found is None:
        return opened
    view.opened.keep(directory, row_group, "keys in memory", found)
    return found


def _kept_keys(view: IndexView, directory: KindDirectory, row_group: int) -> KeysInMemory | None:
    found = view.opened.kept(directory, row_group, "keys in memory")
    return found if isinstance(found, KeysInMemory) else None


def add_cost(view: IndexView, directory: KindDirectory, row_group: int, cost: float) -> float:
    """Add what a query costs that reads data because a payload is not decoded; return what all have cost (weighed)."""
    kept = view.opened.kept(directory, row_group, "cost")
    spent = np.float64(cost) + (kept if isinstance(kept, np.float64) else 0.0)
    view.opened.keep(directory, row_group, "cost", spent)
    return float(spent)


def are_in_memory(view: IndexView, directory: KindDirectory, row_groups: Ints) -> Flags:
    """Return for each of some row groups whether the keys of its payload are in memory."""
    blobs, firsts, owners = np.unique(directory.blob[row_groups], return_index=True, return_inverse=True)
    chosen = zip(blobs.tolist(), row_groups[firsts].tolist(), strict=True)
    kept = [blob >= 0 and _kept_keys(view, directory, first) is not None for blob, first in chosen]
    return np.array(kept, np.bool_)[owners]


def may_be_kept(view: IndexView, statistics: FieldStatistics, directory: KindDirectory, row_groups: Ints) -> bool:
    """Return whether there is room for the keys of all payloads that some row groups have."""
    covered = np.isin(directory.blob, directory.blob[row_groups])
    rows = int(view.row_counts[covered].sum())
    # One code a row, of the fewest bytes.
    bounds = statistics.bounds
    keys = rows if bounds is None else bounds[1] - bounds[0] + 1
    return rows * np.min_scalar_type(min(keys, rows)).itemsize <= view.opened.cache.limit * _SHARE_OF_CACHE
