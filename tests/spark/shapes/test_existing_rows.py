"""EXISTS and the like: the index tells whether there are rows, and no row is read where it tells exactly."""

import pytest
from pyspark.sql import SparkSession

from tests.spark.agreement import ENABLED, settings
from tests.spark.shapes import shapes
from tests.spark.shapes.test_answered_aggregates import check, plan_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("tables", "answering")]

_PLAIN = f"lake.{shapes.NAMESPACE}.plain"
_DELETED = f"lake.{shapes.NAMESPACE}.deleted"
_FEW = f"lake.{shapes.NAMESPACE}.few"


_CONDITIONS = [
    "i = 7919 % 6000",
    "i BETWEEN 5 AND 900 AND l > 50",
    "i IS NULL AND part = 2",
]
_OTHERS = [
    *("x = 0 OR s LIKE 'k1%'", "1 = 1", "1 = 0", "i = NULL", "x < 5", "id = 5", "id = 6020", "i > id"),
    *("RAND() < 2", "l = 8 AND id > 4", "i = -1", "i % 100 = 7 AND l % 100 = 8 AND s = 'k77'"),
]


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    ("condition", "adaptive"), [*((condition, "true") for condition in _CONDITIONS), (_CONDITIONS[1], "false")]
)
def test_existence_is_answered_without_a_scan(hooked: SparkSession, condition: str, adaptive: str) -> None:
    with settings(hooked, {"spark.sql.adaptive.enabled": adaptive}):
        for sql in (
            f"SELECT EXISTS (SELECT 1 FROM {_PLAIN} WHERE {condition}) AS found",
            f"SELECT name FROM {_FEW} WHERE EXISTS (SELECT i FROM {_PLAIN} WHERE {condition})",
            f"SELECT name FROM {_FEW} WHERE NOT EXISTS (SELECT * FROM {_PLAIN} WHERE {condition}) OR id = 3",
            f"SELECT 5 AS five, 'a' AS a FROM {_PLAIN} WHERE {condition} LIMIT 3",
            f"SELECT COUNT(*) FROM (SELECT * FROM {_PLAIN} WHERE {condition} LIMIT 50)",
        ):
            check(hooked, sql)
            scans = [line for line in plan_of(hooked, sql).splitlines() if "BatchScan" in line]
            assert not any(_PLAIN in line for line in scans), sql


@pytest.mark.one_of(5)
@pytest.mark.parametrize("condition", _OTHERS)
@pytest.mark.parametrize("table", [_PLAIN, _DELETED])
def test_existence_is_that_of_spark(hooked: SparkSession, condition: str, table: str) -> None:
    check(hooked, f"SELECT EXISTS (SELECT 1 FROM {table} WHERE {condition}), 1 IN (SELECT part FROM {table})")
    check(
        hooked, f"SELECT name FROM {_FEW} f WHERE EXISTS (SELECT 1 FROM {table} t WHERE t.part = f.id AND {condition})"
    )
    check(hooked, f"SELECT 1 FROM {table} WHERE {condition} LIMIT 2 OFFSET 1")
    check(hooked, f"SELECT COUNT(*) FROM (SELECT 1 FROM {table} WHERE {condition} LIMIT 1001)")
    for enabled in ("false", "true"):
        with settings(hooked, {ENABLED: enabled}):
            is_empty = hooked.table(table).where(condition).isEmpty()
            if enabled == "false":
                expected = is_empty
    assert is_empty == expected
