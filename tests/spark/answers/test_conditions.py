"""Conditions with Spark itself as the judge: with the hook, without it, and in `planner.plan`, answers agree.

Of conversions, text that is not UTF-8 and types unknown here, the hook is told what Spark asks for, or nothing.
"""

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import planner
from planner.spark.requests.wire import Request
from puffin_index import IndexDefinition, TableIndex
from puffin_index.errors import UnsupportedError
from ssb_bench.spark_runs.jars import SPARK_RELEASE
from tests.conftest import built
from tests.spark.agreement import ENABLED, check_exact_rows, check_rows, count_and_sum, row_groups_of, settings
from tests.spark.corpus_tables import Statement, statements

pytestmark = pytest.mark.spark

ROWS, ROW_GROUP_ROWS = 4_000, 250
PROPERTIES = f"{row_groups_of(ROW_GROUP_ROWS)}, 'format-version'='3'"
MAP_ROWS = 6_000
MAP_KEYS = ["m#k#color", "m#k#it's \\", "n#k#1", "n#k#-7", "days#k#2024-02-29", "s.m#k#9000000000"]
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


@pytest.fixture(scope="module")
def maps(spark: SparkSession, catalog: SqlCatalog) -> TableIndex:
    spark.sql(
        "CREATE OR REPLACE TABLE lake.ns.maps (id BIGINT, m MAP<STRING, STRING>, n MAP<INT, BIGINT>, "
        "days MAP<DATE, DOUBLE>, s STRUCT<m: MAP<BIGINT, INT>>) USING iceberg TBLPROPERTIES ("
        f"{row_groups_of(500)})"
    )
    spark.range(0, MAP_ROWS, 1, 2).selectExpr(
        "id",
        "CASE id % 9 WHEN 1 THEN NULL WHEN 2 THEN MAP('size', 'color 77') WHEN 3 THEN MAP('color', NULL) ELSE "
        "MAP('color', CONCAT('color ', id * 7919 % 1000), 'it\\'s \\\\', CONCAT('line\\nbreak ', id % 3000)) END AS m",
        "IF(id % 5 = 0, NULL, MAP(1, id * 31 % 1000, -7, id % 3001)) AS n",
        "MAP(DATE'2024-02-29', IF(id = 99, DOUBLE('NaN'), id * 13 % 1501 / 2)) AS days",
        "NAMED_STRUCT('m', IF(id % 3 = 0, NULL, MAP(9000000000, CAST(id * 17 % 1999 AS INT)))) AS s",
    ).writeTo("lake.ns.maps").append()
    # PyIceberg warns of options that it does not know.
    spark.sql("ALTER TABLE lake.ns.maps UNSET TBLPROPERTIES ('write.parquet.row-group-size-bytes')")
    append_duplicates(catalog)
    spark.sql("REFRESH TABLE lake.ns.maps")
    definition = IndexDefinition.of(bitmap=MAP_KEYS, bsi=MAP_KEYS, bloom=MAP_KEYS)
    table_index = TableIndex.create(catalog, "ns.maps", definition)
    report = table_index.build(workers=2)
    assert (report.rows, report.skipped) == (MAP_ROWS + 1, ())
    return table_index


def append_duplicates(catalog: SqlCatalog) -> None:
    """Append a row as no Spark writes it: one key has two entries."""
    table = catalog.load_table("ns.maps")
    row = {"id": -1, "m": [("color", "first"), ("color", "second")], "n": [(1, 33), (1, 34)], "days": None, "s": None}
    table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))


