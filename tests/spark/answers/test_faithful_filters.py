"""What the hook is told is what Spark asks for, or nothing: conversions, text that is not UTF-8, types unknown here."""

from collections.abc import Iterator

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import planner
from puffin_index import IndexDefinition, TableIndex
from puffin_index.errors import UnsupportedError
from tests.spark.agreement import count_and_sum, row_groups_of
from tests.spark.corpus_tables import statements

pytestmark = pytest.mark.spark

ROWS = 4_000
ROW_GROUP_ROWS = 250
PROPERTIES = f"{row_groups_of(ROW_GROUP_ROWS)}, 'format-version'='3'"
COLUMNS = {
    "m": ("MAP<STRING, DOUBLE>", "MAP('k', id * 37 % 4001 / 4, 'K', id * 41 % 4001 / 4)"),
    "cents": ("MAP<STRING, DECIMAL(10, 2)>", "MAP('k', CAST(id * 37 % 4001 / 4 AS DECIMAL(10, 2)))"),
    "at": ("MAP<STRING, TIMESTAMP_NTZ>", "MAP('k', TIMESTAMP_NTZ'2024-01-01' + MAKE_DT_INTERVAL(0, id * 37 % 4001))"),
    "big": ("MAP<STRING, BIGINT>", "MAP('k', 4294967296 * (id % 3) + id * 37 % 4001)"),
    "by_day": ("MAP<DATE, STRING>", "MAP(DATE_ADD(DATE'2024-01-01', INT(id % 2)), CONCAT('v', id * 37 % 4001))"),
    "n": ("MAP<INT, BIGINT>", "MAP(1, id * 37 % 4001, 2, id)"),
    "nested": ("MAP<STRING, MAP<STRING, INT>>", "MAP('k', MAP('k', INT(id * 37 % 4001)))"),
    "st": (
        "STRUCT<m: MAP<STRING, DOUBLE>, x: STRING, `y.z`: INT>",
        "NAMED_STRUCT('m', MAP('k', id * 37 % 4001 / 4), 'x', CONCAT('x', id * 37 % 4001), 'y.z', INT(id * 37 % 4001))",
    ),
    "s": (
        "STRING",
        "CASE IF(id = 1000, 4, id % 4) WHEN 4 THEN CAST(X'61FF' AS STRING) WHEN 0 THEN "
        "CAST(UNHEX(CONCAT('61', HEX(128 + id * 37 % 128), IF(id % 8 = 0, '', HEX(256 + id)))) AS STRING) "
        "WHEN 1 THEN CONCAT('word ', id * 37 % 4001) WHEN 2 THEN IF(id = 2002, 'a\\uFFFD', CONCAT('ü', id)) END",
    ),
    "raw": (
        "MAP<STRING, STRING>",
        "IF(id = 3001, MAP(CAST(X'6BFF' AS STRING), 'v'), MAP('k', CASE WHEN id = 2000 THEN CAST(X'76FF' AS STRING) "
        "WHEN id % 2 = 0 THEN CAST(UNHEX(CONCAT('76', HEX(128 + id * 37 % 128))) AS STRING) ELSE CONCAT('v', id) END))",
    ),
    "`a.b`": ("MAP<STRING, INT>", "MAP('k', INT(id * 37 % 4001))"),
    '`it``s "odd" ü`': ("MAP<STRING, INT>", "MAP('k.k', INT(id * 41 % 4001))"),
    "f": (
        "MAP<STRING, FLOAT>",
        "MAP('k', CASE id WHEN 99 THEN FLOAT('NaN') WHEN 98 THEN -0.0F ELSE FLOAT(id * 37 % 4001 + 1) / 8 END)",
    ),
    "flag": ("MAP<STRING, BOOLEAN>", "MAP('k', IF(id % 500 = 77, NULL, id > 2000))"),
    "d": (
        "DOUBLE",
        "CASE id WHEN 99 THEN DOUBLE('NaN') WHEN 98 THEN -0.0D WHEN 97 THEN 0.0D ELSE id * 37 % 4001 + 1 END",
    ),
    "b": ("BOOLEAN", "IF(id % 500 = 77, NULL, id > 2000)"),
    "ts": ("TIMESTAMP", "TIMESTAMP'2024-03-31 00:30:00Z' + MAKE_DT_INTERVAL(0, 0, INT(id * 37 % 4001))"),
    "dec": ("DECIMAL(10, 2)", "CAST(id * 37 % 4001 / 4 AS DECIMAL(10, 2))"),
    "wide": ("DECIMAL(38, 5)", "CAST(id * 37 % 4001 / 4 AS DECIMAL(38, 5))"),
    "i": ("INT", "INT(id * 37 % 4001)"),
}
INDEXED = [
    *("m#k#k", "m#k#K", "cents#k#k", "at#k#k", "big#k#k", "by_day#k#2024-01-01", "n#k#1", "st.m#k#k", "st.x", "st.y.z"),
    *("s", "raw#k#k", "a.b#k#k", 'it`s "odd" ü#k#k.k', "f#k#k", "flag#k#k", "d", "b", "ts", "dec", "wide", "i"),
]

