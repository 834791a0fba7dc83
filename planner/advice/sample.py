"""Indexes of a sample of row groups, built by the ordinary build in a temporary folder. No catalog learns of them."""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from pyiceberg.io import FileIO, load_file_io

from planner.advice.advised_table import AdvisedTable, Scanned
from planner.condition.tree.nodes import Predicate
from planner.prune.verdicts import Reason
from planner.view.index_view import IndexView
from puffin_index.data.column_source import reading_of
from puffin_index.data.data_table import DataFile, FileIdentity
from puffin_index.definition.index_definition import ResolvedColumn
from puffin_index.display import Described, Report
from puffin_index.formats.puffin import read_footer
from puffin_index.index_table.entries import TARGET_SEGMENT_BYTES, find_missing
from puffin_index.index_table.table import entries_of
from puffin_index.keys.map_key import FieldKind
from puffin_index.segments.directory import statistics_key
from puffin_index.segments.segment import Segment, SegmentTask, SkippedFile, write_segment
from puffin_index.storage.arrays import Bytes, Floats, Ints
from puffin_index.storage.files import FileReader

DEFAULT_SAMPLE: Final = 64
"""Row groups. A sample of this size places a share of a tenth between 3 and 23 %."""

_SEED = 7
"""The same question gets the same sample."""


@dataclass(frozen=True, slots=True)
class AdviceProgress(Described):
    """How far advice is: first the columns of the sample that are indexed, then the plans with its indexes.

    How many plans it takes is known only at the end.
    """

    columns_done: int = 0
    columns_total: int = 0
    plans: int = 0

    def __str__(self) -> str:
        if self.plans:
            return f"trying sets of indexes: {self.plans:,} plans"
        if self.columns_total:
            return f"indexing a sample: {self.columns_done:,} of {self.columns_total:,} columns of segments"
        return "reading queries and the table's files"

    def describe(self) -> Report:
        """Describe the progress."""
        return Report(str(self))


AdviceListener: TypeAlias = Callable[[AdviceProgress], None]


@dataclass(frozen=True)
class IndexSample:
    """Indexes of the row groups at some positions, and the bytes of each index and of each column's statistics."""

    advised: AdvisedTable
    positions: Ints
    view: IndexView
    rows: int
    own_bytes: Counter[FieldKind]
    seconds: float
    skipped: tuple[SkippedFile, ...]
    _parts: tuple[DataFile, ...]
    # From where to where a plan of the parts has each of the row groups; a start of -1 where it was not indexed.
    _start: Ints
    _stop: Ints

    @property
    def growth(self) -> float:
        """How many times the rows of the sample the table has, deleted ones included."""
        return sum(own.file.record_count for own in self.advised.files) / self.rows if self.rows else 0.0

    def table_bytes(self, indexes: Iterable[FieldKind]) -> int:
        """Estimate the bytes that some indexes of the whole table take, with the statistics of their columns."""
        counted = set(indexes)
        counted |= {statistics_key(key) for key in counted}
        return round(sum(self.own_bytes[key] for key in counted) * self.growth)

    def plan(self, condition: Predicate, chosen: Collection[FieldKind] | None = None) -> tuple[Bytes, Floats]:
        """Plan a scan by some of the indexes that were built, or all.

        Returns the `Reason` of each sampled row group, and the share of it that is read.
        """
        unknown = np.full(len(self.positions), Reason.UNINDEXED, np.uint8)
        if not self._parts:
            return unknown, np.ones(len(self.positions))
        view = self.view if chosen is None else self.view.only(chosen)
        plan = self.advised.plan(view, condition, self._parts)
        # A file that counts as one row group is read if any of its row groups is.
        kept = np.append(np.flatnonzero(plan.kept_mask), len(plan.reasons))
        first_kept = kept[np.searchsorted(kept, self._start)]
        at = np.where(first_kept < self._stop, first_kept, self._start)
        shares = np.where(self._stop - self._start == 1, plan.shares_read[at], plan.kept_mask[at])
        return np.where(self._start >= 0, plan.reasons[at], unknown), np.where(self._start >= 0, shares, 1.0)


def choose(total: int, most: int) -> Ints:
    """Choose row groups at random, without replacement; all of them if they are few."""
    if total <= most:
        return np.arange(total)
    return np.sort(np.random.default_rng(_SEED).choice(total, most, replace=False))


