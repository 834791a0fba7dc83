"""How planning grows with the number of row groups: simulated indexes of 10^3 to 10^6 of them, one process a probe.

The indexes have no data, but are real segments by the project's own writers. A segment covers 1,000 row groups of 1,000
rows in 50 data files that do not exist. Its columns are numbers:

| field | column | kinds |
| --- | --- | --- |
| 1 | `sorted`: in the order of the row groups, within a segment | bloom |
| 2 | `scattered`: drawn from 2^24 | bitmap, as sorted postings |
| 3 | `filtered`: drawn from 2^24 | bloom |
| 4 | the same as `filtered` | bloom, merged as compaction does: one matrix |
| 5 | `few`: drawn from 100 | bitmap, merged as compaction does: one blob |

A few segments are written. All others are hard links to these, so that a million row groups take seconds and little
disk. The needle, one key of each column, lies in one row group of the first segment, which has no links.
"""

import logging
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFileIO

from planner.condition.tree.nodes import Leaf
from planner.prune.distributed import prune_row_groups
from planner.prune.gate import Limits
from planner.prune.verdicts import Pruned
from planner.view.index_view import IndexView
from puffin_index.data.column_source import ColumnSource
from puffin_index.data.data_table import DataFile
from puffin_index.data.file_fields import Rule
from puffin_index.index_table.table import entries_of
from puffin_index.jobs.worker_pool import worker_pool
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import RangeTest, SetTest
from puffin_index.keys.value_types import value_type_named
from puffin_index.kinds.base import MergedPayload, MergePart, StoredPayload
from puffin_index.kinds.registry import KINDS
from puffin_index.kinds.statistics import statistics_of
from puffin_index.segments.directory import STATISTICS, serialize_statistics
from puffin_index.segments.segment import ROW_SPACE_ALIGNMENT, CoveredFile, Segment, SegmentWriter
from puffin_index.storage.arrays import Ints
from puffin_index.storage.files import NewFile
from puffin_index.storage.ranged import Blob, BytesReader
from ssb_bench.results.record import Step
from ssb_bench.spark_runs.bench import Bench

TITLE = "Planning at scale"
SEGMENT_ROW_GROUPS: Final = 1000
ROW_GROUP_ROWS: Final = 1000
FILE_ROW_GROUPS: Final = 20
ROW_GROUP_BYTES: Final = 8 << 20
VALUE_TYPE: Final = "long"
SORTED, SCATTERED, FILTERED, MATRIX, FEW = 1, 2, 3, 4, 5
NEEDLE: Final[Mapping[int, int]] = {SORTED: 500_001, SCATTERED: 1 << 23, FILTERED: 1 << 23, MATRIX: 1 << 23, FEW: 50}
"""The key of each column that one row group of the first segment has."""

NEEDLE_ROW_GROUP: Final[Mapping[object, int]] = {SORTED: 250, SCATTERED: 500, FILTERED: 500, MATRIX: 500, FEW: 500}

_KEYS: Final = 1 << 24
_FEW_KEYS: Final = 100
_TYPE: Final = value_type_named(VALUE_TYPE)
_BASES: Final = np.arange(SEGMENT_ROW_GROUPS, dtype=np.int64) * ROW_SPACE_ALIGNMENT
_INDEXES: Final[Mapping[int, tuple[str, Mapping[str, str]]]] = {
    SORTED: ("bloom", {}),
    SCATTERED: ("bitmap", {"layout": "postings"}),
    FILTERED: ("bloom", {}),
    MATRIX: ("bloom", {}),
    FEW: ("bitmap", {"layout": "bitmaps"}),
}


@dataclass(frozen=True, slots=True)
class Simulated:
    """A simulated index; links count as files."""

    entries: pa.Table
    row_groups: int
    index_bytes: int


