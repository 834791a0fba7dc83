"""A PostgreSQL catalog over an S3 store, both real servers: built, planned, queried; secrets are written nowhere."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pyarrow.fs
import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

import planner
from planner.spark.catalogs import open_spark_catalog
from planner.spark.rules import session_conf
from puffin_index import IndexDefinition, TableIndex
from ssb_bench.spark_runs.measure import measure
from tests.spark.agreement import row_groups_of
from tests.spark.services import make_bucket, postgres, s3_server, s3_settings

pytestmark = pytest.mark.spark

PASSWORD = "pg:s3cret/@ä?%20"
KEY, SECRET = "AKIATESTKEY", "wJalr/s3-secret+key="
SECRETS = (PASSWORD, SECRET)


@dataclass(frozen=True, slots=True)
class Store:
    """A Spark catalog `store` with tables on `s3://lakehouse`."""

    spark: SparkSession
    catalog: Catalog
    files: pyarrow.fs.S3FileSystem


@pytest.fixture(scope="module")
def store(spark: SparkSession) -> Iterator[Store]:
    session = spark.newSession()
    with postgres("lake", PASSWORD) as port, s3_server() as endpoint:
        files = make_bucket(endpoint, "lakehouse", KEY, SECRET)
        for key, value in {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "jdbc",
            ".uri": f"jdbc:postgresql://127.0.0.1:{port}/postgres?ssl=false",
            ".jdbc.user": "lake",
            ".jdbc.password": PASSWORD,
            ".jdbc.schema-version": "V1",
            ".warehouse": "s3://lakehouse/tables",
            **s3_settings(endpoint, KEY, SECRET),
        }.items():
            session.conf.set(f"spark.sql.catalog.store{key}", value)
        catalog = open_spark_catalog(session_conf(session), "store")
        session.sql("CREATE NAMESPACE store.ns")
        yield Store(session, catalog, files)
        catalog.close()


@pytest.fixture(scope="module")
def index(store: Store) -> TableIndex:
    store.spark.sql(
        f"CREATE TABLE store.ns.items (id BIGINT, price BIGINT) USING iceberg TBLPROPERTIES ({row_groups_of(500)})"
    )
    store.spark.range(0, 5_000, 1, 1).selectExpr("id", "(id * 7919) % 5000 AS price").writeTo("store.ns.items").append()
    table_index = TableIndex.create(store.catalog, "ns.items", IndexDefinition.of(bsi=["price"], bloom=["id"]))
    assert table_index.build(store.spark).row_groups == 10
    return table_index


def test_a_table_on_s3_is_built_appended_to_and_queried(store: Store, index: TableIndex) -> None:
    planner.enable(store.spark, strict=True)
    measured = measure(store.spark, "SELECT COUNT(*) FROM store.ns.items WHERE price = 4711")
    assert (measured.answer.text, measured.rows_read) == ("1", 500)

    store.spark.range(5_000, 6_000, 1, 1).selectExpr("id", "id AS price").writeTo("store.ns.items").append()
    assert index.build().row_groups == 2
    measured = measure(store.spark, "SELECT COUNT(*) FROM store.ns.items WHERE price = 5432")
    assert (measured.answer.text, measured.rows_read) == ("1", 500)
    assert planner.plan(index, "price = 5432").kept == 1
    assert index.index_table.location().startswith("s3://lakehouse/")


def test_an_index_on_s3_follows_a_merge_and_is_compacted_and_expired(store: Store, index: TableIndex) -> None:
    planner.enable(store.spark, strict=True)
    store.spark.sql(
        "MERGE INTO store.ns.items a USING (SELECT id FROM store.ns.items WHERE id < 10) b ON a.id = b.id "
        "WHEN MATCHED THEN UPDATE SET price = 77777"
    )
    assert index.build().row_groups > 0
    index.compact()
    assert index.expire(timedelta(0)).segments > 0
    assert index.verify(None).findings == ()
    measured = measure(store.spark, "SELECT COUNT(*) FROM store.ns.items WHERE price = 77777")
    assert measured.answer is not None
    assert (measured.answer.text, measured.rows_read <= 1_000) == ("10", True)


def test_no_secret_is_written_to_segments_tables_plans_or_logs(
    store: Store, index: TableIndex, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "planner"), caplog.at_level(logging.DEBUG, "puffin_index"):
        planner.enable(store.spark)
        frame = store.spark.sql("SELECT * FROM store.ns.items WHERE price = 4711")
        frame.collect()
        text = planner.explain(frame)
    reports = [str(report.to_json()) for report in planner.reports(store.spark)]
    properties = str(index.index_table.metadata.model_dump_json())
    written = [
        store.files.open_input_file(info.path).read()
        for info in store.files.get_file_info(pyarrow.fs.FileSelector("lakehouse", recursive=True))
        if info.is_file
    ]

    assert reports
    assert any(data[:4] == b"PFA1" for data in written)
    for secret in SECRETS:
        assert all(secret.encode() not in data for data in written)
        assert all(secret not in told for told in (caplog.text, text, properties, *reports))


def test_a_wrong_password_is_not_repeated_in_the_warning(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    session = store.spark.newSession()
    for key, value in session_conf(store.spark).items():
        if key.startswith("spark.sql.catalog.store"):
            session.conf.set(key, value)
    planner.enable(session)
    expected = session.sql("SELECT COUNT(*) FROM store.ns.items WHERE price = 4711").collect()
    planner.enable(session)
    wrong = PASSWORD + "-no-longer"
    # Spark has its catalog open; only the planner opens it anew.
    session.conf.set("spark.sql.catalog.store.jdbc.password", wrong)
    with caplog.at_level(logging.DEBUG, "planner"):
        assert session.sql("SELECT COUNT(*) FROM store.ns.items WHERE price = 4711").collect() == expected
    assert "index not used" in caplog.text or "no index is used" in caplog.text
    assert wrong not in caplog.text
