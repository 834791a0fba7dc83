"""Two ways to run segment tasks: on Spark's executors, or in a pool of local processes without a JVM.

Both run the same function, `puffin_index.segments.segment.write_segment`. An engine yields each segment when finished,
in any order.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from loky import ProcessPoolExecutor
from loky.process_executor import ShutdownExecutorError, TerminatedWorkerError

from puffin_index.errors import BuildError, UnsupportedError
from puffin_index.jobs.worker_pool import environment_of_workers, worker_pool
from puffin_index.segments.segment import Segment, SegmentTask, write_segment

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

SCHEDULER_POOL = "puffin-index"
"""Builds run in a FAIR pool of their own, so that queries keep their share."""

WriteSegment: TypeAlias = Callable[[SegmentTask], Segment]

Result = TypeVar("Result")

_PACKAGE = "puffin_index"
_WITHOUT_JVM = "build without a session, in local processes"
_CANCELLED = "the build was cancelled"
_LOWEST_PRIORITY = 19


def context_of(spark: SparkSession, instead: str) -> SparkContext:
    """Return the application of a session; raise UnsupportedError, with what to do instead, if it has no JVM here."""
    if not hasattr(spark, "_jsparkSession"):
        raise UnsupportedError(f"the session has no JVM here, as is so with Spark Connect: {instead}")
    return spark.sparkContext


def use_python_of_driver(context: SparkContext) -> None:
    """Let the executors of a local master run the driver's Python, unless the user chose another one.

    PySpark takes the `python3` of the path, which is another Python if the driver's environment is not activated.
    """
    if (context.master or "").startswith("local") and "PYSPARK_PYTHON" not in os.environ and sys.executable:
        context.pythonExec = sys.executable


def engine_for(spark: SparkSession | None, workers: int | None, *, in_background: bool = False) -> Engine:
    """Choose the engine; one in the background slows queries of the same application least.

    A segment occupies its task slot for seconds, whatever the pool. So if the executors are threads of the driver (a
    local master), local processes of low priority do the work in the background without any task slot.
    """
    if spark is None:
        return LocalEngine(workers)
    context = context_of(spark, _WITHOUT_JVM)
    if in_background and (context.master or "").startswith("local"):
        return LocalEngine(workers or max(1, context.defaultParallelism // 2), in_background=True)
    return SparkEngine(spark, in_background=in_background)


class LocalEngine:
    """A pool of processes on this machine, one a core unless told; in the background, only of idle processor time."""

    def __init__(self, workers: int | None = None, *, in_background: bool = False) -> None:
        self.parallelism = workers or os.cpu_count() or 1
        self._in_background = in_background
        self._pool: ProcessPoolExecutor | None = None
        self._cancelled = threading.Event()

    def run(self, tasks: Sequence[SegmentTask]) -> Generator[Segment, None, None]:
        """Run the tasks in processes; a single task runs in this process, unless in the background."""
        _check_cancelled(self._cancelled)
        if len(tasks) == 1 and not self._in_background:
            yield write_segment(tasks[0])
            return
        self._pool = worker_pool(min(self.parallelism, max(1, len(tasks))), environment_of_workers())
        try:
            _check_cancelled(self._cancelled)
            yield from _results(self._pool.submit, tasks, self._in_background)
        except ShutdownExecutorError as error:
            raise BuildError(_CANCELLED) from error
        except TerminatedWorkerError as error:
            _check_cancelled(self._cancelled)
            raise BuildError(f"a process of the build died, perhaps for lack of memory: {error}") from error
        finally:
            self._pool.shutdown(wait=True, kill_workers=True)

    def cancel(self) -> None:
        """Stop the processes; a single task in this process runs to its end."""
        self._cancelled.set()
        if self._pool is not None:
            self._pool.shutdown(wait=False, kill_workers=True)


class SparkEngine:
    """Executors of a live Spark application: one Spark job with one task per segment, in a FAIR pool.

    In the background, half of the task slots are left to queries: a FAIR pool shares slots as they become free, but
    takes none from a running task, and a segment takes long. Jobs are cancelled by their tag.
    """

    def __init__(self, spark: SparkSession, *, in_background: bool = False) -> None:
        self._context = context_of(spark, _WITHOUT_JVM)
        use_python_of_driver(self._context)
        self._java_context = self._context._jsc.sc()
        self._tag = f"puffin-index-{uuid.uuid4().hex}"
        self._cancelled = threading.Event()
        self._in_background = in_background
        slots = self._context.defaultParallelism
        self.parallelism = max(1, slots // 2) if in_background else slots

    def run(self, tasks: Sequence[SegmentTask]) -> Generator[Segment, None, None]:
        """Run the tasks on executors, in jobs with the group and tags of the thread that asks for the first segment."""
        self._properties = self._java_context.getLocalProperties()
        with ThreadPoolExecutor(self.parallelism, thread_name_prefix="puffin-index-build") as threads:
            threads.submit(self._in_job, "ask executors", self._check_package).result()
            yield from _results(
                lambda write, task: threads.submit(self._run_task, write, task), tasks, self._in_background
            )

    def _check_package(self) -> None:
        """Ask the executors whether they find this package: without it, each task fails with pages of stack traces."""
        # The question is made of Python's own functions: ours could not be loaded there.
        if not self._context.parallelize([_PACKAGE], 1).map(find_spec).map(bool).collect()[0]:
            raise self._lacking(_PACKAGE)

    def _run_task(self, write: WriteSegment, task: SegmentTask) -> Segment:
        return self._in_job(
            f"index {len(task.files)} data files", lambda: self._context.parallelize([task], 1).map(write).collect()[0]
        )

    def _in_job(self, description: str, run: Callable[[], Result]) -> Result:
        from py4j.protocol import Py4JJavaError

        _check_cancelled(self._cancelled)
        # Local properties belong to a thread, and each thread of the pool runs many tasks.
        self._java_context.setLocalProperties(self._properties.clone())
        self._context.setLocalProperty("spark.scheduler.pool", SCHEDULER_POOL)
        self._context.setJobDescription(f"puffin-index: {description}")
        self._context.addJobTag(self._tag)
        try:
            return run()
        except Py4JJavaError as error:
            _check_cancelled(self._cancelled)
            raise self._build_error(error) from error

    def _build_error(self, error: Py4JJavaError) -> BuildError:
        """Return the failure on an executor without its stack of Java and Python frames."""
        text = str(error.java_exception)
        missing = re.search(r"No module named '([^']+)'", text)
        if missing:
            return self._lacking(missing.group(1))
        raised = re.findall(r"^(?:[\w.]+(?:Error|Exception)): .*$", text, re.MULTILINE)
        return BuildError(raised[-1] if raised else text.splitlines()[0])

    def _lacking(self, package: str) -> BuildError:
        return BuildError(
            f"the Python of Spark's executors ({self._context.pythonExec}) lacks {package!r}: install puffin-index "
            "there, or set PYSPARK_PYTHON before the session starts to a Python that has it"
        )

    def cancel(self) -> None:
        """Cancel the jobs."""
        self._cancelled.set()
        self._context.cancelJobsWithTag(self._tag)


Engine: TypeAlias = LocalEngine | SparkEngine
"""Runs segment tasks, `parallelism` at a time."""


def _check_cancelled(cancelled: threading.Event) -> None:
    if cancelled.is_set():
        raise BuildError(_CANCELLED)


def write_in_background(task: SegmentTask) -> Segment:
    """Run `write_segment` in a thread of the lowest priority, so that queries on the same machine go first.

    The priority of a whole process could never be raised again, and Spark and others reuse their worker processes.
    """
    with ThreadPoolExecutor(1, initializer=_lower_priority) as thread:
        return thread.submit(write_segment, task).result()


def _lower_priority() -> None:
    # Only on Linux do threads have priorities of their own.
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)


def _results(
    submit: Callable[[WriteSegment, SegmentTask], Future[Segment]], tasks: Sequence[SegmentTask], in_background: bool
) -> Iterator[Segment]:
    write = write_in_background if in_background else write_segment
    futures = [submit(write, task) for task in tasks]
    try:
        for future in as_completed(futures):
            yield future.result()
    finally:
        for future in futures:
            future.cancel()
