"""Keys become the values that they were made of."""

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.aggregates.partial import key_array
from puffin_index.keys.arrow_keys import arrow_of_keys, with_scale
from tests.puffin_index.kinds.columns import ARROW_TYPES, arrow_of, samples


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
