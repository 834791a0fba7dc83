"""Catalogs over an S3 store, all real servers: built, planned, queried, merged into; secrets are written nowhere."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta

import pyarrow.fs
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import planner
from planner.spark.catalogs import open_spark_catalog
from planner.spark.rules import session_conf
from puffin_index import IndexDefinition, TableIndex
from ssb_bench.spark_runs.measure import measure
from tests.spark.agreement import row_groups_of
from tests.spark.services import make_bucket, nessie, postgres, s3_server, s3_settings

pytestmark = pytest.mark.spark

PASSWORD, TOKEN = "pg:s3cret/@ä?%20", "rest-bearer-5ecret"
KEY, SECRET = "AKIATESTKEY", "wJalr/s3-secret+key="
SECRETS = (PASSWORD, TOKEN, SECRET)


@dataclass(frozen=True, slots=True)
class Store:
    """A Spark catalog `store` with tables on `s3://lakehouse`; PyIceberg opens it by the session's configuration."""

    spark: SparkSession
    catalog: Catalog
    files: pyarrow.fs.S3FileSystem

    def index(self, name: str) -> TableIndex:
        """Make a table of 10 row groups and its index."""
        self.spark.sql(
            f"CREATE TABLE store.ns.{name} (id BIGINT, price BIGINT) USING iceberg TBLPROPERTIES ({row_groups_of(500)})"
        )
        rows = self.spark.range(0, 5_000, 1, 1).selectExpr("id", "(id * 7919) % 5000 AS price")
        rows.writeTo(f"store.ns.{name}").append()
        index = TableIndex.create(self.catalog, f"ns.{name}", IndexDefinition.of(bsi=["price"], bloom=["id"]))
        assert index.build(self.spark).row_groups == 10
        return index

    def count(self, where: str) -> tuple[str, int]:
        """What a query of `orders` counts, and how many rows it reads for that."""
        measured = measure(self.spark, f"SELECT COUNT(*) FROM store.ns.orders WHERE {where}")
        assert measured.answer is not None
        return measured.answer.text, measured.rows_read


@pytest.fixture(scope="module", params=["postgres", pytest.param("rest", marks=pytest.mark.services)])
def store(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[Store]:
    session = spark.newSession()
    with ExitStack() as servers:
        endpoint = servers.enter_context(s3_server())
        files = make_bucket(endpoint, "lakehouse", KEY, SECRET)
        if request.param == "postgres":
            port = servers.enter_context(postgres("lake", PASSWORD))
            own = {
                ".type": "jdbc",
                ".uri": f"jdbc:postgresql://127.0.0.1:{port}/postgres?ssl=false",
                ".jdbc.user": "lake",
                ".jdbc.password": PASSWORD,
                ".jdbc.schema-version": "V1",
                ".warehouse": "s3://lakehouse/tables",
            }
        else:
            uri = servers.enter_context(nessie(endpoint, "lakehouse", KEY, SECRET))
            # Nessie lets everybody in; what matters here is where the token turns up.
            own = {".type": "rest", ".uri": uri, ".warehouse": "wh", ".token": TOKEN}
        conf = {"": "org.apache.iceberg.spark.SparkCatalog", **own, **s3_settings(endpoint, KEY, SECRET)}
        for key, value in conf.items():
            session.conf.set(f"spark.sql.catalog.store{key}", value)
        catalog = open_spark_catalog(session_conf(session), "store")
        assert isinstance(catalog, SqlCatalog if request.param == "postgres" else RestCatalog)
        session.sql("CREATE NAMESPACE store.ns")
        yield Store(session, catalog, files)
        catalog.close()


def test_an_index_lives_its_life(store: Store) -> None:
    index = store.index("orders")
    planner.enable(store.spark, strict=True)
    assert store.count("price = 4711") == ("1", 500)

    store.spark.range(5_000, 6_000, 1, 1).selectExpr("id", "id AS price").writeTo("store.ns.orders").append()
    assert index.build().row_groups == 2
    assert store.count("price = 5432") == ("1", 500)
    assert planner.plan(index, "price = 5432").kept == 1
    assert index.index_table.location().startswith("s3://lakehouse/")

    store.spark.sql(
        "MERGE INTO store.ns.orders a USING (SELECT id + 5990 AS id, price FROM store.ns.orders WHERE id < 20) b "
        "ON a.id = b.id WHEN MATCHED THEN UPDATE SET price = 77777 WHEN NOT MATCHED THEN INSERT (id, price) "
        "VALUES (b.id, 88888)"
    )
    # Nothing is known of what the merge wrote.
    assert store.count("price = 77777")[0] == "10"
    assert index.build().row_groups > 0
    answer, read = store.count("price = 88888")
    assert (answer, read <= 1_000) == ("10", True)

    index.compact()
    assert index.expire(timedelta(0)).segments > 0
    assert index.verify(None).findings == ()
    answer, read = store.count("price = 77777")
    assert (answer, read <= 1_000) == ("10", True)
    assert sum(report.dropped for report in planner.reports(store.spark)) > 0
    index.drop()
    assert not store.catalog.table_exists("ns.orders__puffin_index")


def test_no_secret_is_written_to_segments_tables_plans_or_logs(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "planner"), caplog.at_level(logging.DEBUG, "puffin_index"):
        index = store.index("secret")
        planner.enable(store.spark)
        frame = store.spark.sql("SELECT * FROM store.ns.secret WHERE price = 4711")
        assert frame.count() == 1
        text = planner.explain(frame)
    reports = [str(report.to_json()) for report in planner.reports(store.spark)]
    told = [caplog.text, text, str(index.index_table.metadata.model_dump_json()), *reports]
    infos = store.files.get_file_info(pyarrow.fs.FileSelector("lakehouse", recursive=True))
    written = [store.files.open_input_file(info.path).read() for info in infos if info.is_file]

    assert reports
    assert any(data[:4] == b"PFA1" for data in written)
    for secret in SECRETS:
        assert all(secret.encode() not in data for data in written)
        assert all(secret not in each for each in told)


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_a_wrong_password_is_not_repeated_in_the_warning(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    store.index("locked")
    session = store.spark.newSession()
    for key, value in session_conf(store.spark).items():
        if key.startswith("spark.sql.catalog.store"):
            session.conf.set(key, value)
    planner.enable(session)
    sql = "SELECT COUNT(*) FROM store.ns.locked WHERE price = 4711"
    expected = session.sql(sql).collect()
    planner.enable(session)
    wrong = PASSWORD + "-no-longer"
    # Spark has its catalog open; only the planner opens it anew.
    session.conf.set("spark.sql.catalog.store.jdbc.password", wrong)
    with caplog.at_level(logging.DEBUG, "planner"):
        assert session.sql(sql).collect() == expected
    assert "index not used" in caplog.text or "no index is used" in caplog.text
    assert wrong not in caplog.text
