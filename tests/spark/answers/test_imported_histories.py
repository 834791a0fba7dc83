"""Whatever happens to how a table's columns are found in its files: queries with the hook find what they do without.

What the law without Spark does to a table happens here too. Beside it, Spark adds folders of Parquet files, renames
columns, and replaces the table by another with a tag behind.
"""

from contextlib import suppress
from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test
from py4j.protocol import Py4JJavaError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyspark.sql import SparkSession

import planner
from puffin_index.errors import UnsupportedError
from puffin_index.storage.arrays import Rows
from tests.column_questions import Question
from tests.oracle import IsNull, Not
from tests.planner.laws.iceberg_reading import live_files, schema_at
from tests.planner.laws.imported_files import write_parquet
from tests.planner.laws.table_history import history_settings
from tests.planner.laws.test_imported_histories import CheckedHistory
from tests.questions import batches
from tests.spark.agreement import ENABLED, rows_of, settings

pytestmark = pytest.mark.spark

TABLE = "lake.ns.t"


class SparkImportedHistory(CheckedHistory):
    """The same table for Spark."""

    # Iceberg's Java library has defaults from the third format version on.
    has_defaults = False

    def __init__(self, spark: SparkSession, catalog: SqlCatalog) -> None:
        super().__init__(catalog)
        self.spark = spark

    def teardown(self) -> None:
        with suppress(NoSuchTableError):
            self.catalog.drop_table("ns.t")
        super().teardown()

    def change(self, sql: str) -> None:
        """Let Spark change the table as it is now."""
        with suppress(Py4JJavaError):
            self.spark.sql(f"REFRESH TABLE {TABLE}")
        self.spark.sql(sql)

    @rule(rows=batches, data=st.data(), partition=st.sampled_from(["1", "5", "__HIVE_DEFAULT_PARTITION__"]))
    def add_folder(self, rows: Rows, data: st.DataObject, partition: str) -> None:
        folder = self.folder / self.fresh()
        inner = folder.joinpath(*(f"{field.name}={partition}" for field in self.table.spec().fields))
        inner.mkdir(parents=True)
        write_parquet(inner / "a.parquet", self.drawn_fields(rows, data), 3, statistics=False)
        self.change(f"CALL lake.system.add_files(table => 'ns.t', source_table => '`parquet`.`{folder}`')")

    def rename_column(self, name: str) -> None:
        self.change(f"ALTER TABLE {TABLE} RENAME COLUMN {name} TO {self.fresh()}")

    @rule(types=st.sampled_from(["k STRING, s BIGINT", "s STRING, k INT", "k BIGINT, s INT"]))
    def replace(self, types: str) -> None:
        """Another table with other types, the old snapshots behind a tag."""
        self.tag()
        # The row groups of what PyIceberg appends stay as small as before.
        self.change(
            f"CREATE OR REPLACE TABLE {TABLE} (n BIGINT, {types}, t TIMESTAMP) USING iceberg "
            "TBLPROPERTIES ('format-version'='2')"
        )

    def compare(self, table: Table, question: Question, snapshot_id: int | None) -> tuple[str, list[str]]:
        where, names = super().compare(table, question, snapshot_id)
        self.spark.sql(f"REFRESH TABLE {TABLE}")
        source = TABLE if snapshot_id is None else f"{TABLE} VERSION AS OF {snapshot_id}"
        sql = f"SELECT {', '.join(names)} FROM {source} WHERE {where}"
        try:
            plain = rows_of(self.spark, sql, enabled=False)
        except Py4JJavaError:
            # What Spark cannot read by itself needs no answer with the hook.
            return where, names
        assert rows_of(self.spark, sql, enabled=True) == plain, (sql, snapshot_id)
        if _has_other_names(table, snapshot_id):
            # Iceberg's Java library takes the column that has the name now for a partition column of the snapshot.
            return where, names
        missed = 0
        if _have_other_partitions(table, snapshot_id):
            # Spark reads the partitions of deletes by the newest types, and gives deleted rows where it misses some.
            deleted = {live.file.file_path: live.deleted for live in live_files(table, snapshot_id)}
            with settings(self.spark, {ENABLED: "false"}):
                read = self.spark.sql(f"SELECT _file, _pos FROM {source} WHERE {where}").collect()
            missed = sum(position in deleted[path] for path, position in read)
        # Of odd files the planner in Python reads less than Spark does.
        with suppress(UnsupportedError):
            assert planner.count(self.index, where, snapshot_id).rows == len(plain) - missed, (where, snapshot_id)
        return where, names


def _has_other_names(table: Table, snapshot_id: int | None) -> bool:
    """Whether another column has the name now that a column had by which the table was ever partitioned."""
    then, now = ({one.name: one.field_id for one in schema_at(table, own).fields} for own in (snapshot_id, None))
    sources = {field.source_id for spec in table.specs().values() for field in spec.fields}
    return any(now.get(name, field_id) != field_id for name, field_id in then.items() if field_id in sources)


def _have_other_partitions(table: Table, snapshot_id: int | None) -> bool:
    """Whether a column by which the table was ever partitioned has another type now than in a snapshot."""
    then, now = ({one.field_id: one.field_type for one in schema_at(table, own).fields} for own in (snapshot_id, None))
    sources = {field.source_id for spec in table.specs().values() for field in spec.fields}
    return any(then[source] != now[source] for source in sources & then.keys() & now.keys())


def test_the_hook_finds_what_spark_finds_however_columns_are_found(hooked: SparkSession, catalog: SqlCatalog) -> None:
    run_state_machine_as_test(
        partial(SparkImportedHistory, hooked, catalog), settings=history_settings(1, 60, steps=10)
    )


def test_a_deleted_row_that_spark_gives_is_not_counted(hooked: SparkSession, catalog: SqlCatalog) -> None:
    history = SparkImportedHistory(hooked, catalog)
    try:
        history.begin(rows=[(1, "a")] * 10, asked=[], is_mapped=False, numbered="none", partition=1)
        history.delete(0, {4})
        snapshot = history.table.current_snapshot()
        assert snapshot is not None
        history.replace("k BIGINT, s INT")

        where, _ = history.compare(history.table, lambda _: Not(IsNull("n")), snapshot.snapshot_id)

        assert planner.count(history.index, where, snapshot.snapshot_id).rows == 19
    finally:
        history.teardown()
