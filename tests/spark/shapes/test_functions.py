"""Conditions that only Spark can evaluate: the same answers with the index, and fewer row groups where they allow.

Orders by leaves of structs are tried on the same table.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession
from pyspark.sql.types import BooleanType

import planner
from planner import ScanPlan
from puffin_index import TableIndex
from tests.conftest import amount, built
from tests.spark import every_type
from tests.spark.agreement import ENABLED, check_rows, row_groups_of, settings
from tests.spark.corpus_tables import statements
from tests.spark.shapes import shapes
from tests.spark.shapes.random_conditions import RandomCondition, random_monotone

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("table")]

NAMESPACE = "functions"
TABLE = f"lake.{NAMESPACE}.types"
RANDOM_QUERIES = amount(20, 1_000)
_ERRORS = re.compile(
    r"\[(DIVIDE_BY_ZERO|CAST_INVALID_INPUT|CAST_OVERFLOW|ARITHMETIC_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE|DATETIME_OVERFLOW"
    r"|INTERVAL_ARITHMETIC_OVERFLOW|INVALID_[A-Z_]+|INCONSISTENT_BEHAVIOR_CROSS_VERSION)"
)
"""What a condition may fail with for some values."""


@pytest.fixture(scope="module")
def table(spark: SparkSession, catalog: SqlCatalog) -> TableIndex:
    spark.sql(f"CREATE NAMESPACE lake.{NAMESPACE}")
    return every_type.create(catalog, f"{NAMESPACE}.types")


def keys(spark: SparkSession, sql: str) -> list[str]:
    """The rows of a query as text; of a query that fails, the kind of error."""
    try:
        return sorted(map(str, spark.sql(sql).collect()))
    except Exception as error:
        found = _ERRORS.search(str(error))
        if found is None:
            raise
        return [found[0]]


def check(spark: SparkSession, where: str, table: str = TABLE) -> ScanPlan | None:
    """Check that a query has the same rows with the index; return its scan plan, if the index was asked."""
    sql = f"SELECT k FROM {table} WHERE {where}"
    with settings(spark, {ENABLED: "false"}):
        expected = keys(spark, sql)
    earlier = planner.reports(spark)
    found = keys(spark, sql)
    # An index may drop the rows for which a condition fails; no other query may fail, and no row may be missing.
    assert found == expected or _ERRORS.match(expected[0]), where
    last = planner.reports(spark)[-1:]
    return last[0] if last and (not earlier or last[0] is not earlier[-1]) else None


@pytest.mark.one_of(6)
@pytest.mark.parametrize("where", [one.sql for one in statements("functions") if one.shrinks])
def test_a_function_of_one_column_reads_only_row_groups_that_have_matches(hooked: SparkSession, where: str) -> None:
    plan = check(hooked, where)

    assert plan is not None
    with settings(hooked, {ENABLED: "false"}):
        place = f"_file, _pos DIV {every_type.ROW_GROUP_ROWS}"
        matching = hooked.sql(f"SELECT DISTINCT {place} FROM {TABLE} WHERE {where}").count()
    assert plan.kept == matching < plan.row_groups
    assert any(one.source == "function" and "not used" not in one.text for one in plan.implied)


@pytest.mark.one_of(6)
@pytest.mark.parametrize("where", [one.sql for one in statements("functions") if not one.shrinks])
def test_odd_conditions_have_the_same_rows(hooked: SparkSession, where: str) -> None:
    if "rand" in where:
        assert keys(hooked, f"SELECT k FROM {TABLE} WHERE {where}") == []
        return
    check(hooked, where)


@pytest.mark.one_of(4)
@pytest.mark.parametrize(
    ("name", "values", "where"),
    [
        ("spark.sql.session.timeZone", ["UTC", "Asia/Tokyo", "America/Los_Angeles"], "CAST(day AS TIMESTAMP) = {}"),
        ("spark.sql.session.timeZone", ["UTC", "Asia/Tokyo"], "date_format(day, 'yyyy-MM-dd XXX') LIKE '%+09:00'"),
        ("spark.sql.ansi.enabled", ["true", "false"], "small / (small - 7) IS NULL AND small IS NOT NULL"),
        ("spark.sql.ansi.enabled", ["true", "false"], "CAST(inner.deep.word AS INT) IS NULL"),
        ("spark.sql.legacy.timeParserPolicy", ["CORRECTED", "LEGACY"], "date_format(day, 'YYYY') = '1970'"),
        ("spark.sql.codegen.wholeStage", ["true", "false"], "small % 1000 = 7"),
        ("spark.sql.adaptive.enabled", ["true", "false"], "small % 1000 = 7"),
    ],
)
def test_settings_that_change_meaning_are_heeded(
    hooked: SparkSession, name: str, values: list[str], where: str
) -> None:
    text = where.format("TIMESTAMP '1970-01-02 15:00:00Z'")
    for value in (*values, *values):
        with settings(hooked, {name: value}):
            check(hooked, text)


_COSTLY = r"^(a+)+\\1$"
"""A pattern that takes seconds for the text that the table `costly` has in row 777."""


@pytest.fixture(scope="module")
def costly(spark: SparkSession, catalog: SqlCatalog, table: TableIndex) -> str:
    """A table of a few values, some of which take long, or too much memory, if they are tried."""
    del table
    name = f"{NAMESPACE}.costly"
    spark.sql(
        f"CREATE TABLE lake.{name} USING iceberg TBLPROPERTIES ({shapes.LAYOUT}) AS SELECT /*+ COALESCE(1) */ id AS k, "
        "CASE id WHEN 777 THEN concat(repeat('a', 24), 'b') WHEN 888 THEN repeat('ab', 20000) "
        "ELSE concat('v', id DIV 100) END AS s, "
        "IF(id = 777, 400000000, CAST(id DIV 100 AS INT)) AS r FROM RANGE(0, 1000, 1, 1)"
    )
    built(catalog, name, bitmap=["s", "r"], bsi=["k"])
    return f"lake.{name}"


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("where", "kept", "text"),
    [
        (f"k = 5 AND s RLIKE '{_COSTLY}'", 1, "leaves one row group"),
        (f"k < 250 AND NOT s RLIKE '{_COSTLY}'", 2, "takes too long"),
        ("k < 250 AND NOT s RLIKE '^(a|b)*$' AND s LIKE '%1'", 1, "in 11 of 12 values"),
        ("k < 250 AND length(lpad('x', r, ' ')) = 1", 2, ""),
        ("k < 250 AND length(repeat('xyz', r)) < 6", 2, ""),
        ("k < 250 AND size(sequence(0, r)) > 2", 2, ""),
        ("k < 250 AND size(array_repeat('x', r)) < 2", 2, ""),
        ("k < 250 AND length(format_number(r, r)) < 5", 2, ""),
        ("k < 250 AND length(rpad(CAST(r AS STRING), 3, ' ')) = 3 AND r % 3 = 1", 1, "in 4 of 11 values"),
    ],
)
def test_values_of_no_match_cost_little(hooked: SparkSession, costly: str, where: str, kept: int, text: str) -> None:
    plan = check(hooked, where, costly)

    assert plan is not None
    assert plan.kept == kept
    assert [text in implied.text for implied in plan.implied].count(True) >= bool(text), plan.implied


@pytest.mark.parametrize("group", ["length(s) > 9", "length(lpad('x', r % 3, ' '))"])
def test_groups_of_values_that_are_costly_to_try(hooked: SparkSession, costly: str, group: str) -> None:
    sql = f"SELECT {group}, count(*) FROM {costly} GROUP BY 1"
    with settings(hooked, {"spark.puffin-index.aggregates": "true"}):
        check_rows(hooked, sql)


_MEANINGS = {
    "spark.sql.session.timeZone": ("UTC", "Asia/Kathmandu", "America/Sao_Paulo"),
    "spark.sql.ansi.enabled": ("true", "false"),
    "spark.sql.caseSensitive": ("false", "true"),
    "spark.sql.codegen.factoryMode": ("FALLBACK", "NO_CODEGEN"),
}


@pytest.mark.parametrize("seed", range(RANDOM_QUERIES // 10))
def test_random_conditions_have_the_same_rows(hooked: SparkSession, seed: int) -> None:
    random = Random(seed)
    for _ in range(10):
        chosen = {name: random.choice(values) for name, values in _MEANINGS.items()}
        with settings(hooked, chosen):
            check(hooked, RandomCondition(random).condition())


_EDGES = {
    "i": "CASE id % 1000 WHEN 1 THEN 2147483647 WHEN 2 THEN -2147483648 WHEN 3 THEN NULL "
    "ELSE CAST((id * 7919) % 6000 - 3000 AS INT) * 357913 END",
    "l": "CASE id % 1000 WHEN 1 THEN 9223372036854775807 WHEN 2 THEN -9223372036854775808 WHEN 3 THEN NULL "
    "ELSE ((id * 7919) % 6000 - 3000) * 1537228672809129 END",
    "d": "CAST(((id * 7919) % 6000 - 3000) * 31.41 AS DECIMAL(9, 2))",
    "x": "CASE id % 600 WHEN 1 THEN DOUBLE('NaN') WHEN 2 THEN DOUBLE('-Infinity') WHEN 3 THEN -0.0D WHEN 4 THEN 0.0D "
    "WHEN 5 THEN NULL ELSE ((id * 7919) % 6000 - 3000) * 1.1D END",
    "y": "CASE id % 600 WHEN 1 THEN DOUBLE('Infinity') WHEN 2 THEN DOUBLE('-Infinity') WHEN 3 THEN -0.0D "
    "WHEN 4 THEN 0.0D ELSE ((id * 7919) % 6000 - 3000) * 1.1D END",
    "f": "CAST(((id * 7919) % 6000 - 3000) * 0.1 AS FLOAT)",
    "t": "TIMESTAMP '2018-01-01 00:00:00Z' + MAKE_DT_INTERVAL(0, CAST((id * 7919) % 6000 AS INT) * 3, 7, 0.5)",
    "n": "TIMESTAMP_NTZ '1969-01-01 00:00:00' + MAKE_DT_INTERVAL(0, CAST((id * 7919) % 6000 AS INT) * 3, 7, 0.5)",
}


@pytest.fixture(scope="module")
def edges(spark: SparkSession, catalog: SqlCatalog, table: TableIndex) -> str:
    """A table of columns with too many values for a list."""
    del table
    name = f"{NAMESPACE}.edges"
    columns = ", ".join(f"{text} AS {column}" for column, text in _EDGES.items())
    spark.sql(
        f"CREATE TABLE lake.{name} USING iceberg TBLPROPERTIES ({row_groups_of(500)}) "
        f"AS SELECT /*+ COALESCE(1) */ id AS k, {columns} FROM RANGE(0, 6000, 1, 1)"
    )
    built(catalog, name, bsi=list(_EDGES))
    return f"lake.{name}"


@pytest.mark.one_of(4)
@pytest.mark.parametrize("column", _EDGES)
def test_random_functions_that_may_be_monotone(hooked: SparkSession, edges: str, column: str) -> None:
    random = Random(column)
    for _ in range(max(RANDOM_QUERIES // 8, 5)):
        chosen = {name: random.choice(values) for name, values in _MEANINGS.items()}
        with settings(hooked, chosen):
            check(hooked, random_monotone(random, column), edges)


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    ("where", "ansi"),
    [
        ("l + 9223372036854775807 < 0", "false"),
        ("l + 1 < l_least", "false"),
        ("i + 2147483647 < 0", "false"),
        ("-i > 0", "false"),
        ("(i + 2000000000) / 4000000000 >= 0.4", "false"),
        ("l * 3 = 3074457345618258", "true"),
        ("x * -2 = 0", "true"),
        ("x + 1 > 6000", "true"),
        ("-x > 6000", "true"),
        ("f * 10 = 5", "true"),
        ("floor(x) >= 50", "false"),
        ("round(y) >= 50", "false"),
        ("floor(y) >= 50", "false"),
        ("y * DOUBLE('Infinity') > 1", "true"),
        ("DOUBLE('-Infinity') * y > 1", "true"),
        ("y - DOUBLE('Infinity') < 1", "true"),
        ("d * 99999999999 > 0", "false"),
    ],
)
def test_what_overflows_in_between_is_not_monotone(hooked: SparkSession, edges: str, where: str, ansi: str) -> None:
    with settings(hooked, {"spark.sql.ansi.enabled": ansi}):
        check(hooked, where.replace("l_least", "-9223372036854775807"), edges)


def test_a_comparison_that_rises_with_the_column_reads_one_row_group(hooked: SparkSession, edges: str) -> None:
    with settings(hooked, {ENABLED: "false"}):
        (row,) = hooked.sql(f"SELECT d, t FROM {edges} WHERE k = 2718").collect()

    assert check(hooked, f"d * 2 + 1 = {row.d * 2 + 1}", edges).kept == 1
    # Java has no such zone as the second: Spark reads it.
    for zone in ("UTC", "+1:00"):
        with settings(hooked, {"spark.sql.session.timeZone": zone}):
            plan = check(hooked, f"date_trunc('HOUR', t) = date_trunc('HOUR', TIMESTAMP '{row.t}')", edges)
        assert plan.kept < plan.row_groups


def test_a_limit_counts_the_rows_of_a_function(hooked: SparkSession) -> None:
    sql = f"SELECT k FROM {TABLE} WHERE small % 10 = 3 LIMIT 2"

    rows = hooked.sql(sql).collect()

    assert len(rows) == 2
    assert planner.reports(hooked)[-1].kept == 1
    with settings(hooked, {ENABLED: "false"}):
        assert {row.k for row in rows} <= {
            row.k for row in hooked.sql(f"SELECT k FROM {TABLE} WHERE small % 10 = 3").collect()
        }


def test_the_code_of_users_is_not_run(hooked: SparkSession) -> None:
    calls = hooked.sparkContext.accumulator(0)

    def seven(value: int | None) -> bool:
        calls.add(1)
        return value == 7

    hooked.udf.register("seven", seven, BooleanType())
    hooked.sql(f"SELECT k FROM {TABLE} WHERE seven(small)").explain()
    assert calls.value == 0
    check(hooked, "seven(small)")


def test_rows_that_came_later_are_found(hooked: SparkSession, catalog: SqlCatalog) -> None:
    name = f"{NAMESPACE}.later"
    hooked.sql(f"CREATE TABLE lake.{name} (k INT, s STRING) USING iceberg")
    hooked.sql(f"INSERT INTO lake.{name} VALUES (1, 'one'), (2, 'two'), (NULL, NULL)")
    index = built(catalog, name, bitmap=["k", "s"])

    def unlisted() -> list[int]:
        wheres = "k % 2 = 0", "upper(s) LIKE 'T%'", "length(coalesce(s, '')) = 0"
        plans = [check(hooked, where, f"lake.{name}") for where in wheres]
        return [plan.unlisted for plan in plans if plan is not None]

    assert unlisted() == [0, 0, 0]
    hooked.sql(f"INSERT INTO lake.{name} VALUES (40, 'TEN'), (7, '')")
    later = unlisted()
    assert (len(later), min(later) > 0) == (3, True)
    index.build(workers=1)
    assert unlisted() == [0, 0, 0]


def test_renamed_and_promoted_columns_mean_what_they_mean_now(hooked: SparkSession, catalog: SqlCatalog) -> None:
    name = f"{NAMESPACE}.changed"
    hooked.sql(f"CREATE TABLE lake.{name} (k INT, f FLOAT, d DECIMAL(5, 2)) USING iceberg")
    hooked.sql(f"INSERT INTO lake.{name} VALUES (1, 1.1, 1.25), (2, 2.5, 2.50)")
    index = built(catalog, name, bitmap=["k", "f", "d"])
    hooked.sql(f"ALTER TABLE lake.{name} ALTER COLUMN f TYPE DOUBLE")
    hooked.sql(f"ALTER TABLE lake.{name} ALTER COLUMN d TYPE DECIMAL(20, 2)")
    hooked.sql(f"ALTER TABLE lake.{name} ALTER COLUMN k TYPE BIGINT")
    hooked.sql(f"INSERT INTO lake.{name} VALUES (30000000000, 1.1, 123456789012345678.25)")
    index.build(workers=1)
    for where in ("CAST(f AS STRING) = '1.1'", "CAST(f AS STRING) LIKE '1.1000000%'", "k % 10 = 0", "d * 4 = 5"):
        check(hooked, where, f"lake.{name}")
    hooked.sql(f"ALTER TABLE lake.{name} RENAME COLUMN k TO k2")
    hooked.sql(f"ALTER TABLE lake.{name} RENAME COLUMN f TO k")
    check(hooked, "k2 % 10 = 0 AND k + 1 > 2", f"lake.{name}")


@pytest.mark.parametrize("answers", ["false", "true"])
def test_several_threads_and_a_changing_table(hooked: SparkSession, catalog: SqlCatalog, answers: str) -> None:
    """Row groups are dropped, or aggregates answered."""
    name = f"{NAMESPACE}.threads_{answers}"
    hooked.sql(f"CREATE TABLE lake.{name} (k INT) USING iceberg")
    hooked.sql(f"INSERT INTO lake.{name} SELECT CAST(id AS INT) FROM RANGE(100)")
    index = built(catalog, name, bitmap=["k"])

    def count(number: int) -> tuple[int, int]:
        sql = f"SELECT COUNT(*), MAX(k) FROM lake.{name} WHERE k < 100 AND k % {number + 2} = 0"
        (row,) = hooked.sql(sql).collect()
        return row[0], row[1]

    with settings(hooked, {"spark.puffin-index.aggregates": answers}), ThreadPoolExecutor(4) as pool:
        found = list(pool.map(count, range(12)))
        hooked.sql(f"INSERT INTO lake.{name} SELECT CAST(id + 100 AS INT) FROM RANGE(100)")
        later = pool.map(count, range(12))
        index.build(workers=1)
        assert list(later) == found
    multiples = [range(0, 100, number + 2) for number in range(12)]
    assert found == [(len(some), some[-1]) for some in multiples]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("sql", [one.sql for one in statements("leaf_orders")])
def test_an_order_by_a_leaf_of_a_struct_reads_few_row_groups(hooked: SparkSession, sql: str) -> None:
    plans = check_rows(hooked, sql.format(t=TABLE))

    first = [plan for plan in plans if any(implied.source == "top-k" for implied in plan.implied)]
    assert first, [str(plan.implied) for plan in plans]
    assert all(plan.kept < plan.row_groups for plan in first)


@pytest.mark.one_of(6)
@pytest.mark.parametrize("order", ["inner.leaf", "inner.deep.word DESC", "inner.leaf DESC NULLS FIRST"])
@pytest.mark.parametrize("where", ["TRUE", "small < 0", "inner.leaf % 7 = 3", "inner IS NULL"])
def test_leaves_of_missing_structs_are_null_in_an_order(hooked: SparkSession, order: str, where: str) -> None:
    for limit in (1, 40, 600):
        check_rows(hooked, f"SELECT k, inner FROM {TABLE} WHERE {where} ORDER BY {order}, k LIMIT {limit}")
