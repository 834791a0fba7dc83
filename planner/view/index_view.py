"""The index view: one version of an index table, read for planning.

Directories are read on first use, per column and kind, and kept: segments are immutable.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection
from functools import cached_property
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
from puffin_index.keys.map_key import ColumnId
from puffin_index.segments.directory import STATISTICS, FieldKind
from puffin_index.storage.arrays import Flags, Ints

Kept = TypeVar("Kept", bound=Cached)


class IndexView(CoveredRowGroups):
    """One version of an index table, read for planning. Safe to share between threads.

    Made of the version's name, the rows of the index table, oldest first, and its FileIO. Directories of the columns
    whose sources are `rejected` are left out.
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
        placement, key = self._place(column, value_type, STATISTICS)
        kept = self._cache.get(key)
        if placement is None or isinstance(kept, FieldStatistics):
            return kept if isinstance(kept, FieldStatistics) else None
        troubles = len(reads.troubles)
        parts = self.opened.of_segments(placement, reads, self.opened.statistics_of)
        return self._keep(key, gather_statistics(placement, value_type, parts), len(reads.troubles) == troubles)

    def directory(self, column: ColumnId, value_type: str, kind: str, reads: IndexReads) -> KindDirectory | None:
        """Where the payloads of a kind lie for a column and type; None without any."""
        placement, key = self._place(column, value_type, kind)
        kept = self._cache.get(key)
        if placement is None or isinstance(kept, KindDirectory):
            return kept if isinstance(kept, KindDirectory) else None
        troubles = len(reads.troubles)
        parts = self.opened.of_segments(placement, reads, self.opened.directory_of)
        found = gather_directory(column, kind, placement, value_type, parts)
        return self._keep(key, found, len(reads.troubles) == troubles)

    def _place(self, column: ColumnId, value_type: str, kind: str) -> tuple[Placement | None, object]:
        return self.placements.get((column, kind)), (self._identity, column, kind, value_type)

    def _keep(self, key: object, value: Kept | None, is_complete: bool) -> Kept | None:
        """Keep arrays as long as the view lives, unless a segment was unreadable: it may be readable soon."""
        if value is not None and is_complete:
            self._own_keys.add(key)
            self._cache.put(key, value)
        return value

    def has(self, field_id: ColumnId, kind: str, row_groups: Ints) -> Flags:
        """Which row groups have an index of a kind; nothing is read."""
        placement = self.placements.get((field_id, kind))
        return np.zeros(len(row_groups), np.bool_) if placement is None else placement.segment[row_groups] >= 0


def _let_go(files: SegmentFiles, cache: IndexCache, keys: set[object]) -> None:
    files.close()
    cache.forget(keys)
