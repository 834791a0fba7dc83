"""The segments of a view: their directories and payloads, opened when they are asked for, and read side by side."""

import weakref
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from planner.clock import Clock
from planner.view.cache import Cached, IndexCache, OpenPayload, SharedPayloads, StoredDirectory
from planner.view.covered_row_groups import CoveredRowGroups
from planner.view.directories import (
    STATISTICS_COLUMNS,
    FieldStatistics,
    IndexReads,
    IndexTrouble,
    KindDirectory,
    Placement,
    segment_statistics,
)
from planner.view.segment_files import SegmentFiles, SegmentReader
from puffin_index.errors import READ_ERRORS, CorruptFileError
from puffin_index.keys.columns import KeyArray
from puffin_index.keys.map_key import ColumnId
from puffin_index.kinds.base import OpenIndex
from puffin_index.segments.directory import STATISTICS, Directory, read_directory, read_statistics
from puffin_index.segments.segment import align
from puffin_index.storage.files import ReadCount, is_local
from puffin_index.storage.parallel import requests_at_once
from puffin_index.storage.parts import Part as Range, parts_of
from puffin_index.storage.ranged import Blob, BytesReader, RangedReader, Reading, Wanted, answered

Part = TypeVar("Part")
Item = TypeVar("Item")
Own = TypeVar("Own", FieldStatistics, Directory)

_DIRECTORY_GAP_BYTES = 256 * 1024
"""Directories of other columns that are read along rather than asking a store twice."""

_WHOLE_BYTES = 64 * 1024
_MOST_HELD_BYTES: Final = 64 * 1024 * 1024
"""What several readings get at one time; each may get more by itself."""


