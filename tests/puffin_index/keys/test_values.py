"""Keys of values: their order is Spark's, a whole Arrow column gives the same ones, and they lead back to values."""

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from pyiceberg.types import DecimalType, ListType, StructType, UnknownType

from puffin_index.errors import UnsupportedError
from puffin_index.keys.arrow_keys import arrow_of_keys, column_of, key_array, with_scale
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import Key
from puffin_index.keys.value_types import value_type_named, value_type_of
from puffin_index.keys.values import key_of, value_of
from tests.conftest import amount
from tests.puffin_index.kinds.columns import ARROW_TYPES, VALUES, Sample, arrow_of, keys_of, samples

NEGATIVE_NAN = np.array([0xFFF8_0000_0000_0001], np.uint64).view(np.float64)
STRING, LONG, DOUBLE, FLOAT = (value_type_named(name) for name in ("string", "long", "double", "float"))


@settings(max_examples=amount(20, 500), deadline=None)
@given(samples())
def test_a_column_has_the_keys_of_its_values(sample: Sample) -> None:
    assert keys_of(sample.column) == sample.keys


def spark_order(value: Any) -> tuple[bool, Any]:
    """Something that sorts as Spark does: NaN after everything else, both zeros equal."""
    if isinstance(value, float):
        return math.isnan(value), 0.0 if math.isnan(value) else value
    return False, value.encode() if isinstance(value, str) else value


@settings(max_examples=amount(60, 1500), deadline=None)
@given(st.data())
def test_keys_compare_as_spark_compares_values(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(VALUES)))
    one, other = data.draw(VALUES[name]), data.draw(VALUES[name])
    keys: Any = key_of(one, value_type_named(name)), key_of(other, value_type_named(name))
    assert (keys[0] < keys[1]) == (spark_order(one) < spark_order(other))
    assert (keys[0] == keys[1]) == (spark_order(one) == spark_order(other))


@settings(max_examples=amount(40, 1000), deadline=None)
@given(st.data())
def test_a_key_leads_back_to_a_value_with_that_key(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([name for name in VALUES if not name.endswith("_ns")]))
    value_type = value_type_named(name)
    key = key_of(data.draw(VALUES[name]), value_type)
    value = value_of(key, value_type)
    if not (isinstance(value, str) and name != "string"):  # a year that Python's own types cannot hold
        assert key_of(value, value_type) == key


def test_a_float_has_the_key_of_the_double_that_it_widens_to() -> None:
    floats = np.array([0.1, -2.5, 1e-45, np.inf, np.nan, -0.0], np.float32)
    as_float = keys_of(column_of(pa.array(floats, from_pandas=False), FLOAT))
    as_double = keys_of(column_of(pa.array(floats, from_pandas=False), DOUBLE))
    assert as_float == as_double == [key_of(float(value), DOUBLE) for value in floats]
    assert key_of(0.1, FLOAT) == as_float[0] != key_of(0.1, DOUBLE)


