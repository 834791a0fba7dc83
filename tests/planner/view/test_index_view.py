"""An index view of ten rows (`tests.planner.ten_rows`): row groups as numbers, and what is known of them as arrays."""

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from planner.view.directories import IndexReads
from puffin_index import IndexDefinition
from puffin_index.data.data_table import DataFile, list_data_files
from puffin_index.keys.leaf import RangeTest, SetTest
from puffin_index.storage.ranged import run
from tests.conftest import built, create_table
from tests.planner.ten_rows import BITMAPS, EVERY, POSTINGS, ROWS, c, k, view_of_index, view_of_ten_rows

LEAF = k(SetTest((5,)))


def test_row_groups_are_numbered_data_file_by_data_file(local_catalog: SqlCatalog) -> None:
    table = create_table(local_catalog, "t", ROWS, row_group_rows=4)
    table.append(pa.table({"k": pa.array([11, 12], pa.int64()), "c": pa.array([0, 1], pa.int64())}))
    index = built(local_catalog, "ns.t", BITMAPS)
    view = view_of_index(index)
    files = {file.record_count: file for file in list_data_files(index.data_table)}

    own = {count: view.row_groups_of(file) for count, file in files.items()}

    # The file of ten rows has three row groups; the order of the two files is the order of the entries.
    assert sorted(map(len, filter(None, own.values()))) == [1, 3]
    (large,) = (numbers for count, numbers in own.items() if count == 10)
    assert large is not None
    assert view.row_counts[large].tolist() == [4, 4, 2]
    assert view.first_rows[large].tolist() == [0, 4, 8]
    assert view.ordinals_in_file[large].tolist() == [0, 1, 2]


def test_a_file_that_is_not_the_one_that_was_indexed_has_no_row_groups(local_catalog: SqlCatalog) -> None:
    view = view_of_ten_rows(local_catalog)
    (file,) = list_data_files(local_catalog.load_table("ns.t"))

    def numbers(**changes: object) -> range | None:
        own = {name: getattr(file, name) for name in DataFile.__dataclass_fields__}
        return view.row_groups_of(DataFile(**(own | changes)))

    assert numbers() == range(5)
    assert numbers(file_size=file.file_size + 1) is None
    assert numbers(record_count=11) is None
    assert numbers(path="s3://elsewhere/file.parquet") is None


def test_statistics_are_arrays_of_one_element_a_row_group(local_catalog: SqlCatalog) -> None:
    statistics = view_of_ten_rows(local_catalog).statistics(LEAF.field_id, LEAF.value_type, IndexReads())

    assert statistics is not None
    assert statistics.row_count.tolist() == [2, 2, 2, 2, 2]
    assert statistics.null_count.tolist() == [0, 0, 0, 0, 2]
    assert statistics.distinct_count.tolist() == [2, 2, 2, 1, 0]
    assert np.asarray(statistics.minimum)[:4].tolist() == [1, 2, 3, 5]
    assert np.asarray(statistics.maximum)[:4].tolist() == [9, 8, 7, 5]


@pytest.mark.parametrize(("definition", "merged", "payloads"), [(BITMAPS, [False] * 5, 5), (POSTINGS, [True] * 5, 1)])
def test_a_directory_says_which_payload_answers_for_which_row_group(
    local_catalog: SqlCatalog, definition: IndexDefinition, merged: list[bool], payloads: int
) -> None:
    directory = view_of_ten_rows(local_catalog, definition).directory(
        LEAF.field_id, LEAF.value_type, "bitmap", IndexReads()
    )

    assert directory is not None
    assert directory.known.tolist() == [True] * 5
    assert directory.merged.tolist() == merged
    assert len(set(directory.blob.tolist())) == payloads


def test_what_has_no_index_has_no_directory(local_catalog: SqlCatalog) -> None:
    view = view_of_ten_rows(local_catalog)

    assert view.has(1, "bitmap", EVERY).all()
    assert not view.has(1, "bloom", EVERY).any()
    assert view.directory(LEAF.field_id, LEAF.value_type, "bloom", IndexReads()) is None
    assert view.statistics(c(SetTest((1,))).field_id, LEAF.value_type, IndexReads()) is None
    # The column's keys are numbers: they say nothing about a string.
    assert view.statistics(LEAF.field_id, "string", IndexReads()) is None


def test_a_payload_answers_for_its_row_group(local_catalog: SqlCatalog) -> None:
    view = view_of_ten_rows(local_catalog)
    directory = view.directory(LEAF.field_id, LEAF.value_type, "bitmap", IndexReads())
    assert directory is not None

    found = [run(view.opened.open(directory, row_group, None)).evaluate(RangeTest(5, 8)) for row_group in range(5)]

    assert [list(rows.rows) for rows in found] == [[], [1], [1], [0, 1], []]
    assert all(rows.exact for rows in found)
