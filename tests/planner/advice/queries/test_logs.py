"""Event logs of Spark and the hook's query log; the plans' texts are those of Spark 4.1 and 3.5 with Iceberg."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import zstandard
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    IntegerType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from planner.advice.queries.event_log import read_event_log
from planner.advice.queries.pushed_filters import where_of
from planner.advice.queries.query_log import read_query_log
from puffin_index.errors import PuffinIndexError, UnsupportedError
from tests.planner.query_log_sample import logged_scan

SCHEMA = Schema(
    NestedField(1, "i", IntegerType()),
    NestedField(2, "s", StringType()),
    NestedField(3, "dt", DateType()),
    NestedField(4, "ts", TimestamptzType()),
    NestedField(5, "nt", TimestampType()),
    NestedField(6, "st", StructType(NestedField(7, "x", IntegerType()))),
    NestedField(8, "a.b c", IntegerType()),
    NestedField(9, "bin", BinaryType()),
)
TABLE = ("ns", "t")


@pytest.mark.parametrize(
    ("description", "where"),
    [
        ("", None),
        ("i IS NOT NULL", None),
        ("i IS NOT NULL, i = 5", "`i` = 5"),
        ("i IS NULL", "`i` IS NULL"),
        ("i IN (1, 2, 3), i >= -3", "`i` IN (1, 2, 3) AND `i` >= -3"),
        ("(i = 5 OR s = 'x')", "(`i` = 5 OR `s` = 'x')"),
        ("(NOT (i = 5) OR NOT (s = 'y'))", "(NOT (`i` = 5) OR NOT (`s` = 'y'))"),
        ("((i = 5 AND s = 'x') OR (i > 9 AND s = 'y'))", "((`i` = 5 AND `s` = 'x') OR (`i` > 9 AND `s` = 'y'))"),
        ("s = 'it's'", "`s` = 'it\\'s'"),
        ("s IN ('a', 'b c', 'd, e')", "`s` IN ('a', 'b c', 'd, e')"),
        ("s LIKE 'a_b%'", "`s` LIKE 'a\\\\_b%'"),
        ("s = 'a\nb\\c'", "`s` = 'a\nb\\\\c'"),
        ("dt = 19727", "`dt` = DATE '2024-01-05'"),
        ("nt < 1704070923000000", "`nt` < TIMESTAMP_NTZ '2024-01-01 01:02:03'"),
        ("ts >= 1704070923123456", "`ts` >= TIMESTAMP '2024-01-01 01:02:03.123456 UTC'"),
        ("st.x = 1", "`st.x` = 1"),
        ("a.b c = 5", "`a.b c` = 5"),
        ("bin = X'0102'", "`bin` = X'0102'"),
    ],
)
def test_pushed_filters(description: str, where: str | None) -> None:
    found = where_of(description, SCHEMA)
    assert (found.where, found.skipped) == (where, ())


def test_filters_that_are_not_understood() -> None:
    found = where_of("i = 5, bucket[16](i) = 3, nope = 1", SCHEMA)
    assert found.where == "`i` = 5"
    assert found.skipped == ("bucket[16](i) = 3", "nope = 1")


def event(*scans: str) -> str:
    leaves = [{"nodeName": "BatchScan", "simpleString": text, "children": []} for text in scans]
    plan = {"nodeName": "Union", "simpleString": "Union", "children": leaves}
    return json.dumps(
        {"Event": "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart", "sparkPlanInfo": plan}
    )


SPARK_4 = (
    "BatchScan lake.ns.t[i#67, s#70] IcebergScan(table=lake.ns.t, schemaId=0, snapshotId=1, branch=null, filters={}, "
    "runtimeFilters=, groupedBy=) RuntimeFilters: []"
)
SPARK_3 = "BatchScan lake.ns.t[i#67, s#70L] lake.ns.t (branch=null) [filters={}, groupedBy=] RuntimeFilters: []"
LOG = "\n".join(
    [
        '{"Event":"SparkListenerLogStart","Spark Version":"4.1.4"}',
        event(SPARK_4.format("i IS NOT NULL, i = 5"), SPARK_4.replace("ns.t", "ns.u").format("i = 6")),
        event(SPARK_3.format("i IS NOT NULL, i = 5")),
        event(SPARK_3.format("s = 'a, groupless'")),
        '{"Event":"SparkListenerJobStart"',
    ]
)


def check(path: Path) -> None:
    workload = read_event_log(path, TABLE, SCHEMA)
    found = [(query.where, query.times, query.columns) for query in workload.queries]
    columns = frozenset({"i", "s"})
    assert found == [("`i` = 5", 2, columns), ("`s` = 'a, groupless'", 1, columns)]
    assert workload.of_other_tables == 1


def test_event_logs(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text(LOG)
    check(tmp_path / "plain")
    (tmp_path / "app-1.zstd").write_bytes(zstandard.compress(LOG.encode()))
    check(tmp_path / "app-1.zstd")
    rolled = tmp_path / "logs" / "eventlog_v2_app-2"
    rolled.mkdir(parents=True)
    (rolled / "appstatus_app-2.inprogress").touch()
    (rolled / "events_1_app-2.zstd").write_bytes(zstandard.compress(LOG.encode()))
    check(tmp_path / "logs")


def test_event_logs_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PuffinIndexError, match="there is no event log"):
        read_event_log(tmp_path / "nothing", TABLE, SCHEMA)
    with pytest.raises(PuffinIndexError, match="has no event log"):
        read_event_log(tmp_path, TABLE, SCHEMA)
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(PuffinIndexError, match="no events of Spark"):
        read_event_log(empty, TABLE, SCHEMA)
    for name, content in (("garbage", b"\x00\x01\xff garbage"), ("text", b"[1, 2]\n"), ("app.gz", gzip.compress(b"x"))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(PuffinIndexError, match="is no event log of Spark"):
            read_event_log(tmp_path / name, TABLE, SCHEMA)
    (tmp_path / "app.lz4.inprogress").touch()
    with pytest.raises(UnsupportedError, match="compressed as lz4"):
        read_event_log(tmp_path / "app.lz4.inprogress", TABLE, SCHEMA)
    (tmp_path / "app.zstd").write_bytes(b"no frame at all")
    with pytest.raises(PuffinIndexError, match="cannot be decompressed"):
        read_event_log(tmp_path / "app.zstd", TABLE, SCHEMA)


def test_the_query_log(tmp_path: Path) -> None:
    lines = [
        logged_scan("lake.ns.t", "i = 5", 100),
        logged_scan("ns.t", "i = 5", 300),
        logged_scan("ns.t", "i = 5 AND i IN (?)", 300, continues=True),
        logged_scan("ns.t", "i = ?", 300),
        logged_scan("ns.t", "s = 'why?'", 30),
        logged_scan("ns.u", "i = 5", 10),
    ]
    (tmp_path / "2026-01-01-x.jsonl").write_text("\n".join([*lines, "", "{broken", '{"table": 5}']))
    (tmp_path / "notes.txt").write_text("no log")

    workload = read_query_log(PyArrowFileIO(), tmp_path.as_uri(), TABLE)

    assert [(query.where, query.times, query.bytes_read) for query in workload.queries] == [
        ("i = 5", 2, 200),
        ("s = 'why?'", 1, 30),
    ]
    assert workload.of_other_tables == 1
    (skipped,) = workload.skipped
    assert "1 queries without their literals" in skipped


@pytest.mark.parametrize("content", ["", "\n\n", "[]", "x"])
def test_query_logs_without_queries(tmp_path: Path, content: str) -> None:
    (tmp_path / "log.jsonl").write_text(content)
    with pytest.raises(PuffinIndexError, match="no query log"):
        read_query_log(PyArrowFileIO(), tmp_path.as_uri(), TABLE)
