"""CREATE INDEX and DROP INDEX on a real session."""

import re

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import SparkSession

import planner
from puffin_index import TableIndex
from puffin_index.errors import NotFoundError
from puffin_index.keys.map_key import index_of

pytestmark = pytest.mark.spark

ROWS = 200
TABLE = "lake.ddl.t"


@pytest.fixture
def sql(enabled: SparkSession) -> SparkSession:
    """The session, with a new table of 4 files."""
    enabled.sql(f"DROP TABLE IF EXISTS {TABLE}__puffin_index")
    enabled.sql(f"DROP TABLE IF EXISTS {TABLE}")
    enabled.sql(
        f"CREATE TABLE {TABLE} (id BIGINT, city STRING, `odd name` INT, s STRUCT<x: INT, y: STRING>, "
        "m MAP<STRING, STRING>, a ARRAY<INT>) USING iceberg"
    )
    enabled.range(0, ROWS, 1, 4).selectExpr(
        "id",
        "CONCAT('c', id % 7) AS city",
        "CAST(id % 3 AS INT) AS `odd name`",
        "NAMED_STRUCT('x', CAST(id AS INT), 'y', CONCAT('y', id)) AS s",
        "MAP('color', CONCAT('k', id % 5), 'size', CAST(id AS STRING)) AS m",
        "ARRAY(1) AS a",
    ).writeTo(TABLE).append()
    return enabled


def indexes(catalog: SqlCatalog) -> dict[str, list[tuple[str, str]]]:
    """By index name, kinds and columns."""
    index = TableIndex.open(catalog, "ddl.t")
    columns = {index_of(c.column_id, kind): (kind, c.name) for c in index.columns for kind in c.kinds}
    return {named.name: [columns[one] for one in sorted(named.indexes)] for named in index.names}


def built(catalog: SqlCatalog) -> int:
    """How many data files have all indexes."""
    return TableIndex.open(catalog, "ddl.t").status().indexed_data_files


def test_columns_structs_and_map_keys_get_one_index(sql: SparkSession, catalog: SqlCatalog) -> None:
    rows = sql.sql(
        f"CREATE INDEX Mixed ON TABLE {TABLE} USING BITMAP (city, `odd name`, s.x OPTIONS (LAYOUT = 'bitmaps'), "
        "m OPTIONS (Key = 'color'), m OPTIONS (key = 'size')) OPTIONS (BUILD = 'Sync')"
    ).collect()

    assert rows == []
    named = [
        ("city", "bitmap"),
        ("odd name", "bitmap"),
        ("s.x", "bitmap"),
        ("m#k#color", "bitmap"),
        ("m#k#size", "bitmap"),
    ]
    assert sorted(indexes(catalog)["Mixed"]) == sorted((kind, name) for name, kind in named)
    options = {c.name: c.kinds["bitmap"] for c in TableIndex.open(catalog, "ddl.t").columns}
    assert options["s.x"] == {"layout": "bitmaps"}
    assert options["city"] == {}
    assert built(catalog) == 4
    where = "city = 'c1' AND m['color'] = 'k9' AND s.x = 3"
    assert sql.sql(f"SELECT * FROM {TABLE} WHERE {where}").collect() == []
    assert planner.reports(sql)[-1].kept == 0