@contextmanager
def built_sample(
    advised: AdvisedTable,
    scanned: Scanned,
    positions: Ints,
    columns: tuple[ResolvedColumn, ...],
    listener: AdviceListener = lambda _: None,
) -> Iterator[IndexSample]:
    """Build indexes of the row groups at some ascending positions; they are gone when the block ends."""
    with tempfile.TemporaryDirectory(prefix="puffin-index-sample-") as folder:
        location = Path(folder).as_uri()
        io = load_file_io(location=location)
        file_of = scanned.file_of[positions]
        own = [scanned.files[number].file for number in file_of.tolist()]
        counts = np.bincount(scanned.file_of, minlength=len(scanned.files))
        # A file that counts as one row group is indexed as a whole.
        is_whole = np.array([not file.split_offsets for file in own], np.bool_) & (counts[file_of] == 1)
        chosen: dict[FileIdentity, list[int]] = {}
        for at in np.flatnonzero(~is_whole).tolist():
            chosen.setdefault(own[at].identity, []).append(int(scanned.ordinals[positions[at]]))
        started = time.perf_counter()
        task = SegmentTask(
            files=(),
            columns=(),
            io=advised.table.io,
            index_io=io,
            folder=location,
            reading=reading_of(advised.table, advised.schema),
            row_groups={file: tuple(ordinals) for file, ordinals in chosen.items()},
        )
        segments, skipped = _write(task, [*dict.fromkeys(own)], columns, listener)
        seconds = time.perf_counter() - started
        # Statistics of an index belong to the files that are covered, not to the whole files. A plan without any index
        # of such a part counts the row groups that it lists.
        covered = [file for segment in segments for file in segment.covered if file.row_counts]
        parts = tuple(replace(one.file, split_offsets=one.row_group_offsets) for one in covered)
        spans: dict[tuple[str, str], tuple[int, int]] = {}
        end = 0
        for part in parts:
            begin, end = end, end + len(part.split_offsets)
            spans[part.path, part.constants_text] = begin, end
        found = [spans.get((file.path, file.constants_text), (-1, -1)) for file in own]
        first, stop = np.array(found, np.int64).reshape(-1, 2).T
        # Row groups of a file stand side by side, and the files in their order.
        place = np.arange(len(file_of)) - np.searchsorted(file_of, file_of)
        start = np.where(first < 0, -1, first + place)
        yield IndexSample(
            advised=advised,
            positions=positions,
            view=IndexView("sample", entries_of(segments), io),
            rows=sum(part.record_count for part in parts),
            own_bytes=_own_bytes(segments, io),
            seconds=seconds,
            skipped=tuple(skipped),
            _parts=parts,
            _start=start,
            _stop=np.where(is_whole, stop, start + 1),
        )


def _write(
    task: SegmentTask, files: Sequence[DataFile], columns: tuple[ResolvedColumn, ...], listener: AdviceListener
) -> tuple[list[Segment], list[SkippedFile]]:
    """Write segments of about as many rows as those of a build of the whole table."""
    missing = find_missing(files, columns, entries_of(()), parallelism=1, target_bytes=TARGET_SEGMENT_BYTES)
    skipped = [SkippedFile(file.path, f"{file.format} files have no row groups") for file in missing.unsupported]
    segments: list[Segment] = []

    def tell(batch_number: int, written: int) -> None:
        done, total = batch_number * len(columns) + written, len(missing.batches) * len(columns)
        listener(AdviceProgress(done, total))

    for number, batch in enumerate(missing.batches):
        segment = write_segment(replace(task, files=batch.files, columns=batch.columns), partial(tell, number))
        skipped += segment.skipped
        segments += [segment] if segment.covered else []
    return segments, skipped


def _own_bytes(segments: Sequence[Segment], io: FileIO) -> Counter[FieldKind]:
    """The bytes of payloads and directories by index, and those of statistics."""
    sizes: Counter[FieldKind] = Counter()
    for segment in segments:
        with FileReader(io, segment.location, segment.size) as reader:
            for blob in read_footer(reader, segment.footer_size).blobs:
                if kind := blob.properties.get("kind"):
                    sizes[blob.fields[0], kind] += blob.length
    return sizes