@pytest.fixture(scope="module")
def faithful(spark: SparkSession, catalog: SqlCatalog) -> TableIndex:
    columns = ", ".join(f"{name} {column_type}" for name, (column_type, _) in COLUMNS.items())
    spark.sql(
        f"CREATE OR REPLACE TABLE lake.ns.faithful (id BIGINT, {columns}) USING iceberg TBLPROPERTIES ({PROPERTIES})"
    )
    values = (f"{value} AS {name}" for name, (_, value) in COLUMNS.items())
    spark.range(0, ROWS, 1, 1).selectExpr("id", *values).writeTo("lake.ns.faithful").append()
    table_index = TableIndex.create(catalog, "ns.faithful", IndexDefinition.of(bitmap=INDEXED, bloom=INDEXED))
    report = table_index.build(workers=1)
    assert (report.rows, report.row_groups, report.skipped) == (ROWS, ROWS // ROW_GROUP_ROWS, ())
    return table_index


@pytest.fixture(scope="module")
def variants(spark: SparkSession, catalog: SqlCatalog) -> TableIndex:
    """A table that has got a VARIANT column, alone and in a struct, after its index was built."""
    spark.sql(
        f"CREATE TABLE lake.ns.variants (id BIGINT, i INT, st STRUCT<x: INT>) USING iceberg "
        f"TBLPROPERTIES ({PROPERTIES})"
    )
    rows = spark.range(0, ROWS, 1, 1)
    rows.selectExpr("id", "INT(id * 37 % 4001) AS i", "NAMED_STRUCT('x', INT(id)) AS st").writeTo(
        "lake.ns.variants"
    ).append()
    index = built(catalog, "ns.variants", bitmap=["i", "st.x"])
    spark.sql("ALTER TABLE lake.ns.variants ADD COLUMNS (v VARIANT, st.v VARIANT)")
    spark.sql("INSERT INTO lake.ns.variants SELECT 5000, 37, NAMED_STRUCT('x', 1, 'v', NULL), PARSE_JSON('{\"a\": 5}')")
    return index


def answer(spark: SparkSession, table: str, where: str) -> tuple[int, int | None] | str:
    """How many rows match, and the sum of their ids; or what kind of error Spark raises."""
    try:
        return count_and_sum(spark, f"lake.ns.{table}", where)
    except PySparkException as error:
        return str(error.getCondition())


_NEWEST = pytest.mark.skipif(SPARK_RELEASE != "4.1", reason="tables of types that came later")


@pytest.mark.one_of(6)
@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize(
    ("table", "one"),
    [
        *(("maps", one) for one in statements("maps")),
        *(pytest.param(name, one, marks=_NEWEST) for name in ("faithful", "variants") for one in statements(name)),
    ],
    ids=lambda value: value if isinstance(value, str) else value.sql,
)
def test_answers_are_equal(
    request: pytest.FixtureRequest, hooked: SparkSession, plain: SparkSession, table: str, one: Statement, ansi: str
) -> None:
    index = request.getfixturevalue(table)
    conf = {"spark.sql.ansi.enabled": ansi}
    with settings(hooked, conf), settings(plain, conf):
        expected = answer(plain, table, one.sql)
        assert answer(hooked, table, one.sql) == expected
    if ansi == "true" and one.shrinks:
        assert planner.reports(hooked)[-1].dropped > 0
    if ansi == "true" and table == "maps":
        assert isinstance(expected, tuple)
        check_exact_rows(index, one.sql, expected[0])


def test_of_two_entries_with_one_key_the_first_counts_as_in_spark(plain: SparkSession, maps: TableIndex) -> None:
    assert answer(plain, "maps", "m['color'] = 'first'") == (1, -1)
    assert (
        answer(plain, "maps", "m['color'] = 'second'")
        == answer(plain, "maps", "element_at(m, 'color') = 'second'")
        == (0, None)
    )
    assert planner.plan(maps, "m['color'] = 'second'", strict=True).kept == 0


@pytest.mark.usefixtures("maps")
def test_subqueries_and_joins_prune_by_keys_of_their_own(hooked: SparkSession) -> None:
    subqueries = [f"(SELECT SUM(id) FROM lake.ns.maps WHERE m['color'] = 'color {number}')" for number in (77, 78, 79)]
    check_rows(hooked, f"SELECT {', '.join(subqueries)}")
    check_rows(
        hooked,
        "SELECT a.id, b.id FROM lake.ns.maps a JOIN lake.ns.maps b ON a.id = b.id + 1 "
        "WHERE a.m['color'] = 'color 77' AND b.n[1] = (SELECT MAX(id) * 0 + 44 FROM lake.ns.maps) AND b.n[-7] > 0",
    )


@_NEWEST
def test_the_report_says_conditions_as_text(hooked: SparkSession, faithful: TableIndex) -> None:
    assert faithful.name == "ns.faithful"
    answer(
        hooked,
        "faithful",
        "m['k'] = 5.25 OR (upper(st.x) = CAST(d AS STRING) AND upper(st.x) = 'X37' AND s = CAST(X'61FF' AS STRING))",
    )

    where = planner.reports(hooked)[-1].where
    assert where == "(m['k'] = 5.25D OR (equalto(...) AND (upper(st.x) = 'X37') AND s = 'a\ufffd'))"


@_NEWEST
def test_text_that_is_no_utf8_is_verified_planned_and_counted(faithful: TableIndex, plain: SparkSession) -> None:
    assert faithful.verify().findings == ()
    for where in (
        "s > 'a' AND s < 'b'",
        "s LIKE 'a%'",
        "s = 'a\ufffd'",
        "s >= 'a\ufffd' AND s < 'b'",
        "raw['k'] > 'v\ufffd'",
    ):
        expected = count_and_sum(plain, "lake.ns.faithful", where)
        assert planner.count(faithful, where).rows == expected[0], where
        assert sum(planner.scan(faithful, where, ["id"]).read_all()["id"].to_pylist()) == expected[1], where
    for where in ("s LIKE 'a_'", "s LIKE '%d'"):
        with pytest.raises(UnsupportedError, match="not UTF-8"):
            planner.count(faithful, where)


@_NEWEST
@pytest.mark.usefixtures("faithful")
def test_session_variables_parameters_and_lateral_aliases(hooked: SparkSession) -> None:
    hooked.sql("DECLARE OR REPLACE VARIABLE wanted DOUBLE DEFAULT 5.25")
    hooked.sql("DECLARE OR REPLACE VARIABLE bytes_wanted STRING DEFAULT CAST(X'61FF' AS STRING)")
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
        check_rows(hooked, query)
    query = "SELECT id FROM lake.ns.faithful WHERE m[:key] = :value"
    arguments = {"key": "k", "value": 5.25}
    found = hooked.sql(query, arguments).collect()
    with settings(hooked, {ENABLED: "false"}):
        assert found == hooked.sql(query, arguments).collect() != []


@pytest.fixture(scope="module")
def nulls(spark: SparkSession, catalog: SqlCatalog) -> TableIndex:
    """Columns of plain types with NULLs among their values."""
    spark.sql(
        "CREATE TABLE lake.ns.nulls (id BIGINT, i INT, s STRING, day DATE, dec DECIMAL(9, 2), d DOUBLE, flag BOOLEAN, "
        f"raw BINARY, tz TIMESTAMP, st STRUCT<x: INT>) USING iceberg TBLPROPERTIES ({row_groups_of(100)})"
    )
    values = ["INT(id DIV 90)", "CONCAT('a', id DIV 90)", "DATE_ADD(DATE '2024-01-01', INT(id DIV 90))"]
    values += ["CAST(id DIV 90 AS DECIMAL(9, 2))", "IF(id > 700, DOUBLE('NaN'), id DIV 90)", "id > 400"]
    values += ["CAST(CONCAT('a', id DIV 90) AS BINARY)", "TIMESTAMP_SECONDS(id DIV 90)"]
    struct = "NAMED_STRUCT('x', IF(id % 7 = 0, NULL, INT(id DIV 90)))"
    spark.range(0, 800, 1, 1).selectExpr(
        "id", *(f"IF(id % 7 = 0 OR id > 750, NULL, {value})" for value in values), struct
    ).toDF("id", "i", "s", "day", "dec", "d", "flag", "raw", "tz", "st").writeTo("lake.ns.nulls").append()
    return built(catalog, "ns.nulls", bitmap=["i", "s", "day", "dec", "d", "flag", "raw", "tz", "st.x"])


@pytest.mark.parametrize(
    "where",
    [
        *("i = 5", "i <=> 5", "NOT i = 5", "NOT (i <=> 5)", "i <> 5 OR i IS NULL", "i IN (1, 7)", "i NOT IN (1, 7, 8)"),
        *("NOT (i < 3)", "NOT (i >= 3 AND s = 'a5')", "i IS NULL", "NOT (i IS NULL)", "i < 2 OR (i > 6 AND s > 'a7')"),
        *("s LIKE 'a5%'", "NOT s LIKE 'a5%'", "NOT (s LIKE 'a5%' OR i = 2)", "s = 'a\\uFFFD'", "NOT s = 'a\\uFFFD'"),
        *("day = DATE '2024-01-04'", "day IN (DATE '2024-01-04', DATE '2024-01-05')", "dec > 6.5", "NOT dec IN (1, 2)"),
        *("d = DOUBLE('NaN')", "NOT isnan(d)", "isnan(d)", "d = -0.0D", "d < 2", "flag", "NOT flag", "flag <=> true"),
        *("raw = X'6133'", "raw > X'6136'", "tz <= TIMESTAMP '1970-01-01 00:00:02Z'", "st.x = 3", "NOT (st.x <=> 3)"),
        " OR ".join(f"(i = {n} AND s > 'a')" for n in range(6, 900)),
    ],
    ids=lambda where: where[:30],
)
def test_filters_of_each_kind_are_read(hooked: SparkSession, nulls: TableIndex, where: str) -> None:
    for report in check_rows(hooked, f"SELECT id FROM lake.{nulls.name} WHERE {where}"):
        assert "(...)" not in report.where or "FFFD" in where


_HEX = ", ".join(f"CAST(X'61{byte:02X}' AS STRING)" for byte in range(128, 228))


@_NEWEST
@pytest.mark.usefixtures("answering")
@pytest.mark.parametrize(
    "where",
    [
        "i IN (" + ", ".join(map(str, range(1, 400, 4))) + ")",
        "NOT i IN (" + ", ".join(map(str, range(1, 4000))) + ")",
        "s IN ('word 37', 'a\\uFFFD', " + ", ".join(f"'ü{number}'" for number in range(2, 402, 4)) + ")",
        f"s IN ({_HEX})",
        f"s IN ('word 37', NULL, {_HEX})",
        "m['k'] IN (" + ", ".join(f"{number}D" for number in range(100)) + ")",
        "raw['k'] IN (" + ", ".join(f"'v{number}'" for number in range(1, 201, 2)) + ")",
        "ts IN (" + ", ".join(f"TIMESTAMP'2024-03-31 {n // 60:02}:{n % 60:02}:00Z'" for n in range(30, 140)) + ")",
        "dec IN (" + ", ".join(f"{number}.25BD" for number in range(100)) + ")",
        "d IN (DOUBLE('NaN'), " + ", ".join(f"{number}D" for number in range(100)) + ")",
        "st.x IN (" + ", ".join(f"'x{number}'" for number in range(100)) + ") OR i = 4000",
    ],
    ids=lambda where: where[:20],
)
def test_long_lists_cross_as_bytes_and_keep_their_rows(
    hooked: SparkSession, plain: SparkSession, faithful: TableIndex, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    read = Request.model_validate_json
    monkeypatch.setattr(Request, "model_validate_json", lambda text: sent.append(text) or read(text))
    expected = answer(plain, "faithful", where)

    assert answer(hooked, "faithful", where) == expected
    check_rows(hooked, f"SELECT id FROM lake.{faithful.name} WHERE {where}")
    # Doubles stay in JSON, as the bits that they are, and so do decimals and lists with a NULL.
    stays = where.startswith(("m[", "d ", "dec ")) or "NULL" in where
    assert any('"members":"' in text for text in sent) != stays


@pytest.mark.parametrize("zero", ["0.0D", "-0.0D", "CAST(0 AS FLOAT)"])
def test_zeros_of_arrays_are_equal_where_they_are_to_spark(
    hooked: SparkSession, catalog: SqlCatalog, zero: str
) -> None:
    """Spark before 4.1 tells them apart in `arrays_overlap`, and in nothing else."""
    column = "fs" if "FLOAT" in zero else "ds"
    values = "ARRAY(IF(id < 500, -0.0D, 0.0D)) AS ds, ARRAY(CAST(IF(id < 500, -0.0D, id) AS FLOAT)) AS fs"
    hooked.sql(
        f"CREATE OR REPLACE TABLE lake.ns.zeros USING iceberg TBLPROPERTIES ({PROPERTIES}) "
        f"AS SELECT /*+ COALESCE(1) */ id, {values} FROM range(1000)"
    )
    index = built(catalog, "ns.zeros", bitmap=["ds#c#elements", "fs#c#elements"])

    for test in (f"arrays_overlap({column}, ARRAY({zero}))", f"array_contains({column}, {zero})"):
        for where in (test, f"NOT {test}"):
            check_rows(hooked, f"SELECT id FROM lake.{index.name} WHERE {where}")
            check_rows(hooked, f"SELECT COUNT(*) FROM lake.{index.name} WHERE {where}")
