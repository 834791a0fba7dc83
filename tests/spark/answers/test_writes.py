"""MERGE, UPDATE and DELETE by keys: with the hook a table becomes what its twin becomes without, or loses alike."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import product
from pathlib import Path
from random import Random, SystemRandom

import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, udf

import planner
from puffin_index import IndexDefinition, TableIndex
from ssb_bench.spark_runs.jars import SPARK_RELEASE
from tests.conftest import is_nightly
from tests.shell import PROGRAM
from tests.spark.agreement import ENABLED, reports_since, row_groups_of, settings

pytestmark = pytest.mark.spark

# The fewest parts that have both modes of writing, a service that watches, adaptive plans, and keys to look for.
PARTS, STATEMENTS_A_TABLE = (range(40), 20) if is_nightly() else ((15, 16), 4)
DEFINITION = IndexDefinition.of(bitmap=["k", "s"], bsi=["k", "b"], bloom=["d"])
COLUMNS = "id BIGINT, k INT, b BIGINT, d DECIMAL(30,2), s STRING, day DATE"
GROUP_FILTER = "spark.sql.optimizer.runtime.rowLevelOperationGroupFilter.enabled"
MODES = ("merge-on-read", "copy-on-write")


class Writes:
    """Random statements about a table and its twin, of which the hook prunes only the first."""

    def __init__(self, spark: SparkSession, catalog: SqlCatalog, seed: int) -> None:
        random = Random(seed)
        self.spark, self.random, self.seed, self.numbers = spark, random, seed, 0
        self.mode = mode = random.choice(MODES)
        self.tables = "lake.ns.written", "lake.ns.twin"
        properties = [f"'write.{verb}.mode'='{mode}'" for verb in ("delete", "update", "merge")]
        properties += [f"'format-version'='{random.choice([2, 3])}'", row_groups_of(50)]
        partition = random.choice(["", "PARTITIONED BY (day)", "PARTITIONED BY (bucket(2, k))"])
        for table in self.tables:
            spark.sql(f"DROP TABLE IF EXISTS {table} PURGE")
            spark.sql(
                f"CREATE TABLE {table} ({COLUMNS}) USING iceberg {partition} TBLPROPERTIES ({', '.join(properties)})"
            )
        self.insert(400)
        self.index = TableIndex.create(catalog, "ns.written", DEFINITION)
        self.index.build(workers=1)

    @contextmanager
    def watched(self, catalog: SqlCatalog) -> Iterator[None]:
        """A service indexes the table meanwhile, and is killed at the end whatever it does."""
        options = [part for own in catalog.properties.items() for part in ("--catalog-property", "=".join(own))]
        command = [*PROGRAM, "build", "lake.ns.written", *options, "--engine", "local", "--workers", "1"]
        output = subprocess.DEVNULL
        with subprocess.Popen([*command, "--watch", "--interval", "0.2"], stdout=output, stderr=output) as service:
            try:
                yield
                assert service.poll() is None
            finally:
                service.kill()

    def insert(self, rows: int) -> None:
        first, self.numbers, factor = self.numbers, self.numbers + rows, self.random.choice([1, 7919, 0])
        # Bursts of keys, keys all over the table, and one key.
        values = (
            f"SELECT id, CAST(IF(id % 13 = 0, NULL, (id * {factor} + {factor % 5}) % 500) AS INT) AS k, "
            "id * 3 % 1009 AS b, CAST(id % 90 AS DECIMAL(30,2)) AS d, CONCAT('s', id % 40) AS s, "
            "DATE'2024-01-01' + CAST(id % 3 AS INT) AS day "
            f"FROM range({first}, {self.numbers}, 1, {self.random.choice([1, 2])})"
        )
        for table in self.tables:
            self.spark.sql(f"INSERT INTO {table} {values}")

    def source(self) -> str:
        """A relation of few rows with k, b, d and s, some of them in no row of the table or NULL."""
        random = self.random
        keys = [random.choice([None, *range(500), -7, 900]) for _ in range(random.choice([0, 1, 3, 8]))]
        rows = [(key, key and key * 3 % 1009, f"s{(key or 0) % 40}") for key in dict.fromkeys(keys)]
        frame = self.spark.createDataFrame(rows, "k INT, b BIGINT, s STRING").selectExpr(
            "*", "CAST(k % 90 AS DECIMAL(30,2)) d"
        )
        kind = random.choice(["python", "table", "view", "duplicates"])
        if kind == "table":
            frame.writeTo("lake.ns.source").using("iceberg").createOrReplace()
            return "lake.ns.source"
        (frame.union(frame) if kind == "duplicates" else frame).createOrReplaceTempView("source")
        return "(SELECT * FROM source LIMIT 5)" if kind == "view" else "source"

    def statement(self) -> str:
        random, source = self.random, self.source()
        on = random.choice(
            [
                "t.k = s.k",
                "t.k = CAST(s.k AS BIGINT)",
                "t.k = CAST(s.k AS DECIMAL(20,2)) + IF(s.k % 2 = 0, 0, 0.5)",
                "t.b = s.b AND t.k = s.k",
                "t.d = s.d AND t.id < 90",
                "t.s = s.s AND t.k > s.k",
            ]
        )
        also = random.choice(["", " AND t.id % 2 = 0", " AND t.day = DATE'2024-01-02'"])
        n = random.randrange(1000)
        if random.random() < 0.5:
            clauses = [
                random.choice(["", "WHEN MATCHED AND t.id % 3 = 0 THEN DELETE"]),
                random.choice(
                    [
                        "",
                        f"WHEN MATCHED THEN UPDATE SET s = 'm{n}'",
                        "WHEN MATCHED THEN UPDATE SET t.b = s.b + 1, t.k = s.k",
                    ]
                ),
                random.choice(
                    ["", "WHEN NOT MATCHED THEN INSERT (id, k, b, d, s, day) VALUES (-1, s.k, s.b, s.d, s.s, NULL)"]
                ),
                random.choice(["", "", "WHEN NOT MATCHED BY SOURCE AND t.id % 97 = 0 THEN DELETE"]),
            ]
            text = " ".join(filter(None, clauses)) or "WHEN MATCHED THEN DELETE"
            return f"MERGE INTO {{t}} t USING {source} s ON {on}{also} {text}"
        where = (
            random.choice(
                [
                    f"t.k IN (SELECT k FROM {source})",
                    f"t.k NOT IN (SELECT k FROM {source} WHERE k IS NOT NULL) AND t.id % 50 = 1",
                    f"EXISTS (SELECT 1 FROM {source} s WHERE {on})",
                    f"t.id % 40 = 3 AND NOT EXISTS (SELECT 1 FROM {source} s WHERE {on})",
                    f"t.k = (SELECT max(k) FROM {source})",
                    f"t.b <= (SELECT min(b) FROM {source})",
                    f"t.k IN (SELECT k FROM {source}) OR t.k = {n % 500}",
                    f"t.day = DATE'2024-01-0{1 + n % 3}' AND t.k IN (SELECT k + 1 FROM {source})",
                ]
            )
            + also
        )
        verb = random.choice(["DELETE FROM {t} t", f"UPDATE {{t}} t SET s = 'u{n}', b = t.b + 1"])
        return f"{verb} WHERE {where}"

    def run(self, sql: str) -> None:
        outcomes = []
        # Both scans of a copy-on-write UPDATE with a subquery filter their files at once, which Iceberg 1.12 does not
        # guard: now and then it writes rows twice, with and without the hook (apache/iceberg#18004).
        is_racing = self.mode == "copy-on-write" and sql.startswith("UPDATE")
        others = {GROUP_FILTER: str(not is_racing)}
        for table, enabled in zip(self.tables, ("true", "false"), strict=True):
            with settings(self.spark, {ENABLED: enabled, **others}):
                try:
                    self.spark.sql(sql.format(t=table))
                    outcomes.append("done")
                except (Py4JJavaError, PySparkException) as error:
                    # A source with duplicates may match a row twice.
                    outcomes.append("cardinality" if "MERGE_CARDINALITY_VIOLATION" in str(error) else str(error))
        assert outcomes in (["done", "done"], ["cardinality", "cardinality"]), (self.seed, sql, outcomes)
        with settings(self.spark, {ENABLED: "false"}):
            both = self.spark.sql("SELECT 0, * FROM {} UNION ALL SELECT 1, * FROM {}".format(*self.tables)).collect()
        found, expected = (sorted(str(row[1:]) for row in both if row[0] == which) for which in (0, 1))
        assert found == expected, (self.seed, sql)


@pytest.fixture(scope="module")
def writing(enabled: SparkSession) -> Iterator[SparkSession]:
    """The session with the hook; a busy machine may take its time."""
    with settings(enabled, {"spark.puffin-index.side-milliseconds": "60000"}):
        yield enabled


@pytest.mark.parametrize("part", PARTS)
def test_tables_become_the_same(writing: SparkSession, catalog: SqlCatalog, part: int) -> None:
    seed = SystemRandom().randrange(2**32) if is_nightly() else part
    writes, before = Writes(writing, catalog, seed), planner.reports(writing)
    is_watched, is_adaptive = part % 5 == 1, str(part % 2 == 0)
    for first in range(0, STATEMENTS_A_TABLE, STATEMENTS_A_TABLE // 2):
        with (
            writes.watched(catalog) if is_watched else nullcontext(),
            settings(writing, {"spark.sql.adaptive.enabled": is_adaptive}),
        ):
            for number in range(first, first + STATEMENTS_A_TABLE // 2):
                if number % 4 == 1:
                    writes.insert(1 if number % 8 == 1 else 60)
                if number % 4 == 3 and not is_watched:
                    writes.index.build(workers=1)
                writes.run(writes.statement())
    found = reports_since(writing, before)
    # The statements of part 16 have no key to look for where the index is; those of a random seed need not have any.
    assert part == 16 or is_nightly() or any(report.dropped for report in found)


KEYS = "SELECT CAST(col1 AS INT) AS k, col2 AS s FROM VALUES (5, 'a'), (77, 'b'), (30000, 'c')"
PRUNED = {
    "MERGE INTO {t} t USING {s} s ON t.k = s.k WHEN MATCHED THEN UPDATE SET s = s.s WHEN NOT MATCHED THEN INSERT "
    "(id, k) VALUES (-1, s.k)": 2,
    "MERGE INTO {t} t USING {s} s ON t.k = s.k WHEN MATCHED THEN DELETE": 2,
    "MERGE INTO {t} t USING {s} s ON t.k = CAST(s.k AS BIGINT) WHEN MATCHED THEN DELETE": 2,
    "MERGE INTO {t} t USING {s} s ON t.k = CAST(s.k AS DECIMAL(20,2)) WHEN MATCHED THEN UPDATE SET s = s.s": 2,
    "MERGE INTO {t} t USING {s} s ON t.k = s.k WHEN NOT MATCHED BY SOURCE AND t.id = 3 THEN DELETE": None,
    "UPDATE {t} SET s = 'x' WHERE k IN (SELECT k FROM {s})": 2,
    "UPDATE {t} SET s = 'x' WHERE k NOT IN (SELECT k FROM {s}) AND id % 900 = 1": None,
    "DELETE FROM {t} WHERE k IN (SELECT k + 1 FROM {s})": 2,
    "DELETE FROM {t} t WHERE EXISTS (SELECT 1 FROM {s} s WHERE s.k = t.k AND t.id > 0)": 2,
    "DELETE FROM {t} WHERE k = (SELECT max(k) + 4 FROM {s} WHERE k < 10)": 1,
}
"""Statements, and how many of 20 row groups hold a key that they look for; None where no key can take any away."""


def _create(spark: SparkSession, catalog: SqlCatalog, name: str, mode: str) -> None:
    modes = ", ".join(f"'write.{verb}.mode'='{mode}'" for verb in ("delete", "update", "merge"))
    spark.sql(f"DROP TABLE IF EXISTS lake.ns.{name} PURGE")
    spark.sql(
        f"CREATE TABLE lake.ns.{name} (id BIGINT, k INT, s STRING) USING iceberg "
        f"TBLPROPERTIES ({row_groups_of(100)}, {modes})"
    )
    rows = "id", "CAST((id * 7919) % 2000 AS INT) AS k", "CONCAT('s', id) AS s"
    spark.range(0, 2000, 1, 4).selectExpr(*rows).writeTo(f"lake.ns.{name}").append()
    TableIndex.create(catalog, f"ns.{name}", IndexDefinition.of(bsi=["k"])).build(workers=1)


@pytest.mark.parametrize(
    ("verb", "mode", "is_listed"),
    [
        (verb, mode, is_listed)
        for verb, mode, is_listed in product(("MERGE", "UPDATE", "DELETE"), MODES, (True, False))
        # Each verb with both modes and with both kinds of source.
        if is_nightly() or is_listed == (mode == "merge-on-read")
    ],
)
def test_scans_read_rows_with_keys(
    writing: SparkSession, catalog: SqlCatalog, verb: str, mode: str, is_listed: bool
) -> None:
    source = writing.sql(KEYS)
    if is_listed:
        source = writing.createDataFrame([tuple(row) for row in source.collect()], "k INT, s STRING")
        source.createOrReplaceTempView("source")
    else:
        writing.catalog.dropTempView("source")
        source.writeTo("lake.ns.source").using("iceberg").createOrReplace()
    _create(writing, catalog, "written", mode)
    ((first,),) = writing.sql("SELECT snapshot_id FROM lake.ns.written.refs").collect()
    for statement, kept in ((own, kept) for own, kept in PRUNED.items() if own.startswith(verb)):
        writing.sql(f"CALL lake.system.set_current_snapshot('ns.written', {first})")
        before = planner.reports(writing)
        text = statement.format(t="lake.ns.written", s="source" if is_listed else "lake.ns.source")
        writing.sql(text)
        new = reports_since(writing, before)
        found = [report for report in new if report.table == "lake.ns.written" and report.dropped]
        cannot = {"3.5": True, "4.0": "k = (SELECT" in statement}.get(SPARK_RELEASE, False)
        waits = mode == "merge-on-read" or not cannot
        assert [report.kept for report in found] == ([kept] if kept is not None and waits else []), (mode, statement)
        assert all(f"{verb.lower()}: k" in str(report.implied[0]) for report in found)
    with settings(writing, {"spark.puffin-index.merge-pruning": "false"}):
        before = planner.reports(writing)
        writing.sql(text)
        assert not any(report.dropped for report in reports_since(writing, before))


def _interfered(spark: SparkSession, catalog: SqlCatalog, place: Path, how: str) -> None:
    """Make `source`, whose first row lets another writer commit before it says its key."""
    properties = dict(catalog.properties)

    def interfere(key: int) -> int:
        from pyiceberg.catalog.sql import SqlCatalog

        if not place.exists():
            place.touch()
            table = SqlCatalog("lake", **properties).load_table("ns.written")
            if how == "appends":
                table.append(table.scan(row_filter="k == 9", limit=1).to_arrow())
            else:
                table.delete("k == 5" if how == "deletes a key" else "k == 600")
        return key

    key = udf(interfere, "int", useArrow=False)
    spark.createDataFrame([(5, "a")], "k INT, s STRING").select(key(col("k")).alias("k"), "s").createOrReplaceTempView(
        "source"
    )


@pytest.mark.one_of(3)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("level", ["serializable", "snapshot"])
@pytest.mark.parametrize("how", ["appends", "deletes a key", "deletes another row"])
def test_writers_lose_as_ever(
    writing: SparkSession, catalog: SqlCatalog, tmp_path: Path, mode: str, level: str, how: str
) -> None:
    outcomes = []
    for enabled in ("true", "false"):
        _create(writing, catalog, "written", mode)
        writing.sql(f"ALTER TABLE lake.ns.written SET TBLPROPERTIES ('write.merge.isolation-level'='{level}')")
        _interfered(writing, catalog, tmp_path / enabled, how)
        with settings(writing, {ENABLED: enabled}):
            try:
                writing.sql(
                    "MERGE INTO lake.ns.written t USING source s ON t.k = s.k WHEN MATCHED THEN UPDATE SET s = 'm'"
                )
                is_lost = False
            except (Py4JJavaError, PySparkException):
                is_lost = True
        with settings(writing, {ENABLED: "false"}):
            rows = sorted(map(str, writing.table("lake.ns.written").collect()))
        assert (tmp_path / enabled).exists()
        outcomes.append((is_lost, rows))

    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("mode", MODES)
def test_branches_and_evolved_schemas_are_written_alike(writing: SparkSession, catalog: SqlCatalog, mode: str) -> None:
    states = []
    for enabled in ("true", "false"):
        _create(writing, catalog, "written", mode)
        writing.sql("ALTER TABLE lake.ns.written CREATE BRANCH side")
        for change in ("ALTER COLUMN k TYPE BIGINT", "RENAME COLUMN s TO text", "ADD COLUMN n INT"):
            writing.sql(f"ALTER TABLE lake.ns.written {change}")
        writing.createDataFrame([(5, "a", 1), (77, "b", 2)], "k BIGINT, text STRING, n INT").createOrReplaceTempView(
            "source"
        )
        before = planner.reports(writing)
        with settings(writing, {ENABLED: enabled}):
            for table in ("lake.ns.written.branch_side", "lake.ns.written"):
                writing.sql(
                    f"MERGE INTO {table} t USING source s ON t.k = s.k "
                    "WHEN MATCHED THEN UPDATE SET t.text = s.text, t.n = s.n "
                    "WHEN NOT MATCHED THEN INSERT (id, k, text, n) VALUES (-1, s.k, s.text, s.n)"
                )
            writing.sql("DELETE FROM lake.ns.written.branch_side WHERE k IN (SELECT k + 1 FROM source)")
            found = reports_since(writing, before)
        if enabled == "true" and (mode == "merge-on-read" or SPARK_RELEASE != "3.5"):
            kept = [report.kept for report in found if report.dropped]
            # What the MERGE wrote to the branch has no index.
            assert kept[:2] == [2, 2]
            assert kept[2] < 20
        with settings(writing, {ENABLED: "false"}):
            states.append(
                [sorted(map(str, writing.table(f"lake.ns.written{ref}").collect())) for ref in ("", ".branch_side")]
            )
    assert states[0] == states[1]
    assert states[0][0] != states[0][1]


@pytest.mark.skipif(SPARK_RELEASE in ("3.5", "4.0"), reason="Spark 4.1 brings MERGE WITH SCHEMA EVOLUTION")
@pytest.mark.parametrize("mode", MODES)
def test_merges_that_add_columns_are_as_without_the_hook(writing: SparkSession, catalog: SqlCatalog, mode: str) -> None:
    rows = [(-1, 5, "a", 1), (-2, 9999, "b", 2)]
    writing.createDataFrame(rows, "id BIGINT, k INT, s STRING, n INT").createOrReplaceTempView("source")
    states = []
    for enabled in ("true", "false"):
        _create(writing, catalog, "written", mode)
        before = planner.reports(writing)
        with settings(writing, {ENABLED: enabled}):
            writing.sql(
                "MERGE WITH SCHEMA EVOLUTION INTO lake.ns.written t USING source s ON t.k = s.k "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
        kept = [report.kept for report in reports_since(writing, before) if report.dropped]
        assert kept == ([1] if enabled == "true" else [])
        with settings(writing, {ENABLED: "false"}):
            states.append(sorted(map(str, writing.table("lake.ns.written").collect())))
    assert states[0] == states[1]
    assert "Row(id=-1, k=5, s='a', n=1)" in states[0]
