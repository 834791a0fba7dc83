"""DataFusion on the table's own Parquet files, with filters pushed into the Parquet reader."""

from __future__ import annotations

from typing import Any

from ssb_bench.systems.protocol import Json, Worker, serve, sum_batches


class DatafusionWorker(Worker):
    """A context with the files as a table."""

    def __init__(self, config: Json) -> None:
        import datafusion

        self._version = datafusion.__version__
        settings = datafusion.SessionConfig({"datafusion.execution.parquet.pushdown_filters": "true"})
        self._context: Any = datafusion.SessionContext(settings.with_target_partitions(2))
        self._context.register_parquet("lineorder", config["files"])

    def facts(self) -> dict[str, object]:
        """Say the version."""
        return {"version": f"DataFusion {self._version}"}

    def count(self, query: Json) -> int:
        """Count the matching rows."""
        frame = self._context.sql(f"SELECT count(*) AS c FROM lineorder WHERE {query['where']}")
        return int(frame.to_pydict()["c"][0])

    def rows(self, query: Json) -> tuple[int, int]:
        """Read the matching rows."""
        frame = self._context.sql(f"SELECT * FROM lineorder WHERE {query['where']}")
        return sum_batches(batch.to_pyarrow() for batch in frame.execute_stream())


if __name__ == "__main__":
    serve(DatafusionWorker)
