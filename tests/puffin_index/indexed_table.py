"""A table of a few appends with an index, and the law that its queries must keep whatever happens to the index."""

import threading
from collections.abc import Callable
from datetime import timedelta
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from planner.arrow.plan import plan
from planner.report.scan_plan import ScanPlan
from puffin_index import IndexDefinition, TableIndex
from puffin_index.index_table.table import read_entries
from puffin_index.jobs.build_job import BuildProgress

_LOCKED_SECONDS = 1.5
ROW_GROUP_ROWS = 100
FILE_ROWS = 250
DEFINITION = IndexDefinition.of(
    bitmap=["k", "b"], bsi=["k"], bloom=["s"], options={"k.layout": "postings", "b.layout": "bitmaps"}
)
PREDICATES: dict[str, Callable[[pa.Table], pa.ChunkedArray]] = {
    "k = 77": lambda t: pc.equal(t["k"], 77),
    "k BETWEEN 3 AND 9": lambda t: pc.and_(pc.greater_equal(t["k"], 3), pc.less_equal(t["k"], 9)),
    "k IS NULL AND b = 1": lambda t: pc.and_(pc.is_null(t["k"]), pc.equal(t["b"], 1)),
    "b = 3 AND k < 60": lambda t: pc.and_(pc.equal(t["b"], 3), pc.less(t["k"], 60)),
    "s = 'value 7'": lambda t: pc.equal(t["s"], "value 7"),
    "s = 'nowhere' OR k = 1234": lambda t: pc.or_(pc.equal(t["s"], "nowhere"), pc.equal(t["k"], 1234)),
}


def rows(seed: int, count: int = FILE_ROWS) -> pa.Table:
    chooser = np.random.default_rng(seed)
    return pa.table(
        {
            "k": pa.array(chooser.integers(0, 2000, count), pa.int64(), mask=chooser.random(count) < 0.1),
            "s": pa.array([f"value {n}" for n in chooser.integers(0, 300, count)], pa.string()),
            "b": pa.array(chooser.integers(0, 6, count), pa.int64()),
        }
    )


def make_table(catalog: SqlCatalog) -> Table:
    properties = {"write.parquet.row-group-limit": str(ROW_GROUP_ROWS)}
    return catalog.create_table("ns.t", rows(0).schema, properties=properties)


def indexed(catalog: SqlCatalog, appends: int, definition: IndexDefinition = DEFINITION) -> TableIndex:
    """A table of so many data files, each with a segment of its own."""
    table = make_table(catalog)
    index = TableIndex.create(catalog, "ns.t", definition)
    for seed in range(appends):
        table.append(rows(seed))
        index.build(workers=1)
    index.refresh()
    return index


def forget_history(index: TableIndex) -> None:
    """Expire all snapshots of the data table but the last."""
    table = index.data_table.refresh()
    table.maintenance.expire_snapshots().by_ids([old.snapshot_id for old in table.snapshots()[:-1]]).commit()


def segment_files(index: TableIndex) -> set[str]:
    folder = Path(index.index_table.location().removeprefix("file://")) / "_segments"
    return {path.as_uri() for path in folder.glob("*")}


def named_segments(index: TableIndex) -> set[str]:
    index.refresh()
    return set(read_entries(index.index_table)["segment"].to_pylist())


def check_queries(index: TableIndex, *, strict: bool = True) -> int:
    """No matching row lies in a dropped row group and known counts are right; return how many reads it took."""
    reads = 0
    for where, matches in PREDICATES.items():
        scan_plan = plan(index, where, strict=strict)
        reads += scan_plan.index_reads
        check_splits(where, scan_plan, matches)
    return reads


def check_splits(where: str, scan_plan: ScanPlan, matches: Callable[[pa.Table], pa.ChunkedArray]) -> None:
    """No matching row lies in a dropped row group of a plan, and known counts are right."""
    for path, splits in groupby(scan_plan.splits, lambda split: split.data_file):
        with pq.ParquetFile(path.removeprefix("file://")) as file:
            for split in splits:
                count = pc.sum(matches(file.read_row_group(split.row_group))).as_py() or 0
                assert split.verdict == "kept" or count == 0, (where, split, count)
                assert split.rows is None or split.rows == count, (where, split, count)


def check_a_build_waits(index: TableIndex, lock: Callable[[], object], release: Callable[[], object]) -> None:
    """A build of one file, whose catalog is locked once it has begun, ends well after the lock."""
    timer = threading.Timer(_LOCKED_SECONDS, release)

    def lock_after_the_start(progress: BuildProgress) -> None:
        if not timer.is_alive() and not progress.files_done:
            lock()
            timer.start()

    report = index.build(workers=1, progress=lock_after_the_start)
    timer.join()
    assert report.files == 1
    assert report.seconds > _LOCKED_SECONDS


def check_entries(index: TableIndex, *, complete: bool = True) -> None:
    """Nothing doubled, nothing dangling; nothing lost, where the index is `complete`."""
    assert named_segments(index) <= segment_files(index)
    report = index.verify(None)
    assert report.findings == ()
    assert not complete or report.indexed_data_files == report.data_files


def check_index(index: TableIndex) -> None:
    """Queries are right, and so are the entries, which are complete."""
    check_queries(index)
    check_entries(index)


def check_recovery(index: TableIndex) -> None:
    """Right at once, complete after the next build, and without a stray file after the next expiration."""
    index.refresh()
    check_queries(index)
    check_entries(index, complete=False)
    index.build(workers=1)
    index.expire(timedelta(0))
    assert segment_files(index) == named_segments(index)
    check_entries(index)
