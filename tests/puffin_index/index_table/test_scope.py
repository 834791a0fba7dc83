"""Builds of a part: a partition, some files, a branch, an old snapshot; and a build that goes on where one stopped."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField

from puffin_index import BuildScope, IndexDefinition, TableIndex
from puffin_index.data.data_table import list_data_files
from puffin_index.errors import BuildError
from puffin_index.index_table.table import read_entries
from puffin_index.jobs.build_job import build
from puffin_index.segments.segment import Segment, SegmentTask, write_segment
from tests.deletes_sample import commit_equality_deletes

DAYS = 3


def rows_of(day: int) -> pa.Table:
    return pa.table({"day": pa.array([day] * 100, pa.int32()), "k": pa.array(range(100), pa.int64())})


@pytest.fixture
def table(local_catalog: SqlCatalog) -> Table:
    """Three partitions of one file each, each from a snapshot of its own."""
    schema = Schema(NestedField(1, "day", "int"), NestedField(2, "k", "long"))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "day"))
    table = local_catalog.create_table("ns.t", schema, partition_spec=spec)
    for day in range(DAYS):
        table.append(rows_of(day))
    return table


@pytest.fixture
def index(local_catalog: SqlCatalog, table: Table) -> TableIndex:
    assert table.name() == ("ns", "t")
    return TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bsi=["k"]))


def indexed_paths(index: TableIndex) -> set[str]:
    index.refresh()
    return set(read_entries(index.index_table)["data_file"].to_pylist())


def test_a_table_with_equality_deletes_is_indexed(index: TableIndex, table: Table) -> None:
    manifests = table.snapshots()[-1].manifests(table.io)
    data_files = [entry.data_file for one in manifests for entry in one.fetch_manifest_entry(table.io)]
    commit_equality_deletes(table, pa.table({"k": pa.array([5], pa.int64())}), data_files[0])

    report = index.build(scope=BuildScope(row_filter=EqualTo(term="day", value=1)))
    assert (report.files, report.files_left) == (1, 0)
    assert all("day=1" in path for path in indexed_paths(index))
    assert index.build().files == DAYS - 1
    status = index.status()
    assert (status.data_files, status.indexed_data_files, status.snapshots_behind) == (DAYS, DAYS, 0)
    assert indexed_paths(index) == {file.file_path for file in data_files}


def test_some_files_at_a_time_make_the_whole(index: TableIndex) -> None:
    reports = [index.build(scope=BuildScope(max_files=2)) for _ in range(3)]

    assert [(report.files, report.files_left) for report in reports] == [(2, 1), (1, 0), (0, 0)]
    assert index.status().indexed_data_files == DAYS


def test_a_branch_is_indexed_by_name_and_shares_files_with_main(index: TableIndex, table: Table) -> None:
    table.manage_snapshots().create_branch(table.snapshots()[-1].snapshot_id, "dev").commit()
    table.append(rows_of(7), branch="dev")

    assert index.build(scope=BuildScope(ref="dev")).files == DAYS + 1
    assert index.build().files == 0
    assert index.status().indexed_data_files == DAYS


def test_an_old_snapshot_is_indexed_by_id(index: TableIndex, table: Table) -> None:
    assert index.build(scope=BuildScope(snapshot_id=table.history()[0].snapshot_id)).files == 1
    assert index.status().snapshots_behind == 2


class _Engine:
    """Writes the segments of tasks in some way."""

    parallelism = 2

    def __init__(self, run: Callable[[Sequence[SegmentTask]], Iterator[Segment]]) -> None:
        self.run = run

    def cancel(self) -> None:
        pass


def test_a_build_that_was_interrupted_goes_on_where_it_stopped(index: TableIndex, table: Table) -> None:
    index.build(scope=BuildScope(max_files=1))
    # One file has k already: two needs, hence two segments.
    other = TableIndex.create(index.catalog, "ns.t", IndexDefinition.of(bsi=["k"], bitmap=["day"]))

    def fail(tasks: Sequence[SegmentTask]) -> Iterator[Segment]:
        yield write_segment(tasks[0])
        raise BuildError("the machine is gone")

    with pytest.raises(BuildError, match="the machine is gone"):
        build(other.data_table, other.index_table, other.columns, _Engine(fail))
    done = other.status().indexed_data_files

    report = other.build()

    assert 0 < done < DAYS
    assert report.files == DAYS - done
    assert other.status().indexed_data_files == DAYS
    assert len(list_data_files(table)) == DAYS


@pytest.mark.parametrize("is_expired", [False, True])
def test_a_file_that_leaves_meanwhile_is_indexed_for_old_ones(
    index: TableIndex, table: Table, is_expired: bool
) -> None:
    before = table.history()[-1].snapshot_id
    (leaves,) = (file.path for file in list_data_files(table) if "day=1" in file.path)

    def change_before_the_first_commit(tasks: Sequence[SegmentTask]) -> Iterator[Segment]:
        segments = [write_segment(task) for task in tasks]
        table.delete("day = 1")
        if is_expired:
            table.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in table.snapshots()[:-1]]).commit()
            Path(leaves.removeprefix("file://")).unlink()
        yield from segments

    engine = _Engine(change_before_the_first_commit)
    assert build(index.data_table, index.index_table, index.columns, engine).files == DAYS
    assert (index.status().indexed_data_files, index.status().data_files) == (DAYS - 1, DAYS - 1)
    assert index.verify(None).findings == ()
    if not is_expired:
        assert index.build(scope=BuildScope(snapshot_id=before)).files == 0
    index.expire()
    assert (leaves in indexed_paths(index)) == (not is_expired)
    assert index.verify(None).findings == ()


def test_an_unreadable_column_of_a_file_is_skipped_and_the_others_are_indexed(index: TableIndex, table: Table) -> None:
    victim = list_data_files(table)[1]
    path = Path(victim.path.removeprefix("file://"))
    content = bytearray(path.read_bytes())
    chunk = pq.read_metadata(path).row_group(0).column(1)
    assert chunk.path_in_schema == "k"
    first = chunk.dictionary_page_offset or chunk.data_page_offset
    damaged = slice(first, first + chunk.total_compressed_size)
    content[damaged] = bytes(255 - byte for byte in content[damaged])
    path.write_bytes(content)
    other = TableIndex.create(index.catalog, "ns.t", IndexDefinition.of(bsi=["k"], bitmap=["day"]))

    report = other.build(workers=1)

    [skipped] = report.skipped
    assert (skipped.path, "row group 0, column 'k'" in skipped.reason) == (victim.path, True)
    assert [column.name for column in skipped.others] == ["day"]
    assert report.files == DAYS
    assert other.status().indexed_data_files == DAYS - 1
    assert indexed_paths(index) == {file.path for file in list_data_files(table)}
