"""The keys of some rows, from an index that holds the key of each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from pyroaring import BitMap

from planner.condition.tree.nodes import Leaf
from planner.view.directories import IndexReads, IndexTrouble, KindDirectory, positions_by_number
from planner.view.index_view import IndexView
from puffin_index.errors import CorruptFileError, NotFoundError, UnsupportedError
from puffin_index.keys.columns import Column
from puffin_index.keys.map_key import ColumnId
from puffin_index.kinds.held_keys import HoldsKeys
from puffin_index.kinds.registry import kinds_holding_keys
from puffin_index.storage.arrays import Ints


@dataclass(frozen=True, slots=True, eq=False)
class OpenedKeys:
    """An opened payload of a column, and those row groups that it covers and somebody asks about.

    Attributes:
        index: The payload.
        places: The places of the row groups in the question, in the order of their rows.
        bases: The number of each row group's first row in the answers of the payload.
    """

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
    view: IndexView, column: ColumnId, directory: KindDirectory, row_groups: Ints, places: Ints
) -> OpenedKeys:
    """Open the payload that some row groups share.

    Args:
        view: The index.
        column: The column.
        directory: Tells of the payload.
        row_groups: Row groups of the view.
        places: Those that share the payload, as places in `row_groups`.

    Raises:
        CorruptFileError: If the directory or the payload is damaged.
        UnsupportedError: If this release does not read such a payload.
    """
    here = places[np.argsort(directory.base[row_groups[places]], kind="stable")]
    first = int(row_groups[here[0]])
    is_merged = bool(directory.merged[first])
    opened: object = (view.open_index if is_merged else view.open_alone)(column, directory, first)
    if not isinstance(opened, HoldsKeys):
        raise UnsupportedError(f"a payload of kind {directory.kind} that holds no keys")
    bases = directory.base[row_groups[here]] if is_merged else np.zeros(1, np.int64)
    return OpenedKeys(opened, here.tolist(), bases.tolist())


def weigh_keys(view: IndexView, column: ColumnId, directory: KindDirectory, row_group: int) -> None:
    """Tell the cache how large an opened payload has become by being read."""
    if directory.merged[row_group]:
        view.weigh(column, directory, row_group)


def keys_of_rows(
    view: IndexView, leaf: Leaf, rows: Mapping[int, BitMap], byte_budget: float, reads: IndexReads
) -> dict[int, Column] | None:
    """Return the keys of some rows, in the order of the rows.

    Args:
        view: The index.
        leaf: Names the column.
        rows: The rows by row group of the view.
        byte_budget: How many bytes of payloads may be read.
        reads: Takes down troubles.

    Returns:
        The keys by row group; None if no index has the keys of all of them without decoding the keys of all other rows,
        if that takes too many bytes, or if an index cannot be read.
    """
    row_groups = np.array(list(rows), np.int64)
    for kind in kinds_holding_keys():
        directory = None if kind.is_found_by_key else view.directory(leaf, kind.name, reads)
        if directory is None or not directory.known[row_groups].all():
            continue
        _, firsts = np.unique(directory.blob[row_groups], return_index=True)
        if directory.length[row_groups[firsts]].sum() > byte_budget:
            continue
        payloads = [places for _, places in positions_by_number(directory.blob[row_groups])]
        read = partial(_read, view, leaf.field_id, directory, row_groups, rows)
        found: dict[int, Column] = {}
        for part in view.each(read, payloads):
            if isinstance(part, IndexTrouble):
                reads.troubles.append(part)
                return None
            found.update(part)
        return found
    return None


def _read(
    view: IndexView,
    column: ColumnId,
    directory: KindDirectory,
    row_groups: Ints,
    rows: Mapping[int, BitMap],
    places: Ints,
) -> dict[int, Column] | IndexTrouble:
    """The keys of the row groups that share a payload."""
    first = int(row_groups[places[0]])
    try:
        opened = open_keys(view, column, directory, row_groups, places)
        keys = opened.index.keys_of(opened.moved(lambda place: rows[int(row_groups[place])]))
        weigh_keys(view, column, directory, first)
    except (CorruptFileError, UnsupportedError, NotFoundError, OSError) as error:
        return IndexTrouble.of(view.segments[int(directory.segment[first])][0], error)
    return dict(_parts(keys, [int(row_groups[place]) for place in opened.places], rows))


def _parts(keys: Column, row_groups: Sequence[int], rows: Mapping[int, BitMap]) -> Iterator[tuple[int, Column]]:
    first = 0
    for row_group in row_groups:
        end = first + len(rows[row_group])
        yield row_group, keys.part(first, end)
        first = end
