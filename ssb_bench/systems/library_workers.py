"""Systems that are a library in the worker's own process: `python -m ssb_bench.systems.library_workers NAME`.

Each library is imported by its own worker alone, because an environment has one of them.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Final

from ssb_bench.systems.protocol import Json, Worker, make_once, serve, sum_batches


class ArrowWorker(Worker):
    """The index without a JVM, on one version of the table, as Lance's dataset is."""

    def __init__(self, config: Json) -> None:
        from puffin_index import TableIndex
        from ssb_bench.spark_runs.indexing import TABLE
        from ssb_bench.spark_runs.session import open_catalog

        self.facts = {"version": "puffin-index, Arrow scan"}
        self._index = TableIndex.open(open_catalog(Path(config["warehouse"])), TABLE)

    def count(self, query: Json) -> int:
        """Count the matching rows."""
        import planner

        return planner.count(self._index, query["where"], refresh=False).rows

    def rows(self, query: Json) -> tuple[int, int]:
        """Read the matching rows."""
        import planner

        return sum_batches(planner.scan(self._index, query["where"], refresh=False))


class DuckdbWorker(Worker):
    """DuckDB on the table's own Parquet files, which are a view."""

    def __init__(self, config: Json) -> None:
        import duckdb

        self.errors = (duckdb.Error,)
        self.facts = {"version": f"DuckDB {duckdb.__version__}"}
        self._connection = duckdb.connect()
        self._connection.execute("SET threads = 2; SET memory_limit = '4GB'; SET enable_progress_bar = false")
        self._connection.execute(f"CREATE VIEW lineorder AS FROM read_parquet('{config['files']}/*.parquet')")

    def count(self, query: Json) -> int:
        """Count the matching rows."""
        rows = self._connection.execute(f"SELECT count(*) FROM lineorder WHERE {query['where']}").fetchall()
        return int(rows[0][0])

    def rows(self, query: Json) -> tuple[int, int]:
        """Read the matching rows."""
        result = self._connection.sql(f"SELECT * FROM lineorder WHERE {query['where']}")
        return sum_batches(result.to_arrow_reader(100_000))


class DatafusionWorker(Worker):
    """DataFusion on the table's own Parquet files, with filters pushed into the Parquet reader."""

    def __init__(self, config: Json) -> None:
        import datafusion

        self.facts = {"version": f"DataFusion {datafusion.__version__}"}
        settings = datafusion.SessionConfig({"datafusion.execution.parquet.pushdown_filters": "true"})
        self._context: Any = datafusion.SessionContext(settings.with_target_partitions(2))
        self._context.register_parquet("lineorder", config["files"])

    def count(self, query: Json) -> int:
        """Count the matching rows."""
        frame = self._context.sql(f"SELECT count(*) AS c FROM lineorder WHERE {query['where']}")
        return int(frame.to_pydict()["c"][0])

    def rows(self, query: Json) -> tuple[int, int]:
        """Read the matching rows."""
        frame = self._context.sql(f"SELECT * FROM lineorder WHERE {query['where']}")
        return sum_batches(batch.to_pyarrow() for batch in frame.execute_stream())


class LanceWorker(Worker):
    """Lance: the same rows in the same order, in its own format, with BTREE indexes on the queries' columns."""

    def __init__(self, config: Json) -> None:
        import lance

        folder = Path(config["folder"])
        made = make_once(folder, lambda: _make_lance(folder / "lineorder.lance", config))
        self.facts = {"version": f"Lance {lance.__version__}", **made}
        self._dataset: Any = lance.dataset(str(folder / "lineorder.lance"))

    def count(self, query: Json) -> int:
        """Count the matching rows."""
        return int(self._dataset.count_rows(filter=query["where"]))

    def rows(self, query: Json) -> tuple[int, int]:
        """Read the matching rows."""
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


_WORKERS: Final[dict[str, type[Worker]]] = {
    "arrow": ArrowWorker,
    "duckdb": DuckdbWorker,
    "datafusion": DatafusionWorker,
    "lance": LanceWorker,
}

if __name__ == "__main__":
    serve(_WORKERS[sys.argv[1]])
