"""What the hook is told is what Spark asks for, or nothing: conversions, text that is not UTF-8, types unknown here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import planner
from puffin_index import IndexDefinition, TableIndex
from puffin_index.errors import UnsupportedError
from tests.spark.agreement import count_and_sum

pytestmark = pytest.mark.spark

ROWS = 4_000
ROW_GROUP_ROWS = 250
PROPERTIES = (
    "'write.parquet.row-group-size-bytes'='1', "
    f"'write.parquet.row-group-check-min-record-count'='{ROW_GROUP_ROWS}', "
    f"'write.parquet.row-group-check-max-record-count'='{ROW_GROUP_ROWS}', 'write.distribution-mode'='none', "
    "'format-version'='3'"
)
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

CONVERTED = [
    "CAST(m AS MAP<STRING, INT>)['k'] = 5",
    "element_at(CAST(m AS MAP<STRING, INT>), 'k') = 5",
    "try_element_at(CAST(m AS MAP<STRING, INT>), 'k') = 5",
    "CAST(m AS MAP<STRING, FLOAT>)['k'] = 5.25F",
    "CAST(m AS MAP<STRING, STRING>)['k'] = '5.0'",
    "CAST(m AS MAP<STRING, BOOLEAN>)['k'] = TRUE AND id < 900",
    "CAST(m AS MAP<STRING, DOUBLE>)['k'] = 5.25",
    "CAST(m['k'] AS INT) = 5",
    "CAST(st AS STRUCT<m: MAP<STRING, INT>, x: STRING, z: INT>).m['k'] = 5",
    "CAST(st AS STRUCT<m: MAP<STRING, INT>, x: STRING, z: INT>).z = 5",
    "CAST(cents AS MAP<STRING, DECIMAL(10, 0)>)['k'] = 5",
    "CAST(cents AS MAP<STRING, DECIMAL(10, 1)>)['k'] = 5.3",
    "cents['k'] = 5.25",
    "cents['k'] = 5.250",
    "cents['k'] > 999.999",
    "CAST(at AS MAP<STRING, DATE>)['k'] = DATE'2024-01-03'",
    "CAST(at AS MAP<STRING, TIMESTAMP>)['k'] = TIMESTAMP'2024-01-03 04:00:00'",
    "at['k'] = TIMESTAMP_NTZ'2024-01-03 04:00:00'",
    "at['k'] < DATE'2024-01-02'",
    "CAST(big AS MAP<STRING, INT>)['k'] = 5",
    "big['k'] = 5",
    "CAST(by_day AS MAP<STRING, STRING>)['2024-01-01'] = 'v5'",
    "CAST(by_day AS MAP<TIMESTAMP, STRING>)[TIMESTAMP'2024-01-01'] = 'v5'",
    "by_day[DATE'2024-01-01'] = 'v37'",
    "CAST(n AS MAP<BIGINT, BIGINT>)[1L] = 5",
    "CAST(n AS MAP<STRING, INT>)['1'] = 5",
    "CAST(n AS MAP<TINYINT, BIGINT>)[1Y] = 5",
    "n[1.0] = 5",
    "element_at(n, 1L) = 5",
    "nested['k']['k'] = 5",
    "CAST(nested AS MAP<STRING, MAP<STRING, STRING>>)['k']['k'] = '5'",
    "map_entries(m)[0].value = 5.25",
    "map_values(m)[0] = 5.25",
    "transform_values(m, (k, v) -> INT(v))['k'] = 5",
    "map_filter(m, (k, v) -> v > 10)['k'] = 5.25",
    "map_concat(m, MAP('z', 1D))['k'] = 5.25",
    "IF(id > 5, m, MAP('k', 5.25D))['k'] = 5.25",
    "MAP('k', id)['k'] = 7",
    "m[CONCAT('', 'k')] = 5.25",
    "m[IF(id < 2000, 'k', 'K')] = 5.25",
    "m['k' COLLATE UTF8_LCASE] = 5.25",
    "CAST(m AS MAP<STRING COLLATE UTF8_LCASE, DOUBLE>)['K' COLLATE UTF8_LCASE] = 5.25",
    "by_day[DATE'2024-01-01'] COLLATE UTF8_LCASE = 'V37'",
    "by_day[DATE'2024-01-01'] = 'V37' COLLATE UTF8_LCASE",
    "CAST(by_day[DATE'2024-01-01'] AS CHAR(5)) = 'v37'",
    "by_day[DATE'2024-01-01'] = 'v37  '",
    "st.x COLLATE UTF8_LCASE = 'X37'",
    "st.x = 'X37' COLLATE UNICODE_CI",
    "st.x COLLATE UTF8_LCASE IN ('X37', 'X74')",
    "startswith(st.x COLLATE UTF8_LCASE, 'X37')",
    "st.x COLLATE UTF8_BINARY_RTRIM = 'x37  '",
    "st.m['k'] = 5.25",
    "st.`y.z` = 37",
    "`a.b`['k'] = 37",
    "`it``s \"odd\" ü`['k.k'] = 41",
    "f['k'] = 5.25",
    "f['k'] = FLOAT(4.625)",
    "f['k'] = FLOAT('NaN')",
    "f['k'] = -0.0F",
    "f['k'] = 0.0F",
    "f['k'] <= 0",
    "f['k'] IN (FLOAT(0.0), FLOAT('NaN'), FLOAT(4.625))",
    "NOT (f['k'] IN (FLOAT(0.0), FLOAT('NaN'))) AND id < 100",
    "NOT (f['k'] > FLOAT(-1))",
    "isnan(f['k'])",
    "flag['k'] AND id < 2010",
    "NOT flag['k'] AND id > 1990",
    "flag['k'] IS NULL",
    "flag['k'] <=> NULL",
    "flag['k'] = FALSE AND id > 1990",
    "flag['k'] IS NOT FALSE AND id < 2010",
    "(flag['k'] = TRUE) = FALSE AND id > 1990",
    "(m['k'] = 5.25) IS NOT TRUE AND id < 30",
    "(m['k'] = 5.25 OR rand() > 2) AND id < 4000",
    "m['k'] = 5.25 OR (upper(st.x) = 'X37' AND id = 1)",
    "upper(st.x) = 'X37' AND id = 1 OR i = 37",
    "NOT (upper(st.x) = 'X37' AND i = 37) AND i < 50",
    "NOT (upper(st.x) <> 'X37' OR i <> 37)",
    "CASE WHEN m['k'] = 5.25 THEN TRUE WHEN m['k'] = 5.5 THEN NULL ELSE FALSE END",
    "m['k'] = (SELECT 5.25)",
    "m['k'] IN (SELECT 5.25 UNION SELECT 5.5)",
    "m['k'] BETWEEN 5 AND 6 AND n[1] <> 21",
    "n[1] IN (5, 6, NULL)",
    "n[1] NOT IN (5, NULL)",
    "n[1] IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, NULL)",
    "n[1] IN (5, '6', 7.0)",
    "n[1] <=> 5 OR n[1] = 6",
    "m['k'] = n[1]",
    "named_struct('a', m['k']).a = 5.25",
    "struct(m['k'], n[1]) = struct(9.25, 37)",
]
BYTES = [
    "s = CAST(X'61FF' AS STRING)",
    "s = CAST(X'61C3' AS STRING) OR s = 'word 37'",
    "CAST(X'61FF' AS STRING) = s",
    "s <=> CAST(X'61FF' AS STRING)",
    "s <> CAST(X'61FF' AS STRING) AND id < 10",
    "s IN (CAST(X'61FF' AS STRING), 'word 37', NULL)",
    "s NOT IN (CAST(X'61FF' AS STRING), 'word 37') AND id < 10",
    f"s IN ({', '.join(f'CAST(UNHEX({chr(39)}61{byte:02X}{chr(39)}) AS STRING)' for byte in range(240, 255))})",
    "s > CAST(X'61FE' AS STRING) AND s < 'b'",
    "s >= CAST(X'61FE' AS STRING) AND s <= CAST(X'61FF' AS STRING)",
    "s < CAST(X'6181' AS STRING)",
    "s BETWEEN CAST(X'61C0' AS STRING) AND CAST(X'61C1' AS STRING)",
    "NOT (s < CAST(X'61FF' AS STRING)) AND s < 'b'",
    "startswith(s, CAST(X'61FF' AS STRING))",
    "NOT startswith(s, CAST(X'61FF' AS STRING)) AND id < 10",
    "s LIKE CONCAT(CAST(X'61FF' AS STRING), '%')",
    "startswith(s, CAST(X'FF' AS STRING))",
    "startswith(s, CAST(X'C3' AS STRING)) AND id < 30",
    "s = 'a\ufffd'",
    "s >= 'a\ufffd' AND s < 'b'",
    "s < 'a\ufffd' AND s > 'a'",
    "s LIKE 'a\ufffd%'",
    "s LIKE 'a_'",
    "s LIKE 'a%'",
    "length(s) = 2 AND s > 'a'",
    "st.x = CAST(X'7833FF' AS STRING)",
    "raw['k'] = CAST(X'76FF' AS STRING)",
    "raw['k'] IN (CAST(X'76FF' AS STRING), 'v37')",
    "raw['k'] > CAST(X'76FE' AS STRING)",
    "startswith(raw['k'], CAST(X'76FF' AS STRING))",
    "raw[CAST(X'6BFF' AS STRING)] = 'v'",
    "element_at(raw, CAST(X'6BFF' AS STRING)) = 'v'",
    "s = decode(X'61FF', 'UTF-8')",
    "s = '\\uD800'",
    "s = 'e\u0301' OR s = 'é'",
]
OTHERS = [
    "b AND id < 2010",
    "NOT b AND id > 1990",
    "b <=> NULL",
    "NOT (b <=> TRUE) AND id > 1990",
    "b = (i > 5) AND id < 10",
    "d = DOUBLE('NaN')",
    "d IN (DOUBLE('NaN'), 38D)",
    "d NOT IN (DOUBLE('NaN'), 38D) AND id < 100",
    "d = -0.0D",
    "d IN (-0.0D, 7D)",
    "d IN (0.0D, 4100D, 4101D, 4102D, 4103D, 4104D, 4105D, 4106D, 4107D, 4108D, 4109D, 4110D)",
    "d NOT IN (0.0D, 4100D, 4101D, 4102D, 4103D, 4104D, 4105D, 4106D, 4107D, 4108D, 4109D, 4110D) AND d < 40",
    "d NOT IN (0.0D, 4100D) AND d < 40",
    "d <=> DOUBLE('NaN')",
    "NOT (d < DOUBLE('NaN'))",
    "d > DOUBLE('Infinity')",
    "ts = TIMESTAMP'2024-03-31 03:00:00 Europe/Berlin'",
    "ts = TIMESTAMP'2024-03-31 02:30:00'",
    "CAST(ts AS DATE) = DATE'2024-04-01' AND ts < TIMESTAMP'2024-04-01 01:00:00'",
    "ts < DATE'2024-04-01'",
    "ts > TIMESTAMP_NTZ'2024-04-01 00:00:00' AND ts < '2024-04-02'",
    "date_trunc('HOUR', ts) = TIMESTAMP'2024-03-31 02:00:00'",
    "ts - INTERVAL '1' HOUR = TIMESTAMP'2024-03-31 00:30:00Z'",
    "dec = 5.25",
    "dec = 5.2500",
    "dec = 5.251",
    "dec > 999.995",
    "dec IN (5.25, 5, 5.255)",
    "wide = 5.25",
    "wide IN (5.25, 5.123456789)",
    "CAST(dec AS INT) = 5",
    "CAST(i AS TINYINT) = 5 AND i < 100",
    "CAST(i AS STRING) = '37'",
    "i = '37'",
    "i = 37.0",
    "i = 37.5",
    "i IN (37, '74', 37.5)",
    "i IN (37, 3000000000)",
    "i = 3000000037",
    "i < 2147483648 AND id < 5",
    "i = NULL",
    "i <=> NULL",
    "NOT (i <=> 37) AND id < 3",
    "coalesce(i, 5) = 37",
    "nullif(i, 37) IS NULL",
    "i % 4000 = 37",
]
PREDICATES = [*CONVERTED, *BYTES, *OTHERS]
PRUNING = [
    "m['k'] = 5.25",
    "cents['k'] = 5.25",
    "at['k'] = TIMESTAMP_NTZ'2024-01-03 04:00:00'",
    "big['k'] = 5",
    "by_day[DATE'2024-01-01'] = 'v74'",
    "st.m['k'] = 5.25",
    "st.x = CAST(X'7833FF' AS STRING)",
    "st.`y.z` = 37",
    "`a.b`['k'] = 37",
    "`it``s \"odd\" ü`['k.k'] = 41",
    "f['k'] = FLOAT(4.75)",
    "f['k'] = -0.0F",
    "flag['k'] AND id < 4000",
    "flag['k'] IS NULL",
    "s = CAST(X'61FF' AS STRING)",
    "CAST(X'61FF' AS STRING) = s OR i = 37",
    "s IN (CAST(X'61FF' AS STRING), 'word 37', NULL)",
    "s = 'a\ufffd'",
    "raw['k'] = CAST(X'76FF' AS STRING)",
    "upper(st.x) = 'X37' AND id < 9000 AND i = 37 OR i = 74",
    "m['k'] = 5.25 OR (upper(st.x) = 'X37' AND i = 1)",
    "n[1] IN (5, 6, NULL)",
    "n[1] IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, NULL) AND m['k'] < 1",
]


@pytest.fixture(scope="module")
def index(spark: SparkSession, catalog: SqlCatalog) -> Iterator[TableIndex]:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.ns")
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


@pytest.fixture(scope="module")
def plain(spark: SparkSession) -> SparkSession:
    """A session without the hook."""
    return spark.newSession()


@pytest.mark.one_of(5)
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
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.ns")
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
