"""Columns that need another name at most are handed on as they are: the result is that of PyIceberg's projection."""

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given, strategies as st
from pyiceberg import types
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField

from planner.arrow.file_columns import FileColumns
from puffin_index.data.column_source import Reading
from puffin_index.data.file_fields import identify_fields
from puffin_index.errors import UnsupportedError

MOMENT = datetime(2024, 2, 29, 1, 2, 3)
STORED: dict[pa.DataType, object] = {
    pa.int16(): 7,
    pa.int32(): 7,
    pa.int64(): 7,
    pa.float32(): -0.0,
    pa.float64(): float("inf"),
    pa.bool_(): True,
    pa.decimal128(9, 2): Decimal("1.25"),
    pa.decimal128(38, 2): Decimal("-1.25"),
    pa.date32(): date(1969, 12, 31),
    pa.timestamp("ms"): MOMENT,
    pa.timestamp("us"): MOMENT,
    pa.timestamp("us", "UTC"): MOMENT,
    pa.timestamp("ns"): MOMENT,
    pa.string(): "é",
    pa.large_string(): "",
    pa.binary(): b"\0",
    pa.large_binary(): b"ab",
    pa.binary(4): b"abcd",
    pa.binary(16): b"0123456789abcdef",
    pa.struct([pa.field("x", pa.int32(), metadata={"PARQUET:field_id": "100"})]): {"x": 1},
    pa.list_(pa.field("element", pa.int32(), metadata={"PARQUET:field_id": "101"})): [1, None],
}
WANTED: list[IcebergType] = [
    types.IntegerType(),
    types.LongType(),
    types.FloatType(),
    types.DoubleType(),
    types.BooleanType(),
    types.DecimalType(9, 2),
    types.DecimalType(38, 2),
    types.DateType(),
    types.TimestampType(),
    types.TimestamptzType(),
    types.StringType(),
    types.BinaryType(),
    types.FixedType(4),
    types.UUIDType(),
    types.StructType(NestedField(100, "x", types.LongType())),
    types.ListType(101, types.LongType(), element_required=False),
]


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.Table, Schema, dict[int, object]]:
    """A file's rows, a table's schema, and constants of partitions."""
    stored: list[tuple[pa.Field, pa.ChunkedArray]] = []
    for number, arrow_type in enumerate(draw(st.lists(st.sampled_from(list(STORED)), min_size=1, max_size=5))):
        field = pa.field(f"f{number}", arrow_type, metadata={"PARQUET:field_id": str(draw(st.integers(1, 7)))})
        values = draw(st.lists(st.sampled_from([None, STORED[arrow_type]]), min_size=3, max_size=3))
        stored.append((field, pa.chunked_array([pa.array(values[:1], arrow_type), pa.array(values[1:], arrow_type)])))
    wanted = [
        NestedField(field_id, f"c{field_id}", draw(st.sampled_from(WANTED)), required=draw(st.booleans()))
        for field_id in draw(st.lists(st.integers(1, 7), min_size=1, max_size=5, unique=True))
    ]
    constants: dict[int, object] = dict.fromkeys(draw(st.sets(st.integers(1, 7), max_size=1)), None)
    table = pa.Table.from_arrays([values for _, values in stored], schema=pa.schema([field for field, _ in stored]))
    return table, Schema(*wanted), constants


def file_columns(schema: Schema, stored: pa.Schema, constants: dict[int, object]) -> FileColumns:
    """The columns of a file of any Arrow schema, whatever Parquet would make of its types."""
    fields = identify_fields(stored, "PARQUET", None)
    assert fields is not None
    return FileColumns(Reading(schema), fields, str, constants, "file:/data.parquet")


@given(columns())
def test_the_shortcut_gives_what_projection_gives(given_columns: tuple[pa.Table, Schema, dict[int, object]]) -> None:
    table, schema, constants = given_columns
    mapped = file_columns(schema, table.schema, constants)
    target = schema_to_pyarrow(schema, include_field_ids=False)

    def projected() -> object:
        return _result(lambda: mapped.project(table, schema, target))

    with patch.object(FileColumns, "_unchanged", return_value=None):
        expected = projected()
    assert projected() == expected


def _result(project: Callable[[], pa.Table]) -> object:
    """The schema and values; None if there is an error."""
    try:
        found = project()
    except UnsupportedError:
        return None
    found.validate(full=True)
    return found.schema, [str(column.to_pylist()) for column in found.columns]
