"""Functions and patterns of one column without Spark: which row groups are kept, what is counted, what is refused."""

from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import planner
from planner.arrow.plan import plan_scan
from planner.clock import Clock
from planner.condition.sql.parser import read_where
from planner.condition.tree.nodes import ByValue, Nothing
from planner.prune.gate import Limits
from planner.view.column_values import TriedValues
from planner.view.views import view_of
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.column_source import Reading
from puffin_index.errors import UnsupportedError
from tests.conftest import temporary_catalog
from tests.planner.laws.expression_oracle import without_words
from tests.planner.ten_rows import build_index

ROWS, GROUP_ROWS = 2_000, 100
WORDS = ["Anna{}", " anna{} ", "Bob{}", "", "Z\N{LATIN SMALL LETTER U WITH DIAERESIS}rich{}", "line\nbreak{}", None]


def word(row: int) -> str | None:
    """Each row group has three words of ten, so most conditions are met in some row groups only."""
    group = row // GROUP_ROWS
    stem = WORDS[(group + row % 3) % len(WORDS)]
    return None if stem is None else stem.format(group % 4)


def day(row: int) -> date:
    return date(2015, 1, 1) + timedelta(days=row * 2)


def moment(row: int) -> datetime:
    return datetime(2015, 1, 1) + timedelta(hours=row * 40, microseconds=row)


def table() -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "word": pa.array(map(word, range(ROWS)), pa.string()),
            "plain": pa.array(map(word, range(ROWS)), pa.string()),
            "day": pa.array(map(day, range(ROWS)), pa.date32()),
            "at": pa.array(map(moment, range(ROWS)), pa.timestamp("us")),
            "st": pa.array([{"word": word(row)} for row in range(ROWS)]),
            "m": pa.array([[("k", word(row))] for row in range(ROWS)], pa.map_(pa.string(), pa.string())),
        }
    )


KINDS: dict[str, dict[str, Any]] = {
    "bitmap": {"bitmap": ["word", "st.word", "m#k#k"], "bsi": ["day", "at"]},
    "postings": {
        "bitmap": ["word", "st.word", "m#k#k"],
        "bsi": ["day", "at"],
        "options": {f"{column}.layout": "postings" for column in ("word", "st.word", "m#k#k")},
    },
    "dictionary": {"bsi": ["word", "st.word", "m#k#k", "day", "at"]},
}


@pytest.fixture(scope="module", params=KINDS)
def index(request: pytest.FixtureRequest) -> Iterator[TableIndex]:
    with temporary_catalog() as catalog:
        yield build_index(catalog, table(), GROUP_ROWS, IndexDefinition.of(**KINDS[request.param]))


def rows_with(matches: Callable[[str], bool]) -> list[int]:
    return [row for row in range(ROWS) if (text := word(row)) is not None and matches(text)]


CONDITIONS: list[tuple[str, list[int]]] = [
    ("trim({}) = 'anna1'", rows_with(lambda text: text.strip(" ") == "anna1")),
    ("rtrim({}) LIKE '_anna%'", rows_with(lambda text: text.startswith(" anna"))),
    ("{} LIKE '%a2'", rows_with(lambda text: text.endswith("a2"))),
    ("length({}) = 4 AND {} LIKE '%b%'", rows_with(lambda text: len(text) == 4 and "b" in text)),
    ("length({}) NOT IN (4, 5, 6, 7)", rows_with(lambda text: len(text) not in (4, 5, 6, 7))),
    ("NOT ltrim({}) <> 'Bob3'", rows_with(lambda text: text == "Bob3")),
    ("length({}) IS NULL", [row for row in range(ROWS) if word(row) is None]),
    ("length({}) > 100", []),
    ("length({}) > 100 OR trim({}) = 'Bob1'", rows_with(lambda text: text == "Bob1")),
]


