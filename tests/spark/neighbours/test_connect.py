"""The Python data source on a real Spark Connect server: Spark's answers, from surviving row groups alone."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql.connect.session import SparkSession as ConnectSession

import planner
from puffin_index import TableIndex
from puffin_index.data.data_table import list_data_files
from puffin_index.errors import UnsupportedError
from ssb_bench.spark_runs.session import open_catalog
from ssb_bench.stores.server import free_port, wait_for
from tests.deletes_sample import commit_positional_deletes
from tests.spark import every_type
from tests.spark.agreement import indexed
from tests.spark.every_type import ROWS

pytestmark = pytest.mark.spark

ROW_GROUP_ROWS = ROWS // 4


def rows(count: int) -> pa.Table:
    """Rows with a column of every type that Spark's own reader of Parquet knows."""
    return every_type.rows(0, count).drop_columns(["code", "key"])


PREDICATES = (
    "NOT (k IN (5, NULL)) AND k < 9",
    "small IS NULL AND k < 100",
    "double > 428",
    "double < 1 OR k = 3",
    "money > 49.9 AND money <= 49.95",
    "NOT flag AND k < 40",
    "word NOT LIKE 'f%' AND k < 50",
    "bytes = X'0004D2'",
    "day > DATE '1977-01-01'",
    "local < TIMESTAMP_NTZ '1970-01-02 12:02:00'",
    "moment >= TIMESTAMP '1970-05-02 05:00:00+02:00' AND k < 2950",
    "inner.leaf = 13",
    "tags['color'] = 'c5'",
    "k = -1",
    "upper(inner.deep.word) = 'DEEP-32'",
    "inner.deep.word ILIKE '%P-32_' AND NOT inner.deep.word RLIKE '[0-3]{3}$'",
    "length(inner.deep.word) < 7 AND k < 900",
    "year(day) = 1971 AND month(day) = 2 AND day(local) = 2",
    "true",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Connect server; it knows nothing of Iceberg."""
    port = free_port()
    work = tmp_path_factory.mktemp("connect")
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(work),
    }
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    settings = [text for key, value in conf.items() for text in ("--conf", f"{key}={value}")]
    command = [submit, "--master", "local[2]", "--driver-memory", "1g", *settings]
    main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    log = (work / "log").open("w")
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    process = subprocess.Popen([*command, *main], stdout=log, stderr=log, cwd=work, env=environment)
    try:
        wait_for(port)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)
        log.close()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lakehouse")


@pytest.fixture(scope="module")
def lake(home: Path) -> SqlCatalog:
    catalog = open_catalog(home)
    catalog.create_namespace("ns")
    return catalog


def create(catalog: SqlCatalog, name: str, data: pa.Table, parts: int = 1) -> TableIndex:
    properties = {"write.parquet.row-group-limit": str(ROW_GROUP_ROWS)}
    table = catalog.create_table(f"ns.{name}", data.schema, properties=properties)
    for part in range(parts):
        table.append(data.slice(part * len(data) // parts, len(data) // parts))
    return indexed(
        catalog,
        f"ns.{name}",
        bitmap=["small", "flag", "day"],
        bsi=["k", "money", "local", "moment", "inner.leaf"],
        bloom=["k", "single", "double", "word", "bytes"],
    )


@pytest.fixture(scope="module")
def index(lake: SqlCatalog) -> TableIndex:
    """4 row groups in two files."""
    return create(lake, "items", rows(ROWS), parts=2)


@pytest.fixture(scope="module")
def options(home: Path) -> dict[str, str]:
    """How the server's Python finds the catalog."""
    return {
        "catalog.type": "sql",
        "catalog.uri": f"sqlite:///{home / 'catalog.db'}",
        "catalog.warehouse": home.as_uri(),
    }


@pytest.fixture(scope="module")
def remote(server: str) -> Iterator[ConnectSession]:
    """A session of a Connect client, in which the source is registered."""
    session = ConnectSession.builder.remote(server).create()
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    # Spark's own reader drops row groups with NaN by statistics that leave NaN out.
    session.conf.set("spark.sql.parquet.filterPushdown", "false")
    session.dataSource.register(planner.PuffinIndexSource)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def views(remote: ConnectSession, index: TableIndex, options: dict[str, str]) -> ConnectSession:
    """Views `items` of the table by its index, and `plain` of its data files as Spark itself reads them."""
    remote.read.format("puffin-index").options(**options).load("lake.ns.items").createOrReplaceTempView("items")
    paths = [file.path for file in list_data_files(index.data_table)]
    remote.read.parquet(*paths).createOrReplaceTempView("plain")
    return remote


@pytest.mark.one_of(4)
@pytest.mark.parametrize(
    ("use", "instead"),
    [
        (lambda session, _: planner.enable(session), "PuffinIndexSource"),
        (lambda session, _: planner.disable(session), "PuffinIndexSource"),
        (lambda session, _: planner.reports(session), "PuffinIndexSource"),
        (lambda session, _: planner.explain(session.range(3)), "PuffinIndexSource"),
        (lambda session, _: planner.call(session, "status", table="lake.ns.items"), "PuffinIndexSource"),
        (lambda session, index: planner.plan(index, "k = 5", spark=session), "without a session"),
        (lambda session, index: index.build(session), "without a session"),
        (lambda session, index: index.build_async(session), "without a session"),
    ],
)
def test_what_needs_a_jvm_says_what_to_do_instead(
    remote: ConnectSession, index: TableIndex, use: Callable[[ConnectSession, TableIndex], object], instead: str
) -> None:
    with pytest.raises(UnsupportedError, match=f"no JVM here, as is so with Spark Connect: .*{instead}"):
        use(remote, index)


@pytest.mark.nightly
def test_the_schema_is_sparks_own_for_these_files(views: ConnectSession) -> None:
    ours, native = views.table("items").schema, views.table("plain").schema
    assert [(field.name, field.dataType) for field in ours] == [(field.name, field.dataType) for field in native]


@pytest.mark.one_of(15)
@pytest.mark.parametrize("where", PREDICATES)
def test_answers_are_those_of_spark_on_the_same_files(
    views: ConnectSession, options: dict[str, str], where: str
) -> None:
    ours = views.read.format("puffin-index").options(**options, where=where).load("lake.ns.items").collect()
    native = views.sql(f"SELECT * FROM plain WHERE {where}").collect()
    assert sorted(map(repr, ours)) == sorted(map(repr, native))


def test_a_dataframe_may_be_scanned_again_with_other_filters(views: ConnectSession) -> None:
    counts = [views.sql(f"SELECT COUNT(*) FROM items WHERE {where}").collect()[0][0] for where in ("k = 5", "true")]
    assert counts == [1, ROWS]


@pytest.mark.nightly
def test_joins_and_aggregates_read_it_like_any_table(views: ConnectSession) -> None:
    sql = (
        "SELECT a.day, COUNT(*), SUM(b.k) FROM {0} a JOIN {0} b ON a.k = b.small WHERE a.k IN (7, 8, 9) AND b.flag "
        "GROUP BY a.day ORDER BY a.day"
    )
    assert views.sql(sql.format("items")).collect() == views.sql(sql.format("plain")).collect()


@pytest.fixture(scope="module")
def one_row_group(lake: SqlCatalog, options: dict[str, str]) -> dict[str, str]:
    """A table of whose 4 row groups all but that of `k = 1234` are overwritten."""
    data = rows(ROWS)
    spoilt = create(lake, "spoilt", data)
    [file] = list_data_files(spoilt.data_table)
    path = Path(file.path.removeprefix("file://"))
    wanted = data["k"].to_pylist().index(1_234) // ROW_GROUP_ROWS
    metadata = pq.read_metadata(path)
    assert metadata.num_row_groups == ROWS // ROW_GROUP_ROWS
    with path.open("r+b") as opened:
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            if number != wanted:
                opened.seek(file.split_offsets[number])
                opened.write(bytes(sum(group.column(i).total_compressed_size for i in range(group.num_columns))))
    return options


@pytest.mark.nightly
def test_row_groups_that_the_index_drops_are_never_read(remote: ConnectSession, one_row_group: dict[str, str]) -> None:
    def found(where: str) -> list[int]:
        reader = remote.read.format("puffin-index").options(**one_row_group, where=where)
        return [row.k for row in reader.load("lake.ns.spoilt").collect()]

    assert found("k = 1234") == [1_234]
    assert found("k = 1234 AND small = -1") == []
    assert found("k = 1234 OR k = -7") == [1_234]
    with pytest.raises(Exception, match=r"CorruptFileError|OSError"):
        found("k = 1235")


@pytest.mark.nightly
def test_chosen_columns_are_read_alone(views: ConnectSession, options: dict[str, str]) -> None:
    reader = views.read.format("puffin-index").options(**options, columns="word, k")
    frame = reader.load("lake.ns.items").where("k = 77")
    assert frame.columns == ["word", "k"]
    assert frame.collect() == views.sql("SELECT word, k FROM plain WHERE k = 77").collect()
    # The option may ask for rows by columns that are not chosen.
    where = "upper(inner.deep.word) = 'DEEP-32'"
    found = reader.options(columns="k", where=where).load("lake.ns.items").collect()
    assert sorted(found) == sorted(views.sql(f"SELECT k FROM plain WHERE {where}").collect()) != []


@pytest.mark.nightly
def test_earlier_snapshots_and_deletes(remote: ConnectSession, lake: SqlCatalog, options: dict[str, str]) -> None:
    changed = create(lake, "changed", rows(500))
    before = changed.data_table.refresh().current_snapshot()
    assert before is not None
    [file] = list_data_files(changed.data_table)
    commit_positional_deletes(changed.data_table, {file.path: {0, 3}})
    reader = remote.read.format("puffin-index").options(**options)

    assert reader.load("lake.ns.changed").count() == 498
    assert reader.load("lake.ns.changed").where("k = 0").collect() == []
    assert reader.option("snapshot-id", str(before.snapshot_id)).load("lake.ns.changed").count() == 500


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [("colour", "red", "there are path, columns, where"), ("snapshot-id", "first", "snapshot-id")],
)
def test_a_wrong_option_is_named(
    remote: ConnectSession, options: dict[str, str], option: str, value: str, message: str
) -> None:
    with pytest.raises(Exception, match=message):
        remote.read.format("puffin-index").options(**options).option(option, value).load("lake.ns.items").collect()


@pytest.mark.nightly
def test_a_table_without_an_index_is_said(remote: ConnectSession, lake: SqlCatalog, options: dict[str, str]) -> None:
    lake.create_table("ns.bare", rows(1).schema)
    with pytest.raises(Exception, match="puffin-index create"):
        remote.read.format("puffin-index").options(**options).load("lake.ns.bare").collect()
