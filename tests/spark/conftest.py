"""One real Spark session with Iceberg for all Spark tests, the same catalog seen from PyIceberg, and shared tables."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import planner
from planner.spark.catalogs import open_spark_catalog
from puffin_index import IndexDefinition, TableIndex
from ssb_bench.spark_runs.jars import SERVICES, SPARK_RELEASE
from ssb_bench.spark_runs.session import create_session
from tests.conftest import is_nightly
from tests.spark import corpus_tables, every_type
from tests.spark.agreement import settings
from tests.spark.hook.items import ROW_GROUP_ROWS, ROWS, create_items
from tests.spark.services import postgres
from tests.spark.shapes import shapes

NAMESPACES = (
    *("answered", "calls", corpus_tables.NAMESPACE, "ddl", "empty", "found", "lives", "ns", "pages", "shop", "stress"),
)

_CONF = {
    # Tests build an index and query right after.
    "spark.puffin-index.refresh-seconds": "0",
    # Tests of pruning count rows, and look at what the scan has read.
    "spark.puffin-index.aggregates": "false",
    # Compiling a query takes longer than reading the few rows of a test. Expressions are compiled nevertheless:
    # interpreted aggregates of strings with a collation are wrong now and then, without the hook as well.
    "spark.sql.codegen.wholeStage": str(is_nightly()).lower(),
    "spark.sql.shuffle.partitions": "1",
}

_LOGIN = {"jdbc.user": "lake", "jdbc.password": "lake"}


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the shared catalog and its tables."""
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="session")
def catalog_conf() -> Iterator[dict[str, str]]:
    """What makes the catalog `lake` another one than the embedded."""
    if SPARK_RELEASE != "4.0":
        yield {}
        return
    # The catalog of Iceberg 1.10 leaves transactions open, between which SQLite lets nobody else write.
    with postgres("lake", "lake") as port:
        uri = f"jdbc:postgresql://127.0.0.1:{port}/postgres"
        yield {f"spark.sql.catalog.lake.{key}": value for key, value in {"uri": uri, **_LOGIN}.items()}


@pytest.fixture(scope="session")
def spark(warehouse: Path, catalog_conf: dict[str, str]) -> Iterator[SparkSession]:
    """A local session with the stock Iceberg runtime; its catalog is called `lake`."""
    session = create_session(warehouse, memory="2g", name="tests", jars=SERVICES, conf=_CONF | catalog_conf)
    for namespace in NAMESPACES:
        session.sql(f"CREATE NAMESPACE lake.{namespace}")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def catalog(spark: SparkSession) -> SqlCatalog:
    """The same catalog, opened by PyIceberg."""
    opened = open_spark_catalog(dict(spark.sparkContext.getConf().getAll()), "lake")
    assert isinstance(opened, SqlCatalog)
    return opened


@pytest.fixture(scope="session")
def corpus(spark: SparkSession, catalog: SqlCatalog) -> dict[str, dict[str, str]]:
    """The tables of the query corpus; for each fact table what its statements are filled in with."""
    corpus_tables.create_dimensions(spark)
    names: dict[str, dict[str, str]] = {}
    for name in (*corpus_tables.FACT_TABLES, "types"):
        if name == "types":
            index = every_type.create(catalog, f"{corpus_tables.NAMESPACE}.{name}")
        else:
            index = corpus_tables.create_fact(spark, catalog, name)
        snapshot = index.data_table.refresh().snapshots()[-1]
        (row,) = spark.sql(f"SELECT CAST(TIMESTAMP_MILLIS({snapshot.timestamp_ms + 1}) AS STRING)").collect()
        names[name] = {
            "t": f"lake.{corpus_tables.NAMESPACE}.{name}",
            "n": f"lake.{corpus_tables.NAMESPACE}",
            "old": str(snapshot.snapshot_id),
            "then": row[0],
        }
    corpus_tables.change(spark)
    return names


@pytest.fixture(scope="module")
def plain(spark: SparkSession) -> SparkSession:
    """A session without the hook."""
    return spark.newSession()


@pytest.fixture
def hooked(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with the hook, failing loudly on trouble of ours."""
    planner.enable(spark, strict=True)
    yield spark
    planner.disable(spark)
    spark.conf.unset("spark.puffin-index.enabled")


@pytest.fixture(scope="module")
def enabled(spark: SparkSession) -> Iterator[SparkSession]:
    """The same session for all tests of a module."""
    planner.enable(spark, strict=True)
    yield spark
    planner.disable(spark)


@pytest.fixture(scope="session")
def items(spark: SparkSession, catalog: SqlCatalog) -> TableIndex:
    """`ns.items`, which no test changes: 20 row groups in 2 files, indexed with all three kinds."""
    create_items(spark, "items")
    definition = IndexDefinition.of(bitmap=["city", "k"], bsi=["k", "price", "note"], bloom=["price", "note"])
    index = TableIndex.create(catalog, "ns.items", definition)
    report = index.build(spark)
    assert (report.files, report.rows, report.row_groups) == (2, ROWS, ROWS // ROW_GROUP_ROWS)
    return index


@pytest.fixture
def hook(hooked: SparkSession, items: TableIndex) -> SparkSession:
    """The session with the hook, which fails loudly, and this table."""
    assert items.name == "ns.items"
    return hooked


@pytest.fixture(scope="session")
def tables(spark: SparkSession, catalog: SqlCatalog) -> None:
    """All tables of `shapes`."""
    shapes.create(spark, catalog)


@pytest.fixture
def answering(spark: SparkSession) -> Iterator[None]:
    """Aggregates are answered, which other tests of pruning switch off."""
    with settings(spark, {"spark.puffin-index.aggregates": "true"}):
        yield
