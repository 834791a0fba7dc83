"""How planning grows with the number of row groups: simulated indexes of 10^3 to 10^6 of them, one process a probe.

Three segments are real: each covers 1,000 row groups of 1,000 rows in 50 data files, built and compacted as usual. All
others are hard links to the last two of these, so that a million row groups take seconds and little disk.
"""

import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from loky import ProcessPoolExecutor
from pyarrow import feather
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO

from planner.condition.tree.nodes import Leaf
from planner.prune.distributed import prune_row_groups
from planner.prune.gate import Limits
from planner.view.index_view import IndexView
from puffin_index import BuildScope, IndexDefinition, TableIndex
from puffin_index.index_table.table import read_entries
from puffin_index.jobs.worker_pool import worker_pool
from puffin_index.keys.leaf import RangeTest, SetTest
from ssb_bench.data.layout import BenchError, local_path
from ssb_bench.results.record import Number
from ssb_bench.spark_runs.bench import Bench, Seen, Task
from ssb_bench.spark_runs.session import open_catalog

TITLE = "Planning at scale"
SEGMENT_ROW_GROUPS: Final = 1000
ROW_GROUP_ROWS: Final = 1000
FILES: Final = 50
VALUE_TYPE: Final = "long"
COLUMNS: Final = ("sorted", "scattered", "filtered", "few")
SORTED, SCATTERED, FILTERED, FEW = range(1, 5)
NEEDLE: Final[Mapping[int, int]] = {SORTED: 500_001, SCATTERED: 1 << 23, FILTERED: 1 << 23, FEW: 50}
"""The key of each column that one row group of the first segment, which has no links, has."""

NEEDLE_ROW_GROUP: Final[Mapping[object, int]] = {SORTED: 250, SCATTERED: 500, FILTERED: 500, FEW: 500}

# The first column ascends within a segment; the others are drawn from as many keys as `_MOST_KEYS` says.
DEFINITION: Final = IndexDefinition.of(
    bloom=["sorted", "filtered"],
    bitmap=["scattered", "few"],
    options={"scattered.layout": "postings", "few.layout": "bitmaps"},
)
_MOST_KEYS: Final = {SCATTERED: 1 << 24, FILTERED: 1 << 24, FEW: 100}
_NOT_COMPACTED: Final = "bloom, equality"
SCENARIOS: Final[dict[str, Leaf]] = {
    "sorted, equality": Leaf(SORTED, SetTest((NEEDLE[SORTED],)), VALUE_TYPE),
    "sorted, range": Leaf(SORTED, RangeTest(NEEDLE[SORTED], NEEDLE[SORTED] + 4_000), VALUE_TYPE),
    "postings, equality": Leaf(SCATTERED, SetTest((NEEDLE[SCATTERED],)), VALUE_TYPE),
    "postings, range": Leaf(SCATTERED, RangeTest(NEEDLE[SCATTERED], NEEDLE[SCATTERED] + 1), VALUE_TYPE),
    _NOT_COMPACTED: Leaf(FILTERED, SetTest((NEEDLE[FILTERED],)), VALUE_TYPE),
    "merged bloom, equality": Leaf(FILTERED, SetTest((NEEDLE[FILTERED],)), VALUE_TYPE),
    "row sets, equality": Leaf(FEW, SetTest((NEEDLE[FEW],)), VALUE_TYPE),
}
_PROBE_TIMEOUT_SECONDS: Final = 600
# What is measured is the whole planning, so no time bound cuts it short.
_LIMITS: Final = Limits(strict=True, seconds=600)
_STATUS: Final = Path("/proc/self/status")
_log = logging.getLogger(__name__)


