"""Compaction: merge many small segments into segments of the target size, without their dead parts.

Each new segment has a commit of its own. A data file moves to the new segment only if, at the commit, the index table
still has the entries it was copied from. The old segments are left to `expire`.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa
from pyiceberg.table import Table

from puffin_index.data.data_table import FileIdentity
from puffin_index.display import Cell, Described, Report, format_bytes
from puffin_index.errors import CorruptFileError, NotFoundError, PuffinIndexError, UnsupportedError
from puffin_index.index_table import entries as index_rows
from puffin_index.index_table.table import entries_of, read_entries, refresh_index_table
from puffin_index.jobs.job_segments import JobSegments
from puffin_index.jobs.log_lines import level_of_trouble, log_line
from puffin_index.keys.map_key import FieldKind
from puffin_index.kinds.kind import Options
from puffin_index.segments.rewrite import write_merged
from puffin_index.segments.segment import ROW_SPACE_ALIGNMENT, Segment
from puffin_index.segments.source_segment import IndexedFile, SourceSegment
from puffin_index.storage.arrays import cut_in_order
from puffin_index.storage.parallel import in_parallel, requests_at_once

LEAST_LIVE_SHARE = 0.5
"""A segment is rewritten if a smaller share of its payload bytes is live."""

FEWEST_SMALL = 8
"""The fewest small segments that make an automatic compaction due: fewer would rewrite the same bytes over and over."""

_SMALL_SHARE = 0.5
_MOST_READ = 4
"""A merge holds the segments that it copies from, dead parts included: at most this many times the target size."""
_log = logging.getLogger(__name__)

Shape: TypeAlias = tuple[tuple[int, str, str], ...]
"""Field, kind and value type of each index of a data file."""


@dataclass(frozen=True, slots=True)
class CompactReport(Described):
    """The result of a compaction; `verify --repair` rebuilds the segments that were skipped as unreadable."""

    segments_before: int
    segments_after: int
    rewritten: int
    segments: int
    files: int
    index_bytes: int
    skipped: tuple[tuple[str, str], ...]
    seconds: float

    def describe(self) -> Report:
        """Describe the compaction."""
        facts: dict[str, Cell] = {
            "segments": f"{self.segments_before} became {self.segments_after}",
            "rewritten": f"{self.rewritten} as {self.segments}, {format_bytes(self.index_bytes)}",
            "data files moved": self.files,
            "seconds": f"{self.seconds:.1f}",
        }
        skipped = [f"not rewritten: {segment}: {reason}" for segment, reason in self.skipped]
        return Report("compaction", facts, warnings=skipped)


def compact(
    data_table: Table,
    index_table: Table,
    wanted: Callable[[], Mapping[FieldKind, Options]],
    target_bytes: int = index_rows.TARGET_SEGMENT_BYTES,
    *,
    most_bytes: int | None = None,
) -> CompactReport:
    """Rewrite small segments, and segments with few live bytes, as segments of the target size.

    Segments are small up to `most_bytes` (0: none is), by default up to half of the target size. `wanted` tells the
    definition's options. Raises NotFoundError if the data table is gone or was replaced.
    """
    started = time.monotonic()
    entries = index_rows.replace_entries(
        index_table, partial(index_rows.needed_entries, data_table, index_table, wanted)
    )
    options = wanted()
    small_bytes = _SMALL_SHARE * target_bytes if most_bytes is None else most_bytes
    bins, sources, skipped = _plan(index_table, entries, target_bytes, small_bytes)
    made: list[Segment] = []
    with JobSegments(index_table) as segments:
        left = bins.copy()
        while left:
            files = left.pop(0)
            try:
                written = write_merged(files, sources, options, index_table.io, segments.new_location())
            except (CorruptFileError, UnsupportedError, NotFoundError) as error:
                origins = frozenset(origin for file in files for origin in file.origins)
                # An error that names no segment is one of all segments.
                damaged = origins & {getattr(error, "location", None)} or origins
                _log.log(max(map(level_of_trouble, sorted(damaged))), "segment not rewritten: %s", error)
                skipped += [(name, str(error)) for name in sorted(damaged)]
                undamaged = [file for file in files if not file.origins & damaged]
                left = [undamaged, *left] if undamaged else left
                continue
            with segments.committing([written.location]):
                segment = _commit(index_table, files, written)
            if segment.covered:
                made.append(segment)
                _log.info("%s", log_line("segment merged", done=len(made), of=len(bins), index_bytes=segment.size))
    refresh_index_table(index_table)
    after = read_entries(index_table)
    return CompactReport(
        segments_before=len(set(entries["segment"].to_pylist())),
        segments_after=len(set(after["segment"].to_pylist())),
        rewritten=len({origin for files in bins for file in files for origin in file.origins}),
        segments=len(made),
        files=sum(len(segment.covered) for segment in made),
        index_bytes=sum(segment.size for segment in made),
        skipped=tuple(skipped),
        seconds=time.monotonic() - started,
    )


def due_bytes(entries: pa.Table, target_bytes: int, fewest: int) -> int | None:
    """Return up to which size segments are worth merging, by the index table alone; None if no compaction is due.

    At least `fewest` are, and the largest is no larger than all others together: a byte is rewritten a few times only,
    and the segments that stay double in size.
    """
    due, smaller = None, 0
    small = sorted(size for size in index_rows.segment_sizes(entries).values() if size < _SMALL_SHARE * target_bytes)
    for count, size in enumerate(small, 1):
        if count >= fewest and size <= smaller:
            due = size
        smaller += size
    return due


def _plan(
    index_table: Table, entries: pa.Table, target_bytes: int, small_bytes: float
) -> tuple[list[list[IndexedFile]], dict[str, SourceSegment], list[tuple[str, str]]]:
    """Return the data files of each new segment, the segments to copy from, and the unreadable ones with reasons."""
    sources, skipped = _read_sources(index_table, entries)
    files = [file for file in index_rows.indexed_files(entries) if file.origins <= sources.keys()]
    live = dict.fromkeys(sources, 0)
    for file in files:
        for key, part in file.parts.items():
            live[part.segment] += sources[part.segment].live_bytes(key, part.first_row_group, len(file.row_counts))
    sparse = {name for name, source in sources.items() if live[name] < LEAST_LIVE_SHARE * source.payload_bytes}
    chosen = sparse | {name for name, source in sources.items() if source.size <= small_bytes}
    by_shape: dict[Shape, list[IndexedFile]] = {}
    for file in _by_place(files):
        shape = _shape(file, sources)
        in_parts = len(file.origins) > 1 and small_bytes > 0
        if shape is not None and (in_parts or file.origins & chosen):
            by_shape.setdefault(shape, []).append(file)
    bins: list[list[IndexedFile]] = []
    for of_shape in by_shape.values():
        cut = _cut(of_shape, sources, target_bytes)
        origins = {origin for file in of_shape for origin in file.origins}
        in_parts = any(len(file.origins) > 1 for file in of_shape)
        # Rewriting must make segments fewer or smaller; otherwise every compaction would repeat it.
        if len(cut) < len(origins) or origins & sparse or in_parts:
            bins += cut
    return bins, sources, skipped


def _read_sources(index_table: Table, entries: pa.Table) -> tuple[dict[str, SourceSegment], list[tuple[str, str]]]:
    """Read the footers and directories of all segments; an unreadable segment stays as it is."""
    segments = index_rows.rows_by_segment(entries)

    def read(segment: str) -> SourceSegment | str:
        try:
            return index_rows.source_of(index_table.io, segments[segment])
        except (PuffinIndexError, OSError) as error:
            _log.log(level_of_trouble(segment), "segment not rewritten: %s", error)
            return str(error)

    at_once = requests_at_once(index_table.io, index_table.location())
    read_all = dict(zip(segments, in_parallel(read, list(segments), at_once), strict=True))
    skipped = [(segment, reason) for segment, reason in read_all.items() if isinstance(reason, str)]
    return {segment: source for segment, source in read_all.items() if isinstance(source, SourceSegment)}, skipped


def _by_place(files: Sequence[IndexedFile]) -> list[IndexedFile]:
    """Sort files by segment and by their order in the segment, so that merged payloads are read once."""
    seen: dict[str, int] = {}
    for file in files:
        for part in file.parts.values():
            seen.setdefault(part.segment, len(seen))

    def place(file: IndexedFile) -> tuple[int, int]:
        part = file.parts[min(file.parts)]
        return seen[part.segment], part.first_row_group

    return sorted(files, key=place)


def _shape(file: IndexedFile, sources: Mapping[str, SourceSegment]) -> Shape | None:
    """Return the shape that all files of a segment must share; None if this release cannot merge the file's indexes."""
    shape: list[tuple[int, str, str]] = []
    for (field_id, kind), part in sorted(file.parts.items()):
        source = sources[part.segment]
        if not source.can_merge((field_id, kind)):
            return None
        shape.append((field_id, kind, source.directories[field_id, kind].type_name))
    # A column promoted between two builds has statistics of both types, but a segment can hold only one type.
    fields = {(field_id, value_type) for field_id, _, value_type in shape}
    return tuple(shape) if len(fields) == len({field_id for field_id, _ in fields}) else None


