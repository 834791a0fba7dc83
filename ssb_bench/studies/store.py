"""Tables in an object store: plans, counts, scans, builds and compactions at several distances, beside no index.

The store is a real S3 server behind a proxy that delays answers, bounds bytes a second and counts
(`ssb_bench.stores`). Without an index, PyIceberg or Spark scans with the same filter.
"""

import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final

import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from planner.arrow.aggregate import count
from planner.arrow.arrow_scan import scan
from planner.arrow.plan import plan
from planner.condition.iceberg_filters import file_filter
from planner.condition.sql.parser import read_where
from puffin_index import IndexStatus, TableIndex
from puffin_index.storage.caches import clear_caches
from ssb_bench.data.layout import NAMESPACE
from ssb_bench.results.record import Number
from ssb_bench.spark_runs.bench import Bench, Repeats, Seen, Task
from ssb_bench.spark_runs.jars import S3_SUPPORT
from ssb_bench.spark_runs.load import DEFAULT_ROW_GROUP_ROWS, DEFINITION
from ssb_bench.spark_runs.measure import hooked
from ssb_bench.spark_runs.session import catalog_settings
from ssb_bench.stores.server import BUCKET, REGION, Distance, StoreServer, run_store
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
    wheres = {query.name: query.where for query in fit_queries(bench.layout, _QUERIES)}
    with ExitStack() as stack:
        server, folder = stack.enter_context(run_store()), stack.enter_context(tempfile.TemporaryDirectory())
        _log.info("writing lineorder into the store")
        database = Path(folder) / "catalog.db"
        catalog = SqlCatalog(_CATALOG, uri=f"sqlite:///{database}", warehouse=_WAREHOUSE, **server.properties)
        stack.enter_context(closing(catalog))
        sessions: dict[str, SparkSession] = {}
        if spark:
            started = stack.enter_context(bench.session([S3_SUPPORT]))
            sessions = {side: session_of(started, server, database) for side in ("without", "with")}
            stack.enter_context(hooked(sessions["with"], aggregates=False))
        catalog.create_namespace(NAMESPACE)
        files = bench.layout.files("lineorder")
        properties = {"write.parquet.row-group-limit": str(row_group_rows)}
        table = catalog.create_table(_TABLE, pq.read_schema(files[0]), properties=properties)
        for file in files:
            table.append(pq.read_table(file))
        for distance in milliseconds:
            far = Distance(distance, bandwidth)
            status = _measure_at(bench, server, far, catalog, table, sessions, wheres, repeats)
        sizes = {name: getattr(status, name) for name in ("data_files", "data_bytes", "segments", "index_bytes")}
        bench.note("table", bandwidth=bandwidth, **sizes)


def session_of(spark: SparkSession, server: StoreServer, database: Path) -> SparkSession:
    """Open a session with the catalog, whose database is an SQLite file."""
    session = spark.newSession()
    in_store = {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.path-style-access": "true",
        "client.region": REGION,
        **server.properties,
    }
    for key, value in catalog_settings(_CATALOG, database, _WAREHOUSE, in_store).items():
        session.conf.set(key, value)
    return session


def _measure_at(
    bench: Bench,
    server: StoreServer,
    distance: Distance,
    catalog: SqlCatalog,
    table: Table,
    sessions: Mapping[str, SparkSession],
    wheres: Mapping[str, str],
    repeats: int,
) -> IndexStatus:
    """Plan each query in a process that knows nothing yet, and once more; count, scan, build and compact."""
    index = TableIndex.create(catalog, _TABLE, DEFINITION)
    index.build(workers=2)
    index.refresh()

    def execute(work: Callable[[], int | None], before: Callable[[], object]) -> Seen:
        """Do some work, after something done near, and note what it asked of the store."""
        before()
        server.move(distance)
        server.traffic()
        started = time.perf_counter()
        try:
            answer = work()
            seconds = time.perf_counter() - started
        finally:
            server.move(Distance())
        traffic = server.traffic()
        counts: dict[str, Number] = {"rounds": traffic.rounds, "read bytes": traffic.bytes_in}
        counts |= {"written bytes": traffic.bytes_out, "requests": traffic.requests, "at once": traffic.most_at_once}
        if distance.milliseconds:
            counts["time as rounds"] = round(seconds * 1000 / distance.milliseconds, 1)
        return Seen(answer, counts | traffic.by_kind, seconds)

    def measured(
        name: str,
        works: Mapping[str, Callable[[], int | None]],
        repeats: int = 1,
        before: Callable[[], object] = lambda: None,
        most: Mapping[str, Number] = MappingProxyType({}),
    ) -> None:
        metered = {side: partial(execute, work, before) for side, work in works.items()}
        task = Task(name, metered, heading=f"a store {distance.milliseconds:g} ms away", most=most)
        bench.compare([task], repeats=repeats, warm_ups=0)

    def open_anew() -> None:
        nonlocal index
        clear_caches()
        index = TableIndex.open(catalog, _TABLE)

    def planned(name: str) -> int:
        made = plan(index, wheres[name], refresh=False, planning_milliseconds=_PATIENCE_MILLISECONDS)
        bench.troubles.extend(f"{name}: {warning}" for warning in made.warnings)
        return made.kept

    def without_index(where: str) -> int:
        return len(table.scan(row_filter=file_filter(read_where(where, table.schema()), table.schema())).to_arrow())

    scans: dict[str, Callable[[str], int]] = {
        "without": without_index,
        "with": lambda where: sum(batch.num_rows for batch in scan(index, where)),
        "count, with": lambda where: count(index, where).rows,
    }

    def read_in_spark(session: SparkSession, where: str) -> int:
        return len(session.sql(f"SELECT * FROM {_CATALOG}.{_TABLE} WHERE {where}").toArrow())

    for name in wheres:
        work = {"with": partial(planned, name)}
        most = {"rounds": _MOST_ROUNDS[name]} if name in _MOST_ROUNDS else {}
        measured(f"{name}: first plan", work, repeats, open_anew)
        measured(f"{name}: plan", work, repeats, most=most)
    measured("refresh of the catalog", {"with": index.refresh}, repeats)
    for name in _SCANNED:
        works = {side: partial(work, wheres[name]) for side, work in scans.items()}
        measured(f"{name}: rows", works, before=clear_caches)
    clear_caches()
    for name in _SCANNED if sessions else ():
        works = {side: partial(read_in_spark, session, wheres[name]) for side, session in sessions.items()}
        measured(f"{name}: rows in Spark, first", works)
        measured(f"{name}: rows in Spark", works, repeats)
    status = index.status()
    index.drop()
    index = TableIndex.create(catalog, _TABLE, DEFINITION)
    measured("build", {"with": lambda: index.build(workers=2).rows})
    measured("compact", {"with": lambda: index.compact().segments_after})
    index.drop()
    return status
