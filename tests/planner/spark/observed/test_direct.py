"""The second opinion on filters of Iceberg's: by Spark's rules, and silent where these are not certain."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DateType, DecimalType, DoubleType, FloatType, LongType, NestedField, StringType

from planner.spark.audit.direct import DirectTest

_TYPES = [LongType(), FloatType(), DoubleType(), StringType(), DecimalType(9, 2), DateType(), BinaryType()]
_NAMES = ["i", "f", "d", "s", "m", "dt", "b"]
_SCHEMA = Schema(*(NestedField(at, name, kind) for at, (name, kind) in enumerate(zip(_NAMES, _TYPES, strict=True), 1)))
_ROWS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int64(), [1, 5, None, -3]),
    "f": (pa.float32(), [0.1, math.nan, None, -0.0]),
    "d": (pa.float64(), [math.inf, math.nan, None, 0.0]),
    "s": (pa.string(), ["a%", "ab", None, ""]),
    "m": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-2.00"), None, Decimal(0)]),
    "dt": (pa.int32(), [19_723, 0, None, -1]),
    "b": (pa.binary(), [b"\1", b"01", None, b""]),
}


def _certain(filter_: dict[str, Any]) -> list[bool]:
    arrays = {name: pa.array(values, kind) for name, (kind, values) in _ROWS.items()}
    arrays["dt"] = arrays["dt"].cast(pa.date32())
    test = DirectTest((json.dumps(filter_),), (), _SCHEMA)
    found: list[bool] = test.certain(lambda field_id: arrays[_NAMES[field_id - 1]], 4).tolist()
    return found


@pytest.mark.parametrize(
    ("filter_", "rows"),
    [
        ({"type": "eq", "term": "i", "value": 5}, [1]),
        ({"type": "not-eq", "term": "i", "value": 5}, [0, 3]),
        ({"type": "not", "child": {"type": "gt", "term": "i", "value": 1}}, [0, 3]),
        ({"type": "in", "term": "i", "values": [5, -3]}, [1, 3]),
        ({"type": "not-in", "term": "i", "values": [5, -3]}, [0]),
        ({"type": "is-null", "term": "i"}, [2]),
        ({"type": "not-null", "term": "s"}, [0, 1, 3]),
        ({"type": "eq", "term": "f", "value": 0.1}, [0]),
        ({"type": "eq", "term": "f", "value": 0.0}, [3]),
        ({"type": "gt", "term": "d", "value": 1.0}, [0, 1]),
        ({"type": "lt-eq", "term": "d", "value": 1.0}, [3]),
        ({"type": "is-nan", "term": "d"}, [1]),
        ({"type": "starts-with", "term": "s", "value": "a%"}, [0]),
        ({"type": "not-starts-with", "term": "s", "value": "a"}, [3]),
        ({"type": "eq", "term": "m", "value": "1.50"}, [0]),
        ({"type": "gt-eq", "term": "dt", "value": "2024-01-01"}, [0]),
        # Bytes cross as text; a literal that is out of range becomes a constant, which is wrong for NaN.
        ({"type": "eq", "term": "b", "value": "01"}, []),
        ({"type": "lt", "term": "f", "value": 1e300}, []),
        ({"type": "eq", "term": "nowhere", "value": 1}, []),
    ],
)
def test_a_filter_is_certain_of_these_rows(filter_: dict[str, Any], rows: list[int]) -> None:
    assert [row for row, is_certain in enumerate(_certain(filter_)) if is_certain] == rows


def test_junctions_join_what_is_certain() -> None:
    five, null = {"type": "eq", "term": "i", "value": 5}, {"type": "is-null", "term": "s"}
    unclear = {"type": "eq", "term": "b", "value": "01"}
    assert _certain({"type": "or", "left": five, "right": null}) == [False, True, True, False]
    assert _certain({"type": "or", "left": five, "right": unclear}) == [False, True, False, False]
    assert not any(_certain({"type": "and", "left": five, "right": unclear}))
    assert not any(_certain({"type": "not", "child": {"type": "or", "left": five, "right": unclear}}))
