"""Three systems in one Spark application: no index, Parquet bloom filters, and this index."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Observation
from pyspark.sql import functions as f

import planner
from ssb_bench.data.layout import NAMESPACE
from ssb_bench.spark_runs.load import BLOOM_TABLE, LINEORDER
from ssb_bench.spark_runs.session import CATALOG, create_session
from ssb_bench.systems.protocol import Json, Worker, serve

TABLES = {"iceberg": LINEORDER, "iceberg-bloom": BLOOM_TABLE, "index": LINEORDER}


class SparkWorker(Worker):
    """One session a system, warmed up on another table so that a first query is not Spark's own waking up."""

    def __init__(self, config: Json) -> None:
        spark = create_session(Path(config["warehouse"]), cores=config["cores"], memory=config["memory"])
        self.facts = {"version": f"Spark {spark.version}"}
        self._sessions = {name: spark.newSession() for name in TABLES}
        planner.enable(self._sessions["index"])
        for session in self._sessions.values():
            session.sql(f"SELECT count(*) FROM {CATALOG}.{NAMESPACE}.supplier WHERE s_suppkey > 3").collect()

    def count(self, query: Json) -> int:
        """Count the matching rows."""
        session, table = self._sessions[query["system"]], TABLES[query["system"]]
        return int(session.sql(f"SELECT count(*) FROM {table} WHERE {query['where']}").collect()[0][0])

    def rows(self, query: Json) -> tuple[int, int]:
        """Read all columns of the matching rows into a sink that throws them away, and count on the way."""
        session, table = self._sessions[query["system"]], TABLES[query["system"]]
        observation = Observation()
        frame = session.sql(f"SELECT * FROM {table} WHERE {query['where']}")
        frame.observe(
            observation, f.count(f.lit(1)).alias("rows"), f.sum(f.col("lo_revenue").cast("bigint")).alias("total")
        ).write.format("noop").mode("overwrite").save()
        seen = observation.get
        return int(seen["rows"]), int(seen["total"] or 0)


if __name__ == "__main__":
    serve(SparkWorker)
