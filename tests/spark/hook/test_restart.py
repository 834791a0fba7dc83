"""A session that is stopped and started again in the same Python process, in a process of its own."""

from pathlib import Path

import pytest

from tests.processes import run_python

pytestmark = pytest.mark.spark

_PROGRAM = """
import sys
from pathlib import Path

import planner
from puffin_index import IndexDefinition, TableIndex
from ssb_bench.spark_runs.session import create_session, open_catalog

warehouse = Path(sys.argv[1])
sql = "SELECT COUNT(*) FROM lake.ns.t WHERE k = 7"


def check(spark):
    assert spark.sql(sql).collect() == [(1,)]
    assert len(planner.reports(spark)) == 1


first = create_session(warehouse, memory="1g")
first.sql("CREATE NAMESPACE lake.ns")
first.sql("CREATE TABLE lake.ns.t USING iceberg AS SELECT (id * 7919) % 1000 AS k FROM RANGE(1000)")
TableIndex.create(open_catalog(warehouse), "ns.t", IndexDefinition.of(bsi=["k"])).build()
planner.enable(first, strict=True)
check(first)
planner.enable(first, strict=True)
check(first)
first.stop()

second = create_session(warehouse, memory="1g")
assert planner.reports(second) == []
planner.disable(second)
assert second.sql(sql).collect() == [(1,)]
planner.enable(second, strict=True)
check(second)
planner.disable(second)
planner.disable(second)
second.stop()
print("restarted")
"""


@pytest.mark.nightly
def test_a_session_can_be_stopped_and_another_one_enabled(tmp_path: Path) -> None:
    assert run_python(_PROGRAM, tmp_path / "warehouse").stdout.splitlines()[-1:] == ["restarted"]
