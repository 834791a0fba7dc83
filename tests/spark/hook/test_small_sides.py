"""Keys of sides whose size Spark cannot tell, or that may give other rows next time, such as lists made in Python."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import randrange

import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import broadcast, col, count, lit, udf

import planner
from puffin_index import TableIndex
from tests.processes import wait_for
from tests.spark.agreement import ENABLED, check_rows, plan_text, reports_since, settings

pytestmark = pytest.mark.spark

KEYS = [3, 4, 4, 19_999, 77_777, None]
NUMBERS = "k INT, n INT"
EVERY = 20


def _with_function(spark: SparkSession) -> DataFrame:
    plus_one = udf(lambda value: value + 1, "int")
    return spark.range(4).select(plus_one(col("id").cast("int")).alias("k"), col("id").alias("n"))


def _from_pandas(spark: SparkSession) -> DataFrame:
    pandas = pytest.importorskip("pandas")
    return spark.createDataFrame(pandas.DataFrame({"k": KEYS[:4], "n": 1}), NUMBERS)


def _listed(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(key, 1) for key in KEYS], NUMBERS)


SIDES: dict[str, Callable[[SparkSession], DataFrame]] = {
    "rows": _listed,
    "pandas": _from_pandas,
    "rdd": lambda spark: spark.sparkContext.parallelize([(key, 1) for key in KEYS], 3).toDF(NUMBERS),
    "function": _with_function,
    "limit": lambda spark: spark.range(9, 900).selectExpr("CAST(id AS INT) AS k", "id AS n").limit(3),
    "sample": lambda spark: spark.range(2000).selectExpr("CAST(id AS INT) AS k", "id AS n").sample(0.002, 7),
    "cached": lambda spark: spark.range(9, 12).selectExpr("CAST(id AS INT) AS k", "id AS n").cache(),
    "joined": lambda spark: _listed(spark).join(spark.range(9).withColumnRenamed("id", "n"), "n"),
    "few of each": lambda spark: _listed(spark).groupBy("k").count(),
    "random": lambda spark: _listed(spark).where("rand(1) < 2"),
}


@pytest.fixture(scope="module")
def hook(enabled: SparkSession, items: TableIndex) -> Iterator[SparkSession]:
    """The session with the hook; a busy machine may take its time."""
    assert items.name == "ns.items"
    with settings(enabled, {"spark.puffin-index.side-milliseconds": "60000"}):
        yield enabled


def _rows(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


def _kept(spark: SparkSession, query: Callable[[], DataFrame]) -> int:
    """How many row groups a query keeps, whose rows are those of a plain scan."""
    before = planner.reports(spark)
    found = _rows(query())
    reports = reports_since(spark, before)
    with settings(spark, {ENABLED: "false"}):
        assert _rows(query()) == found
    return min((report.kept for report in reports), default=EVERY)


@pytest.mark.parametrize("broadcasts", [True, False])
@pytest.mark.parametrize("name", SIDES)
def test_keys_of_any_small_side_reach_the_scan(hook: SparkSession, name: str, broadcasts: bool) -> None:
    side = SIDES[name](hook)
    items = hook.table("lake.ns.items").select("id", "k")

    kept = _kept(hook, lambda: items.join(broadcast(side) if broadcasts else side, "k").select(items.id, "k"))

    side.unpersist()
    assert kept <= 5


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM {t} WHERE k IN (SELECT k FROM watch)",
        "SELECT id FROM {t} i WHERE EXISTS (SELECT 1 FROM watch w WHERE w.k = i.k AND w.n = 1)",
        "SELECT id FROM {t} WHERE k = (SELECT max(k) FROM watch WHERE k < 5)",
        "SELECT id FROM {t} WHERE k <= (SELECT min(k) FROM watch)",
        "SELECT id FROM {t} WHERE k BETWEEN (SELECT min(k) FROM watch) AND (SELECT min(k) + 1 FROM watch)",
        "SELECT id FROM {t} WHERE k = coalesce((SELECT k FROM watch WHERE n = 2), 7)",
        "SELECT id, w.n FROM watch w LEFT JOIN {t} i ON i.k = w.k",
        "SELECT i.id FROM {t} i JOIN watch w ON i.k = w.k JOIN watch v ON i.k = v.k + 1",
        "SELECT i.id FROM {t} i JOIN (SELECT CAST(k AS BIGINT) AS k FROM watch) w ON i.k = w.k",
        "SELECT i.id FROM {t} i JOIN (SELECT CAST(k AS BIGINT) AS k FROM watch) w ON CAST(i.k AS BIGINT) = w.k",
    ],
)
def test_subqueries_and_outer_joins_of_a_list_made_in_python(hook: SparkSession, sql: str) -> None:
    _listed(hook).createOrReplaceTempView("watch")

    assert _kept(hook, lambda: hook.sql(sql.format(t="lake.ns.items"))) <= (EVERY if "coalesce" in sql else 5)


def test_merged_subqueries_of_rows_that_change_see_the_same_rows(hook: SparkSession) -> None:
    changing = hook.sparkContext.parallelize(range(2), 2).map(lambda _: (randrange(20_000), 1))
    # The `toDF` of an RDD makes a DataFrame of the first session of the process.
    hook.createDataFrame(changing, NUMBERS).createOrReplaceTempView("changing")
    ends = [f"(SELECT {end}(k) FROM changing)" for end in ("min", "max")]
    sql = f"SELECT k, {ends[0]} AS low, {ends[1]} AS high FROM lake.ns.items WHERE k BETWEEN {ends[0]} AND {ends[1]}"
    before = planner.reports(hook)

    rows = [row for _ in range(3) for row in hook.sql(sql).collect()]

    assert rows
    assert all(row.low <= row.k <= row.high for row in rows)
    assert any(one.text.startswith("k >= ") for report in reports_since(hook, before) for one in report.implied)


@pytest.mark.parametrize("kind", ["left", "left_anti", "full"])
def test_sides_that_keep_all_rows_of_the_table_take_none_away(hook: SparkSession, kind: str) -> None:
    items = hook.table("lake.ns.items").select("id", "k")

    assert _kept(hook, lambda: items.join(_listed(hook), "k", kind).select("id")) == EVERY


def test_many_rows_and_slow_ones_leave_the_query_as_it_was(hook: SparkSession) -> None:
    items = hook.table("lake.ns.items").select("id", "k")
    made = hook.sparkContext.accumulator(0)

    def row(number: int) -> tuple[int, int]:
        made.add(1)
        return number % 7, 1

    many = hook.sparkContext.parallelize(range(200_000), 2).map(row).toDF(NUMBERS)
    with settings(hook, {"spark.puffin-index.side-milliseconds": "0"}):
        slow = items.join(_listed(hook), "k")
        assert "Scan ExistingRDD" in plan_text(slow)
    assert "Scan ExistingRDD" in plan_text(items.join(many, "k"))
    tried = made.value
    assert tried > 100_000
    assert "Scan ExistingRDD" in plan_text(items.join(many, "k"))
    assert made.value == tried, "a side that was given up ran again for its keys"
    assert len(slow.collect()) == len(items.join(_listed(hook), "k").collect())


@pytest.mark.nightly
def test_a_side_whose_first_run_was_slow_gives_its_keys_later(hook: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "has-run"

    def key(value: int | None) -> int | None:
        if not place.exists():
            place.touch()
            time.sleep(4)
        return value

    listed = _listed(hook).select(udf(key, "int", useArrow=False)("k").alias("k"))

    def kept() -> int:
        return _kept(hook, lambda: hook.table("lake.ns.items").select("id", "k").join(listed, "k"))

    with settings(hook, {"spark.puffin-index.side-milliseconds": "1500"}):
        assert [kept(), kept()] == [EVERY, EVERY]
        # Spark 3.5 may hand out a Python worker that it has ended, for a minute: then the next run fails, too.
        assert wait_for(lambda: kept() != EVERY, 150, pause=5)


def test_sides_run_in_python_workers_of_their_own(hook: SparkSession, tmp_path: Path) -> None:
    """Spark ends the workers of a task that outlives its job, also those that others have by then (SPARK-54217)."""
    place = tmp_path / "processes"

    def key(value: int | None) -> int | None:
        of_side = "puffin-index" in str(TaskContext.get().getLocalProperty("spark.job.tags"))
        with place.open("a") as processes:
            print(of_side, os.getpid(), file=processes)
        return value

    listed = _listed(hook).select(udf(key, "int", useArrow=False)("k").alias("k"))
    items = hook.table("lake.ns.items").select("id", "k")

    for _ in range(2):
        assert _kept(hook, lambda: items.join(listed, "k")) < EVERY

    lines = {tuple(line.split()) for line in place.read_text().splitlines()}
    of_sides, of_queries = ({process for side, process in lines if side == str(kind)} for kind in (True, False))
    assert of_sides
    assert of_queries
    assert not of_sides & of_queries


def test_an_observed_side_is_observed(hook: SparkSession) -> None:
    """A side that ran before the query would have no metrics in it."""
    observation = Observation()
    side = _listed(hook).observe(observation, count(lit(1)).alias("n"))

    assert hook.table("lake.ns.items").select("id", "k").join(side, "k").count() == 4
    assert observation.get == {"n": len(KEYS)}


def test_a_limit_picks_from_all_rows_that_are_numbered(hook: SparkSession) -> None:
    """A column may have the name that Spark gives to the numbers of MERGE's rows."""
    numbered = "SELECT k, price, monotonically_increasing_id() AS __row_id FROM lake.ns.items"
    wanted = "k = (SELECT CAST(max(id) AS INT) FROM range(4322))"

    check_rows(hook, f"SELECT k, price, __row_id >= 0 FROM ({numbered} ORDER BY price, k LIMIT 900) WHERE {wanted}")


def test_a_side_that_fails_says_what_it_says_without_the_hook(hook: SparkSession) -> None:
    fails = hook.createDataFrame([(0, 1)], NUMBERS).selectExpr("IF(k = 0, raise_error('broken'), k) AS k")

    with pytest.raises(Exception, match="broken"):
        hook.table("lake.ns.items").join(fails, "k").collect()
    assert not hook.sparkContext._jsc.sc().getJobTags().nonEmpty()
