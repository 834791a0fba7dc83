"""Compaction: fewer segments and reads, the same answers, and whatever happens meanwhile is kept."""

import math
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField

from puffin_index import IndexDefinition, TableIndex
from puffin_index.index_table.entries import TARGET_SEGMENT_BYTES
from puffin_index.index_table.table import read_entries
from puffin_index.jobs.compact import FEWEST_SMALL, due_bytes
from puffin_index.segments.rewrite import write_merged
from tests.conftest import amount, built
from tests.planner.laws.imported_files import StoredField, commit_file, write_parquet
from tests.puffin_index import faulty_io, indexed_table


def test_segments_are_cut_at_the_target_size(local_catalog: SqlCatalog) -> None:
    index = indexed_table.indexed(local_catalog, 14)
    target = int(2.1 * max(read_entries(index.index_table)["segment_size_in_bytes"].to_pylist()))

    index.compact(target)

    assert 2 <= len(indexed_table.named_segments(index)) <= 5
    assert index.compact(target).segments == 0
    indexed_table.check_index(index)


def test_kinds_that_were_built_later_join_the_others(local_catalog: SqlCatalog) -> None:
    index = indexed_table.indexed(local_catalog, 3)
    wider = IndexDefinition.of(
        bitmap=["k", "b"], bsi=["k", "b"], bloom=["s"], options={"k.layout": "postings", "b.layout": "bitmaps"}
    )
    index = built(local_catalog, "ns.t", wider)
    assert len(read_entries(index.index_table)) == 6

    index.compact()

    index.refresh()
    assert len(read_entries(index.index_table)) == 3
    assert len(indexed_table.named_segments(index)) == 1
    indexed_table.check_index(index)


def test_a_damaged_segment_is_left_out_and_named(local_catalog: SqlCatalog) -> None:
    index = indexed_table.indexed(local_catalog, 3)
    damaged = min(indexed_table.named_segments(index))
    path = Path(damaged.removeprefix("file://"))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)

    report = index.compact()

    assert [segment for segment, _ in report.skipped] == [damaged]
    assert len(indexed_table.named_segments(index)) == 2
    assert damaged in indexed_table.named_segments(index)
    indexed_table.check_queries(index, strict=False)


def test_files_that_are_expired_meanwhile_do_not_come_back(local_catalog: SqlCatalog) -> None:
    properties = {**local_catalog.properties, "py-io-impl": faulty_io.IMPLEMENTATION}
    catalog = SqlCatalog("local", **properties)
    other = indexed_table.indexed(local_catalog, 4)
    index = TableIndex.open(catalog, "ns.t")

    def interfere() -> None:
        other.refresh()
        other.data_table.delete("b < 6")
        indexed_table.forget_history(other)
        other.expire()

    # Each of the four segments is opened twice: for its footer, and when it is merged.
    faulty_io.set_fault(6, within=".puffin", first=interfere)
    report = index.compact()
    seen = faulty_io.FAULT.seen
    faulty_io.set_fault(0)
    catalog.close()
    assert seen >= 6

    assert report.files == 0
    assert len(read_entries(index.index_table)) == 0
    indexed_table.check_entries(index)


def test_an_index_without_entries_is_compacted_to_nothing(local_catalog: SqlCatalog) -> None:
    indexed_table.make_table(local_catalog)
    assert TableIndex.create(local_catalog, "ns.t", indexed_table.DEFINITION).compact().segments == 0


def test_a_service_compacts_once_there_are_enough_small_segments(local_catalog: SqlCatalog) -> None:
    index = indexed_table.indexed(local_catalog, 3)
    large = min(read_entries(index.index_table)["segment_size_in_bytes"].to_pylist())

    assert index.compact_if_due() is None
    assert index.compact_if_due(large, fewest=1) is None
    report = index.compact_if_due(fewest=3)

    assert report is not None
    assert (report.segments_before, report.segments_after) == (3, 1)
    assert index.compact_if_due(fewest=3) is None
    indexed_table.check_queries(index)


def test_a_service_leaves_a_segment_alone_that_is_larger_than_all_small_ones(local_catalog: SqlCatalog) -> None:
    index = indexed_table.indexed(local_catalog, 3)
    small = indexed_table.named_segments(index)
    index.data_table.append(indexed_table.rows(3, 80 * indexed_table.FILE_ROWS))
    index.build(workers=1)
    (large,) = indexed_table.named_segments(index) - small
    report = index.compact_if_due(fewest=3)

    assert report is not None
    assert (report.segments_before, report.segments_after, report.rewritten) == (4, 2, 3)
    assert large in indexed_table.named_segments(index)
    indexed_table.check_queries(index)


@given(st.lists(st.integers(50_000, 150_000), min_size=400, max_size=amount(600, 4000)))
def test_segments_of_a_stream_stay_few_and_are_rewritten_a_few_times(sizes: list[int]) -> None:
    """Merged segments are as large as what they are made of."""
    open_sizes, rewritten = list[int](), 0
    for size in sizes:
        open_sizes.append(size)
        names = [str(number) for number in range(len(open_sizes))]
        entries = pa.table({"segment": names, "segment_size_in_bytes": open_sizes})
        due = due_bytes(entries, TARGET_SEGMENT_BYTES, FEWEST_SMALL)
        merged = [one for one in open_sizes if due is not None and one <= due]
        open_sizes = [one for one in open_sizes if one not in merged] + ([sum(merged)] if merged else [])
        rewritten += sum(merged)
        assert len(open_sizes) <= 2 * FEWEST_SMALL

    # Eight of a stream become one, and each further time at least doubles it.
    assert rewritten <= sum(sizes) * math.log2(len(sizes))


def test_a_merge_holds_few_dead_bytes(local_catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twenty segments of a large and a small data file each, only the small ones are left."""
    table = indexed_table.make_table(local_catalog)
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bsi=["k"]))
    for seed in range(20):
        table.append(indexed_table.rows(seed, 5_000))
        table.append(indexed_table.rows(seed, 10).set_column(2, "b", pa.array([77] * 10, pa.int64())))
        index.build(workers=1)
    table.delete("b != 77")
    indexed_table.forget_history(index)
    read: list[int] = []
    monkeypatch.setattr(
        "puffin_index.jobs.compact.write_merged",
        lambda files, sources, *more: (
            read.append(sum(sources[name].size for name in {origin for file in files for origin in file.origins}))
            or write_merged(files, sources, *more)
        ),
    )
    target = max(read_entries(index.index_table)["segment_size_in_bytes"].to_pylist())

    index.compact(target)

    assert max(read) <= 4 * target
    assert 5 <= len(read) == len(indexed_table.named_segments(index)) < 20
    indexed_table.check_queries(index)


def test_a_data_file_in_two_partitions_keeps_both_indexes(local_catalog: SqlCatalog, tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "k", "long"), NestedField(2, "n", "long"), NestedField(3, "p", "string"))
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "by_p"))
    table, path = local_catalog.create_table("ns.t", schema, partition_spec=spec), tmp_path / "f.parquet"
    numbers = [StoredField(name, [*range(10)], pa.int64(), at) for at, name in ((1, "k"), (2, "n"))]
    write_parquet(path, numbers, 4, statistics=True)
    for value in ("x", "y"):
        commit_file(table, path.as_uri(), Record(value), 0, with_offsets=True)
    index = built(local_catalog, "ns.t", bitmap=["k"])
    index.add_kinds(IndexDefinition.of(bitmap=["n"]))
    index.build(workers=1)

    index.compact(1)

    assert index.status().indexed_data_files == 2
    assert index.verify(None).findings == ()
