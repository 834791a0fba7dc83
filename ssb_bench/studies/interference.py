"""What a build in the background costs the queries of the same application: their times alone and beside it.

Both sides run without the hook, so that the work of a query is the same. A throwaway index table takes what is built,
again and again until the queries are through. Alone and beside take turns, so that a drift of the machine hits both.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial

from pyspark.sql import SparkSession

from puffin_index import TableIndex
from puffin_index.catalogue.creation import create_index_table
from puffin_index.catalogue.index_table import TableName
from puffin_index.definition.index_definition import to_json
from puffin_index.jobs.build_handle import BuildHandle
from puffin_index.jobs.build_job import build
from puffin_index.jobs.engine import background_engine
from ssb_bench.data.dataset import Step
from ssb_bench.data.layout import NAMESPACE, Layout
from ssb_bench.data.workload import FittedQuery
from ssb_bench.results.statistics import Paired
from ssb_bench.spark_runs.indexing import open_index
from ssb_bench.spark_runs.measure import measure
from ssb_bench.spark_runs.session import CATALOG

LIMIT = 1.3
"""Beside a build, a query may take so many times as long as alone, on two cores."""


def measure_interference(
    spark: SparkSession,
    layout: Layout,
    queries: Sequence[FittedQuery],
    *,
    repeats: int,
    on_step: Callable[[Step], None] = lambda _: None,
) -> list[Paired]:
    """Run queries alone and beside builds of the index of lineorder.

    Raises:
        BenchError: If the table is not loaded.
        NotFoundError: If the table has no index, whose definition is what is built.
    """
    spark.sql(f"USE {CATALOG}.{NAMESPACE}")
    index = open_index(layout)
    for query in queries:
        measure(spark, query.sql)
    times: dict[str, tuple[list[float], list[float]]] = {query.query.name: ([], []) for query in queries}
    for number in range(2 * repeats):
        is_beside = number % 2
        on_step(Step(number, 2 * repeats, "beside a build" if is_beside else "alone"))
        with _builds(spark, index) if is_beside else nullcontext():
            for query in queries:
                times[query.query.name][is_beside].append(measure(spark, query.sql).seconds)
    on_step(Step(2 * repeats, 2 * repeats, "done"))
    return [Paired(name, tuple(alone), tuple(beside)) for name, (alone, beside) in times.items()]


@contextmanager
def _builds(spark: SparkSession, index: TableIndex) -> Iterator[None]:
    """Build the whole index again and again, from when the first segment is at work until the end of the block."""
    stop, started = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1, "interference") as pool:
        building = pool.submit(_build_until, spark, index, started, stop)
        try:
            started.wait()
            yield
        finally:
            stop.set()
    building.result()


def _build_until(spark: SparkSession, index: TableIndex, started: threading.Event, stop: threading.Event) -> None:
    name = TableName((NAMESPACE,), f"interference_{uuid.uuid4().hex}")
    try:
        while not stop.is_set():
            scratch = create_index_table(index.catalog, name, index.data_table, to_json(index.columns))
            engine = background_engine(spark, f"interference-{uuid.uuid4().hex}", None)
            handle = BuildHandle(partial(build, index.data_table, scratch, index.columns, engine), engine.cancel)
            while handle.status() == "running" and not stop.wait(0.1):
                started.set()
            handle.cancel()
            handle.join()
            index.catalog.purge_table(name.identifier)
    finally:
        started.set()
