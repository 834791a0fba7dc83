"""Joins, subqueries and first rows: the same answers with the index, and fewer row groups where keys allow it."""

import re
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from pyspark.sql import SparkSession

import planner
from planner import ScanPlan
from planner.condition.implied import Implied
from tests.conftest import amount
from tests.spark.agreement import ENABLED, check_rows, reading_pages, rows_of, settings
from tests.spark.corpus_tables import statements
from tests.spark.shapes import shapes

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("tables")]

RANDOM_QUERIES = amount(10, 1_000)
_PARTS = amount(1, 4)
_PLAIN = f"lake.{shapes.NAMESPACE}.plain"
_FEW = f"lake.{shapes.NAMESPACE}.few"
_MANY = f"lake.{shapes.NAMESPACE}.many"


def keys_of(reports: list[ScanPlan]) -> list[Implied]:
    """What joins and scalar subqueries imply."""
    implied = [implied for report in reports for implied in report.implied]
    return [one for one in implied if one.source in ("join", "subquery", "join or subquery")]


_NO_BROADCAST = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
_NOT_ADAPTIVE = {"spark.sql.adaptive.enabled": "false"}


@pytest.mark.one_of(9)
@pytest.mark.parametrize(
    "conf",
    [{}, _NO_BROADCAST, _NOT_ADAPTIVE, _NO_BROADCAST | _NOT_ADAPTIVE],
    ids=["default", "no-broadcast", "not-adaptive", "neither"],
)
@pytest.mark.parametrize(
    ("sql", "kept"),
    [
        (f"SELECT f.id FROM {_PLAIN} f JOIN {_FEW} e ON f.i = e.i WHERE e.id IN (1, 2)", 2),
        (f"SELECT f.id FROM {_PLAIN} f JOIN {_FEW} e ON f.i = e.l WHERE e.id = 1", 1),
        (f"SELECT f.id FROM {_PLAIN} f JOIN {_FEW} e ON f.s = e.s AND f.t = e.t", 3),
        (f"SELECT f.id FROM {_PLAIN} f WHERE f.i IN (SELECT i FROM {_FEW} WHERE id = 1)", 1),
        (f"SELECT f.id FROM {_PLAIN} f WHERE EXISTS (SELECT 1 FROM {_FEW} e WHERE e.i = f.i AND e.id = 2)", 1),
        (f"SELECT f.id, e.i FROM {_FEW} e LEFT JOIN {_PLAIN} f ON f.i = e.i WHERE e.id < 3", 2),
        (f"SELECT f.id FROM {_PLAIN} f JOIN (VALUES (3), (70000)) AS v (k) ON f.i = v.k", 1),
        (f"SELECT f.id FROM {_PLAIN} f WHERE f.i = (SELECT MAX(i) FROM {_FEW})", 1),
        (f"SELECT f.id FROM {_PLAIN} f WHERE f.t > (SELECT MAX(t) + INTERVAL 290 DAYS FROM {_FEW})", 1),
        (f"SELECT f.id FROM {_PLAIN} f JOIN {_PLAIN} g ON f.i = g.i WHERE g.s = 'k31'", 4),
        (f"SELECT f.id FROM {_PLAIN} f JOIN {_FEW} e ON f.i = e.i JOIN {_FEW} g ON f.t = g.t WHERE e.id = 1", 0),
    ],
)
def test_keys_of_run_time_drop_row_groups(hooked: SparkSession, conf: dict[str, str], sql: str, kept: int) -> None:
    with settings(hooked, conf):
        reports = check_rows(hooked, sql)

    assert min(report.kept for report in reports) <= kept, [report.where for report in reports]


def test_no_thread_of_subqueries_waits_for_another(hooked: SparkSession) -> None:
    """Spark has 16 threads for the subqueries of all queries."""
    ends = ((">=", "MIN"), ("<=", "MAX"), (">", "MIN"), ("<", "MAX"))
    compared = [
        f"f.{column} {operator} (SELECT {end}({column}) FROM {_FEW} WHERE id <> {at})"
        for at, column in enumerate(("i", "l", "x", "t"))
        for operator, end in ends
    ]
    keys = f"SELECT i FROM {_FEW} WHERE t IN (SELECT t FROM {_FEW} WHERE id < 5) AND id >= (SELECT MIN(id) FROM {_FEW})"
    queries = [
        f"SELECT f.id FROM {_PLAIN} f WHERE {' AND '.join(compared)}",
        f"SELECT f.id FROM {_PLAIN} f JOIN {_FEW} e ON f.i = e.i WHERE f.i IN ({keys}) AND {compared[4]}",
    ]
    expected = [rows_of(hooked, sql, enabled=False) for sql in queries]
    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(lambda sql=sql: sorted(map(str, hooked.sql(sql).collect()))) for sql in queries]
        found = [one.result(timeout=60) for one in running]

    assert found == expected
    assert len(keys_of(planner.reports(hooked)[-6:])) >= 5


