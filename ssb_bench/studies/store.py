"""Tables in an object store: plans, counts, scans, builds and compactions at several distances, beside no index.

The store is a real S3 server behind a proxy that delays answers, bounds bytes a second and counts
(`ssb_bench.stores`). Without an index, PyIceberg or Spark scans with the same filter.
"""

import logging
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

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
from ssb_bench.data.layout import NAMESPACE, Layout
from ssb_bench.data.workload import FittedQuery, count_predicates
from ssb_bench.results.studies import Side, StoreRun, StoreStep
from ssb_bench.spark_runs.load import DEFAULT_ROW_GROUP_ROWS, DEFINITION
from ssb_bench.spark_runs.run import hooked
from ssb_bench.spark_runs.session import describe_host
from ssb_bench.stores.server import BUCKET, KEY, REGION, SECRET, Distance, StoreServer, run_store

DEFAULT_MILLISECONDS: Final = (10.0, 30.0, 100.0)
DEFAULT_MEGABYTES: Final = 200.0
_CATALOG: Final = "store"
_TABLE: Final = f"{NAMESPACE}.lineorder"
_WAREHOUSE: Final = f"s3://{BUCKET}/warehouse"
_PATIENCE_MILLISECONDS: Final = 1e6
_log = logging.getLogger(__name__)
_SCANNED: Final = ("q1", "q6")
"""Scans of the whole table take long; these are enough to compare with."""


