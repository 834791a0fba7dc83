"""The index without a JVM: `planner.count` and `planner.scan`, on one version of the table, as Lance's dataset is."""

from __future__ import annotations

from pathlib import Path

import planner
from puffin_index import TableIndex
from ssb_bench.spark_runs.indexing import TABLE
from ssb_bench.spark_runs.session import open_catalog
from ssb_bench.systems.protocol import Json, Worker, serve, sum_batches


class ArrowWorker(Worker):
    """The table's index, opened through PyIceberg."""

    def __init__(self, config: Json) -> None:
        self._index = TableIndex.open(open_catalog(Path(config["warehouse"])), TABLE)

    def facts(self) -> dict[str, object]:
        """Say what the index is."""
        return {"version": "puffin-index, Arrow scan"}

    def count(self, query: Json) -> int:
        """Count the matching rows."""
        return planner.count(self._index, query["where"], refresh=False).rows

    def rows(self, query: Json) -> tuple[int, int]:
        """Read the matching rows."""
        return sum_batches(planner.scan(self._index, query["where"], refresh=False))


if __name__ == "__main__":
    serve(ArrowWorker)
