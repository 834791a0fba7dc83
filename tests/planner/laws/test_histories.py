"""Whatever happens to a table and its index, in any order: queries with the index find what a plain scan finds."""

import warnings
from collections.abc import Callable
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.types import IntegerType, LongType

from planner.arrow.aggregate import count
from planner.arrow.arrow_scan import scan
from planner.arrow.plan import plan
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.data_table import open_table
from puffin_index.errors import NotFoundError
from puffin_index.storage.arrays import Rows
from tests.oracle import evaluate
from tests.planner.laws.doors import check_every_door
from tests.planner.laws.iceberg_reading import schema_at
from tests.planner.laws.table_history import TableHistory, history_settings
from tests.puffin_index.indexed_table import named_segments, segment_files
from tests.questions import Ask, batches, predicates

ROW_GROUP_ROWS = 4
SCHEMA = pa.schema([("n", pa.int64()), ("k", pa.int32()), ("s", pa.string())])
LAYOUTS = ["bitmaps", "postings"]

places = st.integers(0, 2**16)
columns = st.sets(st.sampled_from([1, 2, 3]), min_size=1)
kinds = st.fixed_dictionaries({"bitmap": columns, "bsi": columns, "bloom": columns})


class History(TableHistory):
    @initialize(rows=batches, questions=st.lists(predicates(), min_size=4, max_size=4))
    def begin(self, rows: Rows, questions: list[Ask]) -> None:
        self.questions = questions
        self.rows = 0
        self.create(rows)

    def create(self, rows: Rows) -> None:
        properties = {"write.parquet.row-group-limit": str(ROW_GROUP_ROWS)}
        self.catalog.create_table("ns.t", SCHEMA, properties=properties)
        self.define({"bitmap": {2, 3}, "bsi": {1, 2}, "bloom": {3}}, "postings")
        self.is_partitioned = False
        self.append(rows, "main")

    @property
    def table(self) -> Table:
        self.index.refresh()
        return self.index.data_table

    def name_of(self, field_id: int, table: Table, snapshot_id: int | None = None) -> str:
        return schema_at(table, snapshot_id).find_column_name(field_id)

    def next_row(self) -> int:
        self.rows += 1
        return self.rows

    def data(self, rows: Rows) -> pa.Table:
        table = self.table
        schema = table.schema().as_arrow()
        k, s = self.name_of(2, table), self.name_of(3, table)
        filled = [{"n": self.next_row(), k: number, s: text} for number, text in rows]
        return pa.Table.from_pylist([dict.fromkeys(schema.names, 7) | row for row in filled], schema)

    @rule(rows=batches, branch=st.just("main"))
    def append(self, rows: Rows, branch: str) -> None:
        self.table.append(self.data(rows), branch=branch)

    @rule(rows=batches, number=st.integers(-2, 4))
    def overwrite(self, rows: Rows, number: int) -> None:
        self.change(lambda table: table.overwrite(self.data(rows), f"{self.name_of(2, table)} >= {number}"))

    @rule(number=st.integers(-2, 4))
    def delete(self, number: int) -> None:
        self.change(lambda table: table.delete(f"{self.name_of(2, table)} = {number}"))

    def change(self, what: Callable[[Table], None]) -> None:
        with warnings.catch_warnings():
            # PyIceberg warns where nothing is to be deleted.
            warnings.simplefilter("ignore")
            what(self.table)

    @rule(field_id=st.sampled_from([2, 3]))
    def rename(self, field_id: int) -> None:
        table = self.table
        table.update_schema().rename_column(self.name_of(field_id, table), self.fresh()).commit()

    @rule()
    def add_column(self) -> None:
        self.table.update_schema().add_column(self.fresh(), LongType()).commit()

    @rule()
    def drop_column(self) -> None:
        table = self.table
        with table.update_schema() as update:
            for field in table.schema().fields[3:4]:
                update.delete_column(field.name)

    @precondition(lambda self: not self.is_partitioned)
    @rule()
    def promote(self) -> None:
        table = self.table
        if isinstance(table.schema().find_type(2), IntegerType):
            table.update_schema().update_column(self.name_of(2, table), field_type=LongType()).commit()

    @precondition(lambda self: not self.is_partitioned)
    @rule()
    def partition(self) -> None:
        table = self.table
        table.update_spec().add_identity(self.name_of(3, table)).commit()
        self.is_partitioned = True

    @rule(is_branch=st.booleans(), rows=batches)
    def refer(self, is_branch: bool, rows: Rows) -> None:
        table, name = self.table, self.fresh()
        head = table.current_snapshot()
        assert head is not None
        if is_branch:
            table.manage_snapshots().create_branch(head.snapshot_id, name).commit()
            self.append(rows, name)
        else:
            table.manage_snapshots().create_tag(head.snapshot_id, name).commit()

    @rule(place=places)
    def rollback(self, place: int) -> None:
        table = self.table
        ancestors = list(ancestors_of(table.current_snapshot(), table.metadata))
        table.manage_snapshots().rollback_to_snapshot(ancestors[place % len(ancestors)].snapshot_id).commit()

    @rule(place=places)
    def expire_snapshots(self, place: int) -> None:
        table = self.table
        kept = {reference.snapshot_id for reference in table.refs().values()}
        old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id not in kept]
        if old:
            table.maintenance.expire_snapshots().by_ids(old[: 1 + place % len(old)]).commit()

    @rule(rows=batches)
    def recreate(self, rows: Rows) -> None:
        self.catalog.drop_table("ns.t")
        with pytest.raises(NotFoundError):
            TableIndex.open(self.catalog, "ns.t")
        self.create(rows)

    @rule(kinds=kinds, layout=st.sampled_from(LAYOUTS))
    def define(self, kinds: dict[str, set[int]], layout: str) -> None:
        schema = open_table(self.catalog, ("ns", "t")).schema()
        names = {kind: [schema.find_column_name(field_id) for field_id in sorted(ids)] for kind, ids in kinds.items()}
        layouts = {f"{name}.layout": layout for name in names["bitmap"]}
        self.index = TableIndex.create(self.catalog, "ns.t", IndexDefinition.of(**names, options=layouts))

    @rule()
    def build(self) -> None:
        self.index.build(workers=1)
        status = self.index.status()
        assert status.indexed_data_files == status.data_files or self.is_partitioned

    @rule()
    def build_and_append(self) -> None:
        self.append([(1, "a")], "main")
        self.index.build(workers=1)

    @rule()
    def compact(self) -> None:
        assert self.index.compact().skipped == ()

    @rule()
    def expire(self) -> None:
        super().expire()
        assert segment_files(self.index) == named_segments(self.index)

    @invariant()
    def find_what_a_plain_scan_finds(self) -> None:
        self.step += 1
        ask = self.questions[self.step % len(self.questions)]
        references = sorted(reference.snapshot_id for reference in self.table.refs().values())
        self.compare(ask, None)
        self.compare(ask, references[self.step % len(references)])

    @invariant()
    def find_rows_by_key(self) -> None:
        references = [None, *sorted(reference.snapshot_id for reference in self.table.refs().values())]
        check_every_door(self.index, self.table, references[self.step % len(references)], self.step)

    # Wide tests are looked up among the rows of others, as where their rows are many.
    @patch("planner.prune.leaf_payloads._FEW_ROWS", 0)
    def compare(self, ask: Ask, snapshot_id: int | None) -> None:
        table = self.table
        where, tree = ask(self.name_of(2, table, snapshot_id), self.name_of(3, table, snapshot_id))
        rows = table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
        expected = sorted(row["n"] for row in rows if evaluate(tree, row) is True)
        found = scan(self.index, where, ["n"], snapshot_id).read_all()["n"].to_pylist()
        assert sorted(found) == expected, (where, snapshot_id)
        assert count(self.index, where, snapshot_id).rows == len(expected), (where, snapshot_id)
        # Row groups that lie beside the index are read, but the index must be in no trouble.
        assert plan(self.index, where, snapshot_id, strict=True).warnings == ()


TestHistories = History.TestCase
TestHistories.settings = history_settings(3)