PREDICATES = [one.sql for one in statements("filters") if not one.shrinks]
PRUNING = [one.sql for one in statements("filters") if one.shrinks]


@pytest.fixture(scope="module")
def index(spark: SparkSession, catalog: SqlCatalog) -> Iterator[TableIndex]:
    columns = ", ".join(f"{name} {column_type}" for name, (column_type, _) in COLUMNS.items())
    spark.sql(
        f"CREATE OR REPLACE TABLE lake.ns.faithful (id BIGINT, {columns}) USING iceberg TBLPROPERTIES ({PROPERTIES})"
    )
    values = (f"{value} AS {name}" for name, (_, value) in COLUMNS.items())
    spark.range(0, ROWS, 1, 1).selectExpr("id", *values).writeTo("lake.ns.faithful").append()
    table_index = TableIndex.create(catalog, "ns.faithful", IndexDefinition.of(bitmap=INDEXED, bloom=INDEXED))
    report = table_index.build(workers=1)
    assert (report.rows, report.row_groups, report.skipped) == (ROWS, ROWS // ROW_GROUP_ROWS, ())
    planner.enable(spark, strict=True)
    yield table_index
    planner.disable(spark)


def answer(spark: SparkSession, where: str) -> tuple[int, int | None] | str:
    """How many rows match, and their sum; or what kind of error Spark raises."""
    try:
        return count_and_sum(spark, "lake.ns.faithful", where)
    except PySparkException as error:
        return str(error.getCondition())


@pytest.mark.one_of(8)
@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("where", PREDICATES)
def test_answers_are_equal(spark: SparkSession, plain: SparkSession, where: str, ansi: str) -> None:
    for session in (spark, plain):
        session.conf.set("spark.sql.ansi.enabled", ansi)
    expected = answer(plain, where)

    assert answer(spark, where) == expected
    spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.one_of(3)
@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("where", PRUNING)
def test_what_is_sure_still_drops_row_groups(spark: SparkSession, plain: SparkSession, where: str) -> None:
    assert answer(spark, where) == answer(plain, where)

    assert planner.reports(spark)[-1].dropped > 0


def test_the_report_says_conditions_as_text(spark: SparkSession, index: TableIndex) -> None:
    answer(
        spark,
        "m['k'] = 5.25 OR (upper(st.x) = CAST(d AS STRING) AND upper(st.x) = 'X37' AND s = CAST(X'61FF' AS STRING))",
    )

    where = planner.reports(spark)[-1].where
    assert index.name == "ns.faithful"
    assert where == "(m['k'] = 5.25D OR (equalto(...) AND (upper(st.x) = 'X37') AND s = 'a\ufffd'))"


def test_text_that_is_no_utf8_is_verified_planned_and_counted(index: TableIndex, plain: SparkSession) -> None:
    assert index.verify().findings == ()
    for where in (
        "s > 'a' AND s < 'b'",
        "s LIKE 'a%'",
        "s = 'a\ufffd'",
        "s >= 'a\ufffd' AND s < 'b'",
        "raw['k'] > 'v\ufffd'",
    ):
        expected = count_and_sum(plain, "lake.ns.faithful", where)
        assert planner.count(index, where).rows == expected[0], where
        assert sum(planner.scan(index, where, ["id"]).read_all()["id"].to_pylist()) == expected[1], where
    for where in ("s LIKE 'a_'", "s LIKE '%d'"):
        with pytest.raises(UnsupportedError, match="not UTF-8"):
            planner.count(index, where)


def test_session_variables_parameters_and_lateral_aliases(
    spark: SparkSession, plain: SparkSession, index: TableIndex
) -> None:
    assert index.name == "ns.faithful"
    for session in (spark, plain):
        session.sql("DECLARE OR REPLACE VARIABLE wanted DOUBLE DEFAULT 5.25")
        session.sql("DECLARE OR REPLACE VARIABLE bytes_wanted STRING DEFAULT CAST(X'61FF' AS STRING)")
    queries = [
        "SELECT id FROM lake.ns.faithful WHERE m['k'] = wanted",
        "SELECT id FROM lake.ns.faithful WHERE s = bytes_wanted",
        "SELECT * FROM (SELECT id, m['k'] AS v FROM lake.ns.faithful) WHERE v = wanted",
        "SELECT * FROM (SELECT id, CAST(m AS MAP<STRING, INT>) AS m FROM lake.ns.faithful) WHERE m['k'] = 5",
        "SELECT * FROM (SELECT id, m['k'] AS v, v + 1 AS w FROM lake.ns.faithful) WHERE w = 6.25",
        "SELECT * FROM (SELECT id AS i, i AS id, m AS cents, cents AS m FROM lake.ns.faithful) WHERE m['k'] = 5.25",
        "SELECT a.id FROM lake.ns.faithful a JOIN lake.ns.faithful b ON a.id = b.i WHERE a.m['k'] < 5 AND b.m['K'] > 1",
        "SELECT id FROM lake.ns.faithful WHERE M['k'] = 5.25 AND ST.X > 'x'",
        "SELECT COUNT(*) FILTER (WHERE m['k'] = 5.25) FROM lake.ns.faithful WHERE cents['k'] < 6",
    ]
    for query in queries:
        assert sorted(map(str, spark.sql(query).collect())) == sorted(map(str, plain.sql(query).collect())), query
    query = "SELECT id FROM lake.ns.faithful WHERE m[:key] = :value"
    arguments = {"key": "k", "value": 5.25}
    assert spark.sql(query, arguments).collect() == plain.sql(query, arguments).collect() != []


@pytest.fixture(scope="module")
def variants(spark: SparkSession, catalog: SqlCatalog) -> Iterator[SparkSession]:
    """A table that has got a VARIANT column, alone and in a struct, after its index was built; the hook enabled."""
    spark.sql(
        f"CREATE TABLE lake.ns.variants (id BIGINT, i INT, st STRUCT<x: INT>) USING iceberg "
        f"TBLPROPERTIES ({PROPERTIES})"
    )
    rows = spark.range(0, ROWS, 1, 1)
    rows.selectExpr("id", "INT(id * 37 % 4001) AS i", "NAMED_STRUCT('x', INT(id)) AS st").writeTo(
        "lake.ns.variants"
    ).append()
    TableIndex.create(catalog, "ns.variants", IndexDefinition.of(bitmap=["i", "st.x"])).build(workers=1)
    spark.sql("ALTER TABLE lake.ns.variants ADD COLUMNS (v VARIANT, st.v VARIANT)")
    spark.sql("INSERT INTO lake.ns.variants SELECT 5000, 37, NAMED_STRUCT('x', 1, 'v', NULL), PARSE_JSON('{\"a\": 5}')")
    planner.enable(spark, strict=True)
    yield spark
    planner.disable(spark)


@pytest.mark.parametrize(
    "where",
    [
        "variant_get(v, '$.a', 'int') = 5 AND i = 37",
        "variant_get(v, '$.a', 'int') = 5 AND i = 37 OR i = 74",
        "v IS NOT NULL AND i = 37",
        "v IS NULL AND i = 37",
        "(v IS NULL AND i = 37) OR st.x = 5",
        "variant_get(st.v, '$.a', 'int') IS NULL AND st.x = 7",
        "st IS NOT NULL AND i = 37",
    ],
)
def test_variants_are_unknown_and_the_rest_prunes(variants: SparkSession, where: str) -> None:
    expected = count_and_sum(variants.newSession(), "lake.ns.variants", where)

    assert count_and_sum(variants, "lake.ns.variants", where) == expected

    assert planner.reports(variants)[-1].dropped > 0