@pytest.mark.parametrize(
    ("value", "type_name", "expected"),
    [
        (True, "boolean", True),
        (7, "int", 7),
        (-(2**63), "long", -(2**63)),
        (1.5, "double", 1.5),
        (18_262, "date", date(2020, 1, 1)),
        (date(2020, 1, 1), "date", date(2020, 1, 1)),
        (3_600_000_001, "time", time(1, 0, 0, 1)),
        (time(1, 0, 0, 1), "time", time(1, 0, 0, 1)),
        (1_577_836_800_000_001, "timestamp", datetime(2020, 1, 1, 0, 0, 0, 1)),
        (1_577_836_800_000_001, "timestamptz", datetime(2020, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        (datetime(2020, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), "timestamptz", datetime(2020, 1, 1, tzinfo=UTC)),
        (1_577_836_800_000_000_001, "timestamp_ns", "2020-01-01T00:00:00.000000001"),
        (1_577_836_800_000_000_001, "timestamptz_ns", "2020-01-01T00:00:00.000000001+00:00"),
        (datetime(2020, 1, 1), "timestamp_ns", "2020-01-01T00:00:00.000000000"),
        (Decimal("-12.30"), "decimal(9,2)", Decimal("-12.30")),
        (Decimal(5), "decimal(9,2)", Decimal("5.00")),
        (Decimal("-99999999999999999999999999999999999.999"), "decimal(38,3)", Decimal("-" + "9" * 35 + ".999")),
        ("größe", "string", "größe"),
        (UUID(int=5), "uuid", UUID(int=5)),
        (UUID(int=5).bytes, "uuid", UUID(int=5)),
        (str(UUID(int=5)), "uuid", UUID(int=5)),
        (b"\0\xff", "binary", b"\0\xff"),
        (b"abcde", "fixed[5]", b"abcde"),
    ],
)
def test_values_go_to_keys_and_come_back_as_they_print_well(value: object, type_name: str, expected: object) -> None:
    value_type = value_type_named(type_name)
    found = value_of(key_of(value, value_type), value_type)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("key", "type_name", "expected"),
    [(10**7, "date", "29349-01-26"), (253_402_300_800_000_001, "timestamp", "10000-01-01T00:00:00.000001")],
)
def test_temporal_keys_beyond_pythons_years_are_told_as_text(key: int, type_name: str, expected: str) -> None:
    assert value_of(key, value_type_named(type_name)) == expected


@pytest.mark.parametrize(
    ("value", "type_name"),
    [
        (2**63, "long"),
        (True, "long"),
        (1, "boolean"),
        ("1", "int"),
        (1.5, "int"),
        (10**400, "double"),
        (1e300, "float"),
        (True, "double"),
        ("x", "double"),
        (Decimal("0.001"), "decimal(9,2)"),
        (Decimal("NaN"), "decimal(9,2)"),
        (Decimal("Infinity"), "decimal(38,2)"),
        (Decimal(10) ** 60, "decimal(38,2)"),
        (Decimal(2**63), "decimal(18,0)"),
        (1.5, "decimal(9,2)"),
        ("\ud800", "string"),
        (b"x", "string"),
        ("x", "binary"),
        ("not one", "uuid"),
        (datetime(2020, 1, 1), "date"),
        (date(2020, 1, 1), "timestamp"),
        (None, "long"),
    ],
)
def test_a_value_of_another_type_or_out_of_range_has_no_key(value: object, type_name: str) -> None:
    with pytest.raises(UnsupportedError, match=type_name.replace("(", r"\(").replace(")", r"\)")):
        key_of(value, value_type_named(type_name))


def test_both_spellings_of_a_decimal_are_one_type() -> None:
    assert value_type_named("decimal(38, 2)") == value_type_named("decimal(38,2)") == value_type_of(DecimalType(38, 2))


@pytest.mark.parametrize("iceberg_type", [UnknownType(), StructType(), ListType(1, "long")], ids=str)
def test_types_without_keys_are_refused_by_name(iceberg_type: object) -> None:
    with pytest.raises(UnsupportedError, match="cannot be indexed"):
        value_type_of(iceberg_type)


@pytest.mark.parametrize("name", ["", "decimal(39,2)", "decimal(0,0)", "decimal(5,6)", "fixed[]", "geometry", "varint"])
def test_unknown_type_names_are_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedError, match="cannot be indexed"):
        value_type_named(name)


