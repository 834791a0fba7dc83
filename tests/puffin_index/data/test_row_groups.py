"""Opened data files: Parquet row groups and ORC stripes, by field id, some rows at a time."""

from dataclasses import replace
from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.types import DateType, IcebergType, ListType, LongType, MapType, NestedField, StructType

from puffin_index.data.column_source import Reading
from puffin_index.data.data_table import DataFile
from puffin_index.data.orc_footer import read_footer
from puffin_index.data.parquet import open_parquet
from puffin_index.data.row_groups import OpenDataFile, open_data_file
from puffin_index.errors import BuildError, PuffinIndexError, UnsupportedError
from puffin_index.keys.map_key import MapKey

ROWS = 30_000
OLD = date(1500, 1, 1)
IO = PyArrowFileIO()


def field(name: str, arrow_type: pa.DataType, field_id: int, **more: str) -> pa.Field:
    ids = {"PARQUET:field_id": str(field_id), "iceberg.id": str(field_id)}
    return pa.field(name, arrow_type, metadata={**ids, **{f"iceberg.{key}": value for key, value in more.items()}})


SCHEMA = pa.schema(
    [
        field("id", pa.int64(), 1),
        field("name", pa.string(), 2),
        field("inner", pa.struct([field("a", pa.int32(), 4), field("b.c", pa.int32(), 5)]), 3),
        field("clock", pa.int64(), 6, **{"long-type": "TIME"}),
        field("tags", pa.list_(field("element", pa.int64(), 8)), 7),
        field("notes", pa.map_(field("key", pa.string(), 10).with_nullable(False), field("value", pa.int64(), 11)), 9),
    ]
)


READING = Reading(
    Schema(
        NestedField(1, "id", "long"),
        NestedField(2, "name", "string"),
        NestedField(3, "inner", StructType(NestedField(4, "a", "int"), NestedField(5, "b.c", "int"))),
        NestedField(6, "clock", "time"),
        NestedField(7, "tags", ListType(8, "long")),
        NestedField(9, "notes", MapType(10, "string", 11, "long")),
        NestedField(99, "new", "long"),
    )
)


def rows() -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": i,
                "name": f"name {i * 7919 % 1000}",
                "inner": None if i % 3 == 0 else {"a": None if i % 5 == 0 else i, "b.c": i},
                "clock": i * 1_000_000,
                "tags": [i],
                "notes": None if i % 7 == 0 else [("even" if i % 2 == 0 else "odd", i), ("all", None if i % 4 else i)],
            }
            for i in range(ROWS)
        ],
        schema=SCHEMA,
    )


def write(path: Path, table: pa.Table, file_format: str) -> DataFile:
    if file_format == "ORC":
        orc.write_table(table, path, stripe_size=65_536, batch_size=1024)
        count = orc.ORCFile(path).nstripes
    else:
        pq.write_table(table, path, row_group_size=7_000)
        count = pq.ParquetFile(path).num_row_groups
    # Where the row groups begin does not matter here, only how many there are.
    offsets = tuple(range(3, 3 + count))
    return DataFile(str(path), path.stat().st_size, len(table), offsets, file_format)


