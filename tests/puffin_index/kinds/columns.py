"""Random columns of every type and random leaf tests on them, with an oracle that looks at one row after the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from pyroaring import BitMap

from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import Column
from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import ValueType, value_type_named
from puffin_index.keys.values import key_of

# A value as PyIceberg's literals have it: days, microseconds, Decimal, str, bytes, ...
Value: TypeAlias = Any

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
# Years 1 to 9999, which Arrow's casts between units can hold as well.
DAYS = st.integers(-719_162, 2_932_896)
MICROS = st.integers(-(2**55), 2**55)

ARROW_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(9,2)": pa.decimal128(9, 2),
    "decimal(18,0)": pa.decimal128(18, 0),
    "decimal(38,10)": pa.decimal128(38, 10),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "string": pa.string(),
    "uuid": pa.binary(16),
    "fixed[5]": pa.binary(5),
    "binary": pa.binary(),
}

VALUES: dict[str, st.SearchStrategy[Value]] = {
    "boolean": st.booleans(),
    "int": st.integers(-3, 3) | INT32,
    "long": st.integers(-3, 3) | INT64 | st.sampled_from((-(2**63), -(2**63) + 1, 2**63 - 1)),
    "float": st.floats(width=32) | st.sampled_from((0.0, -0.0)),
    "double": st.floats() | st.sampled_from((0.0, -0.0)),
    "decimal(9,2)": st.decimals(-(10**7) + 1, 10**7 - 1, places=2),
    "decimal(18,0)": st.decimals(-(10**18) + 1, 10**18 - 1, places=0),
    "decimal(38,10)": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda unscaled: decimal_of(unscaled, 10)),
    "date": DAYS,
    "time": st.integers(0, 86_399_999_999),
    "timestamp": MICROS,
    "timestamptz": MICROS,
    "timestamp_ns": INT64,
    "timestamptz_ns": INT64,
    "string": st.text("aé😀\0", max_size=5) | st.text(max_size=40),
    "uuid": st.binary(min_size=16, max_size=16),
    "fixed[5]": st.binary(min_size=5, max_size=5),
    "binary": st.binary(max_size=6) | st.binary(max_size=100),
}


def decimal_of(unscaled: int, scale: int) -> Decimal:
    """The decimal of all its digits, whatever the context's precision."""
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -scale))


def arrow_of(values: Sequence[Value | None], type_name: str) -> pa.Array:
    """The values as Arrow gives them from a file of that column."""
    arrow_type = ARROW_TYPES[type_name]
    if pa.types.is_temporal(arrow_type):
        width = pa.int32() if pa.types.is_date32(arrow_type) else pa.int64()
        return pa.array(values, width).view(arrow_type)
    return pa.array(values, arrow_type, from_pandas=False)


@dataclass(frozen=True)
class Sample:
    """A column three times: as values, as keys of single values, and as the keys of the whole Arrow array."""

    value_type: ValueType
    values: list[Value | None]
    keys: list[Key | None]
    column: Column


def sample_of(values: Sequence[Value | None], type_name: str) -> Sample:
    value_type = value_type_named(type_name)
    keys = [None if value is None else key_of(value, value_type) for value in values]
    return Sample(value_type, list(values), keys, column_of(arrow_of(values, type_name), value_type))


@st.composite
def samples(draw: st.DrawFn, type_names: Sequence[str] = tuple(VALUES)) -> Sample:
    """A column of few or many distinct values, in any order, in runs, or with rows beyond the first 65,536."""
    type_name = draw(st.sampled_from(type_names))
    pool = draw(st.lists(VALUES[type_name], min_size=1, max_size=12))
    choice = st.sampled_from(pool) | st.none() if draw(st.booleans()) else st.sampled_from(pool)
    values = draw(st.lists(choice, min_size=1, max_size=30))
    values = [value for value in values for _ in range(draw(st.sampled_from((1, 1, 1, 9))))]
    if draw(st.sampled_from([False] * 19 + [True])):
        values += [draw(choice)] * 65_530 + values
    return sample_of(values, type_name)


@st.composite
def leaf_tests(draw: st.DrawFn, sample: Sample) -> LeafTest:
    """A test about keys of the column, and others."""
    known = sorted({key for key in sample.keys if key is not None})
    other = VALUES[sample.value_type.name].map(lambda value: key_of(value, sample.value_type))
    return draw(tests_of(st.sampled_from(known) | other if known else other))


def tests_of(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[LeafTest]:
    """A test of any form about some keys."""
    bounds = st.none() | keys
    return st.one_of(
        st.builds(NullTest, st.booleans()),
        st.builds(SetTest, st.sets(keys, max_size=5).map(sorted).map(tuple), st.booleans()),
        st.builds(RangeTest, bounds, bounds, st.booleans(), st.booleans(), st.booleans()),
    )


def keys_of(column: Column) -> list[Key | None]:
    keys = column.keys.tolist() if isinstance(column.keys, np.ndarray) else column.bytes_keys.to_pylist()
    valid = [True] * column.row_count if column.valid is None else column.valid.tolist()
    return [key if is_valid else None for key, is_valid in zip(keys, valid, strict=True)]


def holds(test: LeafTest, key: Any) -> bool:
    """Whether a key, None for NULL, satisfies a test."""
    match test:
        case NullTest(is_null):
            return is_null is (key is None)
        case SetTest(keys, negated):
            return key is not None and (key in keys) is not negated
        case RangeTest(low, high):
            if key is None:
                return False
            above = low is None or key > low or (test.low_inclusive and key == low)
            below = high is None or key < high or (test.high_inclusive and key == high)
            return (above and below) is not test.negated


def rows_of(sample: Sample, test: LeafTest) -> BitMap:
    return BitMap([row for row, key in enumerate(sample.keys) if holds(test, key)])
