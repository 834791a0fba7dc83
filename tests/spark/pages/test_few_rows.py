"""Rows that are read by pages equal the same rows as Iceberg's readers give them, whatever tables and rows are."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from random import Random
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyroaring import BitMap
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from planner.aggregates.answer import Answer
from planner.prune.few_rows import FewRows
from planner.prune.verdicts import Pruned
from planner.query import QueryAnswer, QueryRequest, _answer_of as answer_of
from puffin_index import BuildScope, IndexDefinition
from puffin_index.kinds.base import RowSet
from ssb_bench.spark_runs.jars import SPARK_RELEASE
from ssb_bench.spark_runs.measure import hooked
from ssb_bench.stores.server import BUCKET, StoreServer, rounds_of
from ssb_bench.studies.store import session_of
from tests.conftest import amount, built, some
from tests.parquet_footer_edit import Struct, columns, edit_footer, metadata, row_groups
from tests.processes import wait_for
from tests.spark.agreement import ENABLED, rows_of, settings, with_and_without
from tests.spark.answers.test_equality_deletes import Delete, deleter
from tests.spark.hook.test_cancel import Statement
from tests.spark.java_source import log_of_java
from tests.stores import far_away

pytestmark = pytest.mark.spark

GAP_ROWS = 65
VECTORIZED = "spark.sql.iceberg.vectorization.enabled"
COLUMNS = {
    "flag": "id % 3 = 0",
    "small": "CAST(pmod(hash(id), 500) AS INT)",
    "large": "hash(id, 1) * 4294967296L + id",
    "single": "CAST(id / 3 AS FLOAT)",
    "double": "IF(id % 50 = 0, double('NaN'), -id / 7)",
    "money": "CAST(pmod(hash(id, 2), 10000) / 100 AS DECIMAL(9, 2))",
    "middle": "CAST(id * 104729 AS DECIMAL(18, 4))",
    "wide": "CAST(id AS DECIMAL(38, 5)) * 1000000000000",
    "day": "date_add(DATE'1969-01-01', CAST(id % 900 AS INT))",
    "local": "CAST(TIMESTAMP_MICROS(id * 1000003) AS TIMESTAMP_NTZ)",
    "moment": "TIMESTAMP_MICROS(id * 3607000001)",
    "word": "IF(id % 100 = 3, '', concat('ÄÖ', pmod(hash(id, 3), 50), repeat('x', CAST(id % 30 AS INT))))",
    "bin": "CAST(concat('b', id) AS BINARY)",
    "inner": "named_struct('leaf', id % 90, 'deep', named_struct('word', concat('deep-', id), 'd', id / 2))",
    "items": "transform(sequence(0, CAST(id % 5 AS INT)), i -> IF(i = 2, NULL, i * id))",
    "tags": "map(concat('k', id % 3), id, 'z', NULL)",
    "boxes": "array_repeat(named_struct('a', id, 'b', array(concat('e', id), NULL)), CAST(id % 4 AS INT))",
}
PARTITIONS = ("bucket(3, id)", "p", "truncate(500, id)")
NESTED = {
    "inner": ("inner.leaf", "inner.deep", "inner.deep.word"),
    "boxes": ("boxes.a", "boxes.b"),
    "items": ("items[0]",),
}


Said: TypeAlias = dict[tuple[str, int], tuple[int, BitMap]]


class Table:
    """A table of random columns, writers, deletes and changes, and rows of its row groups."""

    def __init__(self, spark: SparkSession, catalog: SqlCatalog, name: str, seed: int, delete: Delete | None) -> None:
        self.spark, self.catalog, self.random, self.delete = spark, catalog, Random(seed), delete
        self.name, self.rows, self.is_vectorized = name, 0, True
        random = self.random
        self.version = random.choice((2, 2, 3) if SPARK_RELEASE == "4.1" else (2,))
        self.columns = dict(random.sample(sorted(COLUMNS.items()), random.randint(1, 9)))
        partitions = random.choice(
            ("", "", "PARTITIONED BY (bucket(3, id))", "PARTITIONED BY (p)", "PARTITIONED BY (truncate(500, id))")
        )
        properties = {
            "format-version": self.version,
            "write.parquet.page-row-limit": random.choice((1, 7, 50, 300, 20_000)),
            "write.parquet.page-size-bytes": random.choice((200, 4_000, 1_048_576)),
            "write.parquet.dict-size-bytes": random.choice((100, 2_097_152)),
            "write.parquet.compression-codec": random.choice(("zstd", "gzip", "snappy", "uncompressed")),
            "write.parquet.row-group-size-bytes": random.choice((1, 134_217_728)),
            "write.parquet.row-group-check-min-record-count": random.choice((100, 400)),
            "write.parquet.row-group-check-max-record-count": 500,
            "write.delete.mode": "merge-on-read",
            "write.update.mode": "merge-on-read",
            "write.delete.granularity": random.choice(("file", "partition")),
            "write.distribution-mode": "none",
        }
        listed = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
        spark.sql(f"DROP TABLE IF EXISTS lake.{name} PURGE")
        spark.sql(f"CREATE TABLE lake.{name} USING iceberg {partitions} TBLPROPERTIES ({listed}) AS {self._rows(0)}")
        later = (self._delete, self._evolve, self._equality)
        for change in random.choices((self._append, self._import, *later), k=random.randint(0, 4)):
            change()
        self.index = built(catalog, name, bitmap=["id"])
        for change in random.choices(later, k=random.randint(0, 2)):
            change()

    def _rows(self, first: int) -> str:
        count = self.random.choice((1, 60, 1_500))
        self.rows = first + count
        nulled = self.random.randint(2, 9)
        columns = [
            f"IF(id % {nulled} = {at % nulled}, NULL, {sql}) AS {name}"
            for at, (name, sql) in enumerate(self.columns.items())
        ]
        return f"SELECT id, CAST(id % 3 AS INT) AS p, {', '.join(columns)} FROM range({first}, {first + count}, 1, 1)"

    def _append(self) -> None:
        fields = self.spark.table(f"lake.{self.name}").columns
        names = ["id", "p", *self.columns]
        if all(name in fields for name in names):
            self.spark.sql(f"INSERT INTO lake.{self.name} ({', '.join(names)}) {self._rows(self.rows)}")

    def _import(self) -> None:
        """Add a file of PyArrow's, which has no field IDs."""
        names, random = ["id", "p", *self.columns], self.random
        table = self.catalog.load_table(self.name)
        is_as_before = table.spec().is_unpartitioned() and [field.name for field in table.schema().fields] == names
        # Spark 3.5 has no `toArrow`, and others cannot hand over NULL structs with parts that are never NULL. PyIceberg
        # writes no manifests of version 3.
        if not is_as_before or "inner" in names or self.version == 3 or SPARK_RELEASE == "3.5":
            return
        rows = self.spark.sql(self._rows(self.rows)).toArrow()
        path = f"{table.location()}/imported-{random.randrange(10**9)}.parquet"
        rows = rows.cast(schema_to_pyarrow(table.schema(), include_field_ids=False))
        encodings = {field.name: encoding for field in rows.schema if (encoding := self._encoding(field.type))}
        is_encoded, version = random.random() < 0.5, random.choice(("1.0", "2.0"))
        # Iceberg's vectorized readers know none of these encodings, nor those of flags in later pages.
        self.is_vectorized &= not is_encoded and version == "1.0"
        pq.write_table(
            rows,
            path.removeprefix("file://").removeprefix("file:"),
            row_group_size=random.choice((100, 1_000, 10_000)),
            data_page_size=random.choice((100, 2_000, 100_000)),
            write_batch_size=random.choice((10, 1_000)),
            dictionary_pagesize_limit=random.choice((100, 100_000)),
            use_dictionary=not is_encoded and random.choice((True, False)),
            column_encoding=encodings if is_encoded else None,
            compression=random.choice(("zstd", "snappy", "gzip", "lz4", "none")),
            data_page_version=version,
            write_page_index=True,
        )
        table.add_files([path], check_duplicate_files=False)
        self.spark.sql(f"REFRESH TABLE lake.{self.name}")

    def _encoding(self, data_type: pa.DataType) -> str | None:
        """An encoding of flat values that is neither plain nor a dictionary, as Trino's writers choose them."""
        if pa.types.is_integer(data_type) or pa.types.is_temporal(data_type):
            return "DELTA_BINARY_PACKED"
        if pa.types.is_floating(data_type):
            return "BYTE_STREAM_SPLIT"
        is_bytes = pa.types.is_large_string(data_type) or pa.types.is_large_binary(data_type)
        return self.random.choice(("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY")) if is_bytes else None

    def _delete(self) -> None:
        divisor = self.random.choice((2, 11, 97))
        self.spark.sql(f"DELETE FROM lake.{self.name} WHERE id % {divisor} = {self.random.randrange(divisor)}")

    def _equality(self) -> None:
        if self.delete is not None and self.version == 2 and not self.spark.table(f"lake.{self.name}").isEmpty():
            partitions = self.spark.sql(f"SHOW CREATE TABLE lake.{self.name}").first()[0]
            if "PARTITIONED BY" not in partitions:
                keys = self.random.sample(range(self.rows + 1), min(5, self.rows))
                self.delete(f"lake.{self.name}", ["id"], [[key] for key in keys])

    def _evolve(self) -> None:
        table = f"lake.{self.name}"
        match self.random.randrange(5):
            case 0:
                self.spark.sql(f"ALTER TABLE {table} ADD COLUMN added_{self.random.randrange(10**9)} STRING")
            case 1 if "small" in self.columns:
                self.spark.sql(f"ALTER TABLE {table} ALTER COLUMN small TYPE BIGINT")
                del self.columns["small"]
            case 2 if "single" in self.columns:
                self.spark.sql(f"ALTER TABLE {table} ALTER COLUMN single TYPE DOUBLE")
                del self.columns["single"]
            case 3 if len(self.columns) > 1:
                name = self.random.choice(sorted(self.columns))
                self.spark.sql(f"ALTER TABLE {table} RENAME COLUMN {name} TO renamed_{self.random.randrange(10**9)}")
                del self.columns[name]
            case 4 if len(self.columns) > 1:
                name = self.random.choice(sorted(self.columns))
                self.spark.sql(f"ALTER TABLE {table} DROP COLUMN {name}")
                del self.columns[name]
            case _:
                pass

    def projection(self) -> list[str]:
        fields = self.spark.table(f"lake.{self.name}").columns
        chosen = self.random.sample(fields, self.random.randint(0, len(fields)))
        chosen = [
            self.random.choice(NESTED.get(name, (name,))) if self.random.random() < 0.5 else name for name in chosen
        ]
        hidden = [
            "_spec_id",
            "_partition",
            *(("_row_id", "_last_updated_sequence_number") if self.version == 3 else ()),
        ]
        return chosen + self.random.sample(hidden, self.random.choice((0, 0, 1)))

    def wanted(self, count: int) -> BitMap:
        """Rows of a row group: one, some, in bursts, or all."""
        match self.random.randrange(5):
            case 0:
                return BitMap([self.random.randrange(count)])
            case 1:
                return BitMap(self.random.sample(range(count), self.random.randint(1, count)))
            case 2:
                first = self.random.randrange(count)
                return BitMap(range(first, self.random.randint(first + 1, count)))
            case 3:
                return BitMap(range(count))
            case _:
                starts = self.random.sample(range(count), min(3, count))
                return BitMap(row for start in starts for row in range(start, min(start + 12, count)))