@pytest.mark.one_of(3)
@pytest.mark.parametrize("sql", [one.sql for one in statements("joins")])
def test_joins_that_keep_rows_without_a_partner_are_left_alone(hooked: SparkSession, sql: str) -> None:
    assert not keys_of(check_rows(hooked, sql.format(t=_PLAIN, few=_FEW)))


@pytest.mark.parametrize(
    ("sql", "kept"),
    [
        ("SELECT * FROM {t} ORDER BY t DESC, id LIMIT 10", 1),
        ("SELECT id FROM {t} ORDER BY i DESC, id LIMIT 3", 3),
        ("SELECT id FROM {t} ORDER BY i ASC NULLS LAST, id LIMIT 3 OFFSET 2", 5),
        ("SELECT id, l + 1 FROM {t} WHERE part = 1 AND s LIKE 'k1%' ORDER BY l DESC, id LIMIT 4", 4),
        ("SELECT id FROM {t} WHERE x > 600 AND i > 100 ORDER BY i, id LIMIT 2", 4),
        ("SELECT id, s FROM {t} ORDER BY s DESC, id LIMIT 5", 6),
        ("SELECT id FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY i DESC, id) AS n FROM {t}) WHERE n <= 3", 3),
        ("SELECT id, n FROM (SELECT id, RANK() OVER (ORDER BY t DESC) AS n FROM {t} WHERE part = 1) WHERE n <= 9", 1),
        ("SELECT COUNT(*) FROM (SELECT * FROM {t} WHERE part = 2 LIMIT 20)", 1),
        ("SELECT COUNT(*) FROM (SELECT * FROM {t} LIMIT 350)", 2),
    ],
)
def test_first_rows_need_few_row_groups(hooked: SparkSession, sql: str, kept: int) -> None:
    (report,) = check_rows(hooked, sql.format(t=_PLAIN))

    assert report.kept <= kept
    (implied,) = report.implied
    assert implied.source == ("limit" if "COUNT(*) FROM (SELECT *" in sql else "top-k")
    assert implied.dropped
    assert implied.seconds
    with reading_pages():
        (by_pages,) = check_rows(hooked, sql.format(t=_PLAIN))
    assert by_pages.kept <= kept
    assert implied.source == "limit" or (by_pages.by_pages and by_pages.by_pages.row_groups == by_pages.kept)


def test_a_join_with_a_whole_table_is_waited_for_if_that_has_few_rows(hooked: SparkSession) -> None:
    """Days are one after the other: each row group has some, and the dimension `many` has more than there are."""
    all_days = check_rows(hooked, f"SELECT COUNT(*), SUM(e.id) FROM {_PLAIN} f JOIN {_MANY} e ON f.t = e.t")
    few_days = check_rows(hooked, f"SELECT COUNT(*), SUM(e.id) FROM {_PLAIN} f JOIN {_FEW} e ON f.t = e.t")

    assert not keys_of(all_days)
    assert keys_of(few_days)
    assert few_days[-1].kept == 1


@pytest.mark.parametrize(
    ("name", "sql"),
    [
        ("join-pruning", f"SELECT f.id FROM {_PLAIN} f JOIN {_FEW} e ON f.i = e.i WHERE e.id = 1"),
        ("top-k", f"SELECT * FROM {_PLAIN} ORDER BY i DESC LIMIT 3"),
        ("limit", f"SELECT COUNT(*) FROM (SELECT * FROM {_PLAIN} WHERE part = 1 LIMIT 3)"),
        ("functions", f"SELECT id FROM {_PLAIN} WHERE UPPER(s) = 'K31'"),
        ("aggregates", f"SELECT COUNT(*), SUM(l) FROM {_PLAIN} WHERE i > 100"),
    ],
)
@pytest.mark.usefixtures("answering")
def test_settings_switch_each_source_off(hooked: SparkSession, name: str, sql: str) -> None:
    with settings(hooked, {f"spark.puffin-index.{name}": "false"}):
        assert not any(report.implied or report.answered for report in check_rows(hooked, sql))
    assert any(report.implied or report.answered for report in check_rows(hooked, sql))


