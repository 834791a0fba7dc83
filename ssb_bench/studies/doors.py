"""Spark's doors: the same counts through PySpark with the hook, and through programs with the plugin.

One program runs at a time, beside the PySpark session, and has its settings. Queries go through it and through PySpark
in turns; seconds are those that the client sees: `spark-sql` and `beeline` say them, PySpark and Connect are timed
around `collect`. JVMs compile what they run often, so queries go round many times before they are measured. An answer
that is not that of PySpark is a failure, and so is a plan without the index.
"""

import logging
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Final

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ssb_bench.data.layout import NAMESPACE, BenchError, Layout
from ssb_bench.results.studies import DoorsRun, DoorStep
from ssb_bench.spark_runs.load import require_load
from ssb_bench.spark_runs.measure import in_turns
from ssb_bench.spark_runs.run import fit_queries, hooked
from ssb_bench.spark_runs.session import CATALOG, LOG_OPTION, describe_machine, with_jars
from ssb_bench.stores.server import free_port, wait_for

_QUERIES: Final = ("q1", "q2", "q3", "q4", "q6")
_NO_TABLE: Final = {"no table": "SELECT count(*) FROM RANGE(0, 1000, 1, 2) WHERE id % 7 = 3"}
"""A statement that takes what a door costs without any index."""
_SERVERS: Final = {"beeline": "hive.thriftserver.HiveThriftServer2", "Connect": "connect.service.SparkConnectServer"}
_HOSTS: Final = ("spark.hadoop.hive.server2.thrift.bind.host", "spark.connect.grpc.binding.address")
_PORTS: Final = ("spark.hadoop.hive.server2.thrift.port", "spark.connect.grpc.binding.port")
_SHARED: Final = re.compile(r"spark\.(sql|scheduler|executorEnv|jars$|master|ui|driver\.(memory|host|bindAddress))")
_END: Final = re.compile(r"(?:Time taken: |(?:selected|affected) \()([\d.]+) seconds|^Error: |^\[[A-Z_.]+\] ")
_ONE, _READY = re.compile("^1$"), re.compile("ready .* ms after its start")
_log = logging.getLogger(__name__)

Ask = Callable[[str], tuple[list[str], float]]
"""Runs a statement; gives lines that end with its rows, and the seconds that it took."""


def measure_doors(
    spark: SparkSession,
    layout: Layout,
    look_ups: tuple[Sequence[DoorStep], Sequence[str]],
    *,
    repeats: int,
    starts: int,
    warm_ups: int = 100,
) -> DoorsRun:
    """Measure doors and starts beside a session in which nothing else may run; `look_ups` and their failures are added.

    Raises BenchError if the table is not loaded, or `spark-sql` does not start.
    """
    loaded, steps, failures = require_load(layout), [], list(look_ups[1])
    home = layout.root / "doors"
    home.mkdir(exist_ok=True)
    settings = {key: value for key, value in spark.sparkContext.getConf().getAll() if _SHARED.match(key)}
    settings["spark.sql.catalogImplementation"] = "in-memory"
    with_plugin = settings | with_jars(_plugin_settings())
    queries = {query.query.name: " ".join(query.sql.split()) for query in fit_queries(layout, _QUERIES)}

    def measured(door: str, what: str, own: Mapping[str, str], asked: Mapping[str, str]) -> list[DoorStep]:
        # A JVM has run as many statements before it is measured, however few different ones.
        rounds = warm_ups * (len(queries) + len(_NO_TABLE)) // len(asked) + repeats
        with _open(door, home, own) as ask:
            times, wrong = _measure({"PySpark": _of_session(spark), door: ask}, asked, rounds)
        failures.extend(wrong)
        last = {key: tuple(seconds[-repeats:]) for key, seconds in times.items()}
        pairs = [(name, last["PySpark", name], last[door, name]) for name in asked]
        return [
            DoorStep(f"{name}, {what}", "PySpark", one, two, 1.1 * statistics.median(one)) for name, one, two in pairs
        ]

    with hooked(spark):
        for door in ("spark-sql", *_SERVERS):
            _log.info("measuring %s", door)
            try:
                steps += measured(door, f"{door} without plugin", settings, _NO_TABLE)
                steps += measured(door, door, with_plugin, queries | _NO_TABLE)
            except (BenchError, OSError, PySparkException) as error:
                failures.append(f"{door}: {error}")
    return DoorsRun(
        scale_factor=layout.scale_factor,
        machine=describe_machine(spark),
        rows=loaded.rows,
        row_groups=loaded.row_groups,
        steps=(*steps, *_measure_starts(home, {False: settings, True: with_plugin}, starts), *look_ups[0]),
        failures=tuple(failures),
    )