@dataclass(slots=True)
class Meter:
    """Measures work on a store at one distance; `steps` has what was measured so far."""

    server: StoreServer
    distance: Distance
    steps: list[StoreStep] = field(default_factory=list)

    def measure(
        self,
        name: str,
        work: Callable[[], int | None],
        *,
        side: Side = "index",
        repeats: int = 1,
        before: Callable[[], object] = lambda: None,
    ) -> int | None:
        """Do some work, each time after something done near, and note the median execution; return its answer."""
        steps: list[StoreStep] = []
        for _ in range(repeats):
            self.server.move(Distance())
            before()
            self.server.move(self.distance)
            self.server.traffic()
            started = time.perf_counter()
            answer = work()
            seconds = time.perf_counter() - started
            steps.append(StoreStep(self.distance.milliseconds, name, side, seconds, self.server.traffic(), answer))
        self.server.move(Distance())
        steps.sort(key=lambda step: step.seconds)
        self.steps.append(steps[len(steps) // 2])
        return self.steps[-1].answer


def measure_store(
    layout: Layout,
    queries: Sequence[FittedQuery],
    *,
    milliseconds: Sequence[float] = DEFAULT_MILLISECONDS,
    megabytes_a_second: float | None = DEFAULT_MEGABYTES,
    repeats: int = 5,
    row_group_rows: int = DEFAULT_ROW_GROUP_ROWS,
    spark: SparkSession | None = None,
) -> StoreRun:
    """Put lineorder into a store, and work on it at several distances, also with a session started for that.

    Plans are repeated; of scans, builds and compactions there is one. Raises BenchError if a query is no count of
    lineorder, or there is no S3 server.
    """
    wheres = count_predicates(queries)
    steps: list[StoreStep] = []
    failures: list[str] = []
    with run_store() as server, tempfile.TemporaryDirectory() as folder:
        _log.info("writing lineorder into the store")
        uri = f"sqlite:///{folder}/catalog.db"
        catalog = SqlCatalog(_CATALOG, uri=uri, warehouse=_WAREHOUSE, **server.properties)
        session = None if spark is None else session_of(spark, server, _CATALOG, uri, _WAREHOUSE)
        try:
            table = _write_table(catalog, layout.files("lineorder"), row_group_rows)
            index = _build(catalog)
            for distance in milliseconds:
                _log.info("a store %g ms away", distance)
                meter = Meter(server, Distance(distance, megabytes_a_second), steps)
                _measure_queries(meter, catalog, wheres, repeats, failures)
                _measure_scans(meter, catalog, table, wheres, failures)
                if session is not None:
                    _measure_spark(meter, session, wheres, repeats)
                _measure_upkeep(meter, catalog)
                index = _build(catalog)
            status = index.status()
        finally:
            catalog.close()
    facts = (status.data_files, status.data_bytes, status.index_bytes, status.segments)
    return StoreRun(layout.scale_factor, describe_host(), megabytes_a_second, *facts, tuple(steps), tuple(failures))


def session_of(spark: SparkSession, server: StoreServer, name: str, uri: str, warehouse: str) -> SparkSession:
    """Open a session with a catalog of tables in a store, whose database is an SQLite file."""
    session = spark.newSession()
    for key, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:{uri.replace(':///', ':')}",
        ".jdbc.schema-version": "V1",
        ".warehouse": warehouse,
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".s3.endpoint": server.endpoint,
        ".s3.access-key-id": KEY,
        ".s3.secret-access-key": SECRET,
        ".s3.path-style-access": "true",
        ".client.region": REGION,
    }.items():
        session.conf.set(f"spark.sql.catalog.{name}{key}", value)
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


def _measure_queries(
    meter: Meter, catalog: SqlCatalog, wheres: Mapping[str, str], repeats: int, failures: list[str]
) -> None:
    """Plan each query in a process that knows nothing yet, and once more."""
    opened: list[TableIndex] = []

    def open_anew() -> None:
        clear_caches()
        opened[:] = [TableIndex.open(catalog, _TABLE)]

    def planned(name: str) -> int:
        made = plan(opened[0], wheres[name], refresh=False, planning_milliseconds=_PATIENCE_MILLISECONDS)
        failures.extend(f"{name}: {warning}" for warning in made.warnings)
        return made.kept

    for name in wheres:
        meter.measure(f"{name}: first plan", partial(planned, name), repeats=repeats, before=open_anew)
        meter.measure(f"{name}: plan", partial(planned, name), repeats=repeats)
    meter.measure("refresh of the catalog", opened[0].refresh, repeats=repeats)


def _measure_scans(
    meter: Meter, catalog: SqlCatalog, table: Table, wheres: Mapping[str, str], failures: list[str]
) -> None:
    """Count and read the rows of some queries, with the index and without."""
    index = TableIndex.open(catalog, _TABLE)

    def counted_rows(where: str) -> int:
        return count(index, where).rows

    def with_index(where: str) -> int:
        return sum(batch.num_rows for batch in scan(index, where))

    def without(where: str) -> int:
        row_filter = file_filter(read_where(where, table.schema()), table.schema())
        return len(table.scan(row_filter=row_filter).to_arrow())

    for name, where in wheres.items():
        if name not in _SCANNED:
            continue
        counted = meter.measure(f"{name}: count", partial(counted_rows, where), before=clear_caches)
        found = meter.measure(f"{name}: rows", partial(with_index, where), before=clear_caches)
        due = meter.measure(f"{name}: rows", partial(without, where), side="none")
        if not counted == found == due:
            failures.append(f"{name}: {counted} and {found} rows with the index, {due} without")


def _measure_spark(meter: Meter, session: SparkSession, wheres: Mapping[str, str], repeats: int) -> None:
    """Read all columns of the rows of some queries, without the hook and with it, first and again."""
    sides: tuple[Side, ...] = ("none", "index")
    for side in sides:
        clear_caches()
        with hooked(session, aggregates=False) if side == "index" else nullcontext():
            for name, where in wheres.items():
                if name in _SCANNED:
                    work = partial(_count_rows, session, f"SELECT * FROM {_CATALOG}.{_TABLE} WHERE {where}")
                    meter.measure(f"{name}: rows in Spark, first", work, side=side)
                    meter.measure(f"{name}: rows in Spark", work, side=side, repeats=repeats)


def _count_rows(session: SparkSession, sql: str) -> int:
    return len(session.sql(sql).toArrow())


def _measure_upkeep(meter: Meter, catalog: SqlCatalog) -> None:
    """Build the index anew, and compact it."""
    TableIndex.open(catalog, _TABLE).drop()
    made = TableIndex.create(catalog, _TABLE, DEFINITION)
    meter.measure("build", lambda: made.build(workers=2).rows)
    meter.measure("compact", lambda: made.compact().segments_after)
    made.drop()