@contextmanager
def reading_only(choose: Callable[[int], BitMap | None]) -> Iterator[Said]:
    """Let the planner say that only chosen rows of each row group can match; None leaves a row group as it is.

    Gives what was said: by file and first row of a row group, its number of rows and the chosen ones.
    """
    said: Said = {}

    def with_chosen_rows(request: QueryRequest, pruned: Pruned, aggregates: Answer | None = None) -> QueryAnswer:
        answer, given = answer_of(request, pruned, aggregates), dict[int, RowSet]()
        scan = answer.scan
        for at in np.flatnonzero(answer.plan.kept_mask & scan.is_indexed).tolist():
            rows = choose(int(scan.row_counts[at]))
            if rows is not None:
                given[int(scan.numbers[at])] = RowSet(rows, exact=False)
                place = scan.paths[scan.file_of[at]], int(scan.first_rows[at])
                said[place] = (int(scan.row_counts[at]), rows)
        return replace(answer, few=FewRows(given))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planner.query._answer_of", with_chosen_rows)
        yield said


def check(table: Table) -> None:
    """Compare rows that are read by pages with those of Iceberg, for some projections."""
    spark, random = table.spark, table.random

    def is_wanted(row: dict[str, object], gap: int = 0) -> bool:
        path, position = row["__file"], row["__pos"]
        for (file, first), (count, rows) in said.items():
            if file == path and first <= position < first + count:
                at = position - first
                before, rank = rows.rank(at), len(rows)
                is_between = 0 < before < rank and rows[before] - rows[before - 1] <= gap
                return at in rows or is_between
        return True

    with reading_only(lambda count: table.wanted(count) if random.random() < 0.8 else None) as said:
        for _ in range(4):
            said.clear()
            vectorized = random.choice(("true", "false")) if table.is_vectorized else "false"
            with_place = random.random() < 0.5
            columns = [f"{sql} AS c{at}" for at, sql in enumerate(table.projection())]
            place = ["_file AS __file", "_pos AS __pos"]
            values = [f"c{at}" for at in range(len(columns))]
            with settings(spark, {VECTORIZED: vectorized}):
                text = f"FROM lake.{table.name} WHERE id IS NOT NULL OR p IS NULL"
                with settings(spark, {ENABLED: "false"}):
                    every = spark.sql(f"SELECT {', '.join(columns + place)} {text}").collect()
                with settings(spark, {ENABLED: "true"}):
                    shown = columns + (place if with_place else []) or ["1 AS one"]
                    found = spark.sql(f"SELECT {', '.join(shown)} {text}").collect()
            names = values + (["__file", "__pos"] if with_place else [])
            given = Counter(str([row[name] for name in names]) for row in found)
            # Where positions matter, rows of short gaps come along.
            least, most = (
                Counter(str([row[name] for name in names]) for row in every if is_wanted(row.asDict(), gap))
                for gap in (0, GAP_ROWS)
            )
            assert least <= given <= most, (shown, vectorized)


