"""What Iceberg's own Java readers make of every stored type, against what Arrow and so an index makes of it.

Imported files may store a column as anything. Three readers are asked, file by file: Spark's for batches and for rows,
and that of other engines. Where one of them gives other values than Arrow, a column must not be indexed or scanned.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from py4j.java_gateway import JavaObject
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField
from pyspark.sql import SparkSession

from planner.arrow.file_columns import FileColumns
from planner.spark.rules import jvm_of
from puffin_index.data.column_source import Reading
from puffin_index.data.data_table import DataFile
from puffin_index.data.parquet import open_parquet
from puffin_index.data.row_groups import OpenOrcFile, OpenParquetFile, open_data_file
from puffin_index.errors import PuffinIndexError, UnsupportedError
from puffin_index.keys.arrow_keys import arrow_of_keys, column_of
from puffin_index.keys.value_types import value_type_of
from ssb_bench.spark_runs.jars import SPARK_RELEASE
from tests.parquet_footer_edit import Struct, edit_footer
from tests.spark.java_source import object_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(SPARK_RELEASE == "4.0", reason="its Iceberg has no registry of readers"),
]

IO = PyArrowFileIO()
_NAMES = (
    *("boolean", "int", "long", "float", "double", "date", "time"),
    *("timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"),
    *("string", "binary", "uuid", "fixed[16]", "fixed[4]", "fixed[12]"),
    *("decimal(9,2)", "decimal(18,2)", "decimal(38,2)", "decimal(9,0)", "decimal(5,2)"),
)
TYPES = [IcebergType.model_validate(name) for name in _NAMES]

Edit = dict[int, tuple[int, Any]]
"""Fields of the SchemaElement of parquet.thrift (`tests.parquet_footer_edit`)."""

_NUMBERS = [1, -1, 0, 100, 5, -5, 77]
_TIMES = [1, 0, 100, 86_399_999]
_MOMENTS = [1_700_000_000_000, -1_700_000_000_000, 1, -1, 0, 999]
_TEXTS = [b"a", b"", b"abc", "äö".encode(), b"exactly 16 bytes"]
_LONG_TEXTS = [b"exactly 16 bytes", b"other 16 letters"]
_UNITS = {"millis": 1, "micros": 2, "nanos": 3}


def logical(number: int) -> Edit:
    return {10: (12, {number: (12, {})})}


def converted(number: int) -> Edit:
    return {6: (5, number)}


def clock(number: int, unit: str, is_utc: bool) -> Edit:
    return {10: (12, {number: (12, {1: (1 if is_utc else 2, b""), 2: (12, {_UNITS[unit]: (12, {})})})})}


def decimal(precision: int, scale: int) -> Edit:
    own = {10: (12, {5: (12, {1: (5, scale), 2: (5, precision)})})}
    return {6: (5, 5), 7: (5, scale), 8: (5, precision), **own}


def integer(bits: int, is_signed: bool) -> Edit:
    return {10: (12, {10: (12, {1: (3, bytes([bits])), 2: (1 if is_signed else 2, b"")})})}


def fixed(length: int) -> list[bytes]:
    return [bytes((row * 37 + at * 11 + 200 * (row % 2)) % 256 for at in range(length)) for row in range(5)]


def big(length: int) -> list[bytes]:
    return [number.to_bytes(length, "big", signed=True) for number in (1, -1, 0, 12_345, -12_345)]


def stored_columns() -> Iterator[tuple[str, pa.Array, Edit]]:
    """Columns of every physical type, each with every annotation that a reader could meet."""
    yield "bool", pa.array([True, False]), {}
    yield "int32", pa.array([2**31 - 1, -(2**31), *_NUMBERS], pa.int32()), {}
    yield "int64", pa.array([2**63 - 1, -(2**63), 2**40, *_NUMBERS], pa.int64()), {}
    for bits, number in ((8, 15), (16, 16), (32, 17)):
        for is_signed in (True, False):
            values = _NUMBERS if is_signed else [*map(abs, _NUMBERS), *([-1] if bits == 32 else [])]
            edit = integer(bits, is_signed) | converted(number if is_signed else number - 4)
            yield f"{'' if is_signed else 'u'}int({bits})", pa.array(values, pa.int32()), edit
    yield "int(64)", pa.array(_NUMBERS, pa.int64()), integer(64, True) | converted(18)
    yield "uint(64)", pa.array(_NUMBERS, pa.int64()), integer(64, False) | converted(14)
    yield "old int(8)", pa.array(_NUMBERS, pa.int32()), converted(15)
    yield "date", pa.array([-20_000, 719_162, *_NUMBERS], pa.int32()), logical(6) | converted(6)
    yield "nothing", pa.array([None, None], pa.int32()), logical(11)
    for is_utc in (True, False):
        for unit in _UNITS:
            name = f"({unit}, {'utc' if is_utc else 'local'})"
            yield (
                f"time{name}",
                pa.array(_TIMES, pa.int32() if unit == "millis" else pa.int64()),
                clock(7, unit, is_utc),
            )
            moments = [1_000 * one for one in _MOMENTS] if unit == "nanos" else _MOMENTS
            yield f"timestamp{name}", pa.array(moments, pa.int64()), clock(8, unit, is_utc)
    yield "old timestamp(millis)", pa.array(_MOMENTS, pa.int64()), converted(9)
    yield "old timestamp(micros)", pa.array(_MOMENTS, pa.int64()), converted(10)
    yield "float", pa.array([1.5, -0.0, float("nan"), float("inf"), -1e30, 0.1], pa.float32()), {}
    yield "double", pa.array([1.5, -0.0, float("nan"), float("inf"), -1e300, 0.1], pa.float64()), {}
    yield "float16", pa.array([struct.pack("<e", one) for one in (1.5, -100, 3.25)], pa.binary(2)), logical(15)
    for precision, scale in ((9, 2), (5, 2), (9, 0), (9, 1), (18, 2), (18, 1)):
        edit = decimal(precision, scale)
        if precision < 10:
            yield f"int32 decimal({precision},{scale})", pa.array(_NUMBERS, pa.int32()), edit
            yield f"fixed decimal({precision},{scale})", pa.array(big(4), pa.binary(4)), edit
        yield f"int64 decimal({precision},{scale})", pa.array(_NUMBERS, pa.int64()), edit
    for precision, scale in ((9, 2), (38, 2), (38, 0), (37, 1)):
        yield f"bytes decimal({precision},{scale})", pa.array(big(3), pa.binary()), decimal(precision, scale)
        yield f"wide decimal({precision},{scale})", pa.array(big(16), pa.binary(16)), decimal(precision, scale)
    yield "bytes", pa.array(_TEXTS, pa.binary()), {}
    yield "16 bytes", pa.array(_LONG_TEXTS, pa.binary()), {}
    for name, number, old in (("string", 1, 0), ("enum", 4, 4), ("json", 12, 19), ("bson", 13, 20)):
        yield name, pa.array(_TEXTS, pa.binary()), logical(number) | converted(old)
        yield f"new {name}", pa.array(_TEXTS, pa.binary()), logical(number)
        yield f"old {name}", pa.array(_TEXTS, pa.binary()), converted(old)
    yield "fixed(16)", pa.array(fixed(16), pa.binary(16)), {}
    yield "uuid", pa.array(fixed(16), pa.binary(16)), logical(14)
    yield "fixed(4)", pa.array(fixed(4), pa.binary(4)), {}
    yield "interval", pa.array(fixed(12), pa.binary(12)), converted(21)


def write(path: Path, values: pa.Array, edit: Edit, *, dictionary: bool) -> None:
    """Write a file of one column of the field id 1. Values come three times, so that a dictionary pays."""
    column = pa.concat_arrays([values, pa.nulls(1, values.type), values, values])
    pq.write_table(pa.table({"c": column}), path, use_dictionary=dictionary, store_schema=False)

    def change(footer: Struct) -> None:
        element = footer[2][1][1][1]
        for number in (6, 7, 8, 10):
            element.pop(number, None)
        element.update({**edit, 9: (5, 1)})

    edit_footer(path, change)


@dataclass
class Pair:
    """A stored type, a column's that it may be read as, and what Arrow and Iceberg's readers read, each if it does."""

    stored: str
    type: str
    arrow: list[Any]
    is_taken: bool
    readers: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.stored} as {self.type}"

    @property
    def differs(self) -> bool:
        return any(values != self.arrow for values in self.readers.values())


def ask(readers: JavaObject, path: Path, file_format: str, stored: str, field_id: int = 1) -> Iterator[Pair]:
    """Ask all readers for a column, as every type for which Arrow or an index would take it."""
    schemas: list[Schema] = []
    pairs: list[Pair] = []
    size = path.stat().st_size
    rows = orc.ORCFile(path).nrows if file_format == "ORC" else pq.read_metadata(path).num_rows
    some = Reading(Schema(NestedField(field_id, "c", "long")))
    with open_data_file(IO, DataFile(str(path), size, rows, (), file_format), some) as opened:
        assert isinstance(opened, OpenParquetFile | OpenOrcFile)
        stored_values = pa.concat_arrays(list(opened.read_column(0, field_id)))
        for column_type in TYPES:
            schema = Schema(NestedField(field_id, "c", column_type))
            try:
                arrow = values_of(stored_values, column_type)
            except (UnsupportedError, pa.ArrowException):
                # No index can be of that.
                continue
            try:
                replace(opened, reading=Reading(schema)).check_type(field_id)
                is_taken = True
            except UnsupportedError:
                is_taken = False
            schemas.append(schema)
            pairs.append(Pair(stored, str(column_type), arrow, is_taken))
            if file_format == "PARQUET":
                check_scan(path, schema, pairs[-1])
    lines = iter(
        readers.readAll(str(path), file_format, "\n".join(one.model_dump_json() for one in schemas)).split("\n")
    )
    for pair in pairs:
        for reader, line in zip(("generic", "row", "batch"), lines, strict=False):
            if not line.startswith("!"):
                pair.readers[reader] = [value_of_text(text) for text in line.split("\t")]
    return iter(pairs)


def check_scan(path: Path, schema: Schema, pair: Pair) -> None:
    """A scan without Spark reads what Arrow reads, or refuses; it refuses whatever is not indexed."""
    with open_parquet(IO, str(path)) as parquet:
        columns = FileColumns.of(Reading(schema), parquet, {}, str(path))
        try:
            (own,) = columns.fields_of([1])
            table = parquet.reader.read_row_group(0, column_indices=list(own.leaves))
            found = columns.project(table, schema, schema_to_pyarrow(schema, include_field_ids=False)).column(0)
        except PuffinIndexError:
            return
    assert pair.is_taken, pair.name
    assert values_of(found, schema.find_type(1)) == pair.arrow, pair.name


def values_of(values: pa.Array | pa.ChunkedArray, column_type: IcebergType) -> list[Any]:
    """The values of keys, as `value_of_text` has them."""
    value_type = value_type_of(column_type)
    column = column_of(values, value_type)
    valid = [True] * column.row_count if column.valid is None else column.valid.tolist()
    if value_type.is_decimal or value_type.is_floating:
        mask = None if column.valid is None else ~column.valid
        is_integer = value_type.domain == "int64"
        keys = pa.array(column.int_keys, pa.int64(), mask=mask) if is_integer else column.bytes_keys
        plain = arrow_of_keys(keys, value_type, schema_to_pyarrow(column_type)).to_pylist()
        return [one if one is None or value_type.is_decimal else repr(one + 0.0) for one in plain]
    keys = column.int_keys.tolist() if value_type.domain == "int64" else column.bytes_keys.to_pylist()
    plain = [one.encode() if isinstance(one, str) else one for one in keys]
    return [one if is_valid else None for one, is_valid in zip(plain, valid, strict=True)]


def value_of_text(text: str) -> Any:
    match text[:2]:
        case "i:":
            return int(text[2:])
        case "f:":
            return repr(float(text[2:].replace("Infinity", "inf")) + 0.0)
        case "d:":
            return Decimal(text[2:])
        case "b:":
            # What Spark shows as a UUID may be none.
            try:
                return bytes.fromhex(text[2:])
            except ValueError:
                return text
        case _:
            assert text == "null"
            return None


@pytest.fixture(scope="module")
def readers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> JavaObject:
    source = Path(__file__).with_name("IcebergReaders.java")
    return object_of(spark, source, tmp_path_factory.mktemp("java"))


def check(pairs: list[Pair]) -> set[str]:
    """Check that nothing is taken that a reader gives other values of; return what some reader does."""
    wrong = {f"{pair.name}: {pair.readers}, not {pair.arrow}" for pair in pairs if pair.is_taken and pair.differs}
    assert wrong == set()
    # No reader takes texts for UUIDs, and a build fails for them.
    assert {pair.name for pair in pairs if pair.is_taken and not pair.readers} <= {"binary as uuid"}
    return {pair.name for pair in pairs if pair.differs}


def test_no_parquet_column_is_taken_that_iceberg_reads_otherwise(readers: JavaObject, tmp_path: Path) -> None:
    pairs: list[Pair] = []
    for dictionary in (False, True):
        for number, (name, values, edit) in enumerate(stored_columns()):
            path = tmp_path / f"{number}-{dictionary}.parquet"
            write(path, values, edit, dictionary=dictionary)
            pairs += ask(readers, path, "PARQUET", name)
        path = tmp_path / f"int96-{dictionary}.parquet"
        moments = pa.array([datetime(2023, 1, 2, 3, 4, 5, 678), datetime(1500, 1, 1), None] * 3, pa.timestamp("us"))
        numbered = pa.schema([pa.field("c", moments.type, metadata={"PARQUET:field_id": "1"})])
        pq.write_table(
            pa.table([moments], schema=numbered),
            path,
            use_dictionary=dictionary,
            use_deprecated_int96_timestamps=True,
            store_schema=False,
        )
        pairs += ask(readers, path, "PARQUET", "int96")

    otherwise = check(pairs)

    # Readers that would agree with anything would be no referees.
    assert otherwise >= {
        "timestamp(millis, utc) as timestamp",
        "timestamp(nanos, local) as timestamp",
        "16 bytes as string",
        "int32 decimal(9,1) as decimal(9, 2)",
    }
    taken = {pair.name for pair in pairs if pair.is_taken}
    assert taken >= {
        "int(8) as long",
        "int96 as timestamptz",
        "fixed(16) as uuid",
        "float as double",
        "old string as string",
    }


ORC = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "date", "binary", "string", "char(5)"),
    *("varchar(5)", "timestamp", "timestamp with local time zone"),
    *("decimal(9,1)", "decimal(9,2)", "decimal(18,2)", "decimal(38,2)"),
)


def test_no_orc_column_is_taken_that_iceberg_misreads(spark: SparkSession, readers: JavaObject, tmp_path: Path) -> None:
    zones = jvm_of(spark).java.util.TimeZone
    before = zones.getDefault()
    pairs: list[Pair] = []
    try:
        zones.setDefault(zones.getTimeZone("America/New_York"))
        path = tmp_path / "types.orc"
        readers.writeOrc(str(path), f"struct<{','.join(f'c{at}:{one}' for at, one in enumerate(ORC))}>")
        for at, name in enumerate(ORC, 1):
            pairs += ask(readers, path, "ORC", name, at)
    finally:
        zones.setDefault(before)

    assert check(pairs) >= {"char(5) as string"}
    assert {pair.name for pair in pairs if pair.is_taken} >= {"tinyint as int", "varchar(5) as string"}
