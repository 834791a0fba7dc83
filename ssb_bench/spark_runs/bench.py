"""What all studies share.

A study is a module of `ssb_bench.studies` with a `TITLE` and a function `measure(bench, *, options)`. Its file is all
that it takes: the command `ssb-bench NAME` has an option for each parameter, and its help is the docstring.

`measure` gives tasks to `Bench.compare`. A `Task` has a name and does the same work on several sides (`without` and
`with` the index, or several systems). Work is a function that does it once and says what it has `Seen`: the answer,
counts such as rows or bytes, and its own seconds if they are not those of the call.

`compare` runs the sides in turns (without, with, with, without), so that a drift of the machine hits all alike, after
rounds that warm up. A task whose rounds take long has fewer. An answer other than that of the first side (or than the
one that is due) and an exception are failures: the side stops, and its step has the reason in place of seconds. The
steps of the sides and the facts that were noted are the `Record`, which `ssb_bench.report` shows.
"""

import logging
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Final, TypeAlias

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console

from puffin_index.errors import PuffinIndexError
from ssb_bench.data.layout import Layout
from ssb_bench.results.record import Facts, Number, Record, Step
from ssb_bench.spark_runs.jars import session_jars
from ssb_bench.spark_runs.session import create_session, describe_machine, require_java, stderr_to

# Iceberg estimates the dimension `part` as larger than Spark's 10 MB. Joining it would shuffle all of lineorder, which
# takes five times as long as all else and hides what an index costs.
_SPARK_CONF: Final = {"spark.sql.autoBroadcastJoinThreshold": "64MB"}
EXPECTED: Final = (PuffinIndexError, PySparkException, Py4JError, OSError)
"""What is a failure of the work that raises it."""

ROUNDS_SECONDS: Final = 15.0
LEAST_ROUNDS: Final = 2
Repeats: TypeAlias = Annotated[int, "Measured executions of each side, after one that warms up."]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Seen:
    """What one execution gave; an answer of None is not compared."""

    answer: object = None
    counts: Mapping[str, Number] = field(default_factory=dict)
    seconds: float | None = None


Work: TypeAlias = Callable[[], Seen]


@dataclass(frozen=True, slots=True)
class Task:
    """The same work on several sides, of which the second (or only) one has targets.

    `limit` makes the most seconds that it may take of the first side's median.
    """

    name: str
    works: Mapping[str, Work]
    due: object = None
    heading: str = ""
    most: Mapping[str, Number] = field(default_factory=dict)
    limit: Callable[[float], float] | None = None


@dataclass(slots=True)
class _Running:
    """A task, what its sides have seen so far (the first rounds warm up), and why they stopped."""

    task: Task
    due: object
    seen: dict[str, list[Seen]]
    failures: dict[str, str] = field(default_factory=dict)

    def execute(self, side: str) -> None:
        if side in self.failures:
            return
        started = time.perf_counter()
        try:
            seen = self.task.works[side]()
        except EXPECTED as error:
            self.failures[side] = (str(error).strip().splitlines() or [type(error).__name__])[0]
            return
        self.seen[side].append(seen if seen.seconds else replace(seen, seconds=time.perf_counter() - started))
        if self.due is None:
            self.due = seen.answer
        elif seen.answer is not None and seen.answer != self.due:
            self.failures[side] = f"answers {seen.answer!s:.500}, {self.due!s:.500} is due"

    def steps(self, warm_ups: int) -> Iterator[Step]:
        most, sides = dict(self.task.most), [*self.seen]
        base, held = sides[0], sides[:2][-1]
        for side, executions in self.seen.items():
            measured = executions[warm_ups:]
            names = dict.fromkeys(name for one in measured for name in one.counts)
            step = Step(
                self.task.name,
                side,
                () if side in self.failures else tuple(one.seconds or 0.0 for one in measured),
                executions[0].seconds if warm_ups and executions else None,
                {name: statistics.median(one.counts[name] for one in measured if name in one.counts) for name in names},
                None if self.due is None else f"{self.due!s:.500}",
                most if side == held else {},
                self.task.heading,
                failure=self.failures.get(side),
            )
            if self.task.limit is not None and side == base and step.median is not None:
                most["seconds"] = self.task.limit(step.median)
            yield step


@dataclass(slots=True)
class Bench:
    """Where a study works, and what it has measured so far."""

    layout: Layout
    cores: int = 2
    memory: str = "3g"
    console: Console = field(default_factory=lambda: Console(quiet=True))
    spark: SparkSession | None = None
    started_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    machine: Facts = field(default_factory=lambda: dict(describe_machine()))
    facts: dict[str, Facts] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    @contextmanager
    def session(self, jars: Sequence[str] = ()) -> Iterator[SparkSession]:
        """Give the session that runs, or start one with its own messages in a file, and stop it at the end."""
        if self.spark is not None:
            self.machine = dict(describe_machine(self.spark))
            yield self.spark
            return
        require_java()
        session_jars(*jars)
        with self.console.status("starting Spark"), stderr_to(self.layout.root / "spark.log"):
            spark = create_session(
                self.layout.warehouse, cores=self.cores, memory=self.memory, jars=jars, conf=_SPARK_CONF
            )
        self.spark = spark
        try:
            self.machine = dict(describe_machine(spark))
            yield spark
        finally:
            self.spark = None
            spark.stop()

    def note(self, what: str, **facts: Number | str | None) -> None:
        """Note facts of something; their names have `_` for blanks."""
        known = {name.replace("_", " "): fact for name, fact in facts.items() if fact is not None}
        self.facts.setdefault(what, {}).update(known)

    def compare(self, tasks: Iterable[Task], *, repeats: int, warm_ups: int = 1) -> list[Step]:
        """Execute all tasks, round by round, and add their steps, which it gives as well."""
        running = [_Running(task, task.due, {side: [] for side in task.works}) for task in tasks]
        for number in range(warm_ups + repeats):
            for one in running:
                took = sum(each.seconds or 0.0 for seen in one.seen.values() for each in seen[warm_ups:])
                if number >= warm_ups + LEAST_ROUNDS and took > ROUNDS_SECONDS:
                    continue
                if number in (0, warm_ups):
                    what = "measuring" if number == warm_ups else "warming up"
                    _log.info("%s %s", what, ", ".join(filter(None, (one.task.heading, one.task.name))))
                for side in [*one.task.works][:: 1 if number % 2 == 0 else -1]:
                    one.execute(side)
        steps = [step for one in running for step in one.steps(warm_ups)]
        self.steps += steps
        return steps

    def record(self, study: str, title: str) -> Record:
        """Give what was measured."""
        measured = (self.machine, self.facts, tuple(self.steps), tuple(self.troubles))
        return Record(study, title, self.started_at, self.layout.scale_factor, *measured)
