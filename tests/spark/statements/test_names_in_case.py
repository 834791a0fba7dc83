"""Columns whose names differ in case only, in a session that tells them apart: each statement takes what it spells."""

from collections.abc import Iterator

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import planner
from puffin_index import TableIndex
from tests.spark.agreement import check_rows, row_groups_of

pytestmark = pytest.mark.spark

NAMES = ("Id", "ID", "id")
TABLE = "lake.ddl.cases"


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of its own with the hook, and a table of 6 row groups."""
    own = spark.newSession()
    own.conf.set("spark.sql.caseSensitive", "true")
    own.conf.set("spark.puffin-index.aggregates", "true")
    planner.enable(own, strict=True)
    columns = ", ".join(f"id * 7 % 600 + {shift} AS {name}" for shift, name in enumerate(NAMES))
    own.sql(
        f"CREATE TABLE {TABLE} USING iceberg TBLPROPERTIES ({row_groups_of(100)}) AS SELECT {columns}, "
        "NAMED_STRUCT('X', id, 'x', -id) AS S FROM RANGE(0, 600, 1, 1)"
    )
    own.sql(f"CREATE INDEX one ON {TABLE} USING bitmap (ID) OPTIONS (build = 'none')")
    own.sql(f"CREATE INDEX two ON {TABLE} USING bitmap (id) OPTIONS (build = 'none')")
    own.sql(f"CREATE INDEX three ON {TABLE} USING bsi (Id, ID, id, S.x) OPTIONS (build = 'sync')")
    yield own
    planner.disable(own)


def test_statements_index_the_columns_that_they_spell(session: SparkSession, catalog: SqlCatalog) -> None:
    found = {column.name: sorted(column.kinds) for column in TableIndex.open(catalog, "ddl.cases").columns}
    assert found == {"Id": ["bsi"], "ID": ["bitmap", "bsi"], "id": ["bitmap", "bsi"], "S.x": ["bsi"]}
    with pytest.raises(AnalysisException, match="iD"):
        session.sql(f"CREATE INDEX four ON {TABLE} USING bitmap (iD)")
    planner.call(session, "what_if", table=TABLE, where="ID = 1", without="id.bitmap")
    with pytest.raises(Exception, match=r"'Id\.bitmap' is no index of the table"):
        planner.call(session, "what_if", table=TABLE, where="ID = 1", without="Id.bitmap")
    explained = planner.call(session, "explain", table=TABLE, where="ID = 15").collect()
    assert {row["stage"]: row["row_groups"] for row in explained}["kept"] == 1


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", NAMES)
def test_queries_read_the_columns_that_they_spell(session: SparkSession, name: str) -> None:
    value = 14 + NAMES.index(name)
    (plan,) = check_rows(session, f"SELECT * FROM {TABLE} WHERE {name} = {value}")
    assert (plan.kept, plan.row_groups) == (1, 6)
    for sql in (
        f"SELECT {name}, COUNT(*), MAX(Id), MIN(ID), MAX(S.x) FROM {TABLE} WHERE {name} < 40 GROUP BY {name}",
        f"SELECT * FROM {TABLE} WHERE S.x = -17 AND {name} + 1 > 5 ORDER BY {name} LIMIT 3",
        f"SELECT a.{name} FROM {TABLE} a JOIN (SELECT {value} AS k) b ON a.{name} = b.k",
    ):
        check_rows(session, sql)
