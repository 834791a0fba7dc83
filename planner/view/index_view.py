"""The index view: one version of an index table, read for planning. Directories are read on first use, and kept."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping
from functools import cached_property, partial
from itertools import chain
from typing import TypeVar

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from planner.view.cache import CACHE, Cached, IndexCache
from planner.view.covered_row_groups import CoveredRowGroups
from planner.view.directories import (
    FieldStatistics,
    IndexReads,
    KindDirectory,
    Placement,
    gather_directory,
    gather_statistics,
)
from planner.view.experience import Experience
from planner.view.open_segments import OpenSegments
from planner.view.segment_files import SegmentFiles
from puffin_index.data.column_source import FieldSource
from puffin_index.index_table.entries import field_kinds, with_kinds, without_sources
from puffin_index.keys.map_key import ColumnId, FieldKind
from puffin_index.segments.directory import STATISTICS
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.ranged import Reading

Kept = TypeVar("Kept", bound=Cached)
Part = TypeVar("Part")


class IndexView(CoveredRowGroups):
    """One version of an index table, read for planning. Safe to share between threads.

    Made of the rows of the index table, oldest first. Directories of columns whose sources are `rejected` are left out.
    """

    def __init__(
        self,
        version: str,
        entries: pa.Table,
        io: FileIO,
        cache: IndexCache = CACHE,
        rejected: frozenset[FieldSource] = frozenset(),
    ) -> None:
        super().__init__(without_sources(entries, rejected))
        self.rejected = rejected
        self.version = version
        self.io = io
        self._cache = cache
        # Tells this view's arrays in the cache from those of others.
        self._identity = object()
        self.opened = OpenSegments(self, io, cache)
        self._own_keys: set[object] = set()
        self.experience = Experience()
        # Cached parts of segments outlive the view; arrays that are numbered as in the view and open files do not.
        weakref.finalize(self, _let_go, self.opened.files, cache, self._own_keys).atexit = False

    def without_sources(self, rejected: frozenset[FieldSource]) -> IndexView:
        """The same view, numbered alike, without the indexes of columns that a scan finds somewhere else."""
        return IndexView(self.version, self._entries, self.io, self._cache, rejected)

    def only(self, chosen: Collection[FieldKind]) -> IndexView:
        """The view as if only some indexes had been built; row groups without any have no number."""
        kept = [kinds & set(chosen) for kinds in field_kinds(self._entries)]
        return IndexView(self.version, with_kinds(self._entries, kept), self.io, self._cache, self.rejected)

    @cached_property
    def built(self) -> frozenset[FieldKind]:
        """The indexes that at least one data file has."""
        return frozenset(chain.from_iterable(field_kinds(self._entries)))

    def statistics(self, column: ColumnId, value_type: str, reads: IndexReads) -> FieldStatistics | None:
        """The statistics of a column that are of a type; None if no row group has any."""
        read = self.opened.statistics_of
        return self._kept(FieldStatistics, (column, STATISTICS), value_type, reads, read, gather_statistics)

    def directory(self, column: ColumnId, value_type: str, kind: str, reads: IndexReads) -> KindDirectory | None:
        """Where the payloads of a kind lie for a column and type; None without any."""
        gather = partial(gather_directory, column, kind)
        return self._kept(KindDirectory, (column, kind), value_type, reads, self.opened.directory_of, gather)

    def _kept(
        self,
        form: type[Kept],
        place: tuple[ColumnId, str],
        value_type: str,
        reads: IndexReads,
        read: Callable[[Placement, int], Reading[Part]],
        gather: Callable[[Placement, str, Mapping[int, Part]], Kept | None],
    ) -> Kept | None:
        """Arrays that are kept as long as the view lives, unless a segment was unreadable: it may be readable soon."""
        placement, key = self.placements.get(place), (self._identity, place, value_type)
        kept = self._cache.get(key)
        if placement is None or isinstance(kept, form):
            return kept if isinstance(kept, form) else None
        troubles = len(reads.troubles)
        found = gather(placement, value_type, self.opened.of_segments(placement, reads, read))
        if found is not None and len(reads.troubles) == troubles:
            self._own_keys.add(key)
            self._cache.put(key, found)
        return found

    def has(self, field_id: ColumnId, kind: str, row_groups: Ints) -> Flags:
        """Which row groups have an index of a kind; nothing is read."""
        placement = self.placements.get((field_id, kind))
        return np.zeros(len(row_groups), np.bool_) if placement is None else placement.segment[row_groups] >= 0


def _let_go(files: SegmentFiles, cache: IndexCache, keys: set[object]) -> None:
    files.close()
    cache.forget(keys)