def test_a_second_index_adds_and_each_is_dropped_alone(sql: SparkSession, catalog: SqlCatalog) -> None:
    sql.sql(f"CREATE INDEX one ON {TABLE} USING bsi (id, s.x) OPTIONS (build = 'none')")
    assert built(catalog) == 0
    sql.sql(f"CREATE INDEX two ON {TABLE} USING bsi (id) OPTIONS (build = 'sync')")
    sql.sql(f"CREATE INDEX three ON {TABLE} USING bloom (id OPTIONS (fpp = 0.02), city) OPTIONS (build = 'sync')")

    assert indexes(catalog) == {
        "one": [("bsi", "id"), ("bsi", "s.x")],
        "two": [("bsi", "id")],
        "three": [("bloom", "id"), ("bloom", "city")],
    }
    assert built(catalog) == 4

    sql.sql(f"DROP INDEX ONE ON {TABLE}")
    assert indexes(catalog) == {"two": [("bsi", "id")], "three": [("bloom", "id"), ("bloom", "city")]}
    sql.sql(f"SELECT * FROM {TABLE} WHERE s.x = 1000").collect()
    index = TableIndex.open(catalog, "ddl.t")
    assert {column.name: sorted(column.kinds) for column in index.status().columns} == {
        "id": ["bloom", "bsi"],
        "city": ["bloom"],
    }

    sql.sql(f"DROP INDEX two ON TABLE {TABLE}")
    sql.sql(f"DROP INDEX three ON {TABLE}")
    assert indexes(catalog) == {}
    assert sql.sql(f"SELECT COUNT(*) FROM {TABLE} WHERE id = 7").collect() == [(1,)]


def test_names_outlive_renamed_columns(sql: SparkSession, catalog: SqlCatalog) -> None:
    sql.sql(f"CREATE INDEX i ON {TABLE} USING bitmap (city) OPTIONS (build = 'none')")
    sql.sql(f"ALTER TABLE {TABLE} RENAME COLUMN city TO town")
    assert indexes(catalog) == {"i": [("bitmap", "town")]}
    sql.sql(f"ALTER TABLE {TABLE} DROP COLUMN town")
    sql.sql(f"DROP INDEX i ON {TABLE}")
    assert indexes(catalog) == {}


def test_the_default_build_runs_in_the_background(sql: SparkSession, catalog: SqlCatalog) -> None:
    sql.sql(f"CREATE INDEX i ON {TABLE} USING bitmap (city)")
    sql.sql(f"CREATE INDEX j ON {TABLE} USING bsi (id)")

    (report,) = planner.call(sql, "build", table=TABLE).collect()  # waits for the builds in the background

    assert (report.state, report.files) == ("done", 0)
    (status,) = planner.call(sql, "status", table=TABLE).collect()
    assert (status.indexed_data_files, status.build) == (4, "done")
    assert built(catalog) == 4


def test_explaining_and_planning_do_nothing(sql: SparkSession, catalog: SqlCatalog) -> None:
    statement = f"CREATE INDEX i ON {TABLE} USING bitmap (city)"
    for mode in ("", "EXTENDED ", "FORMATTED ", "COST "):
        assert "CreateIndex" in sql.sql(f"EXPLAIN {mode}{statement}").collect()[0][0]
    with pytest.raises(NotFoundError):
        TableIndex.open(catalog, "ddl.t")

    sql.sql(f"{statement} OPTIONS (build = 'none')")
    sql.sql(f"EXPLAIN DROP INDEX i ON {TABLE}")
    assert set(indexes(catalog)) == {"i"}


