"""Logs and audits in a real session: right indexes pass, whatever queries ask, and a wrong index is found."""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

import planner
from planner.query_log import QueryLog, benefits, read_log
from planner.spark.hook import callback_of
from puffin_index import TableIndex
from puffin_index.data.data_table import list_data_files
from ssb_bench.spark_runs.jars import SPARK_RELEASE
from tests.conftest import amount, built, some
from tests.spark.agreement import READS, reading_pages, settings
from tests.spark.corpus_tables import FACT_TABLES, statements

pytestmark = pytest.mark.spark

_SAYS_SNAPSHOTS = SPARK_RELEASE == "4.1"
"""Whether Iceberg says which snapshot a scan reads."""

_SETTINGS = {"audit": "1", "audit-row-groups": "100", "aggregates": "true", "strict": "true"}


@pytest.fixture
def audited(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """The session with a hook that audits and logs every query."""
    values = {**_SETTINGS, "query-log": (tmp_path / "log").as_uri()}
    with settings(spark, {f"spark.puffin-index.{name}": value for name, value in values.items()}):
        planner.enable(spark)
        yield spark
        planner.disable(spark)


def _log(catalog: SqlCatalog, folder: Path, table: str) -> QueryLog:
    return read_log(catalog.load_table(table).io, (folder / "log").as_uri(), table)


@READS
def test_no_query_of_a_right_index_is_called_wrong(
    audited: SparkSession,
    catalog: SqlCatalog,
    corpus: dict[str, dict[str, str]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    reads: Callable[[], AbstractContextManager[None]],
) -> None:
    with caplog.at_level(logging.ERROR, "planner"), reads():
        for one in statements("audited"):
            audited.sql(one.sql.format(**corpus["v2"])).collect()
            assert callback_of(audited).observers.wait(60)

    assert [record.message for record in caplog.records if "audit" in record.message] == []
    log = _log(catalog, tmp_path, "corpus.v2")
    assert not _SAYS_SNAPSHOTS or [audit.unchecked for audit in log.audits if audit.unchecked] == []
    assert sum(audit.row_groups for audit in log.audits) > 50
    assert len(log.audits) >= 10
    sources = {source for record in log.queries for source in record.sources}
    assert sources >= {"predicate", "function", "join", "subquery", "top-k", "limit", "aggregates"}
    found = benefits(TableIndex.open(catalog, "corpus.v2"), (tmp_path / "log").as_uri())
    assert found.total.dropped_by_index > 0
    assert found.total.bytes_saved > 0
    assert found.misses == ()
    assert ("custkey", "bitmap") in found.by_index


OLD, NEW = 0x1122334455667711, 0x1122334455667700
"""Row 120, of the third row group, had the old key when the index was built, and has the new one now."""

KEY = "shiftleft(id, 32) | id * 7919 % 400"
KEYS = [OLD if row == 120 else row << 32 | row * 7919 % 400 for row in range(400)]


def planted(catalog: SqlCatalog, name: str, **columns: list[str]) -> TableIndex:
    """Make a table of 8 row groups, with an index of other keys than the data file has now; its checksums are right."""
    rows = pa.table({"k": KEYS, "v": [row % 10 for row in range(400)]})
    properties = {"write.parquet.row-group-limit": "50", "write.parquet.compression-codec": "uncompressed"}
    table = catalog.create_table(name, rows.schema, properties=properties)
    table.append(rows)
    index = built(catalog, name, **columns)
    change_file(table)
    return index


def change_file(table: Table, old: bytes = OLD.to_bytes(8, "little"), new: bytes = NEW.to_bytes(8, "little")) -> None:
    """Put the new key in the place of the old one, also in statistics."""
    (file,) = list_data_files(table)
    path = Path(urlparse(file.path).path)
    path.write_bytes(path.read_bytes().replace(old, new))
    # Hadoop would refuse a changed file by its checksums.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("kind", ["bitmap", "bsi", "bloom"])
def test_a_wrong_index_is_found_and_used_no_more(
    audited: SparkSession, catalog: SqlCatalog, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    name = f"wrong_{kind}"
    index = planted(catalog, f"ns.{name}", **{kind: ["k"]})
    audited.conf.set("spark.puffin-index.strict", "false")
    sql = f"SELECT v FROM lake.ns.{name} WHERE k = {NEW}"

    with caplog.at_level(logging.ERROR, "planner"):
        missing = audited.sql(sql).collect()
        assert callback_of(audited).observers.wait(60)
        found = audited.sql(sql).collect()
        explained = planner.explain(audited.sql(sql))

    assert (len(missing), len(found)) == (0, 1)
    number = str(index.data_table.refresh().snapshots()[-1].snapshot_id if _SAYS_SNAPSHOTS else None)
    for part in (f"lake.ns.{name}", number, "row group 2", "rows [20]", f"k = {NEW}", ".puffin"):
        assert part in caplog.text
    assert re.search(r"not-trusted +kept +8", explained)
    assert callback_of(audited).observers.wait(60)
    log = _log(catalog, tmp_path, f"ns.{name}")
    (miss,) = [miss for audit in log.audits for miss in audit.misses]
    assert (miss.row_group, {column for column, _ in miss.columns}) == (2, {"k"})
    assert miss.segments
    assert benefits(index, (tmp_path / "log").as_uri()).scans_not_trusted >= 1
    audited.conf.set("spark.puffin-index.strict", "true")
    with pytest.raises(Exception, match="is wrong"):
        audited.sql(sql).collect()
    # Other sessions still use it.
    other = audited.newSession()
    planner.enable(other)
    assert other.sql(sql).collect() == []
    planner.disable(other)


@pytest.mark.parametrize(
    ("column", "where"),
    [
        ("message", "message LIKE '%quorum%'"),
        ("message", "lower(message) LIKE '% quorum of%'"),
        ("message", "message = 'the quorum of 120'"),
        ("message", "message RLIKE 'the quorum' OR message = 'none'"),
        ("m", f"m['of 120'] = {NEW}"),
    ],
)
def test_a_wrong_index_of_contents_is_found(
    audited: SparkSession, catalog: SqlCatalog, caplog: pytest.LogCaptureFixture, column: str, where: str
) -> None:
    name = re.sub(r"\W+", "_", f"wrong_{where}").lower()
    messages = [f"the {'xuorum' if row == 120 else 'end'} of {row}" for row in range(400)]
    maps = pa.array([[(f"of {row}", key)] for row, key in enumerate(KEYS)], pa.map_(pa.string(), pa.int64()))
    rows = pa.table({"message": messages, "m": maps, "v": [row % 10 for row in range(400)]})
    properties = {"write.parquet.row-group-limit": "50", "write.parquet.compression-codec": "uncompressed"}
    table = catalog.create_table(f"ns.{name}", rows.schema, properties=properties)
    table.append(rows)
    built(catalog, f"ns.{name}", bitmap=["message#c#words"] if column == "message" else ["m#c#keys", "m#c#values"])
    audited.conf.set("spark.puffin-index.strict", "false")
    right = where.replace("quorum", "xuorum").replace(str(NEW), str(OLD))
    sql = f"SELECT v FROM lake.ns.{name} WHERE "

    with caplog.at_level(logging.ERROR, "planner"):
        before = audited.sql(sql + right).collect()
        assert callback_of(audited).observers.wait(60)
        assert "audit" not in caplog.text
        change_file(table)
        change_file(table, b"xuorum", b"quorum")
        missing = audited.sql(sql + where).collect()
        assert callback_of(audited).observers.wait(60)
        found = audited.sql(sql + where).collect()

    assert (len(before), len(missing), len(found)) == (1, 0, 1)
    assert "row group 2" in caplog.text


def test_a_row_beside_the_few_that_are_read_is_found(
    audited: SparkSession, catalog: SqlCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    audited.sql(
        "CREATE TABLE lake.ns.wrong_beside USING iceberg TBLPROPERTIES ('write.parquet.page-row-limit'='20', "
        f"'write.parquet.compression-codec'='uncompressed') AS SELECT IF(id = 120, {OLD}, {KEY}) AS k, id % 10 AS v "
        "FROM range(0, 400, 1, 1)"
    )
    change_file(built(catalog, "ns.wrong_beside", bitmap=["k"]).data_table)
    audited.conf.set("spark.puffin-index.strict", "false")
    sql = f"SELECT v FROM lake.ns.wrong_beside WHERE k IN ({NEW}, {KEYS[121]})"

    with caplog.at_level(logging.ERROR, "planner"), reading_pages():
        assert len(audited.sql(sql).collect()) == 1
        assert callback_of(audited).observers.wait(60)
        assert len(audited.sql(sql).collect()) == 2

    for part in ("1 other rows can match (rows-match)", "1 rows do", "row group 0", "rows [120]", ".puffin"):
        assert part in caplog.text


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT sum(k) FROM {t} WHERE v = 0", "sum(k)"),
        ("SELECT v, min(k), max(k) FROM {t} GROUP BY v", "by groups of keys"),
        (f"SELECT v FROM {{t}} WHERE k IN ({OLD}, {KEYS[300]}) LIMIT 1", "at least 1 rows"),
        ("SELECT v FROM {t} WHERE k % 4096 = 1792", "row group 2"),
    ],
)
@pytest.mark.skipif(not _SAYS_SNAPSHOTS, reason="without a snapshot, aggregates and LIMIT are not audited")
def test_whatever_was_concluded_from_a_wrong_index_is_found(
    audited: SparkSession, catalog: SqlCatalog, caplog: pytest.LogCaptureFixture, sql: str, said: str
) -> None:
    name = f"concluded_{abs(hash(sql))}"
    planted(catalog, f"ns.{name}", bitmap=["k", "v"], bsi=["k"])
    with caplog.at_level(logging.ERROR, "planner"):
        audited.sql(sql.format(t=f"lake.ns.{name}")).collect()
        assert callback_of(audited).observers.wait(60)
    assert said in caplog.text


def test_deleted_rows_shares_and_bounds_are_heeded(
    audited: SparkSession, catalog: SqlCatalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    planted(catalog, "ns.bounded", bitmap=["k"])
    audited.sql("ALTER TABLE lake.ns.bounded SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    audited.conf.set("spark.puffin-index.enabled", "false")
    audited.sql(f"DELETE FROM lake.ns.bounded WHERE k = {NEW}")
    audited.conf.set("spark.puffin-index.enabled", "true")
    with caplog.at_level(logging.ERROR, "planner"):
        for name, value in (("audit-row-groups", "3"), ("audit-bytes", "1"), ("audit", "0")):
            audited.conf.set(f"spark.puffin-index.{name}", value)
            assert audited.sql(f"SELECT v FROM lake.ns.bounded WHERE k = {NEW}").collect() == []
            assert callback_of(audited).observers.wait(60)
    audited.conf.set("spark.puffin-index.audit-bytes", str(1 << 28))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [audit.row_groups for audit in _log(catalog, tmp_path, "ns.bounded").audits] == [3, 1]


def test_no_query_of_the_corpus_is_called_wrong(
    audited: SparkSession, corpus: dict[str, dict[str, str]], catalog: SqlCatalog, tmp_path: Path
) -> None:
    queries = [(name, one.sql) for name in FACT_TABLES for one in statements("queries")]
    queries += [("types", f"SELECT * FROM {{t}} WHERE {one.sql}") for one in statements("wheres")]
    for name, sql in some(queries, 10):
        audited.sql(sql.format(**corpus[name])).collect()
        assert callback_of(audited).observers.wait(60)
    audits = read_log(catalog.load_table("corpus.lineorder").io, (tmp_path / "log").as_uri()).audits
    assert [str(miss) for audit in audits for miss in audit.misses] == []
    # Scans of files with equality deletes and of ORC are audited as well.
    assert not _SAYS_SNAPSHOTS or sum(audit.unchecked for audit in audits) <= len(audits) // 10
    assert sum(audit.row_groups for audit in audits) > amount(20, 500)
