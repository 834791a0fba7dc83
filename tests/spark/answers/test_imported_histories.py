"""Whatever Spark does to how a table's columns are found in its files: queries with the hook find what they do without.

Folders of Parquet files are added, columns renamed and added, name mappings changed, tables restored from old metadata
and replaced by others with a tag behind.
"""

import json
import tempfile
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test
from py4j.protocol import Py4JJavaError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.types import NestedField, StringType, TimestamptzType
from pyspark.sql import SparkSession

import planner
from puffin_index import IndexDefinition, TableIndex
from puffin_index.errors import UnsupportedError
from puffin_index.storage.arrays import Rows
from tests.column_questions import Question, moment_of, questions
from tests.planner.condition.where_text import Writer
from tests.planner.laws.iceberg_reading import NAME_MAPPING, LeafColumn, leaf_columns, schema_at
from tests.planner.laws.imported_files import StoredField, write_parquet
from tests.planner.laws.table_history import IndexHistory, history_settings
from tests.questions import batches
from tests.spark.agreement import row_groups_of, rows_of

pytestmark = pytest.mark.spark

NAME = "imports.t"
TABLE = f"lake.{NAME}"

_ARROW = {
    "int": (pa.int32(), pa.int16(), pa.date32()),
    "long": (pa.int64(), pa.int32(), pa.timestamp("us", "UTC")),
    "string": (pa.string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())),
    "timestamptz": (pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"), pa.timestamp("ns"), pa.timestamp("us")),
}
"""How imported files store the columns of a type; Iceberg reads some of them as other values, or not at all."""

_SPARK = {"int": "INT", "long": "BIGINT", "string": "STRING", "timestamptz": "TIMESTAMP"}

places = st.integers(0, 2**16)


def _literal(value: Any) -> str:
    return f"TIMESTAMP '{value}'" if isinstance(value, datetime) else repr(value)


