"""What Spark finds while a query runs, as a predicate: the keys of every type, and what is refused."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from planner.condition.tree.nodes import UNKNOWN, Everything, Leaf, Nothing, Predicate
from planner.condition.tree.simplify import MOST_KEYS
from planner.spark.requests.hook_filters import bind_runtime_keys, schema_of, wanted_runtime_fields
from planner.spark.requests.wire import RuntimeKeys
from puffin_index import IndexDefinition
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import ValueType
from puffin_index.keys.values import key_of
from tests.planner.spark.requests.jvm_messages import columns_of, encoded, packed
from tests.planner.ten_rows import build_index, k, view_of_index, view_of_ten_rows

TYPES = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "date",
    "timestamp",
    "timestamptz",
    "string",
    "binary",
    "decimal(9,2)",
    "decimal(38,10)",
]
SCHEMA = schema_of(columns_of(*((number, name, name) for number, name in enumerate(TYPES, 1)), (99, "u", "uuid")))


def bits(value: float) -> int:
    return int(np.float64(value).view(np.int64))


def bound(name: str, keys: list[object], operator: str = "=", field: int | None = None) -> Predicate:
    number = TYPES.index(name) + 1 if field is None else field
    message = {"field": number, "name": "c", "type": name, "operator": operator, "keys": keys, "source": "join"}
    return bind_runtime_keys(RuntimeKeys.model_validate_json(json.dumps(message)), SCHEMA)


def leaf_test(predicate: Predicate) -> LeafTest:
    assert isinstance(predicate, Leaf)
    return predicate.test


@pytest.mark.parametrize(
    ("name", "keys", "expected"),
    [
        ("boolean", [True, False], (0, 1)),
        ("int", [7, -(2**31), 7], (-(2**31), 7)),
        ("long", [2**63 - 1, -(2**63)], (-(2**63), 2**63 - 1)),
        ("date", [-719162, 18262], (-719162, 18262)),
        ("timestamp", [-1, 10**15], (-1, 10**15)),
        ("timestamptz", [0], (0,)),
        ("string", [encoded("é".encode()), encoded(b"a"), encoded(b"\xff")], (b"a", "é".encode(), b"\xff")),
        ("binary", [encoded(b""), encoded(b"\0")], (b"", b"\0")),
        ("decimal(9,2)", ["12.04", "-0.50"], (-50, 1204)),
    ],
)
def test_keys_of_a_type_are_those_of_its_columns(name: str, keys: list[object], expected: tuple[object, ...]) -> None:
    assert leaf_test(bound(name, keys)) == SetTest(expected)


@pytest.mark.parametrize("name", ["float", "double"])
def test_both_zeros_are_one_key_and_every_nan_is(name: str) -> None:
    zero, nan = (key_of(value, ValueType(name)) for value in (0.0, float("nan")))

    found = leaf_test(bound(name, [bits(-0.0), bits(0.0), bits(float("nan")), -1]))

    assert found == SetTest((zero, nan))


def test_wide_decimals_keep_all_digits() -> None:
    found = leaf_test(bound("decimal(38,10)", ["1234567890123456789012345678.0123456789"]))

    assert isinstance(found, SetTest)
    assert len(found.keys) == 1
    assert isinstance(found.keys[0], bytes)


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("<", RangeTest(None, 5, high_inclusive=False)),
        ("<=", RangeTest(None, 5)),
        (">", RangeTest(5, None, low_inclusive=False)),
        (">=", RangeTest(5, None)),
    ],
)
def test_a_value_is_compared_with(operator: str, expected: RangeTest) -> None:
    assert leaf_test(bound("int", [5], operator)) == expected
    assert bound("int", [], operator) == Nothing()


def test_no_key_matches_no_row_and_very_many_are_a_range() -> None:
    assert bound("int", []) == Nothing()
    assert leaf_test(bound("long", list(range(0, 2 * MOST_KEYS + 2, 2)))) == RangeTest(0, 2 * MOST_KEYS)


@pytest.mark.parametrize(
    ("name", "keys", "operator", "field"),
    [
        ("int", [2**31], "=", None),
        ("int", [1, 2], "<", None),
        ("long", [1], "=", 2),
        ("string", [encoded(b"x")], "=", 99),
        ("decimal(9,2)", ["not a number"], "=", None),
        ("int", [1], "=", 77),
    ],
    ids=["out-of-range", "two-values", "other-type", "uuid", "no-decimal", "no-column"],
)
def test_keys_of_another_kind_keep_all_rows(name: str, keys: list[object], operator: str, field: int | None) -> None:
    assert bound(name, keys, operator, field) == UNKNOWN


EVERY, FROM_5 = Everything(exact=True), k(RangeTest(5, None))


@pytest.mark.parametrize(
    ("fields", "predicate", "wanted"),
    [
        # Alone, a column each key of which is everywhere is not waited for.
        ({2: None}, EVERY, []),
        ({1: None}, EVERY, [1]),
        ({1: None, 2: None}, EVERY, [1, 2]),
        ({2: None}, FROM_5, [2]),
        ({2: None}, k(NullTest(is_null=False)), []),
        # The column k has 2 + 2 + 2 + 1 keys in its row groups: a whole table of 7 rows may have them all.
        ({1: 6}, EVERY, [1]),
        ({1: 7}, EVERY, []),
        ({1: 7, 2: 1}, FROM_5, [2]),
        ({1: 6, 2: 2}, EVERY, [1]),
    ],
)
def test_only_columns_whose_keys_may_drop_row_groups_are_waited_for(
    local_catalog: SqlCatalog, fields: dict[int, int | None], predicate: Predicate, wanted: list[int]
) -> None:
    view = view_of_ten_rows(local_catalog, IndexDefinition.of(bitmap=["k", "c"]))
    schema = Schema(NestedField(1, "k", "long", required=False), NestedField(2, "c", "long", required=False))
    assert wanted_runtime_fields(fields, predicate, schema, view, pages=True) == wanted


@pytest.mark.parametrize(("row_groups", "is_waited_for"), [(1, False), (2, False), (3, True)])
def test_texts_are_waited_for_where_a_key_may_be_in_fewer_than_half_of_the_row_groups(
    local_catalog: SqlCatalog, row_groups: int, is_waited_for: bool
) -> None:
    data = pa.table({"s": [f"key {number}" for number in range(10 * row_groups)]})
    view = view_of_index(build_index(local_catalog, data, 10, IndexDefinition.of(bitmap=["s"])))
    schema = Schema(NestedField(1, "s", "string", required=False))
    assert wanted_runtime_fields({1: None}, EVERY, schema, view, pages=True) == [1] * is_waited_for


def test_keys_that_are_everywhere_are_waited_for_where_they_leave_few_pages(local_catalog: SqlCatalog) -> None:
    """Each key has a row in one of the ten pages of either row group, and each of the others is in every page."""
    rows = np.arange(200_000)
    data = pa.table({"k": np.tile(rows, 2), "c": np.tile(rows % 4, 2)})
    definition = IndexDefinition.of(bitmap=["k", "c"])
    view = view_of_index(build_index(local_catalog, data, len(rows), definition, write_page_index=True))
    schema = Schema(NestedField(1, "k", "long", required=False), NestedField(2, "c", "long", required=False))
    for field, pages, wanted in ((1, True, [1]), (1, False, []), (2, True, [])):
        assert wanted_runtime_fields({field: None}, EVERY, schema, view, pages=pages) == wanted


@pytest.mark.parametrize(
    ("name", "keys", "form"),
    [
        ("long", [5, -(2**63), 5], "N"),
        ("date", [19_000, 3, -7], "N"),
        ("string", [b"b\xff", b"", b"\xef\xbf\xbd"], "B"),
    ],
)
def test_packed_keys_are_the_keys_one_by_one(name: str, keys: list[int] | list[bytes], form: str) -> None:
    number = TYPES.index(name) + 1
    message = {"field": number, "name": "c", "type": name, "operator": "=", "source": "join"}
    sent = json.dumps(message | {"keys": packed(keys, form)})
    as_bytes = RuntimeKeys.model_validate_json(sent)

    assert str(as_bytes) == "c in 3 keys"
    assert bind_runtime_keys(as_bytes, SCHEMA) == bound(
        name, [encoded(key) if isinstance(key, bytes) else key for key in keys]
    )
