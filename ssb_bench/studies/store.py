"""Tables in an object store: plans, counts, scans, builds and compactions at several distances, beside no index.

The store is a real S3 server behind a proxy that delays answers, bounds bytes a second and counts
(`ssb_bench.stores`). Without an index, PyIceberg or Spark scans with the same filter.
"""

import logging
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from planner.arrow.aggregate import count
from planner.arrow.arrow_scan import scan
from planner.arrow.plan import plan
from planner.condition.iceberg_filters import file_filter
from planner.condition.sql.parser import read_where
from puffin_index import TableIndex
from puffin_index.storage.caches import clear_caches
from ssb_bench.data.layout import NAMESPACE
from ssb_bench.data.workload import count_predicates
from ssb_bench.results.record import Number
from ssb_bench.spark_runs.bench import Bench, Repeats, Seen, Task
from ssb_bench.spark_runs.jars import S3_SUPPORT
from ssb_bench.spark_runs.load import DEFAULT_ROW_GROUP_ROWS, DEFINITION
from ssb_bench.spark_runs.measure import hooked
from ssb_bench.stores.server import BUCKET, KEY, REGION, SECRET, Distance, StoreServer, run_store
from ssb_bench.studies.run import fit_queries

TITLE = "In an object store"
_CATALOG: Final = "store"
_TABLE: Final = f"{NAMESPACE}.lineorder"
_WAREHOUSE: Final = f"s3://{BUCKET}/warehouse"
_PATIENCE_MILLISECONDS: Final = 1e6
_QUERIES: Final = ("q1", "q2", "q5", "q6")
"""One column and two, few rows and many."""
_SCANNED: Final = ("q1", "q6")
"""Scans of the whole table take long; these are enough to compare with."""
_MOST_ROUNDS: Final = {"q1": 1.5, "q2": 2.0}
"""Of a plan whose directories are in memory."""
_log = logging.getLogger(__name__)


def measure(
    bench: Bench,
    *,
    repeats: Repeats = 5,
    milliseconds: Annotated[tuple[float, ...], "From a request to its answer."] = (10.0, 30.0, 100.0),
    bandwidth: Annotated[float, "MB a second each way."] = 200.0,
    row_group_rows: Annotated[int, "Rows of a row group."] = DEFAULT_ROW_GROUP_ROWS,
    spark: Annotated[bool, "Measure Spark, too."] = True,
) -> None:
    """Work on lineorder in an object store: rounds, requests, bytes and seconds at several distances."""
    # Plans are repeated; of scans, builds and compactions there is one.
    wheres = count_predicates(fit_queries(bench.layout, _QUERIES))
    with ExitStack() as stack:
        server, folder = stack.enter_context(run_store()), stack.enter_context(tempfile.TemporaryDirectory())
        _log.info("writing lineorder into the store")
        uri = f"sqlite:///{folder}/catalog.db"
        catalog = stack.enter_context(closing(SqlCatalog(_CATALOG, uri=uri, warehouse=_WAREHOUSE, **server.properties)))
        sessions: dict[str, SparkSession] = {}
        if spark:
            started = stack.enter_context(bench.session([S3_SUPPORT]))
            sessions = {side: session_of(started, server, uri) for side in ("without", "with")}
            stack.enter_context(hooked(sessions["with"], aggregates=False))
        table = _write_table(catalog, bench.layout.files("lineorder"), row_group_rows)
        for distance in milliseconds:
            index = _build(catalog)
            meter = Meter(bench, server, Distance(distance, bandwidth))
            _measure_plans(meter, catalog, wheres, repeats)
            _measure_scans(meter, index, table, {name: wheres[name] for name in _SCANNED})
            _measure_spark(meter, sessions, {name: wheres[name] for name in _SCANNED}, repeats)
            status = index.status()
            _measure_upkeep(meter, catalog)
        sizes = {name: getattr(status, name) for name in ("data_files", "data_bytes", "segments", "index_bytes")}
        bench.note("table", bandwidth=bandwidth, **sizes)


@dataclass(frozen=True, slots=True)
class Meter:
    """Measures work on a store at one distance."""

    bench: Bench
    server: StoreServer
    distance: Distance

    def measure(
        self,
        name: str,
        works: Mapping[str, Callable[[], int | None]],
        *,
        repeats: int = 1,
        before: Callable[[], object] = lambda: None,
        most: Mapping[str, Number] = MappingProxyType({}),
    ) -> None:
        """Do some work, each time after something done near, and note what it asked of the store."""
        heading = f"a store {self.distance.milliseconds:g} ms away"
        metered = {side: partial(self._execute, work, before) for side, work in works.items()}
        self.bench.compare([Task(name, metered, heading=heading, most=most)], repeats=repeats, warm_ups=0)

    def _execute(self, work: Callable[[], int | None], before: Callable[[], object]) -> Seen:
        self.server.move(Distance())
        before()
        self.server.move(self.distance)
        self.server.traffic()
        started = time.perf_counter()
        try:
            answer = work()
            seconds = time.perf_counter() - started
        finally:
            self.server.move(Distance())
        traffic = self.server.traffic()
        counts: dict[str, Number] = {"rounds": traffic.rounds, "read bytes": traffic.bytes_in}
        counts |= {"written bytes": traffic.bytes_out, "requests": traffic.requests, "at once": traffic.most_at_once}
        if self.distance.milliseconds:
            counts["time as rounds"] = round(seconds * 1000 / self.distance.milliseconds, 1)
        return Seen(answer, counts | traffic.by_kind, seconds)


