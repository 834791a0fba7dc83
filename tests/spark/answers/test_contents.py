"""What arrays and maps contain, with Spark itself as the judge: with the hook, without it, and in `planner.plan`."""

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import planner
from puffin_index import IndexDefinition, TableIndex
from tests.spark.agreement import check_exact_rows, check_rows, count_and_sum, row_groups_of, settings
from tests.spark.corpus_tables import Statement, statements

pytestmark = pytest.mark.spark

ROWS, ROW_GROUP_ROWS = 6_000, 250
LISTS = ("tags", "nums", "ds", "days", "decs", "moments", "st.a")
COLUMNS = {
    "tags": (
        "ARRAY<STRING>",
        "CASE id % 11 WHEN 3 THEN NULL WHEN 4 THEN ARRAY() WHEN 5 THEN ARRAY(NULL, CONCAT('tag ', id)) ELSE "
        "ARRAY(CONCAT('tag ', id * 7919 % 3000), CONCAT('tag ', id DIV 2), 'ü', 'ü') END",
    ),
    "nums": ("ARRAY<INT>", "TRANSFORM(SEQUENCE(0, INT(id % 4)), x -> INT((id * 31 + x * 7) % 2000))"),
    "ds": (
        "ARRAY<DOUBLE>",
        "CASE id WHEN 99 THEN ARRAY(DOUBLE('NaN')) WHEN 98 THEN ARRAY(-0.0D) WHEN 97 THEN ARRAY(0.0D, NULL) "
        "ELSE ARRAY(id % 1000 / 2 + 1) END",
    ),
    "days": ("ARRAY<DATE>", "ARRAY(DATE_ADD(DATE'2024-01-01', INT(id % 700)), NULL)"),
    "decs": ("ARRAY<DECIMAL(10, 2)>", "ARRAY(CAST(id * 37 % 4001 / 4 AS DECIMAL(10, 2)))"),
    "moments": ("ARRAY<TIMESTAMP>", "ARRAY(TIMESTAMP'2024-01-01 00:00:00Z' + MAKE_DT_INTERVAL(0, 0, INT(id)))"),
    "m": (
        "MAP<STRING, INT>",
        "CASE id % 7 WHEN 1 THEN NULL WHEN 2 THEN MAP() WHEN 3 THEN MAP('none', NULL) ELSE "
        "MAP(CONCAT('k ', id * 7919 % 3000), INT(id * 13 % 3000), 'all', 1) END",
    ),
    "st": ("STRUCT<a: ARRAY<BIGINT>>", "IF(id % 5 = 0, NULL, NAMED_STRUCT('a', ARRAY(id * 17 % 2000, id)))"),
    "nested": ("ARRAY<ARRAY<INT>>", "ARRAY(ARRAY(INT(id % 3), INT(id % 5)))"),
    "people": ("ARRAY<STRUCT<name: STRING>>", "ARRAY(NAMED_STRUCT('name', CONCAT('p ', id % 500)))"),
}


