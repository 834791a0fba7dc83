"""Spark's doors: the same counts through PySpark with the hook, and through programs with the plugin; look-ups by key.

What is measured, and why so: `docs/benchmark_method.md`. JVMs compile what they run often, so queries go round many
times before they are measured. Nearest to a key among the indexed columns is `lo_ordtotalprice`: the rows of an order
share it and lie together, and few orders have the same one.
"""

import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import IO, Annotated, Any, Final

import pyspark

from ssb_bench.data.dataset import open_duckdb
from ssb_bench.data.layout import NAMESPACE, BenchError
from ssb_bench.spark_runs.bench import EXPECTED, Bench, Seen, Task
from ssb_bench.spark_runs.load import RANGED_COLUMNS, require_load
from ssb_bench.spark_runs.measure import Answer, hooked
from ssb_bench.spark_runs.session import CATALOG, with_jars
from ssb_bench.stores.server import free_port, tell, wait_for
from ssb_bench.studies.run import fit_queries
from ssb_bench.studies.systems import SYSTEMS, WorkerProcess, open_systems

TITLE = "Doors of Spark, and look-ups"
_QUERIES: Final = ("q1", "q2", "q3", "q4", "q6")
_NO_TABLE: Final = {"no table": "SELECT count(*) FROM RANGE(0, 1000, 1, 2) WHERE id % 7 = 3"}
"""A statement that takes what a door costs without any index."""
_SERVERS: Final = {"beeline": "hive.thriftserver.HiveThriftServer2", "Connect": "connect.service.SparkConnectServer"}
_HOSTS: Final = ("spark.hadoop.hive.server2.thrift.bind.host", "spark.connect.grpc.binding.address")
_PORTS: Final = ("spark.hadoop.hive.server2.thrift.port", "spark.connect.grpc.binding.port")
_SHARED: Final = re.compile(r"spark\.(sql|scheduler|executorEnv|jars$|master|ui|driver\.(memory|host|bindAddress))")
_END: Final = re.compile(r"(?:Time taken: |(?:selected|affected) \()([\d.]+) seconds|^Error: |^\[[A-Z_.]+\] ")
_SLOWER: Final = 1.1
_KEYS: Final = 300
_LOOK_UP_ROUNDS: Final = 5
_LOOK_UP: Final = {"seconds": 0.003, "99th of 100 seconds": 0.010, "two threads seconds": 1 / 300}

Ask = Callable[[str], tuple[list[str], float]]
"""Runs a statement; gives lines that end with its rows, and the seconds that it took."""