@pytest.fixture(scope="module")
def delete(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Delete | None:
    """Commits an equality delete file, where Iceberg's release has such a writer."""
    return deleter(spark, tmp_path_factory.mktemp("java")) if SPARK_RELEASE == "4.1" else None


@pytest.mark.parametrize("seed", some(list(range(300)), 4))
def test_rows_by_pages_equal_rows_of_iceberg(
    enabled: SparkSession, catalog: SqlCatalog, delete: Delete | None, seed: int
) -> None:
    check(Table(enabled, catalog, f"pages.random_{seed}", seed, delete))


LISTS = "md5(CAST(id AS STRING)) AS text, transform(sequence(0, id % 4), i -> id + i) AS list FROM range(0, 3000, 1, 1)"
MIXED = "md5(CAST(IF(id < 20000, id % 4500, id) AS STRING)) AS text FROM range(0, 40000, 1, 1)"
"""Four pages of values that come again, in a dictionary of 80 kB, and pages of values that are too many for one."""


class Flipped:
    """A table of one data file whose bytes are changed, one at a time."""

    WANTED = (5, 777, 2400)

    def __init__(
        self, spark: SparkSession, catalog: SqlCatalog, name: str, columns: str = LISTS, page_rows: int = 100
    ) -> None:
        spark.sql(
            f"CREATE TABLE lake.{name} USING iceberg TBLPROPERTIES ('write.parquet.page-row-limit'='{page_rows}', "
            f"'write.parquet.dict-size-bytes'='200000') AS SELECT id, {columns}"
        )
        built(catalog, name, bitmap=["id"])
        [(file,)] = spark.sql(f"SELECT file_path FROM lake.{name}.files").collect()
        self.path = Path(file.removeprefix("file:"))
        # Hadoop would refuse a changed file by its checksums.
        self.path.with_name(f".{self.path.name}.crc").unlink()
        self.content, self.random = self.path.read_bytes(), Random(7)
        self.query = f"SELECT * FROM lake.{name} WHERE id IN {self.WANTED}"

    def flip(self, place: int) -> None:
        """Change a byte, of the file as it was written."""
        damaged = bytearray(self.content)
        damaged[place] ^= self.random.randint(1, 255)
        self.path.write_bytes(damaged)

    def chunks(self, start: Callable[[Struct], int], length: Callable[[Struct], int]) -> list[range]:
        """Parts of the file, by what the footer says of each column."""
        found: list[range] = []

        def find(footer: Struct) -> None:
            for column in columns(row_groups(footer)[0]):
                found.append(range(start(column), start(column) + length(column)))

        edit_footer(self.path, find)
        return found


def test_flipped_bytes_of_an_offset_index_never_give_other_rows(enabled: SparkSession, catalog: SqlCatalog) -> None:
    flipped = Flipped(enabled, catalog, "pages.flipped")
    expected = rows_of(enabled, flipped.query, enabled=False)
    places = [*chain(*flipped.chunks(lambda column: column[4][1], lambda column: column[5][1]))]
    with log_of_java(enabled) as log, reading_only(lambda _: BitMap(Flipped.WANTED)):
        for place in flipped.random.sample(places, amount(20, 500)):
            flipped.flip(place)
            assert rows_of(enabled, flipped.query, enabled=True) == expected, place
        # Spark tells it a little after the query.
        told = "pages not picked on an executor"
        assert wait_for(lambda: any(told in line and flipped.path.name in line for line in log()), 10)


def test_flipped_bytes_of_pages_give_an_error_or_what_iceberg_reads(enabled: SparkSession, catalog: SqlCatalog) -> None:
    flipped = Flipped(enabled, catalog, "pages.damaged")
    expected = rows_of(enabled, flipped.query, enabled=False)
    outcomes = Counter[str]()
    # Of other keys than the indexed ones, other rows would be right.
    _, text, items = flipped.chunks(lambda column: metadata(column)[9][1], lambda column: metadata(column)[7][1])
    with reading_only(lambda _: BitMap(Flipped.WANTED)):
        for place in flipped.random.sample([*text, *items], amount(20, 500)):
            flipped.flip(place)
            try:
                found = rows_of(enabled, flipped.query, enabled=True)
            except (PySparkException, Py4JError):
                outcomes["error"] += 1
                continue
            outcomes["rows"] += 1
            assert found == expected or found == rows_of(enabled, flipped.query, enabled=False), place
    assert outcomes["rows"] > 0


def test_a_dictionary_is_read_only_where_a_wanted_page_needs_it(enabled: SparkSession, catalog: SqlCatalog) -> None:
    flipped = Flipped(enabled, catalog, "pages.mixed", MIXED, 5_000)

    def start(column: Struct) -> int:
        return int(metadata(column).get(11, metadata(column)[9])[1])

    _, dictionary = flipped.chunks(start, lambda column: metadata(column)[9][1] - start(column))
    assert len(dictionary) > 64 << 10, "smaller ones are read along"
    for wanted in ([10], [39_000], [10, 19_999, 20_000, 39_000], [17, 17_017]):
        query = f"SELECT * FROM lake.pages.mixed WHERE id IN ({', '.join(map(str, wanted))})"
        expected = rows_of(enabled, query, enabled=False)
        assert len(expected) == len(wanted)
        with reading_only(lambda _, wanted=wanted: BitMap(wanted)):
            assert rows_of(enabled, query, enabled=True) == expected
            if min(wanted) == 39_000:
                damaged = bytearray(flipped.content)
                damaged[dictionary.start : dictionary.stop] = b"x" * len(dictionary)
                flipped.path.write_bytes(damaged)
                assert rows_of(enabled, query, enabled=True) == expected
                flipped.path.write_bytes(flipped.content)


@pytest.mark.usefixtures("answering")
def test_rows_that_aggregates_leave_to_spark_are_read_by_pages(enabled: SparkSession, catalog: SqlCatalog) -> None:
    rows = "SELECT id, pmod(hash(id), 1000) AS v FROM range({}, {}, 1, 1)"
    enabled.sql(f"CREATE TABLE lake.pages.summed USING iceberg AS {rows.format(0, 60_000)}")
    enabled.sql(f"INSERT INTO lake.pages.summed {rows.format(60_000, 120_000)}")
    index = built(catalog, "pages.summed", bitmap=["id"])
    index.add_kinds(IndexDefinition.of(bsi=["v"]))
    index.build(workers=1, scope=BuildScope(max_files=1))

    wanted = "id IN (5, 30000, 59999, 90000, 90002)"
    plan, measured = with_and_without(enabled, f"SELECT count(v), sum(v), max(v) FROM lake.pages.summed WHERE {wanted}")
    assert (plan.kept, plan.answered != "", measured.rows_read) == (1, True, 2)


def test_rows_that_only_the_keys_of_a_join_want_are_read_by_pages(enabled: SparkSession, catalog: SqlCatalog) -> None:
    enabled.sql("CREATE TABLE lake.pages.joined USING iceberg AS SELECT id, id % 7 AS v FROM range(0, 60000, 1, 1)")
    built(catalog, "pages.joined", bitmap=["id"])
    enabled.createDataFrame([(7,), (50_000,)], "k LONG").createOrReplaceTempView("few_keys")
    query = "SELECT t.* FROM lake.pages.joined t JOIN few_keys ON t.id = k"
    wanted = BitMap([7, 50_000])

    def with_keys(request: QueryRequest, pruned: Pruned, aggregates: Answer | None = None) -> QueryAnswer:
        answer = answer_of(request, pruned, aggregates)
        rows = {number: RowSet(wanted, exact=True) for number in answer.scan.numbers.tolist()}
        # Before the query runs, all rows are wanted.
        return replace(answer, few=FewRows(rows)) if " in 2 keys" in request.where else answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planner.query._answer_of", with_keys)
        patch.setattr("planner.spark.requests.hook_filters.key_presence", lambda *_: 0.0)
        _, measured = with_and_without(enabled, query)
    assert measured.rows_read == len(wanted)


@pytest.mark.nightly
def test_a_cancel_while_pages_are_read_ends_the_query(enabled: SparkSession, catalog: SqlCatalog) -> None:
    columns = LISTS.partition(" FROM ")[0]
    enabled.sql(f"CREATE TABLE lake.pages.cancelled USING iceberg AS SELECT id, {columns} FROM range(0, 400000, 1, 8)")
    built(catalog, "pages.cancelled", bitmap=["id"])
    query = f"SELECT * FROM lake.pages.cancelled WHERE id IN ({', '.join(map(str, range(7, 400_000, 50_000)))})"
    expected, ends = rows_of(enabled, query, enabled=False), Counter[str]()
    with reading_only(lambda _: BitMap([7])) as said:
        for number in range(20):
            statement = Statement(enabled, query)
            time.sleep(number / 50)
            enabled.sparkContext.cancelJobGroup(statement.name)
            error = statement.wait()
            assert not error or "cancelled" in error
            ends["cancelled" if error else "answered"] += 1
            assert rows_of(enabled, query, enabled=True) == expected
    assert len(said) == 8
    assert ends["cancelled"]


@pytest.mark.nightly
@pytest.mark.skipif(SPARK_RELEASE != "4.1", reason="only its session has Iceberg's classes for S3")
def test_a_task_asks_a_store_in_few_rounds(enabled: SparkSession, server: StoreServer, tmp_path: Path) -> None:
    database = tmp_path / "catalog.db"
    session = session_of(enabled, server, database)
    uri, warehouse = f"sqlite:///{database}", f"s3://{BUCKET}/warehouse"
    with closing(SqlCatalog("store", uri=uri, warehouse=warehouse, **server.properties)) as catalog:
        catalog.create_namespace("ns")
        columns = LISTS.partition(" FROM ")[0]
        session.sql(f"CREATE TABLE store.ns.t USING iceberg AS SELECT id, {columns} FROM range(0, 300000, 1, 1)")
        built(catalog, "ns.t", bitmap=["id"])
        query, wanted = "SELECT * FROM store.ns.t WHERE id IN (7, 150000, 299999)", BitMap([7, 150_000, 299_999])
        expected = rows_of(session, query, enabled=False)
        with hooked(session), reading_only(lambda _: wanted), log_of_java(enabled) as log:
            assert rows_of(session, query, enabled=True) == expected
            with far_away(server, []):
                assert rows_of(session, query, enabled=True) == expected
        of_data = [one for one in server.last_requests if one.key.endswith(".parquet")]
        # The footer, offset indexes, pages, and a large dictionary that some of these pages need.
        assert rounds_of([(one.began, one.ended) for one in of_data]) <= 4
        assert log() == []
