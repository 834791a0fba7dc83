"""The parser against Spark SQL: the same texts select the same rows, and what Spark rejects is rejected."""

import math
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from planner.condition.sql.parser import read_where
from tests.conftest import amount
from tests.oracle import Row
from tests.planner.condition.test_parser import ERRORS
from tests.planner.condition.where_text import predicates, render
from tests.planner.laws.expression_oracle import selects
from tests.spark import agreement
from tests.spark.agreement import selected_rows
from tests.spark.corpus_tables import texts

pytestmark = pytest.mark.spark

ZONE = "Europe/Berlin"
MOMENT = datetime(2024, 1, 1)
MICROSECOND = timedelta(microseconds=1)
# The SQL type of each column, Iceberg's, and values that it takes.
TABLE: dict[str, tuple[str, str, list[Any]]] = {
    "i": ("bigint", "long", [None, -3, -1, 0, 1, 2, 3, 2**31, 2**63 - 1, -(2**63)]),
    "d": (
        "decimal(10,2)",
        "decimal(10,2)",
        [None, *map(Decimal, ("-2.00", "-0.01", "0.00", "0.10", "1.50", "2.00", "99999999.99"))],
    ),
    "f": ("double", "double", [None, math.nan, math.inf, -math.inf, -0.0, 0.0, 0.1, 1.0, -1.5, 5e-324, 3.0]),
    "g": ("float", "float", [None, math.nan, 0.0, 0.10000000149011612, 1.5, 16777216.0]),
    "s": (
        "string",
        "string",
        [None, "", "a", "ab", "abc", "a%", "%", "_", "it's", '"', "\\", "\\%", "a\nb", "ÄÖ", "😀", "a😀b", "--", "/*"],
    ),
    "b": ("boolean", "boolean", [None, True, False]),
    "dt": ("date", "date", [None, date(1, 1, 1), date(2023, 12, 31), date(2024, 1, 1), date(9999, 12, 31)]),
    "nt": (
        "timestamp_ntz",
        "timestamp",
        [None, datetime(1, 1, 2), MOMENT, MOMENT - MICROSECOND, datetime(9999, 12, 30)],
    ),
    "ts": (
        "timestamp",
        "timestamptz",
        [
            None,
            *(MOMENT.replace(tzinfo=UTC) + timedelta(hours=hours) for hours in (-1, 0, 1)),
            datetime(2024, 3, 31, 1, 30, tzinfo=UTC),
            datetime(2024, 10, 27, 0, 30, tzinfo=UTC),
            datetime(2024, 10, 27, 1, 30, tzinfo=UTC),
        ],
    ),
    "x": ("binary", "binary", [None, b"", b"\x1f", b"\x01\x23", b"a"]),
    "odd `name`": ("int", "int", [None, 1, 2]),
}
SCHEMA = Schema(*(NestedField(at, name, kind) for at, (name, (_, kind, _)) in enumerate(TABLE.items(), start=1)))
_CHOICES = random.Random(1)
ROWS: list[Row] = [{name: _CHOICES.choice(values) for name, (_, _, values) in TABLE.items()} for _ in range(100)]

DECIDED = texts("decided")
# The last texts have line ends and tabs in them.
DECIDED = [*DECIDED[:-3], "\n".join(DECIDED[-3:]), "i=1\u00a0or\u3000i=2", "s = 'tab\there' or s = 'a\nb'"]

# The first one stays the first: after ARRAY or MAP, Spark's lexer takes >> for the ends of two types.
OPEN = texts("open")

# What Spark takes and the parser does not.
STRICTER = {
    "'x' ^AND b",  # a string as a condition
    "a = 1^;",  # the end of a statement
    r"a = ^'\U00110000'",
}


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> Iterator[str]:
    """A view with a row number and the columns of TABLE, in a session of another time zone than the machine's."""
    columns = ", ".join(f"`{name.replace('`', '``')}` {sql_type}" for name, (sql_type, _, _) in TABLE.items())
    rows = [(number, *row.values()) for number, row in enumerate(ROWS)]
    with agreement.settings(spark, {"spark.sql.session.timeZone": ZONE}):
        spark.createDataFrame(rows, f"id int, {columns}").createOrReplaceTempView("parser_rows")
        yield "parser_rows"
    spark.catalog.dropTempView("parser_rows")


def parser_selects(text: str) -> list[bool | None]:
    condition = read_where(text, SCHEMA, ZoneInfo(ZONE))
    return [selects(condition, row, SCHEMA) for row in ROWS]


def test_texts_select_the_rows_that_spark_selects(spark: SparkSession, table: str) -> None:
    found = selected_rows(spark, table, DECIDED)
    differing = [text for text, selected in zip(DECIDED, found, strict=True) if parser_selects(text) != selected]
    assert differing == []
    # A text that selects nothing proves little; those that should are counted.
    assert sum(any(selected) for selected in found) >= len(DECIDED) * 4 // 5


def test_open_texts_are_spark_sql_and_never_exclude_a_row_that_spark_selects(spark: SparkSession, table: str) -> None:
    for text, selected in zip(OPEN, selected_rows(spark, table, OPEN), strict=True):
        ours = parser_selects(text)
        assert None in ours, text
        assert all(mine is not False for mine, theirs in zip(ours, selected, strict=True) if theirs), text


@pytest.mark.one_of(3)
@pytest.mark.parametrize("marked", [text for text, _ in ERRORS if text not in STRICTER])
def test_text_that_the_parser_rejects_spark_rejects_too(spark: SparkSession, marked: str) -> None:
    text = marked.replace("^", "", 1)
    with pytest.raises(PySparkException):
        spark.sql(f"SELECT * FROM VALUES ('x', TRUE, 2) AS rows(a, b, c) WHERE {text}").collect()


@settings(max_examples=amount(4, 200), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(predicates.flatmap(render), min_size=30, max_size=30))
def test_law_random_texts_select_the_rows_that_spark_selects(spark: SparkSession, table: str, texts: list[str]) -> None:
    found = selected_rows(spark, table, texts)
    assert [text for text, selected in zip(texts, found, strict=True) if parser_selects(text) != selected] == []
