"""Paimon reads what we write, for every type that Paimon's index has."""

import math
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from pyroaring import BitMap

from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.values import key_of
from puffin_index.kinds.base import Payload
from puffin_index.kinds.registry import KINDS
from tests.paimon.referee import Paimon
from tests.puffin_index.kinds.columns import Sample, rows_of, sample_of
from tests.puffin_index.kinds.counting import open_payload

pytestmark = pytest.mark.paimon

BITMAP_TYPES = ["boolean", "int", "long", "float", "double", "date", "timestamp", "timestamptz", "string"]
BSI_TYPES = ["int", "long", "date", "timestamp", "timestamptz", "decimal(9,2)"]
BLOOM_TYPES = ["int", "long", "float", "double", "date", "timestamp", "timestamptz", "string", "binary"]
SHAPES = ["one row", "one null", "few values", "many values", "single rows", "runs", "extremes", "only nulls", "blocks"]

EXTREMES: dict[str, list[Any]] = {
    "boolean": [False, True],
    "int": [-(2**31), -1, 0, 1, 2**31 - 1],
    # Paimon cannot store the least long in bit slices, and neither do we with this blob type.
    "long": [-(2**63) + 1, -1, 0, 1, 2**63 - 1],
    "float": [-math.inf, -3.4028234663852886e38, 0.0, 1.401298464324817e-45, math.inf, math.nan],
    "double": [-math.inf, -1.7976931348623157e308, 0.0, 5e-324, math.inf, math.nan],
    "date": [-719_162, -1, 0, 1, 2_932_896],
    "timestamp": [-62_135_596_800_000_000, -1, 0, 1, 253_402_300_799_999_999],
    "timestamptz": [-62_135_596_800_000_000, -1, 0, 1, 253_402_300_799_999_999],
    "decimal(9,2)": [Decimal("-9999999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("9999999.99")],
    "string": ["", "\0", "a", "ab", "\x7f", "é", "\uffff", "😀"],
    "binary": [b"", b"\0", b"a", b"\x7f", b"\x80", b"\xff" * 40],
}


def _value(type_name: str, number: int) -> Any:
    """A value that stands for a number: distinct numbers have distinct values, but for booleans."""
    match type_name:
        case "boolean":
            return number % 2 == 0
        case "float":
            return float(np.float32(number / 4))
        case "double":
            return number / 7
        case "decimal(9,2)":
            return Decimal(number).scaleb(-2)
        case "string":
            return f"value {number} é"
        case "binary":
            return number.to_bytes(8, "big", signed=True) + b"x" * (abs(number) % 40)
        case "timestamp" | "timestamptz":
            return number * 1_000_003
        case _:
            return number


def _values(type_name: str, shape: str) -> list[Any]:
    chance = random.Random(f"{type_name} {shape}")
    match shape:
        case "one row":
            return [_value(type_name, 5)]
        case "one null":
            return [_value(type_name, 5), None, _value(type_name, 5), _value(type_name, -6)]
        case "only nulls":
            return [None] * 3
        case "extremes":
            return [chance.choice([*EXTREMES[type_name], None]) for _ in range(60)]
        case "runs":
            return [_value(type_name, row // 37 % 5 - 2) if row // 50 % 4 else None for row in range(1500)]
        case "single rows":
            return [_value(type_name, number) for number in chance.sample(range(-2000, 2000), 1500)]
        case "blocks":
            return [_value(type_name, row % 3 * (row // 60_000)) if row % 11 == 0 else None for row in range(140_000)]
        case _:
            limit = 3 if shape == "few values" else 900
            drawn = [chance.randint(-limit, limit) for _ in range(2000)]
            return [None if chance.random() < 0.1 else _value(type_name, number) for number in drawn]


def _keys(sample: Sample) -> list[Key]:
    """Some keys that are there, the first and last among them, and some that are not."""
    known: list[Any] = sorted({key for key in sample.keys if key is not None})
    chosen = [*known[:2], *known[len(known) // 2 : len(known) // 2 + 2], *known[-2:]]
    others = [_value(sample.value_type.name, number) for number in (4711, -4711, 1)]
    return [*chosen, *(key_of(value, sample.value_type) for value in others)]


def _set_tests(sample: Sample) -> list[LeafTest]:
    keys: Sequence[Any] = _keys(sample)
    many: Any = tuple(sorted(set(keys)))
    return [NullTest(True), NullTest(False), SetTest(many), *(SetTest((key,)) for key in keys)]


def _range_tests(sample: Sample) -> list[LeafTest]:
    bounds = [RangeTest(key, None, low_inclusive=inclusive) for key in _keys(sample) for inclusive in (True, False)]
    bounds += [RangeTest(None, key, high_inclusive=inclusive) for key in _keys(sample) for inclusive in (True, False)]
    return [*bounds, SetTest(tuple(sorted(set(_keys(sample)))), negated=True)]


def _check(paimon: Paimon, kind: str, sample: Sample, payload: Payload, tests: Sequence[LeafTest]) -> None:
    for test in tests:
        expected = rows_of(sample, test)
        found = paimon.rows(kind, sample.value_type.name, bytes(payload.data), test)
        assert found in (expected, bool(expected))


@pytest.mark.one_of(17)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("type_name", BITMAP_TYPES)
def test_paimon_reads_bitmaps(paimon: Paimon, type_name: str, shape: str) -> None:
    sample = sample_of(_values(type_name, shape), type_name)
    _check(paimon, "bitmap", sample, KINDS["bitmap"].build(SortedColumn(sample.column), {}), _set_tests(sample))


@pytest.mark.parametrize("size", ["64 b", "1 kb", "1 mb"])
@pytest.mark.parametrize("type_name", ["long", "string"])
def test_paimon_reads_bitmap_blocks_of_any_size(paimon: Paimon, type_name: str, size: str) -> None:
    sample = sample_of(_values(type_name, "many values"), type_name)
    payload = KINDS["bitmap"].build(SortedColumn(sample.column), {"index-block-size": size})
    _check(paimon, "bitmap", sample, payload, _set_tests(sample))


@pytest.mark.one_of(7)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("type_name", BSI_TYPES)
def test_paimon_reads_bit_slices(paimon: Paimon, type_name: str, shape: str) -> None:
    sample = sample_of(_values(type_name, shape), type_name)
    payload = KINDS["bsi"].build(SortedColumn(sample.column), {"compression": "none"})
    assert payload.blob_type == "paimon-bsi-v1"
    _check(paimon, "bsi", sample, payload, [*_set_tests(sample), *_range_tests(sample)])


def test_bit_slices_are_the_same_bytes_where_the_least_number_is_zero(paimon: Paimon) -> None:
    """Paimon's writer starts from 0 when it looks for the least number, so that elsewhere our slices are fewer."""
    for values in ([0, 5, None, 1023, 5], [0] * 70_000, [row * 7 % 1000 for row in range(70_000)]):
        sample = sample_of(values, "long")
        assert bytes(KINDS["bsi"].build(SortedColumn(sample.column), {"compression": "none"}).data) == paimon.write(
            "bsi", "long", values, {}
        )


@pytest.mark.one_of(5)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("type_name", BLOOM_TYPES)
def test_bloom_filters_are_the_same_bytes(paimon: Paimon, type_name: str, shape: str) -> None:
    sample = sample_of(_values(type_name, shape), type_name)
    for options in ({"items": "1000", "fpp": "0.1"}, {"items": "77", "fpp": "0.003"}):
        payload = KINDS["bloom"].build(SortedColumn(sample.column), options)
        theirs = paimon.write("bloom", type_name, sample.values, options)
        assert bytes(payload.data) == theirs
        index, _ = open_payload("bloom", payload, sample.value_type, len(sample.values))
        for key in _keys(sample):
            test = SetTest((key,))
            expected = paimon.rows("bloom", type_name, theirs, test)
            assert index.evaluate(test).rows == (BitMap(range(len(sample.values))) if expected else BitMap())
