"""1,000 row groups in 50 segments: what an equality reads once they are compacted, and that answers stay the same."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog

from planner.condition.sql.parser import read_where
from planner.condition.tree.simplify import simplified
from planner.prune.gate import Limits
from planner.report.scan_plan import ScanPlan
from planner.view.cache import new_cache
from planner.view.index_view import IndexView
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.column_source import reading_of
from puffin_index.data.data_table import list_data_files
from puffin_index.formats.puffin import read_footer
from puffin_index.index_table.entries import append_entries
from puffin_index.index_table.table import entries_of, read_entries, segments_folder
from puffin_index.kinds.bloom.matrix import BLOOM_MATRIX
from puffin_index.kinds.postings.build import POSTINGS
from puffin_index.segments.inspection import read_payload_places
from puffin_index.segments.segment import SegmentTask, write_segment
from puffin_index.storage.files import FileReader
from tests.conftest import amount
from tests.planner.plan_files import plan_files
from tests.puffin_index.indexed_table import check_splits, named_segments

FILES, GROUPS_A_FILE, GROUP_ROWS = amount(12, 50), 20, 40
FILE_ROWS = GROUPS_A_FILE * GROUP_ROWS
AT_MOST = 20
DEFINITION = IndexDefinition.of(
    bitmap=["few", "many", "tags#k#color"],
    bsi=["price"],
    bloom=["name"],
    options={"few.layout": "bitmaps", "many.layout": "postings", "tags#k#color.layout": "bitmaps"},
)
EQUALITIES = ["few = 17", "many = 4007", "name = 'name 123'", "tags['color'] = 'color 5'"]
PREDICATES: dict[str, Callable[[pa.Table], pa.ChunkedArray]] = {
    "few = 17 AND price >= 500": lambda t: pc.and_kleene(pc.equal(t["few"], 17), pc.greater_equal(t["price"], 500)),
    "few < 9 AND many <> 4007": lambda t: pc.and_kleene(pc.less(t["few"], 9), pc.not_equal(t["many"], 4007)),
    "few IS NULL OR NOT (few <> 3)": lambda t: pc.or_kleene(pc.is_null(t["few"]), pc.equal(t["few"], 3)),
    "many BETWEEN 400 AND 450": lambda t: pc.and_kleene(
        pc.greater_equal(t["many"], 400), pc.less_equal(t["many"], 450)
    ),
    "name IN ('name 123', 'no name')": lambda t: pc.equal(t["name"], "name 123"),
    "tags['color'] = 'color 5' OR NOT (price < 990)": lambda t: pc.or_kleene(
        pc.equal(pc.map_lookup(t["tags"], pa.scalar("color"), "first"), "color 5"), pc.greater_equal(t["price"], 990)
    ),
}
WIDE = Limits(strict=True, rows_wanted=True)


def rows(seed: int, count: int) -> pa.Table:
    """Every row group has the extremes of each column, so that no zone map drops it, and few of the values between."""
    chooser = np.random.default_rng(seed)
    groups = np.arange(count) // GROUP_ROWS
    few = np.where(np.arange(count) % GROUP_ROWS < 2, np.arange(count) % 2 * 40, (groups * 7 + seed) % 37 + 1)
    many = np.where(np.arange(count) % GROUP_ROWS < 2, np.arange(count) % 2 * 10_000, chooser.integers(0, 9_999, count))
    colors = pa.array(
        [[("color", f"color {n % 40}"), ("size", "x")] for n in few.tolist()], pa.map_(pa.string(), pa.string())
    )
    return pa.table(
        {
            "few": pa.array(few, pa.int64(), mask=chooser.random(count) < 0.05),
            "many": pa.array(many, pa.int64(), mask=chooser.random(count) < 0.05),
            "name": pa.array([f"name {n}" for n in chooser.integers(0, 5000, count)], pa.string()),
            "price": pa.array(chooser.integers(0, 1000, count), pa.int32()),
            "tags": colors,
        }
    )


def make_index(catalog: SqlCatalog) -> TableIndex:
    """A table of many row groups in one commit; each of its data files has a segment of its own."""
    data = rows(1, FILES * FILE_ROWS)
    properties = {"write.parquet.row-group-limit": str(GROUP_ROWS)}
    table = catalog.create_table("ns.t", data.schema, properties=properties)
    with table.transaction() as transaction:
        for first in range(0, len(data), FILE_ROWS):
            transaction.append(data.slice(first, FILE_ROWS))
    index = TableIndex.create(catalog, "ns.t", DEFINITION)
    io = index.index_table.io
    segments = [
        write_segment(
            SegmentTask((file,), index.columns, table.io, io, segments_folder(index.index_table), reading_of(table))
        )
        for file in list_data_files(table)
    ]
    append_entries(index.index_table, entries_of(segments), reading_of(table))
    index.refresh()
    return index


def cold_plan(index: TableIndex, where: str, limits: Limits = WIDE) -> ScanPlan:
    """A plan of which nothing is known before."""
    view = IndexView("cold", read_entries(index.index_table), index.index_table.io, new_cache())
    return plan_files(
        view, simplified(read_where(where, index.data_table.schema())), list_data_files(index.data_table), limits
    )


def check_predicates(index: TableIndex) -> int:
    """No matching row lies in a dropped row group and known counts are right; return how many are dropped."""
    dropped = 0
    for where, matches in PREDICATES.items():
        plan = cold_plan(index, where)
        check_splits(where, plan, matches)
        dropped += plan.dropped
    return dropped


def merged_shares(index: TableIndex) -> set[tuple[str, int]]:
    """The blob types of the payloads that are no bit slices, and how many row groups each covers."""
    found: set[tuple[str, int]] = set()
    for segment in named_segments(index):
        with FileReader(index.index_table.io, segment) as reader:
            places = read_payload_places(reader, read_footer(reader))
            found |= {(place.blob_type, place.row_groups) for place in places if place.kind != "bsi"}
    return found


def test_equality_over_many_row_groups_takes_at_most_20_requests(local_catalog: SqlCatalog) -> None:
    index = make_index(local_catalog)
    groups = FILES * GROUPS_A_FILE
    before = {where: cold_plan(index, where) for where in EQUALITIES}
    assert len(named_segments(index)) == FILES
    assert all(len(list(plan.splits)) == groups and plan.index_reads > 2 * FILES for plan in before.values())
    dropped = check_predicates(index)

    for more in range(amount(1, 2)):
        assert index.compact().segments == 1

        covered = groups + GROUPS_A_FILE * more
        # A merge that would make an index larger is not made, so that an old and a new payload may stay apart.
        apart = {(POSTINGS, groups), (POSTINGS, GROUPS_A_FILE)} if more else set()
        assert merged_shares(index) - apart == {(POSTINGS, covered), (BLOOM_MATRIX, covered)}
        for where, old in before.items():
            # `WIDE` asks for rows wherever it can, the default only where that is expected to pay.
            for limits in (WIDE, Limits(strict=True)):
                plan = cold_plan(index, where, limits)
                assert 0 < plan.index_reads <= AT_MOST, (where, plan.index_reads)
                assert 0 < sum(split.verdict == "kept" for split in plan.splits) < groups / 4
            if not more:
                assert [split.rows for split in cold_plan(index, where).splits] == [split.rows for split in old.splits]
        # Estimates and false positives may differ by a few row groups.
        assert check_predicates(index) > 0.9 * dropped
        report = index.verify(12)
        assert (report.findings, report.indexed_data_files) == ((), report.data_files)

        index.data_table.append(rows(more + 2, FILE_ROWS))
        index.build(workers=1)
        assert len(named_segments(index)) == 2
