"""Rows that are read by pages equal the same rows as Iceberg's readers give them, whatever tables and rows are."""

from collections import Counter
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table as IcebergTable
from pyroaring import BitMap
from pyspark.sql import SparkSession

from ssb_bench.spark_runs.jars import SPARK_RELEASE
from tests.conftest import built, some
from tests.spark.agreement import ENABLED, settings
from tests.spark.answers.test_equality_deletes import Delete, deleter
from tests.spark.pages.chosen_rows import reading_only

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
NESTED = {
    "inner": ("inner.leaf", "inner.deep", "inner.deep.word"),
    "boxes": ("boxes.a", "boxes.b"),
    "items": ("items[0]",),
}


class Table:
    """A table of random columns, writers, deletes and changes, and rows of its row groups."""

    def __init__(self, spark: SparkSession, catalog: SqlCatalog, name: str, seed: int, delete: Delete | None) -> None:
        self.spark, self.catalog, self.random, self.delete = spark, catalog, Random(seed), delete
        self.name, self.rows, self.is_vectorized = name, 0, True
        self.read_whole = set[str]()
        random = self.random
        self.version = random.choice((2, 2, 3) if SPARK_RELEASE == "4.1" else (2,))
        self.columns = dict(random.sample(sorted(COLUMNS.items()), random.randint(1, 9)))
        first = (self._append, self._delete, self._evolve, self._equality)
        partitions = random.choice(
            ("", "", "PARTITIONED BY (bucket(3, id))", "PARTITIONED BY (p)", "PARTITIONED BY (truncate(500, id))")
        )
        if random.random() < 0.4:
            # Imported files know no partitions, and have timestamps of their own.
            self.columns |= {name: COLUMNS[name] for name in ("local", "moment")}
            first, partitions = (self._import, self._import_of_spark, *first), ""
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
        for change in random.choices(first, k=random.randint(0, 4)):
            change()
        self.index = built(catalog, name, bitmap=["id"])
        for change in random.choices((self._delete, self._evolve, self._equality), k=random.randint(0, 2)):
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
        # Earlier releases of Spark take no rows that lack a column.
        if set(names) == set(fields) or (SPARK_RELEASE == "4.1" and set(names) <= set(fields)):
            self.spark.sql(f"INSERT INTO lake.{self.name} ({', '.join(names)}) {self._rows(self.rows)}")

    def _import(self) -> None:
        """Add a file of PyArrow's, which has no field IDs."""
        table, random = self.catalog.load_table(self.name), self.random
        # Spark 3.5 has no `toArrow`, and others cannot hand over NULL structs with parts that are never NULL. PyIceberg
        # writes no manifests of version 3.
        can_import = "inner" not in self.columns and self.version < 3 and SPARK_RELEASE != "3.5"
        if not (can_import and self._is_as_before(table)):
            return
        rows = self.spark.sql(self._rows(self.rows)).toArrow()
        name, has_pages = f"imported-{random.randrange(10**9)}.parquet", random.random() < 0.9
        self.read_whole |= set() if has_pages else {name}
        path = f"{table.location()}/{name}"
        rows = rows.cast(schema_to_pyarrow(table.schema(), include_field_ids=False))
        is_int96, is_encoded, version = random.random() < 0.3, random.random() < 0.5, random.choice(("1.0", "2.0"))
        types = {
            field.name: field.type for field in rows.schema if not (is_int96 and pa.types.is_timestamp(field.type))
        }
        encodings = {name: encoding for name, own in types.items() if (encoding := self._encoding(own))}
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
            write_page_index=has_pages,
            use_deprecated_int96_timestamps=is_int96,
        )
        if is_int96:
            # PyIceberg takes these timestamps for nanoseconds.
            self.spark.sql(f"CALL lake.system.add_files('{self.name}', '`parquet`.`{path}`')")
        else:
            table.add_files([path], check_duplicate_files=False)
            self.spark.sql(f"REFRESH TABLE lake.{self.name}")

    def _import_of_spark(self) -> None:
        """Add a file of Spark's own writer, without field IDs; its timestamps are INT96 by default."""
        table, random = self.catalog.load_table(self.name), self.random
        if not self._is_as_before(table):
            return
        folder = f"{table.location()}/of-spark-{random.randrange(10**9)}"
        writing = {
            "parquet.block.size": random.choice((1, 134_217_728)),
            "parquet.block.size.row.check.min": random.choice((100, 400)),
            "parquet.block.size.row.check.max": 500,
            "parquet.page.row.count.limit": random.choice((1, 7, 50, 300, 20_000)),
            "parquet.dictionary.page.size": random.choice((100, 1_048_576)),
            "compression": random.choice(("zstd", "snappy", "gzip", "uncompressed")),
        }
        timestamps = random.choice(("INT96", "TIMESTAMP_MICROS"))
        with settings(self.spark, {"spark.sql.parquet.outputTimestampType": timestamps}):
            self.spark.sql(self._rows(self.rows)).write.options(**writing).parquet(folder)
        self.spark.sql(f"CALL lake.system.add_files('{self.name}', '`parquet`.`{folder}`')")

    def _is_as_before(self, table: IcebergTable) -> bool:
        """Whether files of the first columns can be added, as the table still has these."""
        return [field.name for field in table.schema().fields] == ["id", "p", *self.columns]

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


def check(table: Table) -> None:
    """Compare rows that are read by pages with those of Iceberg, for some projections."""
    spark, random = table.spark, table.random

    def is_wanted(row: dict[str, object], gap: int = 0) -> bool:
        path, position = row["__file"], row["__pos"]
        if str(path).rpartition("/")[2] in table.read_whole:
            return True
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
