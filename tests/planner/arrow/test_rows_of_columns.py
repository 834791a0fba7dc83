"""Wanted rows of a row group are those of a whole read, however few they are and however strings are stored."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO

from planner.arrow.row_group_columns import DataRead, RowGroupColumns
from puffin_index.data.file_fields import FileField, identify_fields
from puffin_index.data.parquet import OpenParquet, coded_by_dictionary, open_parquet_file
from tests.conftest import amount
from tests.puffin_index.data.pages.random_files import FileCase, file_cases
from tests.puffin_index.data.pages.test_page_reader import row_groups_in_file, whole

TEXTS = pa.schema([("t", pa.string()), ("u", pa.large_string()), ("a.b", pa.string()), ("n", pa.int64())])


def fields_of(opened: OpenParquet) -> tuple[FileField, ...]:
    fields = identify_fields(opened.parquet.schema_arrow, "PARQUET", None)
    assert fields is not None
    return fields.fields


def read(path: Path, row_group: int, rows: list[int]) -> pa.Table:
    with open_parquet_file(PyArrowFileIO(), str(path)) as opened:
        columns = RowGroupColumns(opened, row_group, DataRead(), side_by_side=False)
        table = columns.read(fields_of(opened), np.array(rows, np.int64))
    return table.select(opened.parquet.schema_arrow.names)


@settings(max_examples=amount(20, 500))
@given(case=file_cases(), data=st.data())
def test_some_rows_are_those_of_a_whole_read(case: FileCase, data: st.DataObject) -> None:
    for path, row_group, row_count in row_groups_in_file(case):
        rows = sorted(data.draw(st.sets(st.integers(0, row_count - 1), min_size=1, max_size=max(1, row_count // 8))))
        expected = whole(path, row_group, np.array(rows, np.int64))
        found = read(path, row_group, rows)
        found.validate(full=True)
        assert found.schema.equals(expected.schema)
        assert found.equals(expected) or found.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("has_dictionary", [True, False])
def test_strings_of_dictionaries_stay_coded_until_rows_are_chosen(tmp_path: Path, *, has_dictionary: bool) -> None:
    path, values = tmp_path / "f.parquet", [None if n % 7 == 0 else "é" * (n % 5) for n in range(2_000)]
    table = pa.table([values, values, values, range(2_000)], schema=TEXTS)
    pq.write_table(table, path, use_dictionary=has_dictionary)
    with open_parquet_file(PyArrowFileIO(), str(path)) as opened:
        coded = coded_by_dictionary(opened.parquet.metadata.row_group(0), fields_of(opened))
        stored = opened.with_dictionaries(coded).read_row_group(0)

    assert coded == (["t", "u"] if has_dictionary else [])
    assert [name for name in TEXTS.names if pa.types.is_dictionary(stored.schema.field(name).type)] == coded
    assert read(path, 0, [0, 3, 1_999]).equals(table.take([0, 3, 1_999]))


def test_a_dictionary_that_was_given_up_is_none(tmp_path: Path) -> None:
    path, values = tmp_path / "f.parquet", [f"value {n}" for n in range(5_000)]
    pq.write_table(pa.table({"t": values}), path, dictionary_pagesize_limit=100, write_batch_size=10)
    assert pq.read_metadata(path).row_group(0).column(0).has_dictionary_page
    with open_parquet_file(PyArrowFileIO(), str(path)) as opened:
        assert coded_by_dictionary(opened.parquet.metadata.row_group(0), fields_of(opened)) == []
    assert read(path, 0, [4_999]).to_pylist() == [{"t": "value 4999"}]
