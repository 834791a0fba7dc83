"""The workers of the systems, each in a process of its own: `python -m ssb_bench.systems.workers NAME`.

A worker and the benchmark say to each other one JSON object a line, over the worker's stdin and stdout:

| request | reply |
| --- | --- |
| `{"open": {...}}` | `{"facts": {...}}`: version, build seconds, bytes |
| `{"query": {"kind": "count" or "rows", "where", "system"}}` | `{"seconds", "answer"}`: a number, or `Rows` |
| `{"query": {"kind": "get", "column", "keys"}}` | `{"seconds", "answer"}`: `Rows` of each key, by two threads |
| any of them, in trouble | `{"error": sentence}` |

Each worker imports its own library alone, because an environment has one of them; nothing else than the standard
library is imported by all. The batches of rows are thrown away.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

# What json.loads gives has no narrower type, and workers see foreign libraries without types.
Json: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = tuple[int, int]
"""How many rows there are, and the sum of their lo_revenue."""


@dataclass(frozen=True, slots=True)
class Worker:
    """An opened system: facts, and how it counts or reads the rows of a query, and those where a column has a key."""

    facts: Mapping[str, object]
    count: Callable[[Json], int]
    rows: Callable[[Json], Rows]
    look_up: Callable[[str, int], Rows] | None = None

    def answer(self, query: Json) -> object:
        """Answer a query of any kind."""
        if query["kind"] != "get":
            return self.rows(query) if query["kind"] == "rows" else self.count(query)
        column, keys = query["column"], query["keys"]
        look_up = self.look_up or (lambda column, key: self.rows({"where": f"{column} = {key}"}))
        # A pool takes a while to start.
        if len(keys) == 1:
            return [look_up(column, keys[0])]
        with ThreadPoolExecutor(2) as pool:
            return [*pool.map(lambda key: look_up(column, key), keys)]


def serve(open_system: Callable[[Json], Worker]) -> None:
    """Answer requests to a system until stdin ends."""
    # Libraries print to stdout as well; that must not get between the replies.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker: Worker | None = None
    reply: dict[str, object]
    for line in sys.stdin:
        request = json.loads(line)
        started = time.perf_counter()
        try:
            if worker is None:
                worker = open_system(request["open"])
                reply = {"facts": worker.facts}
            else:
                answer = worker.answer(request["query"])
                reply = {"seconds": time.perf_counter() - started, "answer": answer}
        except Exception as error:  # noqa: BLE001 - libraries raise what they like
            reply = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"}
        replies.write(json.dumps(reply) + "\n")


def sum_batches(batches: Iterable[Any]) -> Rows:
    """Sum Arrow record batches up."""
    import pyarrow.compute as pc

    rows = total = 0
    for batch in batches:
        rows += batch.num_rows
        total += pc.sum(batch.column("lo_revenue")).as_py() or 0
    return rows, total


def open_arrow(config: Json) -> Worker:
    """Open the index without a JVM, on one version of the table, as Lance's dataset is."""
    import planner
    from ssb_bench.spark_runs.load import open_index

    index = open_index(Path(config["warehouse"]), config["table"])
    prepared = cache(lambda column: planner.prepare(index, [column], refresh=False))
    return Worker(
        {"version": "puffin-index, Arrow scan"},
        lambda query: planner.count(index, query["where"], refresh=False).rows,
        lambda query: sum_batches(planner.scan(index, query["where"], refresh=False)),
        lambda column, key: sum_batches(prepared(column).get({column: [key]}).to_batches()),
    )


def _of_sql(version: str, ask: Callable[[str, Json], Iterable[Any]]) -> Worker:
    """A system that gives Arrow record batches of some columns of the rows of a query."""
    return Worker(
        {"version": version},
        lambda query: int(next(iter(ask("count(*) AS n", query))).column(0)[0].as_py()),
        lambda query: sum_batches(ask("*", query)),
    )


