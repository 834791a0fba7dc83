"""Dates, times and texts beside columns of other types select the rows that Spark selects, in several zones."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyspark.sql import SparkSession

from planner.condition.rows import Residual
from planner.condition.session_time import zone_named
from planner.condition.sql.parser import read_where
from puffin_index.errors import UnsupportedError
from tests.spark.agreement import selected_rows, settings

pytestmark = pytest.mark.spark

SCHEMA = Schema(NestedField(1, "dt", "date"), NestedField(2, "nt", "timestamp"), NestedField(3, "ts", "timestamptz"))
ZONES = ("UTC", "+05:30", "Europe/Berlin", "America/New_York")
_ANCHORS = (datetime(2020, 1, 1), datetime(2024, 3, 31, 1), datetime(2024, 3, 31, 2, 30), datetime(2024, 10, 27, 0, 30))
WALLS = sorted(
    {
        anchor + timedelta(hours=hours, microseconds=micros)
        for anchor, hours, micros in product(_ANCHORS, (-6, -5, -2, -1, 0, 1, 2, 5, 24), (-1, 0))
    }
)
LITERALS = (
    "TIMESTAMP '2020-01-01 01:00:00'",
    "TIMESTAMP '2020-01-01'",
    "TIMESTAMP '2024-03-31 02:30:00'",
    "TIMESTAMP '2024-10-27 02:30:00'",
    "TIMESTAMP '2020-01-01 00:00:00+02:00'",
    "TIMESTAMP_NTZ '2020-01-01 00:00:00'",
    "TIMESTAMP_NTZ '2024-03-31 02:30:00'",
    "DATE '2020-01-01'",
    "DATE '2024-03-31'",
    "'2020-01-01'",
    "'2020-1-1 1:00'",
    "' 2020-01-01T00:00:00 '",
    "'2020-01-01 00:00:00Z'",
    "'2024-03-31 02:30:00.0000009'",
)
TEXTS = [
    *(
        f"{column} {test} {literal}"
        for column in ("dt", "nt", "ts")
        for test in ("<", ">=", "=")
        for literal in LITERALS
    ),
    *(f"NOT {column} = {literal}" for column in ("dt", "nt", "ts") for literal in LITERALS),
    *(f"{column} IN ('2020-01-01', '2024-03-31')" for column in ("dt", "nt", "ts")),
    *(f"{column} NOT IN (TIMESTAMP '2020-01-01 00:00:00', TIMESTAMP '2024-03-31')" for column in ("nt", "ts")),
    *(f"{column} BETWEEN '2020-01-01' AND '2024-03-31 01:00:00'" for column in ("nt", "ts")),
]


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    rows = [(number, wall.date(), wall, wall.replace(tzinfo=UTC)) for number, wall in enumerate(WALLS)]
    rows.append((len(WALLS), None, None, None))
    schema = "id int, dt date, nt timestamp_ntz, ts timestamp"
    with settings(spark, {"spark.sql.session.timeZone": "UTC"}):
        spark.createDataFrame(rows, schema).createOrReplaceTempView("session_times")
    with settings(spark, {"spark.sql.session.timeZone": request.param}):
        yield request.param
    spark.catalog.dropTempView("session_times")


def test_texts_select_the_rows_that_spark_selects(spark: SparkSession, zone: str) -> None:
    columns = {
        1: pa.array([*(wall.date() for wall in WALLS), None], pa.date32()),
        2: pa.array([*WALLS, None], pa.timestamp("us")),
        3: pa.array([*WALLS, None], pa.timestamp("us", "UTC")),
    }
    undecided: list[str] = []
    for text, theirs in zip(TEXTS, selected_rows(spark, "session_times", TEXTS), strict=True):
        try:
            residual = Residual.certain(read_where(text, SCHEMA, zone_named(zone)))
            ours = residual.matching(columns.__getitem__, len(theirs)).tolist()
        except UnsupportedError:
            undecided.append(text)
            continue
        assert ours == theirs, (zone, text)
    # Spark converts dates beside timestamps, and in zones that change their clocks timestamps without a zone.
    assert all(text.removeprefix("NOT ").startswith(("dt", "nt")) for text in undecided), undecided
    if zone in ("UTC", "+05:30"):
        assert [text for text in undecided if "nt " in text and "Z'" not in text] == []