class OpenSegments:
    """Opens and reads what lies in segments, and keeps it for all views. Safe to share between threads."""

    def __init__(self, numbering: CoveredRowGroups, io: FileIO, cache: IndexCache) -> None:
        self.files = SegmentFiles(io)
        # The numbering is the view that has these segments, and ends with it.
        self._numbering: CoveredRowGroups = weakref.proxy(numbering)
        self._io = io
        self.cache = cache

    def read_each(
        self,
        read: Callable[[Item], Reading[Part]],
        items: Sequence[Item],
        segment_of: Callable[[Item], int],
        reads: IndexReads,
        clock: Clock | None = None,
    ) -> list[Part | None]:
        """Read something of a segment for each item; None where that was not possible.

        From a store, what some hundreds of them want next is read side by side, and the others take the places of those
        that are done. `reads` counts, and notes what is in trouble. Nothing more is begun once the time is over.
        """
        found: list[Part | None] = [None] * len(items)
        readings: dict[int, Reading[Part]] = {}
        wanted: dict[int, Wanted] = {}

        def go_on(place: int, step: Callable[[Reading[Part]], Wanted]) -> None:
            try:
                wanted[place] = step(readings[place])
                return
            except StopIteration as end:
                found[place] = end.value
            except READ_ERRORS as error:
                reads.troubles.append(IndexTrouble.of(self._numbering.segments[segment_of(items[place])][0], error))
            del readings[place]

        waiting = deque(enumerate(items))
        while waiting or wanted:
            while waiting and len(wanted) < self._at_once:
                if clock is not None and clock.is_over:
                    waiting.clear()
                    break
                place, item = waiting.popleft()
                readings[place] = read(item)
                go_on(place, next)
            some = _within_memory(wanted)
            for (place, own), data in zip(some.items(), self._fetch(list(some.values()), reads.count), strict=True):
                go_on(place, partial(answered, wanted=own, contents=data))
        return found

    def _fetch(self, every: Sequence[Wanted], count: ReadCount) -> list[list[memoryview] | None]:
        """Get what several readings want; None where each of them reads by itself."""
        contents: list[list[memoryview] | None] = [None] * len(every)
        if not self.is_local:
            contents = self.files.fetch(every, self._at_once, count)
        for wanted, data in zip(every, contents, strict=True):
            for blob, (_, length) in wanted if data is None else ():
                if isinstance(blob.reader, SegmentReader):
                    count.add(length)
        return contents

    @cached_property
    def _at_once(self) -> int:
        return 1 if self.is_local else requests_at_once(self._io, self._numbering.segments[-1][0])

    @cached_property
    def is_local(self) -> bool:
        """Whether all segments are files of this machine."""
        return all(is_local(location) for location, _ in self._numbering.segments)

    def prefetch(self, fields: Collection[ColumnId], count: ReadCount) -> None:
        """Read the directories of some columns that are not in memory yet, those of a segment by one request.

        Does nothing on a local disk. What cannot be read now is read again when it is used, and fails there.
        """
        if self.is_local:
            return
        missing: dict[int, set[tuple[int, int, str]]] = {}
        for (field_id, _), placement in self._numbering.placements.items():
            for segment, place in placement.locations.items() if field_id in fields else ():
                if self.cache.get((self._numbering.segments[segment][0], place)) is None:
                    missing.setdefault(segment, set()).add(place)
        self.read_each(
            lambda segment: self._prefetch_segment(segment, sorted(missing[segment])),
            list(missing),
            int,
            IndexReads(count),
        )

    def _prefetch_segment(self, segment: int, places: Sequence[tuple[int, int, str]]) -> Reading[None]:
        reader = self._reader(segment)
        blob, ranges = Blob(reader, 0, reader.size), [Range(*place[:2]) for place in places]
        contents = yield from parts_of(blob, ranges, _DIRECTORY_GAP_BYTES)
        for place, data in zip(places, contents, strict=True):
            self.cache.put((reader.location, place), StoredDirectory(BytesReader(data, reader.location, place[0])))

    def open(self, directory: KindDirectory, row_group: int, shared: SharedPayloads | None) -> Reading[OpenIndex]:
        """Open the payload of a row group, whose rows are numbered from `KindDirectory.base`.

        The opened form of a merged payload is kept for all views, that of others only in `shared`. A small payload is
        read whole from a store, which costs one round.
        """
        key, length = self._payload_key(directory, row_group), int(directory.length[row_group])
        is_merged = bool(directory.merged[row_group])
        if is_merged:
            kept = self.cache.get(key)
            if isinstance(kept, OpenPayload):
                kept.reader.files = self.files
                return kept.payload
        elif shared is not None and (opened := shared.find(key)) is not None:
            return opened
        segment, entry = int(directory.segment[row_group]), int(directory.entry[row_group])
        own = yield from self.directory_of(self._numbering.placements[directory.column, directory.kind], segment)
        # The keys of a test are of the type that the whole view is read by.
        own = replace(own, type_name=directory.value_type.name)
        reader = self._reader(segment)
        source: RangedReader = reader
        spans = np.array([[0, self._numbering.row_counts[row_group]]], np.int64)
        if is_merged:
            # Also of row groups whose data files the table has lost.
            every = self._numbering.placements[directory.column, STATISTICS]
            rows = (yield from self.statistics_of(every, segment)).row_count
            ends = np.cumsum(align(rows))
            spans = np.column_stack((ends - align(rows), rows))[own.covered(entry)]
        elif not self.is_local and length <= _WHOLE_BYTES:
            offset = int(directory.offset[row_group])
            (data,) = yield [(Blob(reader, offset, length), (0, length))]
            source = BytesReader(data, reader.location, offset)
        opened = own.open(entry, source, spans)
        if is_merged:
            self.cache.put(key, OpenPayload(reader, opened))
        elif shared is not None and directory.column in shared.columns:
            shared.keep(key, opened, length)
        return opened

    def weigh(self, directory: KindDirectory, row_group: int) -> None:
        """Tell the cache how large a payload of several row groups has become by being read."""
        key = self._payload_key(directory, row_group)
        kept = self.cache.get(key)
        if kept is not None:
            self.cache.put(key, kept)

    def keys_of(self, directory: KindDirectory, row_group: int, most: int) -> Reading[KeyArray | None]:
        """The distinct keys of the payload of a row group; None if it does not list them, or has more than `most`."""
        kept = self.kept(directory, row_group, "keys")
        if isinstance(kept, np.ndarray | pa.Array):
            return kept if len(kept) <= most else None
        opened = yield from self.open(directory, row_group, None)
        keys = yield from opened.keys(most)
        if keys is not None:
            self.keep(directory, row_group, "keys", keys)
        return keys

    def kept(self, directory: KindDirectory, row_group: int, form: str) -> Cached | None:
        """What is kept of the payload of a row group in some form, if anything."""
        return self.cache.get((*self._payload_key(directory, row_group), form))

    def keep(self, directory: KindDirectory, row_group: int, form: str, value: Cached) -> None:
        """Keep something of the payload of a row group, for all views, as long as the cache has room."""
        self.cache.put((*self._payload_key(directory, row_group), form), value)

    def _payload_key(self, directory: KindDirectory, row_group: int) -> tuple[object, ...]:
        location = self._numbering.segments[int(directory.segment[row_group])][0]
        return location, directory.column, directory.kind, int(directory.entry[row_group]), directory.value_type.name

    def _reader(self, segment: int) -> SegmentReader:
        return SegmentReader(self.files, *self._numbering.segments[segment])

    def statistics_of(self, placement: Placement, segment: int) -> Reading[FieldStatistics]:
        """The statistics of a column in one segment."""
        return self._of_segment(
            placement,
            segment,
            FieldStatistics,
            lambda reader, place: segment_statistics(read_statistics(reader, *place, STATISTICS_COLUMNS)),
        )

    def directory_of(self, placement: Placement, segment: int) -> Reading[Directory]:
        """The directory of the payloads of a column and kind in one segment."""
        return self._of_segment(placement, segment, Directory, lambda reader, place: read_directory(reader, *place))

    def _of_segment(
        self,
        placement: Placement,
        segment: int,
        form: type[Own],
        read: Callable[[RangedReader, tuple[int, int, str]], Own],
    ) -> Reading[Own]:
        key = self._numbering.segments[segment][0], placement.locations[segment]
        kept = self.cache.get(key)
        if isinstance(kept, form):
            return kept
        if isinstance(kept, StoredDirectory):
            reader = kept.reader
        else:
            offset, length, _ = key[1]
            own = self._reader(segment)
            (data,) = yield [(Blob(own, 0, own.size), (offset, length))]
            reader = BytesReader(data, own.location, offset)
        found = read(reader, key[1])
        if int(placement.last_row_groups[segment]) >= found.row_group_count:
            raise CorruptFileError("directory with too few entries", location=key[0], offset=key[1][0])
        self.cache.put(key, found)
        return found

    def of_segments(
        self, placement: Placement, reads: IndexReads, part_of: Callable[[Placement, int], Reading[Part]]
    ) -> dict[int, Part]:
        """Read a part of every segment; segments in trouble are left out."""
        used = [int(segment) for segment in np.unique(placement.segment) if segment >= 0]
        parts = self.read_each(partial(part_of, placement), used, int, reads)
        return {segment: part for segment, part in zip(used, parts, strict=True) if part is not None}


def _within_memory(wanted: dict[int, Wanted]) -> dict[int, Wanted]:
    """Take out as many wishes as fit into memory, at least one."""
    taken: dict[int, Wanted] = {}
    left = _MOST_HELD_BYTES
    for place in list(wanted):
        left -= sum(length for _, (_, length) in wanted[place])
        if taken and left < 0:
            break
        taken[place] = wanted.pop(place)
    return taken
