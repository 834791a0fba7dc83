"""Functions, patterns, and dates beside texts: what the planner decides for certain is what Spark decides."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyspark.sql import SparkSession

from planner.condition.rows import Residual
from planner.condition.session_time import zone_named
from planner.condition.sql.parser import read_where
from planner.condition.value_tests import rlike_regex
from puffin_index.errors import UnsupportedError
from puffin_index.storage.arrays import Flags
from tests.conftest import amount
from tests.spark.agreement import selected_rows, settings

pytestmark = pytest.mark.spark

CONDITIONS = amount(20, 1_000) * 5
SCHEMA = Schema(
    NestedField(1, "s", "string"),
    NestedField(2, "dt", "date"),
    NestedField(3, "nt", "timestamp"),
    NestedField(4, "ts", "timestamptz"),
)
TYPES = {"s": pa.string(), "dt": pa.date32(), "nt": pa.timestamp("us"), "ts": pa.timestamp("us", "UTC")}
_LETTERS = "abAZ _%\\.-1\n\r\t\u0085\u2028äßİ\u212a😀"
_WEIGHTS = [9, 9, 9, 5, 9, 3, 3, 2, 2, 2, 5, 1, 1, 1, 1, 1, 2, 1, 1, 1, 2]


def _text(random: Random, most: int = 5) -> str:
    return "".join(random.choices(_LETTERS, _WEIGHTS, k=random.randrange(most + 1)))


def _day(random: Random) -> date:
    first = random.choice([date(1, 1, 1), date(1582, 10, 4), date(1969, 12, 30), date(2023, 12, 30), date(9998, 12, 1)])
    return date.fromordinal(first.toordinal() + random.randrange(90))


def _moment(random: Random) -> datetime:
    clock = random.choice([(0, 0, 0, 0), (23, 59, 59, 999_999), (12, 0, 0, 0)])
    day = _day(random)
    return datetime(day.year, day.month, day.day, *clock)


VALUES: dict[str, Callable[[Random], Any]] = {"s": _text, "dt": _day, "nt": _moment}


def rows(random: Random, count: int) -> dict[str, list[Any]]:
    return {
        column: [None if random.random() < 0.1 else value(random) for _ in range(count)]
        for column, value in VALUES.items()
    }


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r") + "'"


def _like_pattern(random: Random) -> str:
    pieces = [
        random.choice(["%", "_", r"\%", r"\\", _text(random, 2).replace("\\", "")]) for _ in range(random.randrange(4))
    ]
    return "".join(pieces)


_ATOMS = [*"abA1 -.", r"\d", r"\w", r"\.", r"\_", "[ab]", "[^a-bZ]", r"[\d \-]", "[A-Z_]", "[.]"]


def _rlike_pattern(random: Random, depth: int = 2) -> str:
    def atom() -> str:
        if depth and random.random() < 0.3:
            return f"({_rlike_pattern(random, depth - 1)})"
        return random.choice(_ATOMS)

    def piece() -> str:
        if random.random() < 0.1:
            return random.choice("^$")
        return atom() + random.choice(["", "", "", "*", "+", "?", "{2}", "{0,1}", "{1,}"])

    branches = ["".join(piece() for _ in range(random.randrange(4))) for _ in range(random.choice([1, 1, 2]))]
    return "|".join(branches)


def condition(random: Random) -> str:
    """A condition on one column, within and without what the planner decides."""
    column = random.choice(["s", "s", "dt", "nt"])
    if column == "s":
        function = random.choice(
            ["", "upper", "ucase", "lower", "lcase", "trim", "ltrim", "rtrim", "char_length", "length"]
        )
    else:
        function = random.choice(["year", "month", "day", "dayofmonth", "quarter"])
    subject = f"{function}({column})" if function else column
    is_number = column != "s" or "length" in function

    def literal() -> str:
        if not is_number:
            text = _text(random, 3)
            return quoted(random.choice([text, text.upper(), text.strip()]))
        return str(random.choice([0, 1, 2, 3, 4, 10, 12, 30, 1969, 1970, 2024, 9999, 5_000_000_000]))

    def perhaps_not() -> str:
        return random.choice(["", "NOT "])

    comparison = random.choice(["=", "<>", "<", "<=", ">", ">=", "<=>"])
    kinds = [
        lambda: f"{subject} {comparison} {literal()}",
        lambda: f"{literal()} {comparison} {subject}",
        lambda: f"{subject} {perhaps_not()}IN ({literal()}, {literal()}, {random.choice(['NULL', literal()])})",
        lambda: f"{subject} {perhaps_not()}BETWEEN {literal()} AND {literal()}",
        lambda: f"{subject} IS {perhaps_not()}NULL",
        lambda: f"({subject} {comparison} {literal()}) IS {perhaps_not()}{random.choice(['NULL', 'TRUE', 'FALSE'])}",
    ]
    if not is_number:
        kinds += 2 * [
            lambda: f"{subject} {perhaps_not()}LIKE {quoted(_like_pattern(random))}",
            lambda: f"{subject} {perhaps_not()}ILIKE {quoted(_like_pattern(random))}",
            lambda: f"{subject} {perhaps_not()}RLIKE {quoted(_rlike_pattern(random))}",
        ]
    return random.choice(["", "", "NOT "]) + random.choice(kinds)()


def decided(where: str, table: dict[str, list[Any]]) -> tuple[Flags, Flags] | None:
    """For each row whether it is selected, and whether the planner decides that; None if it decides nothing."""
    try:
        residual = Residual.certain(read_where(where, SCHEMA))
    except UnsupportedError:
        return None
    columns = {
        field.field_id: pa.array(table[field.name], TYPES[field.name]) for field in SCHEMA.fields if field.name in table
    }
    count = len(table["s"])
    try:
        return residual.matching(columns.__getitem__, count), np.ones(count, np.bool_)
    except UnsupportedError:
        pass
    selected, certain = np.zeros(count, np.bool_), np.ones(count, np.bool_)
    for row in range(count):
        alone = {field_id: values.slice(row, 1) for field_id, values in columns.items()}
        try:
            selected[row] = residual.matching(alone.__getitem__, 1)[0]
        except UnsupportedError:
            certain[row] = False
    return selected, certain


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> dict[str, list[Any]]:
    found = rows(Random(5), 150)
    numbered = list(zip(range(150), *found.values(), strict=True))
    spark.createDataFrame(numbered, "id int, s string, dt date, nt timestamp_ntz").createOrReplaceTempView("value_rows")
    return found


def test_random_conditions_select_the_rows_that_spark_selects(spark: SparkSession, table: dict[str, list[Any]]) -> None:
    random = Random(11)
    texts = [condition(random) for _ in range(CONDITIONS)]
    known = 0
    for start in range(0, len(texts), 50):
        some = texts[start : start + 50]
        for text, theirs in zip(some, selected_rows(spark, "value_rows", some), strict=True):
            answer = decided(text, table)
            if answer is None:
                continue
            known += 1
            selected, certain = answer
            wrong = (selected != np.array(theirs)) & certain
            assert not wrong.any(), (text, np.flatnonzero(wrong).tolist())
    assert known > 0.9 * len(texts)


def test_random_expressions_find_what_java_finds(spark: SparkSession) -> None:
    random = Random(12)
    patterns = [
        pattern
        for pattern in (_rlike_pattern(random) for _ in range(CONDITIONS * 20))
        if rlike_regex(pattern) is not None
    ]
    texts = [_text(random, 6) for _ in range(60)]
    spark.createDataFrame(list(enumerate(patterns)), "id int, pattern string").createOrReplaceTempView("patterns")
    spark.createDataFrame(list(enumerate(texts)), "place int, s string").createOrReplaceTempView("texts")
    found = spark.sql(
        "SELECT id, collect_list(place) AS places FROM patterns JOIN texts ON s RLIKE pattern GROUP BY id"
    )
    matching = {row["id"]: set(row["places"]) for row in found.collect()}
    breaks = {place for place, text in enumerate(texts) if set(text) & set("\n\r\u0085\u2028\u2029")}
    among = np.array([place for place in range(len(texts)) if place not in breaks])
    values = pa.array(texts).take(pa.array(among))

    for number, pattern in enumerate(patterns):
        residual = Residual.certain(read_where(f"s RLIKE {quoted(pattern)}", SCHEMA))
        ours = set(among[residual.matching(lambda _: values, len(among))].tolist())
        assert ours == matching.get(number, set()) - breaks, pattern


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
TIME_TEXTS = [
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


@pytest.mark.parametrize("zone", ZONES)
def test_times_beside_texts_select_the_rows_that_spark_selects(spark: SparkSession, zone: str) -> None:
    rows = [(number, wall.date(), wall, wall.replace(tzinfo=UTC)) for number, wall in enumerate(WALLS)]
    rows.append((len(WALLS), None, None, None))
    schema = "id int, dt date, nt timestamp_ntz, ts timestamp"
    with settings(spark, {"spark.sql.session.timeZone": "UTC"}):
        spark.createDataFrame(rows, schema).createOrReplaceTempView("session_times")
    with settings(spark, {"spark.sql.session.timeZone": zone}):
        found = selected_rows(spark, "session_times", TIME_TEXTS)
    columns = {
        2: pa.array([*(wall.date() for wall in WALLS), None], pa.date32()),
        3: pa.array([*WALLS, None], TYPES["nt"]),
        4: pa.array([*WALLS, None], TYPES["ts"]),
    }
    undecided: list[str] = []
    for text, theirs in zip(TIME_TEXTS, found, strict=True):
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