def segment_multiple(row_groups: int) -> int:
    """Round up to whole segments."""
    return -(-row_groups // SEGMENT_ROW_GROUPS) * SEGMENT_ROW_GROUPS


def simulate(folder: Path, row_groups: int, *, different: int = 2) -> Simulated:
    """Write the index of `row_groups` row groups, rounded up to thousands, into a folder of its own.

    Segments are links to `different` written ones, beside the one with the needle.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    count = segment_multiple(row_groups) // SEGMENT_ROW_GROUPS
    written = [_write_segment(folder, number) for number in range(min(count, 1 + different))]
    segments = [_place(folder, written, number) for number in range(count)]
    return Simulated(entries_of(segments), count * SEGMENT_ROW_GROUPS, sum(segment.size for segment in segments))


def _place(folder: Path, written: list[Segment], number: int) -> Segment:
    """Give segment `number`: a written one, or a link to a written one without the needle."""
    if number < len(written):
        source, location = written[number], Path(written[number].location)
    else:
        source = written[1 + number % (len(written) - 1)]
        location = folder / f"{number:06d}.puffin"
        os.link(source.location, location)
    covered = tuple(
        replace(file, file=replace(file.file, path=f"file:///simulated/{number:06d}/{at:04d}.parquet"))
        for at, file in enumerate(source.covered)
    )
    return replace(source, location=str(location), covered=covered)


def _write_segment(folder: Path, number: int) -> Segment:
    location, files = str(folder / f"{number:06d}.puffin"), _covered_files()
    with NewFile(PyArrowFileIO(), location) as stream:
        segment = SegmentWriter(stream)
        for field, values in _columns(number).items():
            _write_column(segment, field, values)
        return segment.finish(location, files)


def _columns(number: int) -> dict[int, Ints]:
    """Draw the values of a segment, one row of the array a row group; the first segment has the needle."""
    random = np.random.default_rng(number)
    shape = (SEGMENT_ROW_GROUPS, ROW_GROUP_ROWS)
    scattered = [random.integers(0, _KEYS, shape, dtype=np.int64) for _ in range(2)]
    for values in scattered:
        values[values == NEEDLE[SCATTERED]] += 1
    # Even keys only: the needle is odd.
    ordered = np.arange(SEGMENT_ROW_GROUPS * ROW_GROUP_ROWS, dtype=np.int64).reshape(shape) * 2
    few = random.integers(0, _FEW_KEYS, shape, dtype=np.int64)
    few[few == NEEDLE[FEW]] += 1
    columns = {SORTED: ordered, SCATTERED: scattered[0], FILTERED: scattered[1], MATRIX: scattered[1], FEW: few}
    if number == 0:
        ordered[NEEDLE[SORTED] // (2 * ROW_GROUP_ROWS), NEEDLE[SORTED] // 2 % ROW_GROUP_ROWS] += 1
        for field in (SCATTERED, FILTERED, FEW):
            columns[field][SEGMENT_ROW_GROUPS // 2, 7] = NEEDLE[field]
    return columns


def _write_column(segment: SegmentWriter, field: int, values: Ints) -> None:
    columns = [SortedColumn(column_of(pa.array(row), _TYPE)) for row in values]
    kind, options = _INDEXES[field]
    builder = KINDS[kind].builder(options)
    payloads = [one for column, base in zip(columns, _BASES, strict=True) for one in builder.add(column, int(base))]
    payloads += builder.finish()
    if field in (MATRIX, FEW):
        payloads = _merge(kind, payloads)
    statistics = serialize_statistics([statistics_of(column) for column in columns], _TYPE)
    segment.add_statistics((field, STATISTICS), statistics)
    segment.add_index((field, kind), _TYPE, payloads)


def _merge(kind: str, payloads: Sequence[MergedPayload]) -> list[MergedPayload]:
    """Give what compaction makes of the payloads of all row groups."""
    parts: list[MergePart] = []
    for own, base in zip((one.payload for one in payloads), _BASES.reshape(-1, 1), strict=True):
        blob = Blob(BytesReader.of(own.data), 0, len(own.data))
        stored = StoredPayload(blob, own.blob_type, own.layout, _TYPE, np.array([[0, ROW_GROUP_ROWS]]))
        parts.append(MergePart(stored, base))
    return list(KINDS[kind].merge(parts, {}))


def _covered_files() -> tuple[CoveredFile, ...]:
    offsets = tuple(4 + at * ROW_GROUP_BYTES for at in range(FILE_ROW_GROUPS))
    rows = FILE_ROW_GROUPS * ROW_GROUP_ROWS
    sources = {field_id: ColumnSource(Rule.FIELD_IDS, (field_id,)).to_text() for field_id in NEEDLE}
    return tuple(
        CoveredFile(
            DataFile(f"file:///simulated/{first:06d}.parquet", FILE_ROW_GROUPS * ROW_GROUP_BYTES, rows, offsets),
            (ROW_GROUP_ROWS,) * FILE_ROW_GROUPS,
            offsets,
            first,
            int(_BASES[first]),
            sources,
        )
        for first in range(0, SEGMENT_ROW_GROUPS, FILE_ROW_GROUPS)
    )


SCENARIOS: Final[dict[str, Leaf]] = {
    "sorted, equality": Leaf(SORTED, SetTest((NEEDLE[SORTED],)), VALUE_TYPE),
    "sorted, range": Leaf(SORTED, RangeTest(NEEDLE[SORTED], NEEDLE[SORTED] + 4_000), VALUE_TYPE),
    "postings, equality": Leaf(SCATTERED, SetTest((NEEDLE[SCATTERED],)), VALUE_TYPE),
    "postings, range": Leaf(SCATTERED, RangeTest(NEEDLE[SCATTERED], NEEDLE[SCATTERED] + 1), VALUE_TYPE),
    "bloom, equality": Leaf(FILTERED, SetTest((NEEDLE[FILTERED],)), VALUE_TYPE),
    "merged bloom, equality": Leaf(MATRIX, SetTest((NEEDLE[MATRIX],)), VALUE_TYPE),
    "row sets, equality": Leaf(FEW, SetTest((NEEDLE[FEW],)), VALUE_TYPE),
}
_PROBE_TIMEOUT_SECONDS: Final = 600
_WARM_SECONDS: Final = 20.0
# What is measured is the whole planning, so no time bound cuts it short.
_LIMITS: Final = Limits(strict=True, seconds=600)
_STATUS: Final = Path("/proc/self/status")
_log = logging.getLogger(__name__)


def measure(
    bench: Bench,
    *,
    row_groups: Annotated[tuple[int, ...], "N"] = (1_000, 10_000, 100_000, 1_000_000),
    repeats: Annotated[int, "Later plans of each scenario, fewer where they are slow."] = 5,
) -> None:
    """Plan over simulated indexes of 10^3 to 10^6 row groups: time, reads, memory, and what dominates."""
    scratch = bench.layout.root / "scale"
    scratch.mkdir(parents=True, exist_ok=True)
    for size in sorted({segment_multiple(size) for size in row_groups}):
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            _log.info("%d row groups: writing segments", size)
            simulated = simulate(Path(folder) / "segments", size)
            bench.note(f"{size:,} row groups", index_bytes=simulated.index_bytes)
            entries = Path(folder) / "entries.arrow"
            with pa.OSFile(str(entries), "wb") as sink, pa.ipc.new_file(sink, simulated.entries.schema) as writer:
                writer.write_table(simulated.entries)
            for scenario in SCENARIOS:
                _log.info("%d row groups: %s", size, scenario)
                bench.steps.append(replace(_run_probe(entries, scenario, repeats), heading=f"{size:,} row groups"))


def _run_probe(entries: Path, scenario: str, repeats: int) -> Step:
    """Probe in a process of its own, so that nothing else is in its memory; give the step or what went wrong."""
    with worker_pool(1, {}) as pool:
        future = pool.submit(_probe_file, entries, scenario, repeats)
        try:
            error = future.exception(_PROBE_TIMEOUT_SECONDS)
        except TimeoutError:
            pool.shutdown(kill_workers=True)
            return Step(scenario, "with", failure=f"took longer than {_PROBE_TIMEOUT_SECONDS} s")
    return future.result() if error is None else Step(scenario, "with", failure=f"{type(error).__name__}: {error}")


def _probe_file(path: Path, scenario: str, repeats: int) -> Step:
    with pa.memory_map(str(path)) as source:
        entries = pa.ipc.open_file(source).read_all()
    return probe(entries, scenario, repeats)


def probe(entries: pa.Table, scenario: str, repeats: int) -> Step:
    """Plan a scenario once cold, then this many times warm, fewer where it is slow."""
    started = time.perf_counter()
    view = IndexView("simulated", entries, PyArrowFileIO())
    numbers = np.arange(view.row_group_count)
    opened = time.perf_counter() - started
    leaf = SCENARIOS[scenario]
    cold, cold_seconds = _timed(view, leaf, numbers)
    fitting = max(1, min(repeats, int(_WARM_SECONDS / cold_seconds)))
    warm = [_timed(view, leaf, numbers) for _ in range(fitting)]
    last = warm[-1][0]
    counts = {
        "peak bytes": _peak_bytes(),
        "kept": int(last.kept.sum()),
        "open seconds": opened,
        "first reads": sum(stage.reads for stage in cold.stages),
        "first read bytes": sum(stage.bytes_read for stage in cold.stages),
        "reads": sum(stage.reads for stage in last.stages),
        "read bytes": sum(stage.bytes_read for stage in last.stages),
        **{f"{stage.name} seconds": stage.seconds for stage in last.stages},
    }
    found = bool(last.kept[NEEDLE_ROW_GROUP[leaf.field_id]])
    failure = None if found else "the matching row group was dropped"
    return Step(scenario, "with", tuple(seconds for _, seconds in warm), cold_seconds, counts, failure=failure)


def _timed(view: IndexView, leaf: Leaf, numbers: Ints) -> tuple[Pruned, float]:
    started = time.perf_counter()
    pruned = prune_row_groups(view, leaf, numbers, _LIMITS)
    return pruned, time.perf_counter() - started


def _peak_bytes() -> int:
    """Give the most memory that this process has had so far."""
    if _STATUS.exists():
        # The counter of `getrusage` starts with the memory of the process that forked this one.
        lines = _STATUS.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
