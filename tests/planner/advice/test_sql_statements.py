"""Conditions on one table's columns in SQL statements."""

import pytest

from planner.advice.sql_statements import read_statements
from planner.advice.workload import Query, Workload, condensed
from puffin_index.errors import PuffinIndexError

COLUMNS = ["a", "b", "dt", "ts", "s", "m", "st", "k", "with space"]


def read(text: str) -> Workload:
    return read_statements(text, ("ns", "t"), COLUMNS)


@pytest.mark.parametrize(
    ("statement", "where"),
    [
        ("SELECT * FROM t WHERE a = 5", "`a` = 5"),
        ("SELECT * FROM lake.NS.T WHERE a = 5L OR b IN (1, 2)", "`a` = 5 OR `b` IN (1, 2)"),
        ("SELECT x.a FROM ns.t AS x WHERE x.a BETWEEN 1 AND 2", "`a` BETWEEN 1 AND 2"),
        ("SELECT 1 FROM ns.t WHERE ns.t.a = 1", "`a` = 1"),
        ("SELECT 1 FROM t WHERE dt = DATE '2024-01-05'", "`dt` = DATE '2024-01-05'"),
        ("SELECT 1 FROM t WHERE ts >= TIMESTAMP '2024-01-05 01:02:03'", "`ts` >= TIMESTAMP '2024-01-05 01:02:03'"),
        ("SELECT 1 FROM t WHERE s LIKE 'a;b%' -- why", "`s` LIKE 'a;b%'"),
        ("SELECT 1 FROM t WHERE m['x'] = 'y'", "`m`['x'] = 'y'"),
        ("SELECT 1 FROM t WHERE st.x = 1 AND t.st.x < 3", "(`st`.`x` = 1) AND (`st`.`x` < 3)"),
        ("SELECT 1 FROM t WHERE `with space` IS NULL", "`with space` IS NULL"),
        # Of joins, the conditions on the table alone.
        ("SELECT 1 FROM t JOIN d ON t.k = d.k AND t.a > 7 WHERE d.x = 1 AND b = 2", "(`b` = 2) AND (`a` > 7)"),
        ("SELECT 1 FROM t LEFT JOIN d ON t.k = d.k AND t.a > 7 WHERE b = 2", "`b` = 2"),
        ("SELECT 1 FROM t, d WHERE t.k = d.k AND (t.a = 1 OR d.x = 1)", None),
        ("WITH w AS (SELECT * FROM ns.t WHERE a = 3) SELECT * FROM w WHERE b = 4", "`a` = 3"),
        ("SELECT * FROM u WHERE k IN (SELECT k FROM ns.t WHERE a = 3)", "`a` = 3"),
        ("SELECT * FROM t WHERE a = (SELECT max(k) FROM u) AND b = 1", "`b` = 1"),
        ("DELETE FROM ns.t WHERE a = 9", "`a` = 9"),
        ("UPDATE ns.t SET b = 1 WHERE a = 9", "`a` = 9"),
        ("WHERE a = 9 AND b", "a = 9 AND b"),
    ],
)
def test_the_condition_of_a_statement(statement: str, where: str | None) -> None:
    workload = read(statement)
    assert [query.where for query in workload.queries] == [where]
    assert not workload.skipped


@pytest.mark.parametrize(
    ("statement", "groups", "held"),
    [
        ("SELECT a, count(*), sum(x.b) FROM t AS x WHERE s = 'x' GROUP BY a", {"a"}, {"a", "b"}),
        ("SELECT k AS key, avg(b) AS mean FROM t GROUP BY 1 HAVING count(*) > 5", {"k"}, {"k", "b"}),
        ("SELECT DISTINCT a, b FROM t", {"a", "b"}, {"a", "b"}),
        ("SELECT max(a) FROM t WHERE b = 1", set(), {"a"}),
        ("SELECT count(*) FROM t WHERE b = 1", set(), set()),
        ("SELECT a, b FROM t GROUP BY a", set(), set()),
        ("SELECT a, sum(b + 1) FROM t GROUP BY a", set(), set()),
        ("SELECT t.a, count(*) FROM t JOIN d ON t.k = d.k GROUP BY t.a", set(), set()),
    ],
)
def test_columns_that_answer_a_query(statement: str, groups: set[str], held: set[str]) -> None:
    (query,) = read(statement).queries
    assert (query.groups, query.held) == (groups, held)


def test_columns_that_joins_and_subqueries_compare() -> None:
    text = (
        "SELECT 1 FROM t JOIN d ON t.k = d.k AND t.a > 7; SELECT 1 FROM t, d WHERE t.k = d.x AND t.a = t.b;"
        "SELECT 1 FROM t WHERE a IN (SELECT x FROM d) AND b IN (1, 2)"
    )
    assert read(text).used == {"k": 2, "a": 1}


def test_columns_that_are_read() -> None:
    assert read("SELECT a, count(b) FROM t WHERE s = 'x'").queries[0].columns == {"a", "b", "s"}
    assert read("SELECT t.*, 1 FROM t WHERE s = 'x'").queries[0].columns is None


def test_other_tables_and_what_cannot_be_read() -> None:
    text = (
        "SELECT 1 FROM other.t WHERE a = 1; SELECT 1 FROM ns.u; WITH t AS (SELECT 1 AS a) SELECT a FROM t WHERE a = 1;"
    )
    assert read(text).of_other_tables == 3
    workload = read("SELECT FROM WHERE; SELECT 1 FROM t WHERE a = 1; foo bar baz qux")
    assert [query.where for query in workload.queries] == ["`a` = 1"]
    assert len(workload.skipped) == 2


@pytest.mark.parametrize("text", ["", " ;; ", "-- nothing", "SELECT 'never closed"])
def test_a_text_without_statements(text: str) -> None:
    with pytest.raises(PuffinIndexError, match=r"no SQL"):
        read(text)


def test_equal_queries_are_counted() -> None:
    workload = read("SELECT a FROM t WHERE a = 1; select A from T where a=1; SELECT a FROM t WHERE a = 2")
    assert [(query.where, query.times) for query in workload.queries] == [("`a` = 1", 2), ("`a` = 2", 1)]
    assert workload.scans == 3


def test_queries_stand_for_others_that_are_like_them() -> None:
    many = [Query(f"a = {number}") for number in range(1000)] + [Query("s = 'it''s 5' AND b > 1.5", times=3)]
    few = condensed(Workload.of(many))
    assert len(few.queries) == 5
    assert few.scans == 1003
    assert few.queries[-1].times == 3
    assert "stand for 1,001" in few.skipped[0]
    rare = condensed(Workload.of([Query(f"c{number} = 1", times=1 + (number < 3)) for number in range(120)]))
    assert len(rare.queries) == 100
    assert "20 scans of rare shapes" in rare.skipped[0]
