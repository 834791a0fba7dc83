"""A table whose files were imported, and what may happen to how its columns are found in them.

Files come with field ids on all, some or none of their fields, in any order, with fields too many or too few.
"""

import json
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, IntegerType, LongType, NestedField, StringType, StructType, TimestamptzType

from puffin_index import IndexDefinition, TableIndex
from puffin_index.storage.arrays import Rows
from tests.column_questions import Question, moment_of, numbers, places, questions, texts
from tests.deletes_sample import commit_positional_deletes
from tests.planner.laws.iceberg_reading import NAME_MAPPING, leaf_columns, live_files
from tests.planner.laws.imported_files import StoredField, commit_file, remove_file, write_parquet
from tests.planner.laws.table_history import TableHistory
from tests.questions import batches

SCHEMA = Schema(
    NestedField(1, "n", "long"),
    NestedField(2, "k", "int"),
    NestedField(3, "s", "string"),
    NestedField(4, "u", StructType(NestedField(6, "v", "int"))),
    NestedField(5, "t", "timestamptz"),
)
SPARE_NAMES = ("k2", "s2", "x")

STORED: dict[type[IcebergType], tuple[pa.DataType, ...]] = {
    IntegerType: (pa.int16(), pa.decimal128(9, 0), pa.date32()),
    LongType: (pa.int32(), pa.timestamp("ms"), pa.decimal128(9, 0)),
    StringType: (pa.dictionary(pa.int32(), pa.string()), pa.binary()),
    TimestamptzType: (pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"), pa.timestamp("ns"), pa.timestamp("us")),
}
"""Other types that files store columns as: the first is read as it should be, the others are not to be read."""


class ImportedHistory(TableHistory):
    """One table, its index, and what may happen to how its columns are found in its files."""

    has_defaults = True

    def __init__(self, catalog: Catalog | None = None) -> None:
        super().__init__(catalog)
        self.rows = 0
        self.imported: list[str] = []
        self.past: list[str] = []

    @initialize(
        rows=batches,
        asked=st.lists(questions, min_size=8, max_size=8),
        is_mapped=st.booleans(),
        numbered=st.sampled_from(["all", "none", "none"]),
        partition=st.none() | places,
    )
    def begin(
        self, rows: Rows, asked: list[Question], is_mapped: bool, numbered: str, partition: int | None = None
    ) -> None:
        """A table with an imported file and its index: one more step can change what is read of it."""
        self.asked = asked
        table = self.catalog.create_table("ns.t", SCHEMA, properties={"write.parquet.row-group-limit": "3"})
        if is_mapped:
            with table.transaction() as transaction:
                transaction.set_properties({NAME_MAPPING: table.schema().name_mapping.model_dump_json()})
        if partition is not None:
            self.partition(partition)
        self.define(["k", "s", "u.v"], "postings")
        self.import_fields(self.stored_fields(rows, numbered, 0, set()), 2, (True, True), (1, "a"))
        self.build_and_append(rows)
        self.build()

    @property
    def table(self) -> Table:
        table = self.catalog.load_table("ns.t")
        if table.metadata_location not in self.past:
            self.past.append(table.metadata_location)
        return table

    def next_row(self) -> int:
        self.rows += 1
        return self.rows

    def field_of(self, place: int, *, top: bool = True) -> NestedField | None:
        """A column that may be changed: any but the one that tells rows apart."""
        fields = [field for field in self.table.schema().fields if field.field_id != 1]
        fields = [field for field in fields if not top or not isinstance(field.field_type, StructType)]
        return fields[place % len(fields)] if fields else None

    # What the table holds

    @rule(rows=batches)
    def append(self, rows: Rows) -> None:
        table = self.table
        values = {field.name: self.values_of(field, rows) for field in table.schema().fields}
        table.append(pa.Table.from_pydict(values, table.schema().as_arrow()))

    def values_of(self, field: NestedField, rows: Rows) -> list[Any]:
        """What a column holds of some rows; columns of one type hold the same in another order."""
        if field.field_id == 1:
            return [self.next_row() for _ in rows]
        turned = [rows[(row + field.field_id) % len(rows)] for row in range(len(rows))]
        match field.field_type:
            case StringType():
                return [text for _, text in turned]
            case StructType(fields=(inner,)):
                return [None if text is None else {inner.name: number} for number, text in turned]
            case TimestamptzType():
                return [None if number is None else moment_of(number) for number, _ in turned]
            case _:
                return [number for number, _ in turned]

    @rule(
        rows=batches,
        data=st.data(),
        shift=st.sampled_from([0, 0, 0, 1]),
        row_group_rows=st.integers(1, 4),
        flags=st.tuples(st.booleans(), st.booleans()),
        partition=st.tuples(numbers, texts),
    )
    def import_file(
        self,
        rows: Rows,
        data: st.DataObject,
        shift: int,
        row_group_rows: int,
        flags: tuple[bool, bool],
        partition: tuple[int, str],
    ) -> None:
        self.import_fields(self.drawn_fields(rows, data, shift), row_group_rows, flags, partition)

    def drawn_fields(self, rows: Rows, data: st.DataObject, shift: int = 0) -> list[StoredField]:
        """The fields of a file of any writer, in any order."""
        fields = self.stored_fields(
            rows,
            data.draw(st.sampled_from(["all", "all", "some", "none", "none"])),
            shift,
            data.draw(st.sets(st.integers(0, 8), max_size=3)),
            data.draw(st.sampled_from([None, None, 0, 1, 2, 3])),
        )
        return data.draw(st.just(fields) | st.permutations(fields))

    def import_fields(
        self, fields: list[StoredField], row_group_rows: int, flags: tuple[bool, bool], partition: tuple[int, str]
    ) -> None:
        path = self.folder / f"{self.fresh()}.parquet"
        write_parquet(path, fields, row_group_rows, statistics=flags[0])
        self.imported.append(path.as_uri())
        self.commit(path.as_uri(), partition, with_offsets=flags[1])

    def stored_fields(
        self, rows: Rows, numbered: str, shift: int, left_out: set[int], stored_as: int | None = None
    ) -> list[StoredField]:
        """The table's columns as fields of a file, then some that it lacks, numbered as if they were added next."""
        table = self.table
        known = table.schema()
        spare = [name for name in SPARE_NAMES if name not in {field.name for field in known.fields}]
        beyond = [
            NestedField(table.metadata.last_column_id + at, name, StringType() if name[0] == "s" else IntegerType())
            for at, name in enumerate(spare, 1)
        ]
        stored: list[StoredField] = []
        for place, field in enumerate([*known.fields, *beyond]):
            if place in left_out and field.field_id != 1:
                continue
            has_id = numbered == "all" or (numbered == "some" and place % 2 == 0)
            inner = field.field_type.fields[0].field_id if isinstance(field.field_type, StructType) else None
            stored.append(
                StoredField(
                    field.name,
                    self.values_of(field, rows),
                    self.stored_type(field, place, stored_as) if inner is None else pa.struct([("v", pa.int32())]),
                    field.field_id + (shift if field.field_id != 1 else 0) if has_id else None,
                    () if inner is None else (inner if has_id else None,),
                )
            )
        return stored

    def stored_type(self, field: NestedField, place: int, stored_as: int | None) -> pa.DataType:
        """The type that a file stores a column as; every other column is stored as it should be."""
        others = STORED[type(field.field_type)]
        if stored_as is None or field.field_id == 1 or (place + stored_as) % 2:
            return Schema(field).as_arrow().field(0).type
        return others[stored_as % len(others)]

    def commit(self, path: str, partition: tuple[int, str], *, with_offsets: bool) -> None:
        table = self.table
        spec, schema = table.spec(), table.schema()
        number, text = partition
        values = [text if isinstance(schema.find_type(f.source_id), StringType) else number for f in spec.fields]
        commit_file(table, path, Record(*values), spec.spec_id, with_offsets=with_offsets)

    @precondition(lambda self: self.imported)
    @rule(place=places, partition=st.tuples(numbers, texts), with_offsets=st.booleans())
    def import_again(self, place: int, partition: tuple[int, str], with_offsets: bool) -> None:
        """A file that the table once had, in another partition or lineage of it."""
        path = self.imported[place % len(self.imported)]
        if path not in {live.file.file_path for live in live_files(self.table, None)}:
            self.commit(path, partition, with_offsets=with_offsets)

    @rule(place=places)
    def remove(self, place: int) -> None:
        files = live_files(self.table, None)
        if files:
            remove_file(self.table, files[place % len(files)].file)

    @rule(place=places, positions=st.sets(st.integers(0, 9), min_size=1, max_size=4))
    def delete(self, place: int, positions: set[int]) -> None:
        table = self.table
        # PyIceberg writes manifests of the newest partitioning only.
        files = [live for live in live_files(table, None) if live.file.spec_id == table.spec().spec_id]
        if not files:
            return
        file: DataFile = files[place % len(files)].file
        here = {position for position in positions if position < file.record_count}
        if here:
            commit_positional_deletes(table, {file.file_path: here}, file)

    # What its columns are called and found by

    @rule(place=places, is_replaced=st.booleans())
    def rename(self, place: int, is_replaced: bool) -> None:
        field = self.field_of(place, top=False)
        if field is None:
            return
        self.rename_column(field.name)
        if is_replaced and field.field_type.is_primitive:
            self.table.update_schema().add_column(field.name, field.field_type).commit()

    def rename_column(self, name: str) -> None:
        self.table.update_schema().rename_column(name, self.fresh()).commit()

    @rule(is_text=st.booleans(), spare=st.sampled_from([None, *SPARE_NAMES]), default=st.none() | numbers)
    def add_column(self, is_text: bool, spare: str | None, default: int | None) -> None:
        table = self.table
        is_free = spare is not None and all(field.name != spare for field in table.schema().fields)
        name = spare if spare is not None and is_free else self.fresh()
        is_text = name[0] == "s" if is_free else is_text
        value = None if default is None or not self.has_defaults else "a" if is_text else default
        table.update_schema().add_column(name, StringType() if is_text else IntegerType(), default_value=value).commit()

    @rule(place=places)
    def drop_column(self, place: int) -> None:
        field, table = self.field_of(place, top=False), self.table
        if field is None or len(table.schema().fields) < 3 or field.field_id in self.partition_sources(table):
            return
        table.update_schema().delete_column(field.name).commit()

    @rule(place=places)
    def promote(self, place: int) -> None:
        field, table = self.field_of(place), self.table
        if field and isinstance(field.field_type, IntegerType) and field.field_id not in self.partition_sources(table):
            table.update_schema().update_column(field.name, field_type=LongType()).commit()

    def partition_sources(self, table: Table) -> set[int]:
        return {field.source_id for spec in table.specs().values() for field in spec.fields}

    @rule(place=places)
    def partition(self, place: int) -> None:
        field, table = self.field_of(place), self.table
        if table.spec().fields:
            table.update_spec().remove_field(table.spec().fields[0].name).commit()
        elif (
            field
            and field.field_id not in self.partition_sources(table)
            and not isinstance(field.field_type, TimestamptzType)
        ):
            table.update_spec().add_field(field.name, IdentityTransform(), self.fresh()).commit()

    @rule(places=st.lists(places, min_size=8, max_size=8))
    def map_names(self, places: list[int]) -> None:
        """Another mapping: columns have their own name, one of a column of their type, or none."""
        table = self.table
        every = table.schema().fields
        taken: set[str] = set()
        mapping: list[dict[str, Any]] = []
        for field, place in zip(every, places, strict=False):
            alike = [one.name for one in every if type(one.field_type) is type(field.field_type)]
            names = [field.name, field.name, *alike, *SPARE_NAMES[:1]]
            name = field.name if field.field_id == 1 else names[place % len(names)]
            entry: dict[str, Any] = {"field-id": field.field_id, "names": [] if name in taken else [name]}
            taken.add(name)
            if isinstance(field.field_type, StructType):
                inner = field.field_type.fields[0]
                entry["fields"] = [{"field-id": inner.field_id, "names": [inner.name]}]
            mapping.append(entry)
        table.transaction().set_properties({NAME_MAPPING: json.dumps(mapping)}).commit_transaction()

    @rule()
    def unmap_names(self) -> None:
        if NAME_MAPPING in self.table.properties:
            self.table.transaction().remove_properties(NAME_MAPPING).commit_transaction()

    @rule(place=places)
    def restore(self, place: int) -> None:
        """The table as it was, under its UUID: field ids are given out again."""
        self.catalog.drop_table("ns.t")
        self.catalog.register_table("ns.t", self.past[place % len(self.past)])
        self.index = TableIndex.open(self.catalog, "ns.t")

    @rule()
    def tag(self) -> None:
        head = self.table.current_snapshot()
        if head is not None:
            self.table.manage_snapshots().create_tag(head.snapshot_id, self.fresh()).commit()

    # What happens to the index

    @rule(place=places, layout=st.sampled_from(["bitmaps", "postings"]))
    def define_anew(self, place: int, layout: str) -> None:
        columns = [column for column in leaf_columns(self.table.schema().fields) if column.field.field_id != 1]
        self.define([column.name for at, column in enumerate(columns) if not (place >> at) & 1] or ["n"], layout)

    def define(self, columns: list[str], layout: str) -> None:
        schema = self.catalog.load_table("ns.t").schema()
        numeric = [name for name in columns if not isinstance(schema.find_type(name), StringType)]
        definition = IndexDefinition.of(
            bitmap=columns, bsi=numeric, bloom=columns, options={f"{name}.layout": layout for name in columns}
        )
        self.index = TableIndex.create(self.catalog, "ns.t", definition)

    @rule()
    def build(self) -> None:
        self.index.build(workers=1)

    @rule(rows=batches)
    def build_and_append(self, rows: Rows) -> None:
        self.append(rows)
        self.build()

    @rule()
    def compact(self) -> None:
        self.index.compact()
