"""The workers of the systems, each in a process of its own: `python -m ssb_bench.systems.workers NAME`.

A worker and the benchmark say to each other one JSON object a line, over the worker's stdin and stdout:

| request | reply |
| --- | --- |
| `{"open": {...}}` | `{"facts": {...}}`: version, build seconds, bytes |
| `{"query": {"kind": "count" or "rows", "where", "system"}}` | `{"seconds", "answer"}` |
| `{"query": {"kind": "get", "column", "keys"}}` | `{"seconds", "answer"}` |
| any of them, in trouble | `{"error": sentence}` |

The answer to `count` is a number. The answer to `rows` (all columns of the matching rows, in batches that are thrown
away) is the number of rows and the sum of lo_revenue; that to `get` has these of each key, as two threads look them up.
Each worker imports its own library alone, because an environment has one of them; nothing else than the standard
library is imported by all.
"""

import json
import os
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeAlias

# What json.loads gives has no narrower type, and workers see foreign libraries without types.
Json: TypeAlias = Mapping[str, Any]


_EXPECTED = (ArithmeticError, AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""What libraries raise; anything else ends the worker, and the end of its stderr is the reason."""


class Worker(ABC):
    """One system, what it tells of version, build and size, and what its library raises besides Python's exceptions."""

    facts: Mapping[str, object]
    errors: tuple[type[Exception], ...] = ()

    @abstractmethod
    def __init__(self, config: Json) -> None: ...

    @abstractmethod
    def count(self, query: Json) -> int:
        """Count the matching rows."""

    @abstractmethod
    def rows(self, query: Json) -> tuple[int, int]:
        """Read the matching rows; give how many there are and the sum of their lo_revenue."""

    def look_up(self, column: str, key: int) -> tuple[int, int]:
        """Read the rows of a key, in any thread; give what `rows` gives."""
        return self.rows({"where": f"{column} = {key}"})


def serve(system: type[Worker]) -> None:
    """Answer requests to a system until stdin ends."""
    # Libraries print to stdout as well; that must not get between the replies.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker: Worker | None = None
    caught: tuple[type[Exception], ...] = _EXPECTED
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "open" in request:
                worker = system(request["open"])
                caught = (*_EXPECTED, *worker.errors)
                reply: dict[str, object] = {"facts": worker.facts}
            elif worker is None:
                reply = {"error": "not opened"}
            else:
                reply = _answer(worker, request["query"])
        except caught as error:
            reply = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"}
        replies.write(json.dumps(reply) + "\n")


def _answer(worker: Worker, query: Json) -> dict[str, object]:
    started = time.perf_counter()
    answers: dict[str, Callable[[Json], object]] = {
        "count": worker.count,
        "rows": worker.rows,
        "get": partial(_get, worker),
    }
    answer = answers[query["kind"]](query)
    return {"seconds": time.perf_counter() - started, "answer": answer}


def _get(worker: Worker, query: Json) -> list[tuple[int, int]]:
    look_up, keys = partial(worker.look_up, query["column"]), query["keys"]
    # A pool takes a while to start.
    if len(keys) == 1:
        return [look_up(keys[0])]
    with ThreadPoolExecutor(2) as pool:
        return [*pool.map(look_up, keys)]


def make_once(folder: Path, make: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
    """Make what a system needs in a folder, unless it is there; give what making it took."""
    record = folder / "made.json"
    if not record.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        record.write_text(json.dumps(make()), encoding="utf-8")
    made: Mapping[str, float] = json.loads(record.read_text(encoding="utf-8"))
    return made


def sum_batches(batches: Iterable[Any]) -> tuple[int, int]:
    """Give the rows of Arrow record batches and the sum of their lo_revenue."""
    import pyarrow.compute as pc

    rows = total = 0
    for batch in batches:
        rows += batch.num_rows
        total += pc.sum(batch.column("lo_revenue")).as_py() or 0
    return rows, total


class _ArrowWorker(Worker):
    """The index without a JVM, on one version of the table, as Lance's dataset is."""

    def __init__(self, config: Json) -> None:
        from puffin_index import TableIndex
        from ssb_bench.spark_runs.load import TABLE
        from ssb_bench.spark_runs.session import open_catalog

        self.facts = {"version": "puffin-index, Arrow scan"}
        self._index = TableIndex.open(open_catalog(Path(config["warehouse"])), TABLE)

    def count(self, query: Json) -> int:
        import planner

        return planner.count(self._index, query["where"], refresh=False).rows

    def rows(self, query: Json) -> tuple[int, int]:
        import planner

        return sum_batches(planner.scan(self._index, query["where"], refresh=False))

    def look_up(self, column: str, key: int) -> tuple[int, int]:
        return sum_batches(self._prepared(column).get({column: [key]}).to_batches())

    @cache  # noqa: B019 # a process has one worker
    def _prepared(self, column: str) -> Any:
        import planner

        return planner.prepare(self._index, [column], refresh=False)


class _DuckdbWorker(Worker):
    """DuckDB on the table's own Parquet files, which are a view."""

    def __init__(self, config: Json) -> None:
        import duckdb

        self.errors = (duckdb.Error,)
        self.facts = {"version": f"DuckDB {duckdb.__version__}"}
        self._connection = duckdb.connect()
        self._connection.execute("SET threads = 2; SET memory_limit = '4GB'; SET enable_progress_bar = false")
        self._open_lineorder(config)

    def _open_lineorder(self, config: Json) -> None:
        self._connection.execute(f"CREATE VIEW lineorder AS FROM read_parquet('{config['files']}/*.parquet')")

    def count(self, query: Json) -> int:
        rows = self._connection.execute(f"SELECT count(*) FROM lineorder WHERE {query['where']}").fetchall()
        return int(rows[0][0])

    def rows(self, query: Json) -> tuple[int, int]:
        result = self._connection.sql(f"SELECT * FROM lineorder WHERE {query['where']}")
        return sum_batches(result.to_arrow_reader(100_000))


class _DuckdbIndexWorker(_DuckdbWorker):
    """DuckDB on the table as a dataset, of which it gets the rows that the index finds."""

    def _open_lineorder(self, config: Json) -> None:
        import planner
        from puffin_index import TableIndex
        from ssb_bench.spark_runs.load import TABLE
        from ssb_bench.spark_runs.session import open_catalog

        index = TableIndex.open(open_catalog(Path(config["warehouse"])), TABLE)
        self._connection.register("lineorder", planner.dataset(index))


class _DatafusionWorker(Worker):
    """DataFusion on the table's own Parquet files, with filters pushed into the Parquet reader."""

    def __init__(self, config: Json) -> None:
        import datafusion

        self.facts = {"version": f"DataFusion {datafusion.__version__}"}
        settings = datafusion.SessionConfig({"datafusion.execution.parquet.pushdown_filters": "true"})
        self._context: Any = datafusion.SessionContext(settings.with_target_partitions(2))
        self._context.register_parquet("lineorder", config["files"])

    def count(self, query: Json) -> int:
        frame = self._context.sql(f"SELECT count(*) AS c FROM lineorder WHERE {query['where']}")
        return int(frame.to_pydict()["c"][0])

    def rows(self, query: Json) -> tuple[int, int]:
        frame = self._context.sql(f"SELECT * FROM lineorder WHERE {query['where']}")
        return sum_batches(batch.to_pyarrow() for batch in frame.execute_stream())


class _LanceWorker(Worker):
    """Lance: the same rows in the same order, in its own format, with BTREE indexes on the queries' columns."""

    def __init__(self, config: Json) -> None:
        import lance

        folder = Path(config["folder"])
        made = make_once(folder, lambda: _make_lance(folder / "lineorder.lance", config))
        self.facts = {"version": f"Lance {lance.__version__}", **made}
        self._dataset: Any = lance.dataset(str(folder / "lineorder.lance"))

    def count(self, query: Json) -> int:
        return int(self._dataset.count_rows(filter=query["where"]))

    def rows(self, query: Json) -> tuple[int, int]:
        return sum_batches(self._dataset.scanner(filter=query["where"]).to_batches())


def _make_lance(path: Path, config: Json) -> dict[str, float]:
    import lance
    import pyarrow.dataset as ds

    source = ds.dataset(sorted(str(file) for file in Path(config["files"]).glob("*.parquet")))
    started = time.perf_counter()
    dataset: Any = lance.write_dataset(source.scanner(batch_size=65_536).to_reader(), str(path))
    write_seconds = time.perf_counter() - started
    data_bytes = _bytes_under(path)
    started = time.perf_counter()
    for column in config["columns"]:
        dataset.create_scalar_index(column, index_type="BTREE")
    build_seconds = time.perf_counter() - started
    index_bytes = _bytes_under(path) - data_bytes
    sizes = {"data_bytes": data_bytes, "index_bytes": index_bytes}
    return {"write_seconds": write_seconds, "build_seconds": build_seconds, **sizes}


def _bytes_under(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


class _SparkWorker(Worker):
    """Three systems in one application: no index, Parquet bloom filters, and this index; a session each.

    They are warmed up on another table, so that a first query is not Spark's own waking up.
    """

    def __init__(self, config: Json) -> None:
        import planner
        from ssb_bench.data.layout import NAMESPACE
        from ssb_bench.spark_runs.load import BLOOM_TABLE, LINEORDER
        from ssb_bench.spark_runs.session import CATALOG, create_session

        spark = create_session(Path(config["warehouse"]), cores=config["cores"], memory=config["memory"])
        self.facts = {"version": f"Spark {spark.version}"}
        self._tables = {"iceberg": LINEORDER, "iceberg-bloom": BLOOM_TABLE, "index": LINEORDER}
        self._sessions = {name: spark.newSession() for name in self._tables}
        planner.enable(self._sessions["index"])
        for session in self._sessions.values():
            session.sql(f"SELECT count(*) FROM {CATALOG}.{NAMESPACE}.supplier WHERE s_suppkey > 3").collect()

    def count(self, query: Json) -> int:
        return int(self._select("count(*)", query).collect()[0][0])

    def rows(self, query: Json) -> tuple[int, int]:
        # Spark makes whole rows and throws them away, and counts on the way.
        from pyspark.sql import Observation, functions as f

        seen, revenue = Observation(), f.sum(f.col("lo_revenue").cast("bigint"))
        watched = self._select("*", query).observe(seen, f.count(f.lit(1)).alias("rows"), revenue.alias("revenue"))
        watched.write.format("noop").mode("overwrite").save()
        return int(seen.get["rows"]), int(seen.get["revenue"] or 0)

    def _select(self, what: str, query: Json) -> Any:
        name = query["system"]
        return self._sessions[name].sql(f"SELECT {what} FROM {self._tables[name]} WHERE {query['where']}")


_WORKERS: Final[dict[str, type[Worker]]] = {
    "spark": _SparkWorker,
    "arrow": _ArrowWorker,
    "duckdb": _DuckdbWorker,
    "duckdb-index": _DuckdbIndexWorker,
    "datafusion": _DatafusionWorker,
    "lance": _LanceWorker,
}

if __name__ == "__main__":
    serve(_WORKERS[sys.argv[1]])
