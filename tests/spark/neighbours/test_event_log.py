"""The advisor learns from event logs that a real Spark wrote, plain and compressed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import planner
from planner.advice.queries.event_log import read_event_log
from planner.where.parser import parse_where

pytestmark = pytest.mark.spark

_WHERES = [
    "k = 5",
    "k IN (1, 2)",
    "s LIKE 'a%'",
    "s = 'it''s'",
    "d = 1.50",
    "dt = DATE '2024-01-05'",
    "ts >= TIMESTAMP '2024-01-05 01:02:03.5'",
    "nt < TIMESTAMP_NTZ '2024-01-05 01:02:03'",
    "st.x = 1 OR k = 7",
    "NOT (k = 1 AND s = 'q')",
]
_EXPECTED = {
    "`k` = 5",
    "`k` IN (1, 2)",
    "`s` LIKE 'a%'",
    "`s` = 'it\\'s'",
    "`d` = 1.50",
    "`dt` = DATE '2024-01-05'",
    "`ts` >= TIMESTAMP '2024-01-05 01:02:03.500000 UTC'",
    "`nt` < TIMESTAMP_NTZ '2024-01-05 01:02:03'",
    "(`st.x` = 1 OR `k` = 7)",
    "(NOT (`k` = 1) OR NOT (`s` = 'q'))",
}

_PROGRAM = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from ssb_bench.spark_runs.session import create_session

    folder, wheres = Path(sys.argv[1]), sys.argv[2:]
    (folder / "log").mkdir()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "log").as_uri(),
        "spark.eventLog.compress": "true",
        "spark.eventLog.compression.codec": "zstd",
        "spark.sql.session.timeZone": "UTC",
    }
    spark = create_session(folder / "warehouse", memory="1g", name="event-log", conf=conf)
    spark.sql("CREATE NAMESPACE lake.ns")
    spark.sql(
        "CREATE TABLE lake.ns.t USING iceberg AS SELECT CAST(id % 997 AS INT) AS k, CAST(id AS STRING) AS s, "
        "CAST(id AS DECIMAL(10, 2)) AS d, DATE '2024-01-01' AS dt, TIMESTAMP '2024-01-01 00:00:00' AS ts, "
        "TIMESTAMP_NTZ '2024-01-01 00:00:00' AS nt, named_struct('x', 1) AS st FROM range(1000)"
    )
    for where in wheres:
        for _ in range(2):
            spark.sql(f"SELECT count(k) FROM lake.ns.t WHERE {where}").collect()
    spark.stop()
    """
)


def test_a_real_event_log(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    subprocess.run([sys.executable, str(program), str(tmp_path), *_WHERES], check=True, timeout=240)
    warehouse = tmp_path / "warehouse"
    catalog = SqlCatalog("lake", uri=f"sqlite:///{warehouse / 'catalog.db'}", warehouse=warehouse.as_uri())
    table = catalog.load_table("ns.t")
    workload = read_event_log(tmp_path / "log", ("ns", "t"), table.schema())
    assert {query.where for query in workload.queries} == _EXPECTED
    assert all(query.times == 2 and query.columns is not None for query in workload.queries)
    for query in workload.queries:
        parse_where(query.where or "")
    advice = planner.advise(table, event_log=tmp_path / "log")
    assert advice.scans == 2 * len(_WHERES)
    catalog.close()
