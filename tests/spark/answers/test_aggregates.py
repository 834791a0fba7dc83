"""Aggregates from the index have the values and the types of Spark's own, rounding included."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from planner.arrow.aggregate import aggregate_with_plan
from puffin_index import TableIndex
from tests.conftest import built, create_table, some

pytestmark = pytest.mark.spark

ROWS = 3_000


def data() -> pa.Table:
    chooser = np.random.default_rng(3)

    def some(values: list[Any], arrow_type: pa.DataType) -> pa.Array:
        return pa.array(values, arrow_type, mask=chooser.random(ROWS) < 0.1)

    numbers = chooser.integers(-10_000, 10_000, ROWS).tolist()
    wide = [Decimal(n * 10**20 + n).scaleb(-10) for n in numbers]
    return pa.table(
        {
            "g": some(chooser.integers(0, 4, ROWS).tolist(), pa.int32()),
            "h": some([f"city {n}" for n in chooser.integers(0, 3, ROWS)], pa.string()),
            "i": some(numbers, pa.int32()),
            "l": some([n * 10**11 for n in numbers], pa.int64()),
            "d": some([Decimal(n).scaleb(-2) for n in numbers], pa.decimal128(7, 2)),
            "w": some(wide, pa.decimal128(38, 10)),
            "v": some([Decimal(n).scaleb(-36) for n in numbers], pa.decimal128(38, 36)),
            "f": some([n / 8 for n in numbers], pa.float64()),
            "b": some([n > 0 for n in numbers], pa.bool_()),
            "t": some(numbers, pa.timestamp("us", "UTC")),
        }
    )


AGGREGATES = (
    "count(*), count(i), sum(i), avg(i), min(i), max(i), sum(l), avg(l), sum(d), avg(d), min(d), sum(w), avg(w), "
    "max(w), sum(v), avg(v), min(f), max(f), bool_and(b), bool_or(b), min(t), max(t), min(h), max(h), "
    "count(DISTINCT h), count(DISTINCT f)"
)
QUESTIONS = [
    ("true", []),
    ("i > 0", []),
    ("i = 77777", []),
    ("l < 0 OR d IS NULL", ["g"]),
    ("true", ["h"]),
    ("h >= 'city 1'", ["g", "h"]),
]


@pytest.fixture(scope="module")
def index(catalog: SqlCatalog) -> TableIndex:
    create_table(catalog, "aggregates", data(), 500)
    columns = list("ghildwvfbt")
    return built(catalog, "ns.aggregates", bsi=columns[2:], bitmap=columns[:2])


@pytest.mark.parametrize(("where", "by"), some(QUESTIONS, 2))
def test_aggregates_are_sparks(spark: SparkSession, index: TableIndex, where: str, by: list[str]) -> None:
    found = aggregate_with_plan(index, where, AGGREGATES, by)
    assert found.row_groups_read == 0
    keys = ", ".join(by)
    text = f"SELECT {keys + ',' if by else ''} {AGGREGATES} FROM lake.ns.aggregates WHERE {where}"
    answer = spark.sql(f"{text} GROUP BY {keys} ORDER BY {keys}" if by else text).toArrow()
    assert [types_alike(field.type) for field in found.table.schema] == [
        types_alike(field.type) for field in answer.schema
    ]
    for own, right in zip(found.table.columns, answer.columns, strict=True):
        assert own.to_pylist() == right.to_pylist(), where


def types_alike(arrow_type: pa.DataType) -> str:
    return str(arrow_type).removeprefix("large_").replace("Etc/UTC", "UTC")
