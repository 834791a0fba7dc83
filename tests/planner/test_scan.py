"""What a scan knows of row groups: sizes only of those that have an index."""

from pyiceberg.catalog.sql import SqlCatalog

from planner.arrow.plan import plan_scan
from tests.planner.ten_rows import BITMAPS, ROWS, build_index


def test_row_groups_without_an_index_have_no_rows_and_bytes(local_catalog: SqlCatalog) -> None:
    index = build_index(local_catalog, ROWS, 2, BITMAPS)
    index.data_table.append(ROWS)
    scan = plan_scan(index).scan

    assert scan.is_indexed.tolist().count(True) == 5
    assert not scan.is_indexed.all()
    assert (scan.row_counts[scan.is_indexed] == 2).all()
    assert (scan.row_group_bytes[scan.is_indexed] > 0).all()
    for sizes in (scan.row_counts, scan.row_group_bytes, scan.first_rows):
        assert not sizes[~scan.is_indexed].any()
