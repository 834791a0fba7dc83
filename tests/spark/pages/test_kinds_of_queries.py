"""Few rows in queries of more kinds than a filter, in an object store, and in queries that somebody cancels."""

import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyroaring import BitMap
from pyspark.sql import SparkSession

from puffin_index import BuildScope, IndexDefinition
from ssb_bench.spark_runs.jars import SPARK_RELEASE
from ssb_bench.spark_runs.measure import hooked
from ssb_bench.stores.server import BUCKET, StoreServer, rounds_of
from ssb_bench.studies.store import session_of
from tests.conftest import built
from tests.spark.agreement import rows_of, with_and_without
from tests.spark.hook.test_cancel import Statement
from tests.spark.java_source import log_of_java
from tests.spark.pages.chosen_rows import LISTS, reading_only
from tests.stores import far_away

pytestmark = pytest.mark.spark


@pytest.mark.usefixtures("answering")
def test_rows_that_aggregates_leave_to_spark_are_read_by_pages(enabled: SparkSession, catalog: SqlCatalog) -> None:
    rows = "SELECT id, pmod(hash(id), 1000) AS v FROM range({}, {}, 1, 1)"
    enabled.sql(f"CREATE TABLE lake.pages.summed USING iceberg AS {rows.format(0, 60_000)}")
    enabled.sql(f"INSERT INTO lake.pages.summed {rows.format(60_000, 120_000)}")
    index = built(catalog, "pages.summed", bitmap=["id"])
    index.add_kinds(IndexDefinition.of(bsi=["v"]))
    index.build(workers=1, scope=BuildScope(max_files=1))

    wanted = "id IN (5, 30000, 59999, 90000, 90002)"
    plan, measured = with_and_without(enabled, f"SELECT count(v), sum(v), max(v) FROM lake.pages.summed WHERE {wanted}")
    assert (plan.kept, plan.answered != "", measured.rows_read) == (1, True, 2)


def test_rows_that_only_the_keys_of_a_join_want_are_read_by_pages(enabled: SparkSession, catalog: SqlCatalog) -> None:
    enabled.sql("CREATE TABLE lake.pages.joined USING iceberg AS SELECT id, id % 7 AS v FROM range(0, 60000, 1, 1)")
    built(catalog, "pages.joined", bitmap=["id"])
    enabled.createDataFrame([(7,), (50_000,)], "k LONG").createOrReplaceTempView("few_keys")
    query = "SELECT t.* FROM lake.pages.joined t JOIN few_keys ON t.id = k"
    wanted = BitMap([7, 50_000])

    # Before the query runs, all rows are wanted.
    with pytest.MonkeyPatch.context() as patch, reading_only(lambda _: wanted, lambda one: " in 2 keys" in one.where):
        patch.setattr("planner.spark.requests.hook_filters.key_presence", lambda *_: 0.0)
        _, measured = with_and_without(enabled, query)
    assert measured.rows_read == len(wanted)


@pytest.mark.nightly
def test_a_cancel_while_pages_are_read_ends_the_query(enabled: SparkSession, catalog: SqlCatalog) -> None:
    enabled.sql(f"CREATE TABLE lake.pages.cancelled USING iceberg AS SELECT id, {LISTS} FROM range(0, 400000, 1, 8)")
    built(catalog, "pages.cancelled", bitmap=["id"])
    query = f"SELECT * FROM lake.pages.cancelled WHERE id IN ({', '.join(map(str, range(7, 400_000, 50_000)))})"
    expected, ends = rows_of(enabled, query, enabled=False), Counter[str]()
    with reading_only(lambda _: BitMap([7])) as said:
        for number in range(20):
            statement = Statement(enabled, query)
            time.sleep(number / 50)
            enabled.sparkContext.cancelJobGroup(statement.name)
            error = statement.wait()
            assert not error or "cancelled" in error
            ends["cancelled" if error else "answered"] += 1
            assert rows_of(enabled, query, enabled=True) == expected
    assert len(said) == 8
    assert ends["cancelled"]


@pytest.mark.nightly
@pytest.mark.skipif(SPARK_RELEASE != "4.1", reason="only its session has Iceberg's classes for S3")
def test_a_task_asks_a_store_in_few_rounds(enabled: SparkSession, server: StoreServer, tmp_path: Path) -> None:
    database = tmp_path / "catalog.db"
    session = session_of(enabled, server, database)
    uri, warehouse = f"sqlite:///{database}", f"s3://{BUCKET}/warehouse"
    with closing(SqlCatalog("store", uri=uri, warehouse=warehouse, **server.properties)) as catalog:
        catalog.create_namespace("ns")
        session.sql(f"CREATE TABLE store.ns.t USING iceberg AS SELECT id, {LISTS} FROM range(0, 300000, 1, 1)")
        built(catalog, "ns.t", bitmap=["id"])
        query, wanted = "SELECT * FROM store.ns.t WHERE id IN (7, 150000, 299999)", BitMap([7, 150_000, 299_999])
        expected = rows_of(session, query, enabled=False)
        with hooked(session), reading_only(lambda _: wanted), log_of_java(enabled) as log:
            assert rows_of(session, query, enabled=True) == expected
            with far_away(server, []):
                assert rows_of(session, query, enabled=True) == expected
        of_data = [one for one in server.last_requests if one.key.endswith(".parquet")]
        # The footer, offset indexes, pages, and a large dictionary that some of these pages need.
        assert rounds_of([(one.began, one.ended) for one in of_data]) <= 4
        assert log() == []