def _cut(
    files: Sequence[IndexedFile], sources: Mapping[str, SourceSegment], target_bytes: int
) -> list[list[IndexedFile]]:
    sharing = Counter(origin for file in files for origin in file.origins)

    def sizes(file: IndexedFile) -> tuple[int, int, int]:
        live = (
            sources[part.segment].live_bytes(key, part.first_row_group, len(file.row_counts))
            for key, part in file.parts.items()
        )
        read = sum(sources[origin].size // sharing[origin] for origin in file.origins)
        return sum(live), sum(file.row_counts) + ROW_SPACE_ALIGNMENT * len(file.row_counts), read

    return cut_in_order(files, sizes, (target_bytes, index_rows.ROW_SPACE, _MOST_READ * target_bytes))


def _commit(index_table: Table, files: Sequence[IndexedFile], segment: Segment) -> Segment:
    """Commit one segment; return the segment with the files that have moved to it."""
    moved: set[FileIdentity] = set()

    def change(entries: pa.Table) -> pa.Table:
        rows = index_rows.entry_segments(entries)
        present = set(rows)
        still = [file for file in files if all((file.file.identity, origin) in present for origin in file.origins)]
        moved.clear()
        moved.update(file.file.identity for file in still)
        replaced = {(file.file.identity, origin) for file in still for origin in file.origins}
        kept = entries.filter(pa.array([row not in replaced for row in rows], pa.bool_()))
        return pa.concat_tables([kept, entries_of([_covering(segment, moved)])]) if still else entries

    index_rows.replace_entries(index_table, change)
    if not moved:
        _log.info("the data files of segment %s were expired or rebuilt meanwhile", segment.location)
        index_table.io.delete(segment.location)
    return _covering(segment, moved)


def _covering(segment: Segment, files: Collection[FileIdentity]) -> Segment:
    return replace(segment, covered=tuple(file for file in segment.covered if file.file.identity in files))
