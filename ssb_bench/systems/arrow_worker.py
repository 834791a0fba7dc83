"""The index without a JVM: `planner.count` and `planner.scan`, on one version of the table, as Lance's dataset is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import planner
from puffin_index import TableIndex
from ssb_bench.spark_runs.indexing import TABLE
from ssb_bench.spark_runs.session import open_catalog
from ssb_bench.systems.protocol import Json, serve, sum_batches


class ArrowWorker:
    """The table's index, opened through PyIceberg."""

    def __init__(self, config: Json) -> None:
        # Any: the two functions are looked up by name, so that a release without them is listed as such.
        self._count: Any = getattr(planner, "count", None)
        self._scan: Any = getattr(planner, "scan", None)
        if self._count is None or self._scan is None:
            raise RuntimeError("this release has no planner.scan and planner.count")
        self._index = TableIndex.open(open_catalog(Path(config["warehouse"])), TABLE)

    def facts(self) -> dict[str, object]:
        """Say what the index is."""
        return {"version": "puffin-index, Arrow scan"}

    def prepare(self, query: Json) -> None:
        """Nothing to do."""

    def count(self, query: Json) -> int:
        """Count the matching rows."""
        return int(self._count(self._index, query["where"], refresh=False).rows)

    def rows(self, query: Json) -> tuple[int, int]:
        """Read the matching rows."""
        return sum_batches(self._scan(self._index, query["where"], refresh=False))


if __name__ == "__main__":
    serve(ArrowWorker)