@pytest.fixture(scope="module")
def contents(spark: SparkSession, catalog: SqlCatalog) -> TableIndex:
    """Half of the rows in a file of its own, in row groups of 250; indexes of all kinds that know contents."""
    columns = ", ".join(f"{name} {column_type}" for name, (column_type, _) in COLUMNS.items())
    spark.sql(
        f"CREATE OR REPLACE TABLE lake.ns.contents (id BIGINT, {columns}) USING iceberg "
        f"TBLPROPERTIES ({row_groups_of(ROW_GROUP_ROWS)})"
    )
    values = [f"{value} AS {name}" for name, (_, value) in COLUMNS.items()]
    for first in (0, ROWS // 2):
        spark.range(first, first + ROWS // 2, 1, 1).selectExpr("id", *values).writeTo("lake.ns.contents").append()
    lists = [f"{name}#c#elements" for name in LISTS]
    definition = IndexDefinition.of(bitmap=[*lists, "m#c#keys", "m#c#values"], bloom=[*lists, "m#c#keys"])
    index = TableIndex.create(catalog, "ns.contents", definition)
    report = index.build(workers=1)
    assert (report.rows, report.skipped) == (ROWS, ())
    return index


TEXT_ROWS, TEXT_ROW_GROUP_ROWS = 20_000, 5_000
MESSAGES = {
    3: "CAST(NULL AS STRING)",
    4: "''",
    5: "CONCAT('straße und Gasse ', id)",
    6: "CONCAT('\u212aelvin, \u0130stanbul und ΑΣ ', id)",
    7: "CONCAT('日本語 の テキスト 😀 ', id)",
    8: "CONCAT('cafe\u0301 and café ', id)",
    9: "CONCAT('100% of under_score and back\\\\slash ', id)",
    10: "CAST(CONCAT(CAST('a' AS BINARY), X'FF', CAST('b ' AS BINARY), CAST(STRING(id) AS BINARY)) AS STRING)",
}


@pytest.fixture(scope="module")
def texts(spark: SparkSession, catalog: SqlCatalog) -> TableIndex:
    """Lines of all sorts, in row groups of two blocks; seven of them are what most searches look for."""
    spark.sql(
        "CREATE OR REPLACE TABLE lake.ns.texts (id BIGINT, word STRING, message STRING, st STRUCT<text: STRING>, "
        f"m MAP<STRING, STRING>) USING iceberg TBLPROPERTIES ({row_groups_of(TEXT_ROW_GROUP_ROWS)})"
    )
    cases = " ".join(f"WHEN {number} THEN {value}" for number, value in MESSAGES.items())
    message = (
        "CASE WHEN id BETWEEN 7003 AND 7009 THEN 'ERROR kernel panic: not syncing' "
        f"ELSE CASE IF(id % 40 < 12 AND (id < 5000 OR id % 40 NOT IN (5, 6)), id % 40, 0) {cases} "
        "ELSE CONCAT('INFO request id=', id, ' user=', id * 7919 % 3000, ' ', SHA2(STRING(id), 256)) END END"
    )
    spark.range(0, TEXT_ROWS, 1, 1).selectExpr(
        "id",
        "CONCAT('done', id % 2) AS word",
        f"{message} AS message",
        "NAMED_STRUCT('text', CONCAT('needle ', id DIV 100)) AS st",
        "MAP('k', CONCAT('needle ', id)) AS m",
    ).writeTo("lake.ns.texts").append()
    columns = ["message#c#words", "st.text#c#words"]
    index = TableIndex.create(catalog, "ns.texts", IndexDefinition.of(bitmap=columns, bloom=columns[:1]))
    report = index.build(workers=1)
    assert (report.rows, report.skipped) == (TEXT_ROWS, ())
    return index


def answer(spark: SparkSession, where: str, table: str = "contents") -> tuple[int, int | None] | str:
    """How many rows match, and the sum of their ids; or what kind of error Spark raises."""
    try:
        return count_and_sum(spark, f"lake.ns.{table}", where)
    except PySparkException as error:
        return str(error.getCondition())


@pytest.mark.one_of(4)
@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("one", statements("contents"), ids=lambda one: one.sql)
def test_answers_are_equal(
    hooked: SparkSession, plain: SparkSession, contents: TableIndex, one: Statement, ansi: str
) -> None:
    conf = {"spark.sql.ansi.enabled": ansi}
    with settings(hooked, conf), settings(plain, conf):
        expected = answer(plain, one.sql)
        assert answer(hooked, one.sql) == expected
    if one.shrinks:
        assert planner.reports(hooked)[-1].dropped > 0
    if ansi == "true" and isinstance(expected, tuple):
        check_exact_rows(contents, one.sql, expected[0])


@pytest.mark.one_of(4)
@pytest.mark.parametrize("one", statements("words"), ids=lambda one: one.sql)
def test_searches_of_texts_are_equal(
    hooked: SparkSession, plain: SparkSession, texts: TableIndex, one: Statement
) -> None:
    expected = answer(plain, one.sql, "texts")
    assert answer(hooked, one.sql, "texts") == expected
    if one.shrinks:
        assert planner.reports(hooked)[-1].dropped > 0
    if isinstance(expected, tuple):
        check_exact_rows(texts, one.sql, expected[0])


def test_a_setting_that_makes_exists_false_for_null_changes_no_answer(
    hooked: SparkSession, plain: SparkSession, contents: TableIndex
) -> None:
    assert contents.name == "ns.contents"
    conf = {"spark.sql.legacy.followThreeValuedLogicInArrayExists": "false"}
    where = "NOT exists(tags, x -> x = 'tag 77')"
    with settings(hooked, conf), settings(plain, conf):
        assert answer(hooked, where) == answer(plain, where)


@pytest.mark.usefixtures("contents")
def test_exploded_joined_and_changed_rows_are_equal(hooked: SparkSession) -> None:
    for query in (
        "SELECT id, tag FROM lake.ns.contents LATERAL VIEW EXPLODE(tags) AS tag WHERE array_contains(tags, 'tag 77')",
        "SELECT a.id, b.id FROM lake.ns.contents a JOIN lake.ns.contents b ON array_contains(a.tags, b.tags[0]) "
        "WHERE b.id = 77",
        "SELECT id FROM (SELECT id, tags AS nums, nums AS tags FROM lake.ns.contents) WHERE array_contains(tags, 77)",
        "SELECT COUNT(*) FROM lake.ns.contents WHERE array_contains(tags, 'tag 77')",
    ):
        check_rows(hooked, query)


def test_statements_make_an_index_of_what_rows_contain(hooked: SparkSession, catalog: SqlCatalog) -> None:
    hooked.sql(
        "CREATE OR REPLACE TABLE lake.ns.tagged (id BIGINT, tags ARRAY<STRING>, m MAP<STRING, INT>) USING iceberg "
        f"TBLPROPERTIES ({row_groups_of(100)})"
    )
    hooked.range(0, 1000, 1, 1).selectExpr(
        "id", "ARRAY(CONCAT('t', id DIV 10)) AS tags", "MAP(CONCAT('k', id DIV 10), 1) AS m"
    ).writeTo("lake.ns.tagged").append()
    hooked.sql(
        "CREATE INDEX of_tags ON lake.ns.tagged USING bitmap (tags OPTIONS (content = 'elements'), "
        "m OPTIONS (content = 'keys')) OPTIONS (build = 'sync')"
    )

    listed = hooked.sql("CALL puffin.system.indexes(table => 'lake.ns.tagged')").collect()
    assert {(row["name"], row["column"], row["map_key"], row["options"]) for row in listed} == {
        ("of_tags", "tags", None, "content=elements"),
        ("of_tags", "m", None, "content=keys"),
    }
    found = hooked.sql("SELECT id FROM lake.ns.tagged WHERE array_contains(tags, 't77') AND map_contains_key(m, 'k77')")
    assert sorted(row.id for row in found.collect()) == list(range(770, 780))
    assert planner.reports(hooked)[-1].dropped == 9
    assert TableIndex.open(catalog, "ns.tagged").verify().findings == ()