def open_duckdb(config: Json, dataset: Any = None) -> Worker:
    """Open DuckDB on the table's own Parquet files, which are a view, or on a dataset."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET threads = 2; SET memory_limit = '4GB'; SET enable_progress_bar = false")
    if dataset is None:
        connection.execute(f"CREATE VIEW lineorder AS FROM read_parquet('{config['files']}/*.parquet')")
    else:
        connection.register("lineorder", dataset)

    def ask(what: str, query: Json) -> Iterable[Any]:
        rows: Any = connection.sql(f"SELECT {what} FROM lineorder WHERE {query['where']}")
        batches: Iterable[Any] = rows.to_arrow_reader(100_000)
        return batches

    return _of_sql(f"DuckDB {duckdb.__version__}", ask)


def open_duckdb_index(config: Json) -> Worker:
    """Open DuckDB on the table as a dataset, of which it gets the rows that the index finds."""
    import planner
    from ssb_bench.spark_runs.load import open_index

    return open_duckdb(config, planner.dataset(open_index(Path(config["warehouse"]), config["table"])))


def open_datafusion(config: Json) -> Worker:
    """Open DataFusion on the table's own Parquet files, with filters pushed into the Parquet reader."""
    import datafusion

    settings = datafusion.SessionConfig({"datafusion.execution.parquet.pushdown_filters": "true"})
    context: Any = datafusion.SessionContext(settings.with_target_partitions(2))
    context.register_parquet("lineorder", config["files"])

    def ask(what: str, query: Json) -> Iterable[Any]:
        batches = context.sql(f"SELECT {what} FROM lineorder WHERE {query['where']}").execute_stream()
        return (batch.to_pyarrow() for batch in batches)

    return _of_sql(f"DataFusion {datafusion.__version__}", ask)


def open_lance(config: Json) -> Worker:
    """Open Lance: the same rows in the same order, in its own format, with BTREE indexes on the queries' columns."""
    import lance

    folder = Path(config["folder"])
    record, path = folder / "made.json", folder / "lineorder.lance"
    if not record.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        record.write_text(json.dumps(_make_lance(path, config)), encoding="utf-8")
    dataset: Any = lance.dataset(str(path))
    return Worker(
        {"version": f"Lance {lance.__version__}", **json.loads(record.read_text(encoding="utf-8"))},
        lambda query: int(dataset.count_rows(filter=query["where"])),
        lambda query: sum_batches(dataset.scanner(filter=query["where"]).to_batches()),
    )


def _make_lance(path: Path, config: Json) -> dict[str, float]:
    import lance
    import pyarrow.dataset as ds

    source = ds.dataset(sorted(str(file) for file in Path(config["files"]).glob("*.parquet")))
    started = time.perf_counter()
    dataset: Any = lance.write_dataset(source.scanner(batch_size=65_536).to_reader(), str(path))
    facts: dict[str, float] = {"write_seconds": time.perf_counter() - started, "data_bytes": _bytes_under(path)}
    started = time.perf_counter()
    for column in config["columns"]:
        dataset.create_scalar_index(column, index_type="BTREE")
    facts["build_seconds"] = time.perf_counter() - started
    facts["index_bytes"] = _bytes_under(path) - facts["data_bytes"]
    return facts


def _bytes_under(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def open_spark(config: Json) -> Worker:
    """Open three systems in one application: no index, Parquet bloom filters, and this index; a session each.

    They are warmed up on another table, so that a first query is not Spark's own waking up.
    """
    from pyspark.sql import Observation, functions as f

    import planner
    from ssb_bench.data.layout import NAMESPACE
    from ssb_bench.spark_runs.load import BLOOM_TABLE, LINEORDER
    from ssb_bench.spark_runs.session import CATALOG, create_session

    spark = create_session(Path(config["warehouse"]), cores=config["cores"], memory=config["memory"])
    tables = {"iceberg": LINEORDER, "iceberg-bloom": BLOOM_TABLE, "index": LINEORDER}
    sessions = {name: spark.newSession() for name in tables}
    planner.enable(sessions["index"])
    for session in sessions.values():
        session.sql(f"SELECT count(*) FROM {CATALOG}.{NAMESPACE}.supplier WHERE s_suppkey > 3").collect()

    def select(what: str, query: Json) -> Any:
        name = query["system"]
        return sessions[name].sql(f"SELECT {what} FROM {tables[name]} WHERE {query['where']}")

    def rows(query: Json) -> Rows:
        # Spark makes whole rows and throws them away, and counts on the way.
        seen, revenue = Observation(), f.sum(f.col("lo_revenue").cast("bigint"))
        watched = select("*", query).observe(seen, f.count(f.lit(1)).alias("rows"), revenue.alias("revenue"))
        watched.write.format("noop").mode("overwrite").save()
        return int(seen.get["rows"]), int(seen.get["revenue"] or 0)

    return Worker(
        {"version": f"Spark {spark.version}"}, lambda query: int(select("count(*)", query).collect()[0][0]), rows
    )


_WORKERS: Final[dict[str, Callable[[Json], Worker]]] = {
    "spark": open_spark,
    "arrow": open_arrow,
    "duckdb": open_duckdb,
    "duckdb-index": open_duckdb_index,
    "datafusion": open_datafusion,
    "lance": open_lance,
}

if __name__ == "__main__":
    serve(_WORKERS[sys.argv[1]])