def simulate(folder: Path, row_groups: int, *, different: int = 2, is_compacted: bool = True) -> pa.Table:
    """Write the index of `row_groups` row groups, rounded up to thousands, into a new folder; give its entries.

    Segments are links to `different` written ones, beside the one with the needle.
    """
    shutil.rmtree(folder, ignore_errors=True)
    with closing(open_catalog(folder)) as catalog:
        catalog.create_namespace("simulated")
        count = -(-row_groups // SEGMENT_ROW_GROUPS)
        written = [_write(catalog, folder, number, is_compacted) for number in range(min(count, 1 + different))]
    links = (_link(written, number) for number in range(len(written), count))
    return pa.concat_tables([*written, *links])


def _write(catalog: Catalog, folder: Path, number: int, is_compacted: bool) -> pa.Table:
    """Write a table and its index, whose entries it gives: one segment, or a compaction of two."""
    home, rows, files = folder / f"{number:06d}", _rows(number), list[str]()
    home.mkdir()
    for at in range(FILES):
        files.append(str(home / f"{at:02d}.parquet"))
        part = rows.slice(at * len(rows) // FILES, len(rows) // FILES)
        pq.write_table(part, files[-1], row_group_size=ROW_GROUP_ROWS)
    name = f"simulated.t{number}"
    catalog.create_table(name, rows.schema).add_files(files)
    index = TableIndex.create(catalog, name, DEFINITION)
    if is_compacted:
        index.build(workers=1, scope=BuildScope(max_files=FILES // 2))
        index.build(workers=1)
        index.compact()
    else:
        index.build(workers=1)
    return read_entries(index.index_table)


def _rows(number: int) -> pa.Table:
    """Draw the rows of a segment; the first one has the needle."""
    random, count = np.random.default_rng(number), SEGMENT_ROW_GROUPS * ROW_GROUP_ROWS
    # Even keys only: the needle is odd.
    columns = {SORTED: np.arange(count, dtype=np.int64) * 2}
    for field, most in _MOST_KEYS.items():
        values = columns[field] = random.integers(0, most, count, dtype=np.int64)
        values[values == NEEDLE[field]] += 1
    for field, values in columns.items() if number == 0 else ():
        values[NEEDLE_ROW_GROUP[field] * ROW_GROUP_ROWS] = NEEDLE[field]
    return pa.table([columns[field] for field in NEEDLE], [*COLUMNS])


def _link(written: list[pa.Table], number: int) -> pa.Table:
    """Give the entries of segment `number`, a link to a written one without the needle."""
    source = 1 + number % (len(written) - 1)
    entries = written[source]
    segment = local_path(entries["segment"][0].as_py())
    link = segment.with_name(f"{number:06d}.puffin")
    os.link(segment, link)
    files = pc.replace_substring(entries["data_file"], f"/{source:06d}/", f"/{number:06d}/")
    columns = {name: entries[name] for name in entries.column_names}
    return pa.table(columns | {"data_file": files, "segment": [str(link)] * len(entries)}, schema=entries.schema)


def measure(
    bench: Bench,
    *,
    row_groups: Annotated[tuple[int, ...], "N"] = (1_000, 10_000, 100_000, 1_000_000),
    repeats: Annotated[int, "Later plans of each scenario, fewer where they are slow."] = 5,
) -> None:
    """Plan over simulated indexes of 10^3 to 10^6 row groups: time, reads, memory, and what dominates."""
    scratch = bench.layout.root / "scale"
    scratch.mkdir(parents=True, exist_ok=True)
    for size, is_compacted in product(sorted({*row_groups}), (True, False)):
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            _log.info("%d row groups: writing segments", size)
            entries, file = simulate(Path(folder) / "index", size, is_compacted=is_compacted), f"{folder}/entries.arrow"
            heading = f"{len(entries) // FILES * SEGMENT_ROW_GROUPS:,} row groups"
            if is_compacted:
                bench.note(heading, index_bytes=pc.sum(entries["segment_size_in_bytes"]).as_py() // FILES)
            feather.write_feather(entries, file, compression="uncompressed")
            for scenario in [name for name in SCENARIOS if (name != _NOT_COMPACTED) == is_compacted]:
                # A process of its own, so that nothing else is in its memory.
                with worker_pool(1, {}) as pool:

                    def plan(scenario: str = scenario, pool: ProcessPoolExecutor = pool, file: str = file) -> Seen:
                        try:
                            seen: Seen = pool.submit(probe, file, scenario).result(_PROBE_TIMEOUT_SECONDS)
                        except TimeoutError as error:
                            pool.shutdown(kill_workers=True)
                            raise BenchError(f"took longer than {_PROBE_TIMEOUT_SECONDS} s") from error
                        return seen

                    bench.compare([Task(scenario, {"with": plan}, heading=heading)], repeats=repeats)


@cache
def _open_view(file: str, _scenario: str) -> tuple[IndexView, dict[str, Number]]:
    """Open an index, once a process and scenario; beside it is what the first plan takes."""
    started = time.perf_counter()
    view = IndexView("simulated", feather.read_table(file, memory_map=True), PyArrowFileIO())
    return view, {"open seconds": time.perf_counter() - started}


def probe(file: str, scenario: str) -> Seen:
    """Plan a scenario; raise BenchError if the row group with the needle is dropped."""
    view, first = _open_view(file, scenario)
    leaf, numbers = SCENARIOS[scenario], np.arange(view.row_group_count)
    started = time.perf_counter()
    pruned = prune_row_groups(view, leaf, numbers, _LIMITS)
    seconds = time.perf_counter() - started
    if not pruned.kept[NEEDLE_ROW_GROUP[leaf.field_id]]:
        raise BenchError("the matching row group was dropped")
    reads: dict[str, Number] = {
        "reads": sum(stage.reads for stage in pruned.stages),
        "read bytes": sum(stage.bytes_read for stage in pruned.stages),
    }
    if len(first) == 1:
        first |= {f"first {name}": count for name, count in reads.items()}
    # The counter of `getrusage` starts with the memory of the process that forked this one.
    peak = re.search(r"VmHWM:\s*(\d+)", _STATUS.read_text(encoding="ascii")) if _STATUS.exists() else None
    counts = {"peak bytes": int(peak[1]) * 1024} if peak else {}
    stages = {f"{stage.name} seconds": stage.seconds for stage in pruned.stages}
    return Seen(None, {**counts, "kept": int(pruned.kept.sum()), **first, **reads, **stages}, seconds)