class SparkImportedHistory(IndexHistory):
    """One table of Spark's, its index, and what may happen to how columns are found."""

    def __init__(self, spark: SparkSession, catalog: SqlCatalog, folder: Path) -> None:
        super().__init__()
        self.spark, self.catalog, self.folder = spark, catalog, Path(tempfile.mkdtemp(dir=folder))
        self.rows = 0
        self.past: list[str] = []

    def teardown(self) -> None:
        self.spark.sql(f"DROP TABLE IF EXISTS {TABLE}")

    @initialize(rows=batches, asked=st.lists(questions, min_size=8, max_size=8), is_partitioned=st.booleans())
    def begin(self, rows: Rows, asked: list[Question], is_partitioned: bool) -> None:
        self.asked, self.is_partitioned = asked, is_partitioned
        self.create("CREATE TABLE", "n BIGINT, k INT, s STRING, p INT, t TIMESTAMP")
        self.define()
        self.insert(rows)

    def create(self, how: str, columns: str) -> None:
        partition = "PARTITIONED BY (p)" if self.is_partitioned else ""
        self.spark.sql(
            f"{how} {TABLE} ({columns}) USING iceberg {partition} TBLPROPERTIES ("
            f"'format-version'='2', {row_groups_of(3)})"
        )

    @property
    def table(self) -> Table:
        table = self.catalog.load_table(NAME)
        if table.metadata_location not in self.past:
            self.past.append(table.metadata_location)
        return table

    def value(self, field: NestedField, row: int, rows: Rows) -> Any:
        if field.name == "n":
            self.rows += 1
            return str(self.rows) if isinstance(field.field_type, StringType) else self.rows
        number, text = rows[(row + field.field_id) % len(rows)]
        if isinstance(field.field_type, TimestamptzType):
            return None if number is None else moment_of(number)
        return text if isinstance(field.field_type, StringType) else number

    def free_fields(self) -> list[NestedField]:
        """The columns that may be renamed: neither the one that tells rows apart nor that of the partition."""
        return [field for field in self.table.schema().fields if field.name not in ("n", "p")]

    @rule(rows=batches)
    def insert(self, rows: Rows) -> None:
        fields = self.table.schema().fields
        literals = [
            ", ".join("NULL" if value is None else _literal(value) for value in row)
            for row in ([self.value(field, at, rows) for field in fields] for at in range(len(rows)))
        ]
        self.spark.sql(f"INSERT INTO {TABLE} VALUES {', '.join(f'({row})' for row in literals)}")

    @rule(
        rows=batches,
        numbered=st.sampled_from(["all", "some", "none", "none", "none"]),
        left_out=st.sets(st.integers(1, 6), max_size=2),
        is_turned=st.booleans(),
        partition=st.sampled_from(["1", "5", "__HIVE_DEFAULT_PARTITION__"]),
        has_extra=st.booleans(),
        stored_as=st.sampled_from([0, 0, 0, 1, 2, 3]),
    )
    def add_folder(
        self,
        rows: Rows,
        numbered: str,
        left_out: set[int],
        is_turned: bool,
        partition: str,
        has_extra: bool,
        stored_as: int,
    ) -> None:
        folder = self.folder / self.fresh()
        inner = folder / f"p={partition}" if self.is_partitioned else folder
        inner.mkdir(parents=True)
        schema = self.table.schema()
        stored: list[StoredField] = []
        odd_place = len(rows) % len(schema.fields)
        for at, field in enumerate(schema.fields):
            if at in left_out:
                continue
            has_id = numbered == "all" or (numbered == "some" and at % 2 == 0)
            values = [self.value(field, row, rows) for row in range(len(rows))]
            # One column at a time is odd, so that Spark can read the others.
            arrow_types = _ARROW[str(field.field_type)]
            arrow_types = arrow_types if at == odd_place else arrow_types[:1]
            stored.append(
                StoredField(
                    field.name, values, arrow_types[stored_as % len(arrow_types)], field.field_id if has_id else None
                )
            )
        if has_extra and all(field.name != "x" for field in schema.fields):
            stored.append(StoredField("x", [number for number, _ in rows], pa.int32()))
        write_parquet(inner / "a.parquet", stored[::-1] if is_turned else stored, 3, statistics=False)
        self.spark.sql(f"CALL lake.system.add_files(table => '{NAME}', source_table => '`parquet`.`{folder}`')")

    @rule(place=places, is_replaced=st.booleans())
    def rename(self, place: int, is_replaced: bool) -> None:
        fields = self.free_fields()
        if fields:
            field = fields[place % len(fields)]
            self.spark.sql(f"ALTER TABLE {TABLE} RENAME COLUMN {field.name} TO {self.fresh()}")
            if is_replaced:
                self.spark.sql(f"ALTER TABLE {TABLE} ADD COLUMN {field.name} {_SPARK[str(field.field_type)]}")

    @rule(name=st.sampled_from(["x", None]))
    def add_column(self, name: str | None) -> None:
        if name is None or all(field.name != name for field in self.table.schema().fields):
            self.spark.sql(f"ALTER TABLE {TABLE} ADD COLUMN {name or self.fresh()} INT")

    @rule(drawn=st.lists(places, min_size=8, max_size=8))
    def map_names(self, drawn: list[int]) -> None:
        fields, taken, mapping = self.table.schema().fields, set(), []
        for field, place in zip(fields, drawn, strict=False):
            alike = [one.name for one in fields if one.field_type == field.field_type]
            name = field.name if place % 2 else [*alike, "x"][place % (len(alike) + 1)]
            mapping.append({"field-id": field.field_id, "names": [] if name in taken else [name]})
            taken.add(name)
        self.spark.sql(f"ALTER TABLE {TABLE} SET TBLPROPERTIES ('{NAME_MAPPING}'='{json.dumps(mapping)}')")

    @precondition(lambda self: NAME_MAPPING in self.table.properties)
    @rule()
    def unmap_names(self) -> None:
        self.spark.sql(f"ALTER TABLE {TABLE} UNSET TBLPROPERTIES ('{NAME_MAPPING}')")

    @rule(place=places)
    def restore(self, place: int) -> None:
        """The table as it was, under its UUID: field ids are given out again."""
        uuid = self.table.metadata.table_uuid
        old = self.past[place % len(self.past)]
        self.catalog.drop_table(NAME)
        self.spark.sql(f"CALL lake.system.register_table(table => '{NAME}', metadata_file => '{old}')")
        self.spark.sql(f"REFRESH TABLE {TABLE}")
        assert self.table.metadata.table_uuid == uuid
        self.index = TableIndex.open(self.catalog, NAME)

    @rule(types=st.sampled_from(["k STRING, s BIGINT", "s STRING, k INT", "k BIGINT, s INT"]))
    def replace(self, types: str) -> None:
        """Another table with other types, the old snapshots behind a tag."""
        if self.table.current_snapshot() is not None:
            self.tag()
        self.create("CREATE OR REPLACE TABLE", f"n BIGINT, {types}, p INT, t TIMESTAMP")

    @rule()
    def tag(self) -> None:
        if self.table.current_snapshot() is not None:
            self.spark.sql(f"ALTER TABLE {TABLE} CREATE TAG {self.fresh()}")

    @rule()
    def define(self) -> None:
        fields = self.table.schema().fields
        numeric = [field.name for field in fields if not isinstance(field.field_type, StringType)]
        names = [field.name for field in fields]
        options = {f"{name}.layout": "postings" for name in names[1::2]}
        definition = IndexDefinition.of(bitmap=names, bsi=numeric, bloom=names, options=options)
        self.index = TableIndex.create(self.catalog, NAME, definition)

    @rule()
    def build(self) -> None:
        self.index.build(workers=1)

    @rule(rows=batches)
    def build_and_insert(self, rows: Rows) -> None:
        self.build()
        self.insert(rows)

    @rule()
    def compact(self) -> None:
        self.index.compact()

    @invariant()
    def find_what_spark_finds_without(self) -> None:
        self.step += 1
        table = self.table
        for turn in range(2):
            self.compare(table, self.asked[(self.step + turn) % len(self.asked)], None)
        tags = sorted(name for name in table.refs() if name != "main")
        if tags:
            self.compare(table, self.asked[self.step % len(self.asked)], tags[self.step % len(tags)])

    def compare(self, table: Table, question: Question, tag: str | None) -> None:
        snapshot_id = None if tag is None else table.refs()[tag].snapshot_id
        columns: list[LeafColumn] = list(leaf_columns(schema_at(table, snapshot_id).fields))
        where = Writer(Random(self.step).choice).predicate(question(columns))
        source = TABLE if tag is None else f"{TABLE} VERSION AS OF '{tag}'"
        sql = f"SELECT * FROM {source} WHERE {where}"
        plain = self.outcome(sql, enabled=False)
        # What Spark cannot read by itself needs no answer with the hook.
        if plain is None:
            return
        assert self.outcome(sql, enabled=True) == plain, (sql, tag)
        # Of odd files the planner in Python reads less than Spark does.
        with suppress(UnsupportedError):
            assert planner.count(self.index, where, snapshot_id).rows == len(plain), (where, tag)

    def outcome(self, sql: str, *, enabled: bool) -> list[str] | None:
        try:
            return rows_of(self.spark, sql, enabled=enabled)
        except Py4JJavaError:
            if enabled:
                raise
            return None


def test_the_hook_finds_what_spark_finds_however_columns_are_found(
    hooked: SparkSession, catalog: SqlCatalog, tmp_path: Path
) -> None:
    run_state_machine_as_test(
        partial(SparkImportedHistory, hooked, catalog, tmp_path),
        settings=history_settings(1, 40, steps=10),
    )