def test_a_frame_that_runs_again_asks_again(hooked: SparkSession) -> None:
    hooked.sql(f"CREATE TABLE lake.{shapes.NAMESPACE}.watched (k INT) USING iceberg")
    for key in (7, 31, 77):
        hooked.sql(f"INSERT OVERWRITE lake.{shapes.NAMESPACE}.watched VALUES ({key})")
        found = hooked.sql(f"SELECT i FROM {_PLAIN} WHERE i IN (SELECT k FROM lake.{shapes.NAMESPACE}.watched)")

        assert [row.i for row in found.collect()] == [key]
        assert [row.i for row in found.collect()] == [key]
        assert found.filter("i > 0").count() == 1
        assert found.cache().count() == found.count() == 1
        found.unpersist()


def test_explain_runs_no_job(hooked: SparkSession) -> None:
    frame = hooked.sql(f"SELECT f.id FROM {_PLAIN} f JOIN {_FEW} e ON f.i = e.i WHERE e.id IN (1, 2)")
    group = "explained"
    hooked.sparkContext.setJobGroup(group, group)
    try:
        explained = planner.explain(frame)
    finally:
        hooked.sparkContext._jsc.clearJobGroup()

    assert "dynamicpruning" in explained
    assert not hooked.sparkContext.statusTracker().getJobIdsForGroup(group)


_UPPER = "SELECT MAX(id) FROM {t} WHERE UPPER(s) = '{key}'"
_LIMIT = "SELECT COUNT(*) FROM (SELECT * FROM {t} WHERE part = {part} LIMIT {rows})"
_FIRST = "SELECT id FROM {t} WHERE part = {part} ORDER BY t DESC, id LIMIT 1"


@pytest.mark.one_of(5)
@pytest.mark.parametrize("conf", [{}, _NOT_ADAPTIVE], ids=["default", "not-adaptive"])
@pytest.mark.parametrize(
    ("one", "other", "kept"),
    [
        (_UPPER.format(t=_PLAIN, key="K31"), _UPPER.format(t=_PLAIN, key="K34"), [3, 3]),
        (_UPPER.format(t=_PLAIN, key="K31"), f"SELECT MAX(id) FROM {_PLAIN} WHERE s IS NOT NULL", [3]),
        (_UPPER.format(t=_PLAIN, key="K31"), _UPPER.format(t=_PLAIN, key="K31").replace("MAX", "MIN"), [3]),
        (_LIMIT.format(t=_PLAIN, part=1, rows=3), _LIMIT.format(t=_PLAIN, part=1, rows=170), [1, 3]),
        (_LIMIT.format(t=_PLAIN, part=1, rows=3), _LIMIT.format(t=_PLAIN, part=2, rows=3), [1, 1]),
        (_FIRST.format(t=_PLAIN, part=1), _FIRST.format(t=_PLAIN, part=2), [1, 1]),
        (_FIRST.format(t=_PLAIN, part=1), _FIRST.format(t=_PLAIN, part=1).replace("DESC", "ASC"), [1, 1]),
    ],
    ids=["function", "with-and-without", "merged", "limit", "limit-of-others", "first", "last"],
)
def test_subqueries_stay_apart(
    hooked: SparkSession, conf: dict[str, str], one: str, other: str, kept: list[int]
) -> None:
    with settings(hooked, conf):
        both = check_rows(hooked, f"SELECT ({one}), ({other})")
        compared = check_rows(hooked, f"SELECT COUNT(*), SUM(id) FROM {_PLAIN} WHERE id >= ({one}) OR id = ({other})")

    for reports in (both, compared):
        narrowed = sorted(report.kept for report in reports if report.kept < report.row_groups)
        assert narrowed[: len(kept)] == kept, [(report.kept, report.where) for report in reports]


def test_scans_of_subqueries_wait_for_no_keys(hooked: SparkSession) -> None:
    """A subquery within a subquery may stop both in Spark 3.5, so none is added."""
    joined = f"SELECT SUM(f.id) FROM {_PLAIN} f JOIN {_FEW} e ON f.i = e.i WHERE e.id = {{}}"

    assert not keys_of(check_rows(hooked, f"SELECT ({joined.format(1)}), ({joined.format(2)})"))
    assert "dynamicpruning" not in planner.explain(hooked.sql(f"SELECT ({joined.format(1)}), ({joined.format(2)})"))


def test_a_subquery_that_is_found_empty_keeps_its_value(hooked: SparkSession) -> None:
    nothing = f"SELECT {{}} FROM {_PLAIN} WHERE i = 2623"
    (report, *_) = check_rows(
        hooked, f"SELECT ({nothing.format('COUNT(*)')}), ({nothing.format('MAX(id)')}), ({nothing.format('id')})"
    )

    assert report.kept == 0
    check_rows(
        hooked,
        f"SELECT COUNT(*) FROM {_PLAIN} f WHERE id = (SELECT COUNT(*) FROM {_FEW} e WHERE e.i = f.i AND e.l = 70001)",
    )