def measure(
    bench: Bench,
    *,
    repeats: Annotated[int, "Measured executions of each query through each door."] = 20,
    warm_ups: Annotated[int, "Executions of each query through each door that warm up."] = 100,
) -> None:
    """Query through each door of Spark, and look rows up by key; exit 1 if an answer is wrong."""
    bench.note("table", **require_load(bench.layout).facts)
    _measure_look_ups(bench)
    home = bench.layout.root / "doors"
    home.mkdir(exist_ok=True)
    queries = {query.name: " ".join(query.sql.split()) for query in fit_queries(bench.layout, _QUERIES)}
    with bench.session() as spark, hooked(spark):
        settings = {key: value for key, value in spark.sparkContext.getConf().getAll() if _SHARED.match(key)}
        settings["spark.sql.catalogImplementation"] = "in-memory"
        command = [sys.executable, "-m", "puffin_index", "spark-conf"]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        with_plugin = settings | with_jars(dict(line.split(" ", 1) for line in printed.splitlines()))
        both = (("{} without plugin", settings, _NO_TABLE), ("{}", with_plugin, queries | _NO_TABLE))
        for door, (heading, own, asked) in product(("spark-sql", *_SERVERS), both):
            try:
                with _open(door, home, own) as ask:
                    asks: dict[str, Ask] = {"PySpark": partial(_ask_session, spark), door: ask}
                    indexed = [(name, sql) for name, sql in asked.items() if name in queries]
                    for side, one in asks.items():
                        one(f"USE {CATALOG}.{NAMESPACE}")
                        unused = [name for name, sql in indexed if "PuffinIndex" not in str(one(f"EXPLAIN {sql}"))]
                        bench.troubles += [f"{side}, {name}: the index is not used" for name in unused]
                    tasks = [
                        Task(
                            name,
                            {side: partial(_ask, one, sql) for side, one in asks.items()},
                            heading=heading.format(door),
                            limit=lambda seconds: _SLOWER * seconds,
                        )
                        for name, sql in asked.items()
                    ]
                    # A JVM has run as many statements before it is measured, however few different ones.
                    bench.compare(tasks, repeats=repeats, warm_ups=warm_ups * (len(queries) + 1) // len(asked))
            except EXPECTED as error:
                bench.troubles.append(f"{door}: {error}")


def _ask(ask: Ask, sql: str) -> Seen:
    lines, seconds = ask(sql)
    return Seen(lines[-1], seconds=seconds)


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
            yield partial(_ask_session, session)
        elif door == "beeline":
            options = ("-u", f"jdbc:hive2://127.0.0.1:{port}", "-n", "me", "--outputformat=tsv2", "--showHeader=false")
            yield partial(_ask_shell, stack.enter_context(_running(door, home, {}, *options)))
        else:
            yield partial(_ask_shell, stack.enter_context(_running(door, home, settings)))


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
def _ask_session(session: Any, sql: str) -> tuple[list[str], float]:
    started = time.perf_counter()
    rows = session.sql(sql).collect()
    seconds = time.perf_counter() - started
    return [str(row[0]) for row in rows], seconds


def _ask_shell(shell: subprocess.Popen[str], sql: str) -> tuple[list[str], float]:
    lines: list[str] = []
    for line in _lines(shell, sql):
        if end := _END.search(line):
            break
        lines.append(line.strip())
    if end is None or end[1] is None:
        raise BenchError(line)
    return lines, float(end[1])


def _lines(program: subprocess.Popen[str], statement: str) -> Iterator[str]:
    """Tell a program a statement; give what it writes from then on, or raise BenchError at its end."""
    for line in tell(program, f"{statement};"):  # noqa: UP028 # `yield from` would close the stream with the generator
        yield line
    raise BenchError(f"ended at {statement}")


def _measure_look_ups(bench: Bench) -> None:
    """Look random keys up, one at a time and in two threads."""
    column = RANGED_COLUMNS[0]
    sql = f"SELECT {column}, count(*), sum(lo_revenue)::BIGINT FROM lineorder GROUP BY 1 ORDER BY hash(1, {column})"
    with open_duckdb(bench.layout) as connection:
        due = {key: rows for key, *rows in connection.execute(f"{sql} LIMIT {_KEYS}").fetchall()}
    with open_systems(bench, ("lance", "arrow")) as workers:
        if "arrow" not in workers:
            raise BenchError(f"look-ups: {bench.facts[SYSTEMS['arrow'].title]['not run']}")
        works = {SYSTEMS[name].title: partial(_look_up, worker, column, [*due]) for name, worker in workers.items()}
        what = Task(f"{_KEYS} keys, one at a time", works, _rows_of([*due.values()] * 2), "look-ups by key", _LOOK_UP)
        bench.compare([what], repeats=_LOOK_UP_ROUNDS)


def _rows_of(answers: list[object]) -> Answer:
    return Answer(f"rows of {len(answers)} look-ups", repr(answers))


def _look_up(worker: WorkerProcess, column: str, keys: list[int]) -> Seen:
    """Look keys up one after another, then in two threads; give the medians and the answers."""
    query: Mapping[str, object] = {"kind": "get", "column": column}
    *each, together = (worker.ask({"query": {**query, "keys": asked}}) for asked in (*([key] for key in keys), keys))
    seconds = [float(reply["seconds"]) for reply in each]
    slowest = statistics.quantiles(seconds, n=100, method="inclusive")[-1]
    answers = [answer for reply in (*each, together) for answer in reply["answer"]]
    counts = {"99th of 100 seconds": slowest, "two threads seconds": float(together["seconds"]) / len(keys)}
    return Seen(_rows_of(answers), counts, statistics.median(seconds))
