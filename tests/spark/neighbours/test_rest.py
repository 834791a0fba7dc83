"""A REST catalog (Nessie) over an S3 store, both real servers: built, planned, queried, merged into, expired."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pyarrow.fs
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import SparkSession

import planner
from planner.spark.catalogs import open_spark_catalog
from planner.spark.rules import session_conf
from puffin_index import IndexDefinition, TableIndex
from ssb_bench.spark_runs.measure import measure
from tests.spark.services import make_bucket, nessie, s3_server, s3_settings

pytestmark = [pytest.mark.spark, pytest.mark.services]

KEY, SECRET = "AKIARESTKEY", "wJalr/rest-secret+key="
TOKEN = "rest-bearer-5ecret"
LAYOUT = (
    "'write.parquet.row-group-size-bytes'='1', 'write.parquet.row-group-check-min-record-count'='500', "
    "'write.parquet.row-group-check-max-record-count'='500', 'write.distribution-mode'='none'"
)


@dataclass(frozen=True, slots=True)
class House:
    """A Spark catalog `house` with tables on `s3://lakehouse`.

    Attributes:
        spark: A session with it.
        catalog: The same from PyIceberg, opened from nothing but the session's configuration.
        files: The store.
    """

    spark: SparkSession
    catalog: RestCatalog
    files: pyarrow.fs.S3FileSystem

    def index(self, name: str) -> TableIndex:
        """Make a table of 10 row groups and its index."""
        self.spark.sql(f"CREATE TABLE house.ns.{name} (id BIGINT, price BIGINT) USING iceberg TBLPROPERTIES ({LAYOUT})")
        rows = self.spark.range(0, 5_000, 1, 1).selectExpr("id", "(id * 7919) % 5000 AS price")
        rows.writeTo(f"house.ns.{name}").append()
        index = TableIndex.create(self.catalog, f"ns.{name}", IndexDefinition.of(bsi=["price"], bloom=["id"]))
        assert index.build(self.spark).row_groups == 10
        return index

    def written(self) -> list[bytes]:
        """All that is in the store."""
        infos = self.files.get_file_info(pyarrow.fs.FileSelector("lakehouse", recursive=True))
        return [self.files.open_input_file(info.path).read() for info in infos if info.is_file]


@pytest.fixture(scope="module")
def house(spark: SparkSession) -> Iterator[House]:
    session = spark.newSession()
    with s3_server() as endpoint, nessie(endpoint, "lakehouse", KEY, SECRET) as uri:
        files = make_bucket(endpoint, "lakehouse", KEY, SECRET)
        for key, value in {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "rest",
            ".uri": uri,
            ".warehouse": "wh",
            # Nessie lets everybody in; what matters here is where the token turns up.
            ".token": TOKEN,
            **s3_settings(endpoint, KEY, SECRET),
        }.items():
            session.conf.set(f"spark.sql.catalog.house{key}", value)
        catalog = open_spark_catalog(session_conf(session), "house")
        assert isinstance(catalog, RestCatalog)
        session.sql("CREATE NAMESPACE house.ns")
        yield House(session, catalog, files)
        catalog.close()


def count(house: House, where: str) -> tuple[str, int]:
    """What a query counts, and how many rows it reads for that."""
    measured = measure(house.spark, f"SELECT COUNT(*) FROM house.ns.orders WHERE {where}")
    assert measured.answer is not None
    return measured.answer.text, measured.rows_read


def test_an_index_lives_its_life_on_a_rest_catalog(house: House) -> None:
    index = house.index("orders")
    assert planner.plan(index, "price = 4711").kept == 1
    planner.enable(house.spark, strict=True)
    assert count(house, "price = 4711") == ("1", 500)

    house.spark.sql(
        "MERGE INTO house.ns.orders a USING (SELECT id + 4990 AS id, price FROM house.ns.orders WHERE id < 20) b "
        "ON a.id = b.id WHEN MATCHED THEN UPDATE SET price = 7777 WHEN NOT MATCHED THEN INSERT (id, price) "
        "VALUES (b.id, 8888)"
    )
    # Nothing is known of what the merge wrote.
    assert count(house, "price = 7777")[0] == "10"
    assert index.build().row_groups >= 10
    answer, read = count(house, "price = 8888")
    assert (answer, read <= 1_000) == ("10", True)

    index.compact()
    assert index.expire(timedelta(0)).segments > 0
    assert index.verify(None).findings == ()
    assert count(house, "price = 7777")[0] == "10"
    assert sum(report.dropped for report in planner.reports(house.spark)) > 0
    index.drop()
    assert not house.catalog.table_exists("ns.orders__puffin_index")


def test_no_secret_is_written_to_segments_tables_plans_or_logs(house: House, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "planner"), caplog.at_level(logging.DEBUG, "puffin_index"):
        index = house.index("secret")
        planner.enable(house.spark)
        frame = house.spark.sql("SELECT * FROM house.ns.secret WHERE price = 4711")
        assert frame.count() == 1
        text = planner.explain(frame)
    told = [
        caplog.text,
        text,
        str(index.index_table.metadata.model_dump_json()),
        *(str(report.to_json()) for report in planner.reports(house.spark)),
    ]
    written = house.written()

    assert len(told) > 3
    assert any(data[:4] == b"PFA1" for data in written)
    for secret in (SECRET, TOKEN):
        assert all(secret.encode() not in data for data in written)
        assert all(secret not in each for each in told)