def test_changes_of_rows_may_have_subqueries(hooked: SparkSession) -> None:
    table = f"lake.{shapes.NAMESPACE}.changed"
    hooked.sql(f"CREATE TABLE {table} USING iceberg AS SELECT id, i, s FROM {_PLAIN}")
    first, last = _FIRST.format(t=_PLAIN, part=1), f"SELECT MIN(id) FROM {_PLAIN} WHERE UPPER(s) = 'K31'"

    hooked.sql(f"DELETE FROM {table} WHERE id = ({first}) OR id = ({last})")
    hooked.sql(f"UPDATE {table} SET s = 'u' WHERE id = ({first}) + 1")

    with settings(hooked, {ENABLED: "false"}):
        gone = {row[0] for row in hooked.sql(f"({first}) UNION ALL ({last})").collect()}
        left = {row.id: row.s for row in hooked.sql(f"SELECT * FROM {table}").collect()}
    assert len(gone) == 2
    assert set(left) == set(range(shapes.ROWS)) - gone
    assert [number for number, word in left.items() if word == "u"] == [hooked.sql(first).collect()[0][0] + 1]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (f"SELECT f.id FROM {_PLAIN} f JOIN {_FEW} e ON f.i = e.i WHERE e.id = 1 AND f.part = 1", [("join", "i = 11")]),
        (
            f"SELECT f.id FROM {_PLAIN} f JOIN {_FEW} e ON f.i = e.i JOIN {_FEW} g ON f.t = g.t WHERE e.id = 1",
            [("join", "i = 11"), ("join", "t in 9 keys")],
        ),
        (
            f"SELECT id FROM {_PLAIN} WHERE t > (SELECT MAX(t) + INTERVAL 290 DAYS FROM {_FEW})",
            [("subquery", "t > 18560")],
        ),
    ],
)
def test_reports_say_what_keys_imply(hooked: SparkSession, sql: str, expected: list[tuple[str, str]]) -> None:
    (*_, report) = check_rows(hooked, sql)

    assert report.kept <= 1
    assert sorted((one.source, one.text) for one in keys_of([report])) == sorted(expected)


def test_explain_says_what_is_implied(hooked: SparkSession) -> None:
    where = "t < DATE '2020-02-01' AND UPPER(s) = 'K31'"
    # The first function that a JVM evaluates takes long.
    with settings(hooked, {"spark.puffin-index.planning-milliseconds": "60000"}):
        function = planner.explain(hooked.sql(f"SELECT id FROM {_PLAIN} WHERE {where}"))
    ordered = planner.explain(hooked.sql(f"SELECT id FROM {_PLAIN} WHERE part = 1 ORDER BY t, id LIMIT 1"))
    limited = planner.explain(hooked.sql(f"SELECT id FROM {_PLAIN} WHERE part = 1 LIMIT 3"))
    joined = planner.explain(hooked.sql(f"SELECT f.id FROM {_PLAIN} f JOIN {_FEW} e ON f.i = e.i WHERE e.id = 1"))

    # Iceberg leaves one file, of 15 row groups. Two have K31, and 4 have days of January, one of them with K31.
    assert re.search(
        r"implied by function: .*: s in 1 of \d+ values; found in [\d.]+ ms with \d+ bytes read", function
    ), function
    assert re.search(r"implied by top-k: order by t asc .*: \d+ rows are <= .*; drops 29 row groups that", ordered), (
        ordered
    )
    assert re.search(r"implied by limit: any rows limit 3: .* enough; drops 29 row groups that", limited), limited
    assert "implied by join or subquery: i: its keys are known when the query runs" in joined


@pytest.mark.parametrize("part", range(_PARTS))
def test_random_queries_have_the_same_rows(hooked: SparkSession, part: int) -> None:
    dropped = 0
    for seed in range(part, RANDOM_QUERIES, _PARTS):
        random = Random(seed)
        query, conf = shapes.RandomQuery(random), shapes.random_settings(random)
        with settings(hooked, conf):
            try:
                expected = rows_of(hooked, query.sql, enabled=False)
            except Exception as error:
                # With ANSI's casts, some comparisons fail with the index and without it.
                if "CAST_INVALID_INPUT" not in str(error):
                    raise
                continue
            assert rows_of(hooked, query.sql, enabled=True) == expected, (seed, query.sql, conf)
        dropped += sum(report.dropped for report in planner.reports(hooked)[-3:])

    assert dropped > 0
