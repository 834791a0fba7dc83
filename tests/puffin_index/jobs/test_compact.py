"""Compaction: fewer segments and reads, the same answers, and whatever happens meanwhile is kept."""

from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

from planner.arrow.plan import plan
from puffin_index import IndexDefinition, TableIndex
from puffin_index.formats.puffin import read_footer
from puffin_index.index_table.table import read_entries
from puffin_index.storage.files import FileReader
from tests.conftest import built
from tests.puffin_index import faulty_io
from tests.puffin_index.indexed_table import (
    DEFINITION,
    check_entries,
    check_index,
    check_queries,
    forget_history,
    indexed,
    make_table,
    named_segments,
    rows,
)


def test_many_segments_become_one_that_answers_with_fewer_reads(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 8)
    point = plan(index, "k = 77", strict=True)
    before = check_queries(index)

    report = index.compact()

    assert (report.segments_before, report.segments_after, report.files, report.skipped) == (8, 1, 8, ())
    assert check_queries(index) < before
    compacted = plan(index, "k = 77", strict=True)
    assert compacted.index_reads * 7 <= point.index_reads
    assert list(compacted.splits) == list(point.splits)
    check_entries(index)


def test_segments_are_cut_at_the_target_size(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 14)
    target = int(2.1 * max(read_entries(index.index_table)["segment_size_in_bytes"].to_pylist()))

    index.compact(target)

    assert 2 <= len(named_segments(index)) <= 5
    assert index.compact(target).segments == 0
    check_index(index)


PLAIN = IndexDefinition.of(bsi=["k", "s"], options={"k.compression": "none", "s.compression": "none"})
"""Bit slices of each row group by themselves."""


def test_bit_slices_that_are_not_to_be_compressed_are_copied_byte_by_byte(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 3, PLAIN)

    def checksums() -> set[str]:
        found: set[str] = set()
        for segment in named_segments(index):
            with FileReader(index.index_table.io, segment) as reader:
                blobs = read_footer(reader).blobs
            found |= {
                blob.properties["xxh64"]
                for blob in blobs
                if blob.properties.get("kind") == "bsi" and "row-group" in blob.properties
            }
        return found

    before = checksums()
    index.compact()

    assert checksums() == before


def test_bit_slices_of_small_row_groups_are_merged_once(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 5, PLAIN)
    point = plan(index, "k = 77", strict=True)
    before = check_queries(index)
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bsi=["k", "s"]))
    size = sum(set(read_entries(index.index_table)["segment_size_in_bytes"].to_pylist()))

    assert index.compact().segments == 1

    assert check_queries(index) < before
    compacted = plan(index, "k = 77", strict=True)
    assert compacted.index_reads < point.index_reads
    assert [split.rows for split in compacted.splits] == [split.rows for split in point.splits]
    assert sum(set(read_entries(index.index_table)["segment_size_in_bytes"].to_pylist())) < 0.7 * size
    check_entries(index)
    assert index.compact().segments == 0


def test_kinds_that_were_built_later_join_the_others(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 3)
    wider = IndexDefinition.of(
        bitmap=["k", "b"], bsi=["k", "b"], bloom=["s"], options={"k.layout": "postings", "b.layout": "bitmaps"}
    )
    index = built(local_catalog, "ns.t", wider)
    assert len(read_entries(index.index_table)) == 6

    index.compact()

    index.refresh()
    assert len(read_entries(index.index_table)) == 3
    assert len(named_segments(index)) == 1
    check_index(index)


def test_columns_of_both_layouts_become_postings_in_one_segment(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 2)
    changed = IndexDefinition.of(bitmap=["k", "b"], bsi=["k"], bloom=["s"], options={"k.layout": "bitmaps"})
    index.data_table.append(rows(7))
    index.data_table.append(rows(8))
    index = built(local_catalog, "ns.t", changed)

    index.compact()

    assert len(named_segments(index)) == 1
    check_index(index)


def test_a_damaged_segment_is_left_out_and_named(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 3)
    damaged = min(named_segments(index))
    path = Path(damaged.removeprefix("file://"))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)

    report = index.compact()

    assert [segment for segment, _ in report.skipped] == [damaged]
    assert len(named_segments(index)) == 2
    assert damaged in named_segments(index)
    check_queries(index, strict=False)


def test_files_that_are_expired_meanwhile_do_not_come_back(local_catalog: SqlCatalog) -> None:
    properties = {**local_catalog.properties, "py-io-impl": faulty_io.IMPLEMENTATION}
    catalog = SqlCatalog("local", **properties)
    other = indexed(local_catalog, 4)
    index = TableIndex.open(catalog, "ns.t")

    def interfere() -> None:
        other.refresh()
        other.data_table.delete("b < 6")
        forget_history(other)
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
    check_entries(index)


def test_an_index_without_entries_is_compacted_to_nothing(local_catalog: SqlCatalog) -> None:
    make_table(local_catalog)
    index = TableIndex.create(local_catalog, "ns.t", DEFINITION)

    assert index.compact().segments == 0


def test_a_service_compacts_once_there_are_enough_small_segments(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 2)
    large = min(read_entries(index.index_table)["segment_size_in_bytes"].to_pylist())

    assert index.compact_if_due() is None
    assert index.compact_if_due(large, fewest=1) is None
    report = index.compact_if_due(fewest=2)

    assert report is not None
    assert (report.segments_before, report.segments_after) == (2, 1)
    assert index.compact_if_due(fewest=2) is None
    check_queries(index)