def session_of(spark: SparkSession, server: StoreServer, uri: str) -> SparkSession:
    """Open a session with the catalog, whose database is an SQLite file."""
    session = spark.newSession()
    for key, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:{uri.replace(':///', ':')}",
        ".jdbc.schema-version": "V1",
        ".warehouse": _WAREHOUSE,
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".s3.endpoint": server.endpoint,
        ".s3.access-key-id": KEY,
        ".s3.secret-access-key": SECRET,
        ".s3.path-style-access": "true",
        ".client.region": REGION,
    }.items():
        session.conf.set(f"spark.sql.catalog.{_CATALOG}{key}", value)
    return session


def _write_table(catalog: SqlCatalog, files: Sequence[Path], row_group_rows: int) -> Table:
    catalog.create_namespace(NAMESPACE)
    properties = {"write.parquet.row-group-limit": str(row_group_rows)}
    table = catalog.create_table(_TABLE, pq.read_schema(files[0]), properties=properties)
    for file in files:
        rows: pa.Table = pq.read_table(file)
        table.append(rows)
    return table


def _build(catalog: SqlCatalog) -> TableIndex:
    index = TableIndex.create(catalog, _TABLE, DEFINITION)
    index.build(workers=2)
    index.refresh()
    return index


def _measure_plans(meter: Meter, catalog: SqlCatalog, wheres: Mapping[str, str], repeats: int) -> None:
    """Plan each query in a process that knows nothing yet, and once more."""
    opened: list[TableIndex] = []

    def open_anew() -> None:
        clear_caches()
        opened[:] = [TableIndex.open(catalog, _TABLE)]

    def planned(name: str) -> int:
        made = plan(opened[0], wheres[name], refresh=False, planning_milliseconds=_PATIENCE_MILLISECONDS)
        meter.bench.troubles.extend(f"{name}: {warning}" for warning in made.warnings)
        return made.kept

    for name in wheres:
        work = {"with": partial(planned, name)}
        most = {"rounds": _MOST_ROUNDS[name]} if name in _MOST_ROUNDS else {}
        meter.measure(f"{name}: first plan", work, repeats=repeats, before=open_anew)
        meter.measure(f"{name}: plan", work, repeats=repeats, most=most)
    meter.measure("refresh of the catalog", {"with": opened[0].refresh}, repeats=repeats)


def _measure_scans(meter: Meter, index: TableIndex, table: Table, wheres: Mapping[str, str]) -> None:
    """Count and read the rows of some queries, with the index and without."""

    def without(where: str) -> int:
        row_filter = file_filter(read_where(where, table.schema()), table.schema())
        return len(table.scan(row_filter=row_filter).to_arrow())

    def rows(where: str) -> int:
        return sum(batch.num_rows for batch in scan(index, where))

    def counted(where: str) -> int:
        return count(index, where).rows

    for name, where in wheres.items():
        works = {
            "without": partial(without, where),
            "with": partial(rows, where),
            "count, with": partial(counted, where),
        }
        meter.measure(f"{name}: rows", works, before=clear_caches)


def _measure_spark(meter: Meter, sessions: Mapping[str, SparkSession], wheres: Mapping[str, str], repeats: int) -> None:
    """Read all columns of the rows of some queries, without the hook and with it, first and again."""
    clear_caches()
    for name, where in wheres.items() if sessions else ():
        sql = f"SELECT * FROM {_CATALOG}.{_TABLE} WHERE {where}"
        works = {side: partial(_count_rows, session, sql) for side, session in sessions.items()}
        meter.measure(f"{name}: rows in Spark, first", works)
        meter.measure(f"{name}: rows in Spark", works, repeats=repeats)


def _count_rows(session: SparkSession, sql: str) -> int:
    return len(session.sql(sql).toArrow())


def _measure_upkeep(meter: Meter, catalog: SqlCatalog) -> None:
    """Build the index anew, and compact it."""
    TableIndex.open(catalog, _TABLE).drop()
    made = TableIndex.create(catalog, _TABLE, DEFINITION)
    meter.measure("build", {"with": lambda: made.build(workers=2).rows})
    meter.measure("compact", {"with": lambda: made.compact().segments_after})
    made.drop()
