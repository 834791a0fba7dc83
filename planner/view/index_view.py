"""The index view: one version of an index table, read for planning.

Directories are read on first use, per column and kind, and kept: segments are immutable.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.io import FileIO

from planner.condition.tree.nodes import Leaf
from planner.view.covered_row_groups import CoveredRowGroups
from planner.view.directories import (
    STATISTICS_COLUMNS,
    FieldStatistics,
    IndexReads,
    IndexTrouble,
    KindDirectory,
    Placement,
    gather_directory,
    gather_statistics,
    or_trouble,
    segment_statistics,
)
from planner.view.experience import Experience
from planner.view.index_cache import CACHE, Cached, IndexCache, KeptForm, KeyList, OpenPayload, StoredDirectory
from planner.view.segment_files import SegmentFiles, SegmentReader
from planner.view.shared_payloads import SHARED
from puffin_index.catalogue.entries import field_kinds, with_kinds, without_sources
from puffin_index.data.column_source import FieldSource
from puffin_index.errors import CorruptFileError, PuffinIndexError, UnsupportedError
from puffin_index.keys.map_key import ColumnId
from puffin_index.kinds.base import MergedFilter, MergedIndex, RowGroupIndex
from puffin_index.segments.directory import STATISTICS, Directory, FieldKind, read_directory, read_statistics
from puffin_index.segments.segment import align
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.files import CountingReader, is_local
from puffin_index.storage.parallel import in_parallel, requests_at_once
from puffin_index.storage.parts import Part as Range
from puffin_index.storage.parts import PartReader, read_parts, spans_of_parts
from puffin_index.storage.ranged import Blob, RangedReader

Part = TypeVar("Part")
Item = TypeVar("Item")
Span: TypeAlias = tuple[int, int, int]
"""Number of a segment, an offset in it, and a length in bytes."""

_DIRECTORY_GAP_BYTES = 256 * 1024
"""Directories of other columns that are read along rather than asking a store twice."""

_WHOLE_BYTES = 64 * 1024


class IndexView(CoveredRowGroups):
    """One version of an index table, read for planning. Safe to share between threads.

    Args:
        version: Names the version (the index table's snapshot id).
        entries: The rows of the index table, oldest first.
        io: The FileIO of the index table.
        cache: Where directories and opened payloads are kept.
        rejected: The sources of columns whose directories are left out.

    Attributes:
        experience: What plans of this view have found.
        files: The files of the segments.
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
        self.files = SegmentFiles(io)
        self._own_keys: set[object] = set()
        self.experience = Experience()
        # What is of segments outlives the view; what is numbered as in the view does not, nor do open files.
        weakref.finalize(self, _let_go, self.files, cache, self._own_keys).atexit = False

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

    def each(self, read: Callable[[Item], Part], items: Sequence[Item]) -> list[Part]:
        """Return the results of reading something for each of some items, in their order.

        Requests to a remote store wait side by side; a local disk has answered before threads could take turns.
        """
        return in_parallel(read, items, self._at_once)

    @cached_property
    def _at_once(self) -> int:
        return 1 if self.is_local else requests_at_once(self.io, self.segments[-1][0])

    @cached_property
    def is_local(self) -> bool:
        """Whether all segments are files of this machine."""
        return all(is_local(location) for location, _ in self.segments)

    def prefetch(self, fields: Collection[ColumnId]) -> None:
        """Read what directories of some columns are not in memory yet, all columns of a segment by one request.

        Only for stores, where requests one after the other take long. What cannot be read is left to those who need it.
        """
        if self.is_local:
            return
        missing: dict[int, set[tuple[int, int, str]]] = {}
        for (field_id, _), placement in self.placements.items():
            for segment, place in placement.locations.items() if field_id in fields else ():
                if self._cache.get((self.segments[segment][0], place)) is None:
                    missing.setdefault(segment, set()).add(place)
        ranges = {segment: [Range(*place[:2]) for place in sorted(places)] for segment, places in missing.items()}
        near = [
            (segment, *span) for segment in ranges for span in spans_of_parts(ranges[segment], _DIRECTORY_GAP_BYTES)
        ]
        with self.held(near):
            self.each(lambda segment: self._prefetch_segment(segment, sorted(missing[segment])), list(missing))

    def _prefetch_segment(self, segment: int, places: Sequence[tuple[int, int, str]]) -> None:
        reader = self._reader(segment)
        blob, ranges = Blob(CountingReader(reader), 0, reader.size), [Range(*place[:2]) for place in places]
        with suppress(PuffinIndexError, OSError):
            for place, data in zip(places, read_parts(blob, ranges, _DIRECTORY_GAP_BYTES), strict=True):
                self._cache.put((reader.location, place), StoredDirectory(PartReader(data, reader.location, place[0])))

    def held(self, spans: Iterable[Span]) -> AbstractContextManager[None]:
        """Get ranges of segments side by side from a store, and hold them for readers of any part."""
        if self.is_local:
            return nullcontext()
        inside = [
            (self.segments[segment][0], offset, length)
            for segment, offset, length in spans
            if 0 <= offset <= offset + length <= self.segments[segment][1]
        ]
        return self.files.held(inside, self._at_once)

    def spans_alone(self, directory: KindDirectory, row_groups: Ints) -> list[Span]:
        """What `open_alone` reads for some row groups: nothing where it only opens a payload, or on a local disk."""
        if self.is_local:
            return []
        is_small = directory.known & ~directory.merged & (directory.length <= _WHOLE_BYTES)
        small = row_groups[is_small[row_groups]]
        columns = (array[small].tolist() for array in (directory.segment, directory.offset, directory.length))
        return list(zip(*columns, strict=True))

    def spans_of(self, directory: KindDirectory, row_group: int, parts: Sequence[Range]) -> list[Span]:
        """The places of some parts of the payload of a row group."""
        segment, start = int(directory.segment[row_group]), int(directory.offset[row_group])
        return [(segment, start + part.offset, part.length) for part in parts]

    def statistics(self, leaf: Leaf, reads: IndexReads) -> FieldStatistics | None:
        """The statistics of a leaf's column that are of its type; None if no row group has any."""
        placement = self.placements.get((leaf.field_id, STATISTICS))
        if placement is None:
            return None
        key = (self._identity, leaf.field_id, STATISTICS, leaf.value_type)
        kept = self._cache.get(key)
        if isinstance(kept, FieldStatistics):
            return kept
        troubles = len(reads.troubles)
        parts = self._of_segments(placement, reads, self._segment_statistics)
        statistics = gather_statistics(placement, leaf.value_type, parts)
        # What could not be read today may be readable in a minute.
        if statistics is not None and len(reads.troubles) == troubles:
            self._keep(key, statistics)
        return statistics

    def directory(self, leaf: Leaf, kind: str, reads: IndexReads) -> KindDirectory | None:
        """Where the payloads of a kind lie that are of a leaf's column and type; None if there are none."""
        placement = self.placements.get((leaf.field_id, kind))
        if placement is None:
            return None
        key = (self._identity, leaf.field_id, kind, leaf.value_type)
        kept = self._cache.get(key)
        if isinstance(kept, KindDirectory):
            return kept
        troubles = len(reads.troubles)
        parts = self._of_segments(placement, reads, self._segment_directory)
        directory = gather_directory(kind, placement, leaf.value_type, parts)
        if directory is not None and len(reads.troubles) == troubles:
            self._keep(key, directory)
        return directory

    def _keep(self, key: object, value: Cached) -> None:
        """Keep what is of use as long as the view is."""
        self._own_keys.add(key)
        self._cache.put(key, value)

    def has(self, field_id: ColumnId, kind: str, row_groups: Ints) -> Flags:
        """Which row groups have an index of a kind; nothing is read."""
        placement = self.placements.get((field_id, kind))
        return np.zeros(len(row_groups), np.bool_) if placement is None else placement.segment[row_groups] >= 0

    def open_alone(self, field_id: ColumnId, directory: KindDirectory, row_group: int) -> RowGroupIndex:
        """Open the payload of one row group; nothing is read yet but the directory, if it is no longer in memory.

        A small payload is read whole from a store, which costs one round.

        Raises:
            CorruptFileError: If the directory is not what was written.
            UnsupportedError: If this release does not read such a payload.
        """
        shared = SHARED.get()
        if shared is None or field_id not in shared.columns:
            return self._open_alone(field_id, directory, row_group)
        key, length = self._payload_key(field_id, directory, row_group), int(directory.length[row_group])
        return shared.opened(key, length, lambda: self._open_alone(field_id, directory, row_group))

    def _open_alone(self, field_id: ColumnId, directory: KindDirectory, row_group: int) -> RowGroupIndex:
        own, entry, reader = self._locate(field_id, directory, row_group)
        span = np.array([[0, self.row_counts[row_group]]], np.int64)
        counted: RangedReader = CountingReader(reader)
        offset, length = int(directory.offset[row_group]), int(directory.length[row_group])
        if not self.is_local and length <= _WHOLE_BYTES:
            counted = PartReader(Blob(counted, offset, length).read_all(), reader.location, offset)
        opened = own.open(entry, counted, span)
        if isinstance(opened, MergedIndex | MergedFilter):
            raise UnsupportedError(f"{own.location}: a payload of several row groups where one of a row group belongs")
        return opened

    def open_index(self, field_id: ColumnId, directory: KindDirectory, row_group: int) -> MergedIndex:
        """Open what covers a row group and others and answers with rows; what is read of its directory is kept.

        Raises:
            CorruptFileError: If the directory is not what was written.
            UnsupportedError: If this release does not read such a payload.
        """
        payload = self._opened(field_id, directory, row_group).payload
        if not isinstance(payload, MergedIndex):
            raise UnsupportedError(f"a payload of kind {directory.kind} that answers with no rows")
        return payload

    def keys_of(self, field_id: ColumnId, directory: KindDirectory, row_group: int, most: int) -> KeyList | None:
        """The distinct keys of the payload of a row group; None if it does not list them, or has more than `most`.

        Raises:
            CorruptFileError: If the directory or the payload is not what was written.
            UnsupportedError: If this release does not read such a payload.
        """
        kept = self.kept(field_id, directory, row_group, KeyList)
        if kept is not None:
            return kept if len(kept.keys) <= most else None
        is_merged = bool(directory.merged[row_group])
        opened = (self.open_index if is_merged else self.open_alone)(field_id, directory, row_group)
        keys = opened.keys(most)
        if keys is None:
            return None
        self.keep(field_id, directory, row_group, KeyList(keys), KeyList)
        return KeyList(keys)

    @property
    def cache_bytes(self) -> int:
        """How many bytes may be kept for this view and others."""
        return self._cache.limit

    def kept(
        self, field_id: ColumnId, directory: KindDirectory, row_group: int, form: type[KeptForm]
    ) -> KeptForm | None:
        """What somebody keeps of the payload of a row group in some form; None if nobody does."""
        found = self._cache.get((*self._payload_key(field_id, directory, row_group), form))
        return found if isinstance(found, form) else None

    def keep(
        self, field_id: ColumnId, directory: KindDirectory, row_group: int, value: KeptForm, form: type[KeptForm]
    ) -> None:
        """Keep something of the payload of a row group, for all views, as long as the cache has room."""
        self._cache.put((*self._payload_key(field_id, directory, row_group), form), value)

    def open_filter(self, field_id: ColumnId, directory: KindDirectory, row_group: int) -> tuple[MergedFilter, int]:
        """Open what covers a row group and others and tells which have no match; what is read of its directory is kept.

        Returns:
            The filter, and the row group of the segment that it begins with.

        Raises:
            CorruptFileError: If the directory is not what was written.
            UnsupportedError: If this release does not read such a payload.
        """
        opened = self._opened(field_id, directory, row_group)
        if not isinstance(opened.payload, MergedFilter):
            raise UnsupportedError(f"a payload of kind {directory.kind} that is no filter of row groups")
        return opened.payload, opened.first

    def _opened(self, field_id: ColumnId, directory: KindDirectory, row_group: int) -> OpenPayload:
        """The payload that covers a row group and others, opened by whichever view asked for it first."""
        key = self._payload_key(field_id, directory, row_group)
        kept = self._cache.get(key)
        if isinstance(kept, OpenPayload):
            kept.reader.files = self.files
            return kept
        own, entry, reader = self._locate(field_id, directory, row_group)
        covered = own.covered(entry)
        spans = self._spans(field_id, int(directory.segment[row_group]))[covered]
        payload = own.open(entry, CountingReader(reader), spans)
        if not isinstance(payload, MergedIndex | MergedFilter):
            raise UnsupportedError(f"{own.location}: a payload of one row group where one of several belongs")
        opened = OpenPayload(reader, payload, covered.start)
        self._cache.put(key, opened)
        return opened

    def weigh(self, field_id: ColumnId, directory: KindDirectory, row_group: int) -> None:
        """Tell the cache how large the opened payload of a row group has become by being read."""
        key = self._payload_key(field_id, directory, row_group)
        kept = self._cache.get(key)
        if kept is not None:
            self._cache.put(key, kept)

    def _payload_key(self, field_id: ColumnId, directory: KindDirectory, row_group: int) -> tuple[object, ...]:
        """Names a payload for all views: segments are immutable."""
        location = self.segments[int(directory.segment[row_group])][0]
        return location, field_id, directory.kind, int(directory.entry[row_group]), directory.value_type.name

    def ordinals(self, field_id: ColumnId, kind: str, row_groups: Ints) -> npt.NDArray[np.int32]:
        """Which row groups of their segments some row groups are."""
        return self.placements[field_id, kind].row_group[row_groups]

    def _locate(
        self, field_id: ColumnId, directory: KindDirectory, row_group: int
    ) -> tuple[Directory, int, SegmentReader]:
        """The directory that tells of a payload, the payload's row in this directory, and what reads the segment."""
        segment = int(directory.segment[row_group])
        own = self._segment_directory(self.placements[field_id, directory.kind], segment)
        # The keys of a test are of the type that the whole view is read by.
        own = replace(own, type_name=directory.value_type.name)
        return own, int(directory.entry[row_group]), self._reader(segment)

    def _spans(self, field_id: ColumnId, segment: int) -> Ints:
        """Base and row count of every row group of a segment, also of those whose data files the table has lost."""
        rows = self._segment_statistics(self.placements[field_id, STATISTICS], segment).row_count
        ends = np.cumsum(align(rows))
        return np.column_stack((ends - align(rows), rows))

    def _reader(self, segment: int) -> SegmentReader:
        return SegmentReader(self.files, *self.segments[segment])

    def _segment_statistics(self, placement: Placement, segment: int) -> FieldStatistics:
        key, kept = self._kept_directory(placement, segment)
        if isinstance(kept, FieldStatistics):
            return kept
        batch = read_statistics(self._directory_reader(kept, segment), *key[1], STATISTICS_COLUMNS)
        self._check_row_groups(placement, segment, len(batch))
        statistics = segment_statistics(batch)
        self._cache.put(key, statistics)
        return statistics

    def _segment_directory(self, placement: Placement, segment: int) -> Directory:
        key, kept = self._kept_directory(placement, segment)
        if isinstance(kept, Directory):
            return kept
        directory = read_directory(self._directory_reader(kept, segment), *key[1])
        self._check_row_groups(placement, segment, directory.row_group_count)
        self._cache.put(key, directory)
        return directory

    def _kept_directory(
        self, placement: Placement, segment: int
    ) -> tuple[tuple[str, tuple[int, int, str]], Cached | None]:
        key = self.segments[segment][0], placement.locations[segment]
        return key, self._cache.get(key)

    def _directory_reader(self, kept: Cached | None, segment: int) -> RangedReader:
        return kept.reader if isinstance(kept, StoredDirectory) else CountingReader(self._reader(segment))

    def _check_row_groups(self, placement: Placement, segment: int, row_groups: int) -> None:
        if int(placement.last_row_groups[segment]) >= row_groups:
            location, offset = self.segments[segment][0], placement.locations[segment][0]
            raise CorruptFileError("directory with too few entries", location=location, offset=offset)

    def _of_segments(
        self, placement: Placement, reads: IndexReads, part_of: Callable[[Placement, int], Part]
    ) -> dict[int, Part]:
        """Read a part of every segment; segments in trouble are left out."""

        def read(segment: int) -> Part | IndexTrouble:
            return or_trouble(self.segments[segment][0], lambda: part_of(placement, segment))

        used = [int(segment) for segment in np.unique(placement.segment) if segment >= 0]
        absent = [segment for segment in used if self._kept_directory(placement, segment)[1] is None]
        results = dict(zip(absent, self.each(read, absent), strict=True))
        parts: dict[int, Part] = {}
        for segment in used:
            # What is in memory needs no thread that waits for a store.
            result = results[segment] if segment in results else read(segment)
            if isinstance(result, IndexTrouble):
                reads.troubles.append(result)
            else:
                parts[segment] = result
        return parts


def _let_go(files: SegmentFiles, cache: IndexCache, keys: set[object]) -> None:
    files.close()
    cache.forget(keys)