def _plugin_settings() -> dict[str, str]:
    command = [sys.executable, "-m", "puffin_index", "spark-conf"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(line.split(" ", 1) for line in printed.splitlines())


@contextmanager
def _open(door: str, home: Path, settings: Mapping[str, str]) -> Iterator[Ask]:
    """Start what a door needs; the first statement waits for the plugin."""
    settings, port = {**settings, "spark.puffin-index.start-milliseconds": "60000"}, free_port()
    with ExitStack() as stack:
        if door in _SERVERS:
            settings |= dict.fromkeys(_HOSTS, "127.0.0.1") | dict.fromkeys(_PORTS, str(port))
            log = stack.enter_context((home / f"{door}.log").open("w"))
            main = ("--class", f"org.apache.spark.sql.{_SERVERS[door]}", "spark-internal")
            stack.enter_context(_running("spark-submit", home, settings, *main, output=log))
            wait_for(port)
        if door == "Connect":
            from pyspark.sql.connect.session import SparkSession as ConnectSession

            session = ConnectSession.builder.remote(f"sc://127.0.0.1:{port}").create()
            stack.callback(session.stop)
            yield _of_session(session)
        elif door == "beeline":
            options = ("-u", f"jdbc:hive2://127.0.0.1:{port}", "-n", "me", "--outputformat=tsv2", "--showHeader=false")
            yield _of_shell(stack.enter_context(_running(door, home, {}, *options)))
        else:
            yield _of_shell(stack.enter_context(_running(door, home, settings)))


@contextmanager
def _running(
    program: str, home: Path, settings: Mapping[str, str], *arguments: str, output: IO[str] | int = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    """Run a program of Spark's `bin` folder, and kill it in the end."""
    folder = Path(pyspark.__file__).parent
    process = subprocess.Popen(
        [folder / "bin" / program, *(f"--conf={key}={value}" for key, value in settings.items()), *arguments],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd=home,
        # A shell in the background of a terminal would be stopped when it looks at it.
        start_new_session=True,
        env={**os.environ, "SPARK_HOME": str(folder)},
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


# Any: sessions of PySpark and of Connect have no class in common.
def _of_session(session: Any) -> Ask:
    def ask(sql: str) -> tuple[list[str], float]:
        started = time.perf_counter()
        rows = session.sql(sql).collect()
        seconds = time.perf_counter() - started
        return [str(row[0]) for row in rows], seconds

    return ask


def _of_shell(shell: subprocess.Popen[str]) -> Ask:
    def ask(sql: str) -> tuple[list[str], float]:
        lines: list[str] = []
        for line in _lines(shell, sql):
            if end := _END.search(line):
                break
            lines.append(line.strip())
        if end is None or end[1] is None:
            raise BenchError(line)
        return lines, float(end[1])

    return ask


def _lines(program: subprocess.Popen[str], statement: str) -> Iterator[str]:
    """Tell a program a statement; give what it writes from then on, or raise BenchError at its end."""
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(f"{statement};\n")
    program.stdin.flush()
    for line in program.stdout:  # noqa: UP028 # `yield from` would close the stream with the generator
        yield line
    raise BenchError(f"ended at {statement}")


def _measure(
    asks: Mapping[str, Ask], queries: Mapping[str, str], rounds: int
) -> tuple[dict[tuple[str, str], list[float]], list[str]]:
    """Send queries through doors in turns; give the seconds by door and query, and what is wrong."""
    times: dict[tuple[str, str], list[float]] = {(arm, name): [] for arm in asks for name in queries}
    answers: dict[str, set[str]] = {name: set() for name in queries}
    failures = []
    for arm, ask in asks.items():
        ask(f"USE {CATALOG}.{NAMESPACE}")
        plans = {name: str(ask(f"EXPLAIN {sql}")) for name, sql in queries.items()}
        failures += [
            f"{arm}, {name}: the index is not used"
            for name in queries
            if name not in _NO_TABLE and "PuffinIndex" not in plans[name]
        ]
    for arm in in_turns([*asks], rounds):
        for name, sql in queries.items():
            lines, seconds = asks[arm](sql)
            times[arm, name].append(seconds)
            answers[name].add(lines[-1])
    wrong = [f"{' and '.join(asks)}, {name}: {answers[name]}" for name in queries if len(answers[name]) > 1]
    return times, [*failures, *wrong]


def _measure_starts(home: Path, settings: Mapping[bool, Mapping[str, str]], starts: int) -> Iterator[DoorStep]:
    """Start `spark-sql` without the plugin and with it, in turns, with a log that says when the plugin is ready."""
    times: dict[tuple[bool, re.Pattern[str]], list[float]] = {(False, _ONE): [], (True, _ONE): [], (True, _READY): []}
    for plugin in in_turns((False, True), starts):
        _log.info("starting spark-sql %s the plugin", "with" if plugin else "without")
        sought = {_ONE, _READY} if plugin else {_ONE}
        started = time.perf_counter()
        own = {**settings[plugin], "spark.driver.extraJavaOptions": LOG_OPTION}
        with _running("spark-sql", home, own) as program:
            for line in _lines(program, "SELECT 1"):
                for seen in [pattern for pattern in sought if pattern.search(line)]:
                    times[plugin, seen].append(time.perf_counter() - started)
                    sought.remove(seen)
                if not sought:
                    break
    without, first, ready = map(tuple, times.values())
    yield DoorStep("spark-sql: first answer", "without plugin", without, first, statistics.median(without) + 0.3)
    yield DoorStep("spark-sql: plugin ready", "", (), ready)
