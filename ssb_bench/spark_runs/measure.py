"""Run one query in Spark and say how long it took and what it really read.

- **Rows**: input records of the tasks (`inputMetrics.recordsRead`), summed over the stages of the query's jobs, from
  Spark's own status store. They are the rows of the row groups that were read, before Spark filters them. Iceberg may
  skip a row group by its dictionary, index or not, so they say more than the plan does.
- **Bytes**: what the Spark process asked the operating system for (`rchar`, Linux), from disk or page cache. Repeated
  runs agree within 0.1 %, and in a local session driver and executors are one process. Spark's own
  `inputMetrics.bytesRead` lacks the vectored reads of column chunks: 0.3 MB for a scan of 50 MB.
"""

import hashlib
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from operator import mul
from pathlib import Path
from string import Template
from typing import Final

from pyspark.sql import SparkSession

import planner
from planner.report.scan_plan import ScanPlan
from ssb_bench.data.layout import NAMESPACE
from ssb_bench.data.workload import Query, queries_of
from ssb_bench.results.record import Number
from ssb_bench.spark_runs.bench import Seen, Task, Work
from ssb_bench.spark_runs.session import CATALOG

_EVENTS_TIMEOUT_MILLISECONDS = 30_000
_AGGREGATES: Final = "spark.puffin-index.aggregates"


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a query, in no order, equal to others of the same values; the text shows one value or a count."""

    text: str = field(compare=False)
    checksum: str

    def __str__(self) -> str:
        """Show the text."""
        return self.text


@dataclass(frozen=True, slots=True)
class Measurement:
    """One execution of a query, planning included; answer or plan is None if no rows were fetched, or none was made."""

    answer: Answer | None
    seconds: float
    rows_read: int
    process_bytes: int | None
    plan: ScanPlan | None

    @property
    def counts(self) -> dict[str, Number]:
        """What it has read, and what the planner says of the scan."""
        read: dict[str, Number] = {} if self.process_bytes is None else {"read bytes": self.process_bytes}
        read["rows read"] = self.rows_read
        if self.plan is not None:
            pages = {} if self.plan.by_pages is None else {"pages": self.plan.by_pages.pages_read}
            read |= {"row groups": self.plan.kept, **pages, "plan seconds": self.plan.planning_seconds}
        return read


def answer_of(rows: Iterable[Sequence[object]]) -> Answer:
    """Give rows, of Spark or of DuckDB, as an answer."""
    lines = sorted(repr(tuple(row)) for row in rows)
    checksum = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    single = len(lines) == 1 and lines[0].endswith(",)")
    return Answer(lines[0][1:-2] if single else rows_text(len(lines)), checksum)


def rows_text(count: int) -> str:
    """Say how many rows there are."""
    return f"{count:,} row{'s' * (count != 1)}"


def measure(spark: SparkSession, sql: str, *, fetch: bool = True) -> Measurement:
    """Run a query once, alone in the application, and measure it; raise what Spark raises.

    Rows that are not fetched go into Spark's `noop` sink: millions of rows in Python would hide what reading takes.
    """
    context, plans_before = spark.sparkContext, planner.reports(spark)[-1:]
    group = f"ssb-bench-{uuid.uuid4().hex}"
    context.setJobGroup(group, sql)
    try:
        bytes_before = _process_bytes(spark)
        started = time.perf_counter()
        query, rows = spark.sql(sql), None
        if fetch:
            rows = query.collect()
        else:
            query.write.format("noop").mode("overwrite").save()
        seconds = time.perf_counter() - started
        bytes_after = _process_bytes(spark)
    finally:
        context._jsc.clearJobGroup()
    process_bytes = None if bytes_before is None or bytes_after is None else bytes_after - bytes_before
    plans = [plan for plan in planner.reports(spark)[-1:] if all(plan is not one for one in plans_before)]
    answer = None if rows is None else answer_of(rows)
    return Measurement(answer, seconds, rows_read(spark, group), process_bytes, plans[0] if plans else None)


def ask(spark: SparkSession, sql: str) -> Seen:
    """Ask Spark, and say what it has read."""
    measured = measure(spark, sql)
    return Seen(measured.answer, measured.counts, measured.seconds)


def tasks_of(study: str, sides: Mapping[str, SparkSession], heading: str = "") -> Iterator[tuple[Query, Task]]:
    """Make a task of each query of a study; what its header chooses stands for the names in its SQL."""
    for query in queries_of(study):
        chosen = sides["without"].sql(query.headers.get("chosen", "SELECT 1")).collect()[0].asDict()
        asked = replace(query, sql=Template(query.sql).substitute(chosen))
        works: dict[str, Work] = {side: partial(ask, session, asked.sql) for side, session in sides.items()}
        limit = partial(mul, 1 / float(query.headers["times-as-fast"]))
        yield asked, Task(query.title, works, heading=heading, limit=limit)


def rows_read(spark: SparkSession, group: str) -> int:
    """Sum the input records of the tasks of a job group."""
    scala_context = spark.sparkContext._jsc.sc()
    scala_context.listenerBus().waitUntilEmpty(_EVENTS_TIMEOUT_MILLISECONDS)
    tracker, store = spark.sparkContext.statusTracker(), scala_context.statusStore()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    # A stage that several jobs share (adaptive execution) ran once.
    stage_ids = {int(stage) for job in jobs if job is not None for stage in job.stageIds}
    return sum(int(store.lastStageAttempt(stage).inputRecords()) for stage in stage_ids)


def _process_bytes(spark: SparkSession) -> int | None:
    """Read how many bytes the Spark process has asked the operating system for so far."""
    jvm = spark.sparkContext._jvm
    if jvm is None:
        return None
    counters = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/io")
    try:
        found = re.search(r"^rchar: (\d+)", counters.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else int(found[1])


@contextmanager
def hooked(session: SparkSession, *, aggregates: bool = True) -> Iterator[SparkSession]:
    """Install the hook in a session, which answers aggregates or scans for them; undo both at the end."""
    before = str(session.conf.get(_AGGREGATES, "true"))
    session.conf.set(_AGGREGATES, str(aggregates).lower())
    planner.enable(session)
    try:
        yield session
    finally:
        planner.disable(session)
        session.conf.set(_AGGREGATES, before)


@contextmanager
def both_sides(spark: SparkSession, *, aggregates: bool = True) -> Iterator[dict[str, SparkSession]]:
    """Give sessions `without` the hook and `with` it, which find the SSB tables by their names."""
    sides = {side: spark.newSession() for side in ("without", "with")}
    for session in sides.values():
        session.sql(f"USE {CATALOG}.{NAMESPACE}")
    with hooked(sides["with"], aggregates=aggregates):
        yield sides