@pytest.mark.parametrize(
    ("array", "type_name", "expected"),
    [
        (pa.array([1, None], pa.int8()), "long", [1, None]),
        (pa.array([1.5, None], pa.float32()), "double", [key_of(1.5, DOUBLE), None]),
        (pa.array(NEGATIVE_NAN, from_pandas=False), "double", [key_of(math.nan, DOUBLE)]),
        (pa.array([Decimal("1.5")], pa.decimal128(5, 1)), "decimal(9,2)", [150]),
        (pa.array([Decimal("1.5")], pa.decimal128(9, 2)), "decimal(38,2)", [(150 + 2**127).to_bytes(16, "big")]),
        (pa.array([Decimal("-1.5")], pa.decimal256(40, 2)), "decimal(9,2)", [-150]),
        (pa.array([date(2020, 1, 1)], pa.date64()), "date", [18_262]),
        (pa.array([5], pa.int32()).view(pa.time32("ms")), "time", [5000]),
        (pa.array([5000], pa.int64()).view(pa.time64("ns")), "time", [5]),
        (pa.array([5], pa.timestamp("s")), "timestamp", [5_000_000]),
        (pa.array([5], pa.timestamp("ms", "Europe/Berlin")), "timestamptz", [5000]),
        (pa.array([5000], pa.timestamp("ns", "UTC")), "timestamptz", [5]),
        (pa.array([5], pa.timestamp("us")), "timestamp_ns", [5000]),
        (pa.array(["a", None], pa.large_string()), "string", [b"a", None]),
        (pa.array(["a", None], pa.string_view()), "string", [b"a", None]),
        (pa.array(["a", None, "a"]).dictionary_encode(), "string", [b"a", None, b"a"]),
        (pa.array([b"a", None], pa.binary()), "string", [b"a", None]),
        (pa.array([b"a", None], pa.binary_view()), "binary", [b"a", None]),
        (pa.array([UUID(int=1).bytes], pa.uuid()), "uuid", [UUID(int=1).bytes]),
        (pa.chunked_array([[1], [None, 3]], pa.int32()), "int", [1, None, 3]),
        (pa.chunked_array([], pa.int32()), "int", []),
        (pa.array([7, 1, None, 3])[1:3], "long", [1, None]),
        (pa.array(["x", "a", None, "b"])[1:4], "string", [b"a", None, b"b"]),
        (pa.array([True, False, None])[1:], "boolean", [0, None]),
        (pa.array([Decimal(9), Decimal(1), None], pa.decimal128(38, 0))[1:], "decimal(18,0)", [1, None]),
        (pa.nulls(2), "long", [None, None]),
        (pa.nulls(2, pa.int64()), "string", [None, None]),
    ],
)
def test_keys_come_from_any_arrow_type_of_values(array: pa.Array, type_name: str, expected: list[Key | None]) -> None:
    assert keys_of(column_of(array, value_type_named(type_name))) == expected


@pytest.mark.parametrize(
    ("array", "type_name"),
    [
        (pa.array(["1"]), "long"),
        (pa.array([1]), "string"),
        (pa.array(["1"]), "binary"),
        (pa.array([b"1234"], pa.binary(4)), "uuid"),
        (pa.array([1]), "double"),
        (pa.array([1.0]), "decimal(9,2)"),
        (pa.array([1.0]), "decimal(38,2)"),
        (pa.array([2**63], pa.uint64()), "long"),
        (pa.array([5], pa.timestamp("ns")), "timestamp"),
        (pa.array([2**62], pa.timestamp("s")), "timestamp_ns"),
        (pa.array([Decimal("0.001")]), "decimal(9,2)"),
        (pa.array([[1]]), "long"),
    ],
)
def test_arrow_values_that_are_not_the_columns_are_refused_with_both_types(array: pa.Array, type_name: str) -> None:
    with pytest.raises(UnsupportedError) as error:
        column_of(array, value_type_named(type_name))
    assert type_name in str(error.value)
    assert str(array.type) in str(error.value)


def test_what_lies_under_a_null_has_no_part_in_anything() -> None:
    hidden = np.array([7, -(2**63), 3], np.int64)
    array = pa.Array.from_buffers(pa.int64(), 3, [pa.py_buffer(b"\5"), pa.py_buffer(hidden)])
    assert array.to_pylist() == [7, None, 3]
    ordered = SortedColumn(column_of(array, LONG))
    assert ordered.keys.tolist() == [3, 7]
    assert ordered.rows.tolist() == [2, 0]


@given(st.data())
def test_values_come_back(data: st.DataObject) -> None:
    sample = data.draw(samples())
    name = sample.value_type.name
    found = arrow_of_keys(key_array(sample.column), sample.value_type, ARROW_TYPES[name])
    expected = arrow_of(sample.values, name)
    assert found.type == expected.type
    assert [_same(value) for value in found.to_pylist()] == [_same(value) for value in expected.to_pylist()]


def _same(value: object) -> object:
    # Both zeros have one key, and so have all NaNs.
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def test_a_number_of_too_many_digits_is_refused() -> None:
    numbers = pa.array([123_456], pa.decimal128(38, 0))
    assert str(with_scale(numbers, pa.decimal128(6, 2))[0]) == "1234.56"
    with pytest.raises(pa.ArrowInvalid):
        with_scale(numbers, pa.decimal128(5, 2))