def test_a_name_is_taken_once(sql: SparkSession, catalog: SqlCatalog) -> None:
    sql.sql(f"CREATE INDEX i ON {TABLE} USING bitmap (city) OPTIONS (build = 'none')")
    with pytest.raises(IllegalArgumentException, match=r"'I' already; there are: i \(bitmap of city\)"):
        sql.sql(f"CREATE INDEX I ON {TABLE} USING bsi (id)")
    sql.sql(f"CREATE INDEX IF NOT EXISTS i ON {TABLE} USING bsi (id)")
    assert indexes(catalog) == {"i": [("bitmap", "city")]}
    with pytest.raises(IllegalArgumentException, match=r"no index 'j'; there are: i \(bitmap of city\)"):
        sql.sql(f"DROP INDEX j ON {TABLE}")
    sql.sql(f"DROP INDEX IF EXISTS j ON {TABLE}")


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE INDEX i ON {t} USING btree (city)", "unknown index kind 'btree'; known: bitmap, bsi, bloom"),
        ("CREATE INDEX i ON {t} (city)", "add USING and one of bitmap, bsi, bloom"),
        ("CREATE INDEX i ON {t} USING bitmap (m)", "name one of its keys: m#k#key"),
        ("CREATE INDEX i ON {t} USING bitmap (s)", "only leaves can be indexed"),
        ("CREATE INDEX i ON {t} USING bitmap (a.element)", "a row may have many values"),
        ("CREATE INDEX i ON {t} USING bitmap (city OPTIONS (key = 'x'))", "`#k#` names a key of a map"),
        ("CREATE INDEX i ON {t} USING bitmap (city, city)", "columns are named twice: city, city"),
        (
            "CREATE INDEX i ON {t} USING bloom (city OPTIONS (ffp = 1))",
            "there is no option 'ffp'; a bloom index has content, fpp, items",
        ),
        ("CREATE INDEX i ON {t} USING bloom (city) OPTIONS (bild = 'sync')", "the statement has build"),
        ("CREATE INDEX i ON {t} USING bloom (city) OPTIONS (build = 'now')", "there are: async, sync, none"),
        ("CREATE INDEX i ON {t} USING bloom (city) OPTIONS (where = 'id > 3')", "there are no partial indexes"),
        ("DROP INDEX i ON {t}", "there is no index table"),
    ],
)
def test_errors_name_what_there_is(sql: SparkSession, catalog: SqlCatalog, statement: str, message: str) -> None:
    with pytest.raises(IllegalArgumentException, match=re.escape(message)):
        sql.sql(statement.format(t=TABLE))
    with pytest.raises(NotFoundError):
        TableIndex.open(catalog, "ddl.t")


def test_a_dot_in_a_name_leads_to_no_other_table(sql: SparkSession, catalog: SqlCatalog) -> None:
    sql.sql("CREATE NAMESPACE IF NOT EXISTS lake.ddl.deep")
    sql.sql("CREATE TABLE lake.ddl.deep.t (id BIGINT) USING iceberg")
    sql.sql("CREATE TABLE lake.ddl.`deep.t` (id BIGINT) USING iceberg")
    try:
        with pytest.raises(IllegalArgumentException, match=r"'deep\.t' of table .* has a dot"):
            sql.sql("CREATE INDEX i ON lake.ddl.`deep.t` USING bitmap (id)").collect()
        with pytest.raises(NotFoundError):
            TableIndex.open(catalog, "ddl.deep.t")
    finally:
        sql.sql("DROP TABLE lake.ddl.`deep.t`")
        sql.sql("DROP TABLE lake.ddl.deep.t")
        sql.sql("DROP NAMESPACE lake.ddl.deep")


def test_other_tables_are_sparks_own(sql: SparkSession) -> None:
    with pytest.raises(AnalysisException):
        sql.sql(f"CREATE INDEX i ON {TABLE} USING bitmap (nothing)")
    sql.sql("CREATE TABLE spark_catalog.default.plain (id BIGINT) USING parquet")
    try:
        for name in ("spark_catalog.default.plain", f"{TABLE}.files"):
            column = "id" if name == "spark_catalog.default.plain" else "file_path"
            messages = []
            for _ in range(2):
                with pytest.raises(AnalysisException) as raised:
                    sql.sql(f"CREATE INDEX i ON {name} USING bitmap ({column})")
                messages.append(str(raised.value))
                planner.disable(sql)
            planner.enable(sql, strict=True)
            assert messages[0] == messages[1]
    finally:
        sql.sql("DROP TABLE spark_catalog.default.plain")


def test_a_disabled_session_has_no_statements(sql: SparkSession) -> None:
    planner.disable(sql)
    with pytest.raises(AnalysisException):
        sql.sql(f"CREATE INDEX i ON {TABLE} USING bitmap (city)")
    planner.enable(sql, strict=True)