@pytest.fixture(params=["PARQUET", "ORC"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> DataFile:
    return write(tmp_path / "data", rows(), request.param)


def read(opened: OpenDataFile, field_id: int, key: str | None = None) -> list[object]:
    column = field_id if key is None else MapKey(field_id, key)
    batches = (batch for group in range(len(opened.row_counts)) for batch in opened.read_column(group, column))
    return [value for batch in batches for value in batch.to_pylist()]


def first_bytes(file: DataFile) -> tuple[int, ...]:
    if file.format == "ORC":
        return read_footer(orc.ORCFile(file.path))[0]
    metadata = pq.ParquetFile(file.path).metadata
    columns = [metadata.row_group(group).column(0) for group in range(metadata.num_row_groups)]
    return tuple(column.dictionary_page_offset or column.data_page_offset for column in columns)


def open_only(file: DataFile) -> None:
    with open_data_file(IO, file, READING):
        pass


def test_row_groups_hold_all_rows_in_order(file: DataFile) -> None:
    with open_data_file(IO, file, READING) as opened:
        assert len(opened.row_counts) == len(file.split_offsets) > 1
        assert sum(opened.row_counts) == ROWS
        # The footer knows better than a manifest.
        assert opened.row_group_offsets == first_bytes(file)
        assert read(opened, 1) == list(range(ROWS))
        assert read(opened, 2) == rows()["name"].to_pylist()
        # A leaf of a struct is NULL where the struct is.
        assert read(opened, 4) == [None if i % 3 == 0 or i % 5 == 0 else i for i in range(ROWS)]
        evens, alls, nothing = (read(opened, 9, key) for key in ("even", "all", "none"))

    assert evens == [i if i % 7 and i % 2 == 0 else None for i in range(ROWS)]
    assert alls == [i if i % 7 and i % 4 == 0 else None for i in range(ROWS)]
    assert nothing == [None] * ROWS
    # `add_files` lists no row groups.
    with open_data_file(IO, replace(file, split_offsets=()), READING) as opened:
        assert opened.row_group_offsets == first_bytes(file)
        assert read(opened, 1) == list(range(ROWS))


def test_times_that_orc_stores_as_numbers_are_times(tmp_path: Path) -> None:
    with open_data_file(IO, write(tmp_path / "t.orc", rows(), "ORC"), READING) as opened:
        assert next(iter(opened.read_column(0, 6))).type == pa.time64("us")


def test_what_orc_cannot_say_for_certain_is_not_indexed(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.orc", pa.table({"id": [1], "inner": [{"a": 2}]}), "ORC")
    with pytest.raises(UnsupportedError, match="no field ids"):
        open_only(plain)
    file = write(tmp_path / "file.orc", rows(), "ORC")
    with open_data_file(IO, file, READING) as opened, pytest.raises(UnsupportedError, match="a dot in the name"):
        opened.check_type(5)


@pytest.mark.parametrize(
    ("values", "column_type"),
    [
        (pa.array([OLD]), DateType()),
        (pa.array([[OLD]]), ListType(2, DateType())),
        (pa.array([[(1, OLD)]], pa.map_(pa.int64(), pa.date32())), MapType(2, LongType(), 3, DateType())),
        (pa.array([[(OLD, 1)]], pa.map_(pa.date32(), pa.int64())), MapType(2, DateType(), 3, LongType())),
    ],
    ids=["column", "elements", "values", "keys"],
)
def test_dates_of_an_imported_orc_file_are_not_indexed(
    tmp_path: Path, values: pa.Array, column_type: IcebergType
) -> None:
    """Its writer may have counted days in another calendar."""
    schema = Schema(NestedField(1, "a", column_type))
    reading = Reading(schema, create_mapping_from_schema(schema))
    file = write(tmp_path / "imported.orc", pa.table({"a": values}), "ORC")
    with open_data_file(IO, file, reading) as opened, pytest.raises(UnsupportedError, match="imported ORC file"):
        opened.check_type(1)


def test_an_orc_timestamp_beyond_nanoseconds_is_never_wrapped(tmp_path: Path) -> None:
    schema = pa.schema([field("at", pa.timestamp("us"), 1)])
    table = pa.table({"at": pa.array([datetime(1500, 1, 1), datetime(2020, 1, 1)], pa.timestamp("us"))}, schema=schema)

    file = write(tmp_path / "old.orc", table, "ORC")
    with open_data_file(IO, file, READING) as opened, pytest.raises((pa.ArrowException, PuffinIndexError)):
        read(opened, 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"record_count": ROWS + 1}, f"holds {ROWS} rows, its manifest entry says {ROWS + 1}"),
        ({"split_offsets": (3,)}, "its manifest entry lists 1 split offsets"),
        ({"path": "/nowhere/data"}, "data file not found"),
    ],
)
def test_a_file_that_belies_its_manifest_is_refused(file: DataFile, change: dict[str, object], reason: str) -> None:
    with pytest.raises(BuildError, match=reason):
        open_only(replace(file, **change))


@pytest.mark.parametrize("file_format", ["PARQUET", "ORC"])
def test_bytes_of_something_else_are_refused(tmp_path: Path, file_format: str) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"not a data file" * 100)

    with pytest.raises(BuildError, match=f"cannot be read as {file_format}"):
        open_only(DataFile(str(path), 1500, 1, (), file_format))


def test_avro_files_have_no_row_groups() -> None:
    with pytest.raises(UnsupportedError, match="AVRO files have no row groups"):
        open_only(DataFile("/x.avro", 1, 1, (), "AVRO"))


def test_a_file_that_was_replaced_is_read_by_its_own_footer(tmp_path: Path) -> None:
    path = tmp_path / "imported.parquet"
    for count in (3_000, 500):
        pq.write_table(pa.table({"name": [f"name {at % 7}" for at in range(count)], "id": range(count)}), path)
        with open_parquet(PyArrowFileIO(), path.as_uri(), path.stat().st_size) as parquet:
            assert parquet.read(["id"])["id"].to_pylist() == list(range(count))