@pytest.mark.parametrize("column", ["word", "st.word", "m['k']"])
@pytest.mark.parametrize(("text", "expected"), CONDITIONS, ids=[text for text, _ in CONDITIONS])
def test_row_groups_with_matches_are_counted(index: TableIndex, column: str, text: str, expected: list[int]) -> None:
    where = text.format(column, column)
    counted = planner.count(index, where)

    assert counted.plan.kept == len({row // GROUP_ROWS for row in expected}) < counted.row_groups
    assert (counted.rows, counted.row_groups_read) == (len(expected), 0)
    assert planner.scan(index, where, ["id"]).read_all().column("id").to_pylist() == expected


@pytest.mark.parametrize(
    ("where", "of_row", "matches"),
    [
        ("year(day) = 2017", day, lambda day: day.year == 2017),
        ("month(day) = 2 AND year(day) >= 2020", day, lambda day: day.month == 2 and day.year >= 2020),
        ("day(day) = 29 AND month(day) = 2", day, lambda day: (day.month, day.day) == (2, 29)),
        (
            "NOT quarter(day) IN (1, 2, 4) AND year(day) BETWEEN 2018 AND 2019",
            day,
            lambda day: day.month in (7, 8, 9) and day.year in (2018, 2019),
        ),
        # Needs no list of values.
        ("year(at) = 2017", moment, lambda moment: moment.year == 2017),
    ],
)
def test_parts_of_dates_and_moments_are_counted(
    index: TableIndex, where: str, of_row: Callable[[int], date], matches: Callable[[date], bool]
) -> None:
    expected = [row for row in range(ROWS) if matches(of_row(row))]
    counted = planner.count(index, where)

    assert counted.plan.kept == len({row // GROUP_ROWS for row in expected}) < counted.row_groups
    assert (counted.rows, counted.row_groups_read) == (len(expected), 0)


def test_a_plan_says_what_was_found_and_why_a_test_is_not_used(index: TableIndex) -> None:
    where = "trim(word) = 'anna1' AND month(at) = 2 AND NOT plain LIKE '_x%' AND upper(word) <> 'BOB1'"
    implied = planner.plan(index, where).implied
    found = [one.text for one in implied]

    assert found[0] == "trim(word) = 'anna1': word in 1 of 21 values"
    assert found[1] == "month(at) = 2: not used, the column has too many values"
    assert found[2] == "NOT plain LIKE '_x%': not used, the column has no index"
    assert found[3] == "NOT upper(word) = 'BOB1': word in 20 of 21 values, 4 of which only Spark can decide"
    assert [one.source for one in implied] == ["function"] * 4
    assert all(one.seconds for one in implied)


def test_values_that_are_not_tried_in_time_may_match(index: TableIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.view.column_values._VALUES_BETWEEN_LOOKS", 8)
    schema = index.data_table.schema()
    view = view_of(index.index_table, Reading(schema))
    in_time = repeat(False, 2)
    monkeypatch.setattr(Clock, "is_over", property(lambda _: next(in_time, True)))
    tried = TriedValues(schema, view, np.arange(view.row_group_count), 1 << 30, Clock(0))
    test = without_words(read_where("trim(word) = 'no such'", schema))
    assert isinstance(test, ByValue)

    assert not isinstance(tried.decide(test), Nothing)
    assert tried.implied[0].text == "trim(word) = 'no such': word in 13 of 21 values, 13 of which only Spark can decide"


def test_values_that_only_spark_can_decide_stay_and_are_refused_where_they_matter(index: TableIndex) -> None:
    expected = rows_with(lambda text: text.isascii() and text.upper() == "ANNA1")
    open_rows = rows_with(lambda text: not text.isascii())
    kept = {row // GROUP_ROWS for row in expected + open_rows}

    assert plan_scan(index, "upper(word) = 'ANNA1'", limits=Limits(rows_wanted=True)).plan.kept == len(kept)
    for refused in (planner.count, lambda *arguments: planner.scan(*arguments).read_all()):
        with pytest.raises(UnsupportedError, match=r"without Spark: upper\(word\) = 'ANNA1'; a row has text"):
            refused(index, "upper(word) = 'ANNA1'")
    # Neither rows that another test excludes nor rows that another test selects are in doubt.
    where = "upper(word) = 'ANNA1' AND NOT word LIKE '%rich_'"
    assert planner.count(index, where).rows == len(expected)
    assert planner.count(index, f"({where}) OR upper(word) = 'x' AND id < 0").rows == len(expected)
    where = "upper(plain) = 'ANNA1' OR plain LIKE 'Z%'"
    assert planner.count(index, where).rows == len(expected) + len(open_rows)


def test_line_breaks_are_refused_beside_rlike_only(index: TableIndex) -> None:
    assert planner.count(index, "word LIKE 'line%break_'").rows == len(rows_with(lambda text: "\n" in text))
    with pytest.raises(UnsupportedError, match=r"without Spark: word RLIKE '\^B.\*\$'"):
        planner.count(index, "word RLIKE '^B.*$'")
    where = "word RLIKE '^B.*$' AND word LIKE 'B%'"
    assert planner.count(index, where).rows == len(rows_with(lambda text: text.startswith("B")))


def test_without_an_index_rows_are_read(index: TableIndex) -> None:
    counted = planner.count(index, "trim(plain) = 'anna1'")

    assert counted.rows == len(rows_with(lambda text: text.strip(" ") == "anna1"))
    assert counted.row_groups_read == counted.row_groups


def test_no_values_are_tried_once_the_time_is_over(index: TableIndex) -> None:
    plan = planner.plan(index, "trim(word) = 'anna1'", planning_milliseconds=0)

    (implied,) = plan.implied
    assert implied.text == "trim(word) = 'anna1': not used, the time that planning may take was over"
    assert plan.kept == plan.row_groups


def test_first_rows_of_a_function_are_proved_by_the_index(index: TableIndex) -> None:
    where = "trim(word) = 'anna1'"
    plan = planner.plan(index, where, order_by="day DESC", limit=3)
    expected = rows_with(lambda text: text.strip(" ") == "anna1")[-3:][::-1]

    assert plan.kept < planner.plan(index, where).kept
    found = planner.scan(index, where, ["id"], order_by="day DESC", limit=3).read_all()
    assert found.column("id").to_pylist() == expected
