"""Partition values: whatever a writer makes of a matching row, the row's file stays; and other files of a table go."""

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField

from planner.clock import Clock
from planner.condition.tree.nodes import Leaf
from planner.snapshot.file_bounds import may_match
from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import value_type_named
from puffin_index.keys.values import key_of
from puffin_index.storage.arrays import Flags
from tests.conftest import amount
from tests.planner.laws.java_transforms import written_values
from tests.puffin_index.kinds.columns import holds

SECOND, YEAR = 10**6, 31_556_952 * 10**6
PERIODS: list[Transform[Any, Any]] = [YearTransform(), MonthTransform(), DayTransform(), HourTransform()]
WIDTHS = [1, 4, 7, 10, 2**30 + 1, 2**31 - 1]


def whole(bits: int, *units: int) -> st.SearchStrategy[int]:
    """Whole numbers: the ends of a type, and what lies near to multiples of some units, but for a second or so."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    near = st.builds(
        lambda unit, times, more: unit * times + more,
        st.sampled_from((1, *units)),
        st.one_of(st.integers(-5, 5), st.integers(-300_000, 300_000)),
        st.sampled_from([-SECOND, -1, 0, 1, SECOND - 1, SECOND, 1000 * SECOND - 1]) | st.integers(-3, 3),
    )
    ends = st.sampled_from([low, high]).flatmap(lambda end: st.integers(-2, 2).map(lambda more: end + more))
    return st.one_of(ends, near, st.integers(low, high)).map(lambda number: min(max(number, low), high))


HOURS = [3_600 * SECOND, 2**32 * 3_600 * SECOND // 300_000]
TEXTS = st.one_of(st.text(st.sampled_from("ab\ufffd😀"), max_size=4).map(str.encode), st.binary(max_size=4))
COLUMNS: dict[str, tuple[st.SearchStrategy[Any], list[Transform[Any, Any]]]] = {
    "int": (whole(32), [*map(TruncateTransform, WIDTHS), BucketTransform(5)]),
    "long": (whole(64), [*map(TruncateTransform, WIDTHS), BucketTransform(5)]),
    "date": (whole(32, 365), [*PERIODS[:3], BucketTransform(5)]),
    "timestamp": (whole(64, SECOND, YEAR, *HOURS), [*PERIODS, BucketTransform(5)]),
    "timestamptz": (whole(64, SECOND, YEAR, *HOURS), [*PERIODS, BucketTransform(5)]),
    "timestamp_ns": (whole(64, 1000 * SECOND, 1000 * YEAR), [*PERIODS, BucketTransform(5)]),
    "decimal(9,2)": (whole(30).map(lambda n: Decimal(n).scaleb(-2)), [TruncateTransform(50), BucketTransform(5)]),
    "decimal(38,2)": (whole(126).map(lambda n: Decimal(f"{n}e-2")), [TruncateTransform(50), BucketTransform(5)]),
    "string": (TEXTS, [TruncateTransform(1), TruncateTransform(2), BucketTransform(5)]),
    "binary": (st.binary(max_size=3), [TruncateTransform(1), BucketTransform(5)]),
}


def key(value: Any, name: str) -> Key:
    return value if name == "string" else key_of(value, value_type_named(name))


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, Transform[Any, Any], list[Any], LeafTest]:
    """A type, a transform, values, and a test of the column."""
    name = draw(st.sampled_from(sorted(COLUMNS)))
    values, transforms = COLUMNS[name]
    some = draw(st.lists(values, min_size=2, max_size=8))
    literals = st.sampled_from([key(value, name) for value in some])
    keys: Sequence[Any] = sorted({*draw(st.lists(literals, min_size=1, max_size=3))})
    negated, low_inclusive, high_inclusive = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    tests: list[LeafTest] = [
        SetTest(tuple(keys), negated=negated),
        RangeTest(keys[0], keys[-1], low_inclusive, high_inclusive, negated=negated),
        RangeTest(keys[0], None, low_inclusive, negated=negated),
        RangeTest(None, keys[0], high_inclusive=high_inclusive, negated=negated),
    ]
    return name, draw(st.sampled_from(transforms)), some, draw(st.sampled_from(tests))


@cache
def table_of(source: str, transform: Transform[Any, Any]) -> Table:
    """A table of one column, of which nothing but the metadata is there."""
    spec, schema = PartitionSpec(PartitionField(1, 1000, transform, "p")), Schema(NestedField(1, "v", source))
    ids = {"last-column-id": 1, "current-schema-id": 0}
    metadata = TableMetadataV2(**{"location": "file:///t", "schemas": [schema], "partition-specs": [spec], **ids})
    return Table(("ns", "t"), metadata, "", PyArrowFileIO(), InMemoryCatalog("none"))


def stay(source: str, transform: Transform[Any, Any], values: Iterable[Any], test: LeafTest, **metrics: Any) -> Flags:
    """Which files, by their partition values, may have a row that satisfies a test of the one column."""
    table, files = table_of(source, transform), []
    for value in values:
        file = DataFile.from_args(file_format=FileFormat.PARQUET, record_count=9, partition=Record(value), **metrics)
        file.spec_id = 0
        files.append(file)
    return may_match(table, table.schema(), files, Leaf(1, test, source), Clock(math.inf))


@settings(max_examples=amount(100, 50_000), deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
@example(("timestamp", HourTransform(), [2**63 - 1], RangeTest(0, None)))
@example(("timestamp", HourTransform(), [-(2**63)], RangeTest(None, 0)))
@example(("timestamp", HourTransform(), [999_999 - HOURS[0]], SetTest((999_999 - HOURS[0],))))
@example(("timestamp", YearTransform(), [-(2**63)], SetTest((-(2**63),))))
@example(("int", TruncateTransform(2**31 - 1), [5], SetTest((5,))))
@example(("string", BucketTransform(5), [b"\xff"], SetTest((b"\xff",))))
def test_a_file_with_a_matching_row_stays_in_any_case(
    case: tuple[str, Transform[Any, Any], list[Any], LeafTest],
) -> None:
    name, transform, values, test = case
    source = table_of(name, transform).schema().find_type(1)
    matching = [value for value in values if holds(test, key(value, name))]
    written = [made for value in matching for made in written_values(transform, source, value)]
    assert [made for made, stays in zip(written, stay(name, transform, written, test), strict=True) if not stays] == []


@pytest.mark.parametrize(
    ("source", "transform", "value", "test"),
    [
        ("timestamp", HourTransform(), 473_351, RangeTest(473_352 * HOURS[0], None)),
        ("timestamp", HourTransform(), 473_353, RangeTest(None, 473_353 * HOURS[0], high_inclusive=False)),
        ("timestamp", HourTransform(), 473_351, SetTest((473_352 * HOURS[0], 2**63 - 1, -(2**63)))),
        ("timestamp", HourTransform(), -1, RangeTest(0, None)),
        ("timestamp_ns", HourTransform(), -3, RangeTest(-2_000 * HOURS[0] + 10**9, None)),
        ("timestamp", YearTransform(), -2, RangeTest(-365 * 24 * HOURS[0] + SECOND, None)),
        ("timestamptz", DayTransform(), 19_722, RangeTest(0, 2**62, negated=True)),
        ("date", MonthTransform(), 5, RangeTest(31 * 6, None)),
        ("long", TruncateTransform(10), 2**62 - 2**62 % 10, RangeTest(2**62 + 20, None)),
        ("int", TruncateTransform(2**30), 0, SetTest((-1,))),
        ("long", TruncateTransform(10), 10, RangeTest(None, 10, high_inclusive=False)),
        ("timestamp_ns", DayTransform(), 1, RangeTest(None, 86_400 * 10**9, high_inclusive=False)),
        ("timestamp_ns", BucketTransform(7), 3, SetTest((1_511_949_600_000_001_001,))),
        ("timestamp", HourTransform(), 0, SetTest((-4_000_000_000,))),
        ("string", TruncateTransform(2), "ab", RangeTest(b"ab", b"ac", high_inclusive=False, negated=True)),
        ("string", IdentityTransform(), None, SetTest((b"a",), negated=True)),
        ("double", IdentityTransform(), 0.0, RangeTest(1, None)),
    ],
)
def test_files_of_other_periods_go(source: str, transform: Transform[Any, Any], value: Any, test: LeafTest) -> None:
    assert not stay(source, transform, [value], test)


@pytest.mark.parametrize(
    ("source", "transform", "value", "test"),
    [
        # The least number, truncated by Java.
        ("long", TruncateTransform(10), -(2**63) - 2 + 2**64, RangeTest(None, 5)),
        # Writers of long ago put the last hour of 1969 into the first of 1970.
        ("timestamp", HourTransform(), 0, SetTest((-1,))),
        ("string", TruncateTransform(1), "\u00bf", RangeTest(b"\xc2\xbf", b"\xc2\xc0", high_inclusive=False)),
        ("string", VoidTransform(), None, SetTest((b"a",))),
        ("string", UnknownTransform("other"), None, NullTest(is_null=False)),
    ],
)
def test_what_is_not_told_stays(source: str, transform: Transform[Any, Any], value: Any, test: LeafTest) -> None:
    assert stay(source, transform, [value], test)


@pytest.mark.parametrize("where", [NullTest(is_null=True), NullTest(is_null=False), SetTest((5,)), RangeTest(0, 9)])
def test_nulls_are_told_by_counts_alone(where: LeafTest) -> None:
    """PyIceberg's `add_files` makes a partition value of the values beside NULLs, and NULL without statistics."""
    value = 5 if where == NullTest(is_null=True) else None
    assert stay("long", TruncateTransform(5), [value], where)
    counts = {"value_counts": {1: 9}, "null_value_counts": {1: 9 if value is None else 0}}
    assert not stay("long", TruncateTransform(5), [value], where, **counts)


def test_a_constant_holds_whatever_the_bounds_of_the_file_are() -> None:
    """`add_files` of Spark takes the value of the folder, and the bounds of the file."""
    bounds = {"lower_bounds": {1: b"\x07" + bytes(7)}, "upper_bounds": {1: b"\x08" + bytes(7)}}
    assert stay("long", IdentityTransform(), [5], SetTest((5,)), **bounds)
    assert not stay("long", IdentityTransform(), [5], SetTest((7,)), **bounds)
