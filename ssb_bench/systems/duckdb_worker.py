"""DuckDB on the table's own Parquet files."""

from __future__ import annotations

from ssb_bench.systems.protocol import Json, Worker, serve, sum_batches


class DuckdbWorker(Worker):
    """A connection with the files as a view."""

    def __init__(self, config: Json) -> None:
        import duckdb

        self._version = duckdb.__version__
        self._connection = duckdb.connect()
        self._connection.execute("SET threads = 2; SET memory_limit = '4GB'; SET enable_progress_bar = false")
        self._connection.execute(f"CREATE VIEW lineorder AS FROM read_parquet('{config['files']}/*.parquet')")

    def facts(self) -> dict[str, object]:
        """Say the version."""
        return {"version": f"DuckDB {self._version}"}

    def count(self, query: Json) -> int:
        """Count the matching rows."""
        rows = self._connection.execute(f"SELECT count(*) FROM lineorder WHERE {query['where']}").fetchall()
        return int(rows[0][0])

    def rows(self, query: Json) -> tuple[int, int]:
        """Read the matching rows."""
        result = self._connection.sql(f"SELECT * FROM lineorder WHERE {query['where']}")
        return sum_batches(result.to_arrow_reader(100_000))


if __name__ == "__main__":
    import duckdb

    serve(DuckdbWorker, (duckdb.Error,))
