"""Whatever Spark does to a table, with index jobs between: queries with the hook find what they should.

Spark's own statements change the table while the hook prunes the scans behind them, so a row group dropped wrongly by
`MERGE` or `DELETE` shows as well as one dropped by a query. What every snapshot should hold is kept beside the table,
in plain Python, and Spark without the hook must find just that, too.
"""

from collections import Counter
from functools import partial
from typing import TypeAlias

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test
from py4j.protocol import Py4JJavaError
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import planner
from puffin_index import IndexDefinition, TableIndex
from puffin_index.errors import NotFoundError
from puffin_index.storage.arrays import Rows
from tests.oracle import evaluate
from tests.planner.laws.table_history import IndexHistory, history_settings
from tests.questions import Ask, batches, leaves, predicates
from tests.spark import agreement
from tests.spark.agreement import ENABLED

pytestmark = pytest.mark.spark

ROW_GROUP_ROWS = 4
DEFINITION = IndexDefinition.of(bitmap=["k", "s"], bsi=["k", "n"], bloom=["s"], options={"s.layout": "postings"})
TABLE = "lake.lives.t"

Content: TypeAlias = dict[int, tuple[int | None, str | None]]
"""What a snapshot holds: k and s of each n."""

places = st.integers(0, 2**16)


def literal(value: int | str | None) -> str:
    return "NULL" if value is None else repr(value)


class SparkHistory(IndexHistory):
    def __init__(self, spark: SparkSession, catalog: SqlCatalog) -> None:
        super().__init__()
        self.spark, self.catalog = spark, catalog
        self.numbers = 0

    def teardown(self) -> None:
        self.spark.sql(f"DROP TABLE IF EXISTS {TABLE}")

    @initialize(
        rows=batches,
        questions=st.lists(predicates(), min_size=4, max_size=4),
        version=st.sampled_from([2, 3]),
        mode=st.sampled_from(["copy-on-write", "merge-on-read"]),
        lag=st.integers(1, 3),
    )
    def begin(self, rows: Rows, questions: list[Ask], version: int, mode: str, lag: int) -> None:
        self.questions, self.version, self.mode, self.lag = questions, version, mode, lag
        self.create(rows)

    def create(self, rows: Rows) -> None:
        modes = ", ".join(f"'write.{verb}.mode'='{self.mode}'" for verb in ("delete", "update", "merge"))
        self.spark.sql(
            f"CREATE TABLE {TABLE} (n BIGINT, k INT, s STRING) USING iceberg TBLPROPERTIES ("
            f"'format-version'='{self.version}', {modes}, {agreement.row_groups_of(ROW_GROUP_ROWS)})"
        )
        self.index = TableIndex.create(self.catalog, "lives.t", DEFINITION)
        self.contents: dict[int, Content] = {}
        self.references: dict[str, int] = {}
        self.partition_fields: list[str] = []
        self.extra: list[str] = []
        self.k, self.s = "k", "s"
        self.now: Content = {}
        self.insert(rows)

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    @property
    def head(self) -> int:
        return self.head_of("main")

    def head_of(self, name: str) -> int:
        return int(self.spark.sql(f"SELECT snapshot_id FROM {TABLE}.refs WHERE name = '{name}'").collect()[0][0])

    def filled(self, rows: Rows) -> tuple[str, Content]:
        """Rows as SQL `VALUES` and as content, each with an n of its own."""
        content = {self.number(): row for row in rows}
        return ", ".join(f"({n}, {literal(k)}, {literal(s)})" for n, (k, s) in content.items()), content

    def write(self, sql: str, content: Content) -> None:
        """Change the main branch, to this content."""
        self.spark.sql(sql)
        self.now = content
        self.contents[self.head] = content

    def matching(self, ask: Ask, alias: str = "") -> tuple[str, set[int]]:
        """A question about the main branch as text, and the n of the rows that it is true for."""
        where, tree = ask(alias + self.k, alias + self.s)
        rows = {n: {alias + self.k: k, alias + self.s: s} for n, (k, s) in self.now.items()}
        return where, {n for n, row in rows.items() if evaluate(tree, row) is True}

    @rule(rows=batches)
    def insert(self, rows: Rows) -> None:
        values, added = self.filled(rows)
        self.write(f"INSERT INTO {TABLE} (n, {self.k}, {self.s}) VALUES {values}", self.now | added)

    @rule(rows=batches)
    def overwrite(self, rows: Rows) -> None:
        values, added = self.filled(rows)
        self.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "static")
        self.write(f"INSERT OVERWRITE {TABLE} (n, {self.k}, {self.s}) VALUES {values}", added)

    @rule(ask=st.one_of(leaves(), predicates()))
    def delete(self, ask: Ask) -> None:
        where, gone = self.matching(ask)
        # What Iceberg cannot evaluate makes Spark look at rows: without, Iceberg drops the file of a 2 and a NULL whole
        # for `k <> 3`, index or not.
        where = f"({where}) AND n + 0 = n"
        self.write(f"DELETE FROM {TABLE} WHERE {where}", {n: row for n, row in self.now.items() if n not in gone})

    @rule(number=st.integers(-2, 4))
    def delete_one_value(self, number: int) -> None:
        content = {n: row for n, row in self.now.items() if row[0] != number}
        self.write(f"DELETE FROM {TABLE} WHERE {self.k} = {number}", content)

    @rule(ask=st.one_of(leaves(), predicates()), number=st.integers(-2, 4))
    def update(self, ask: Ask, number: int) -> None:
        where, changed = self.matching(ask)
        content = {n: (number if n in changed else k, s) for n, (k, s) in self.now.items()}
        self.write(f"UPDATE {TABLE} SET {self.k} = {number} WHERE {where}", content)

    @rule(rows=batches, place=places, ask=leaves())
    def merge(self, rows: Rows, place: int, ask: Ask) -> None:
        values, added = self.filled(rows)
        known = sorted(self.now)
        updated = {known[place % len(known)]: (4, "b")} if known else {}
        values = ", ".join([values, *(f"({n}, 4, 'b')" for n in updated)])
        where, gone = self.matching(ask, "t.")
        gone &= set(updated)
        self.write(
            f"MERGE INTO {TABLE} t USING (SELECT * FROM VALUES {values} AS v(n, k, s)) u ON t.n = u.n "
            f"WHEN MATCHED AND {where} THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET t.{self.k} = u.k, t.{self.s} = u.s "
            f"WHEN NOT MATCHED THEN INSERT (n, {self.k}, {self.s}) VALUES (u.n, u.k, u.s)",
            {n: row for n, row in (self.now | updated | added).items() if n not in gone},
        )

    @rule(which=st.sampled_from(["k", "s"]))
    def rename(self, which: str) -> None:
        new = self.fresh()
        self.spark.sql(f"ALTER TABLE {TABLE} RENAME COLUMN {getattr(self, which)} TO {new}")
        setattr(self, which, new)

    @rule()
    def add_column(self) -> None:
        self.extra.append(self.fresh())
        self.spark.sql(f"ALTER TABLE {TABLE} ADD COLUMN {self.extra[-1]} BIGINT")

    @precondition(lambda self: self.extra)
    @rule()
    def drop_column(self) -> None:
        self.spark.sql(f"ALTER TABLE {TABLE} DROP COLUMN {self.extra.pop()}")

    @precondition(lambda self: not self.partition_fields)
    @rule()
    def promote(self) -> None:
        self.spark.sql(f"ALTER TABLE {TABLE} ALTER COLUMN {self.k} TYPE BIGINT")

    @rule(transform=st.sampled_from(["bucket(2, {k})", "{s}", "truncate(1, {s})"]))
    def partition(self, transform: str) -> None:
        if self.partition_fields:
            self.spark.sql(f"ALTER TABLE {TABLE} DROP PARTITION FIELD {self.partition_fields.pop()}")
        else:
            name = self.fresh()
            field = transform.format(k=self.k, s=self.s)
            self.spark.sql(f"ALTER TABLE {TABLE} ADD PARTITION FIELD {field} AS {name}")
            self.partition_fields.append(name)

    @rule(is_branch=st.booleans(), rows=batches)
    def refer(self, is_branch: bool, rows: Rows) -> None:
        name = self.fresh()
        self.spark.sql(f"ALTER TABLE {TABLE} CREATE {'BRANCH' if is_branch else 'TAG'} {name}")
        self.references[name] = self.head
        if is_branch:
            values, added = self.filled(rows)
            self.spark.sql(f"INSERT INTO {TABLE}.branch_{name} (n, {self.k}, {self.s}) VALUES {values}")
            self.references[name] = self.head_of(name)
            self.contents[self.references[name]] = self.now | added

    @rule(place=places)
    def rollback(self, place: int) -> None:
        history = self.spark.sql(f"SELECT snapshot_id FROM {TABLE}.history WHERE is_current_ancestor").collect()
        kept = {row[0] for row in self.spark.sql(f"SELECT snapshot_id FROM {TABLE}.snapshots").collect()}
        past = [row[0] for row in history if row[0] in kept and row[0] in self.contents]
        self.spark.sql(f"CALL lake.system.set_current_snapshot('lives.t', {past[place % len(past)]}L)")
        self.now = self.contents[self.head]

    def procedure(self, call: str) -> None:
        """Run a procedure that changes files and no rows."""
        self.spark.sql(f"CALL lake.system.{call}").collect()
        self.contents[self.head] = self.now

    @rule(how=st.sampled_from(["binpack", "sort"]))
    def rewrite_data_files(self, how: str) -> None:
        order = f", sort_order => '{self.s} DESC'" if how == "sort" else ""
        options = "map('rewrite-all', 'true')"
        self.procedure(f"rewrite_data_files(table => 'lives.t', strategy => '{how}'{order}, options => {options})")

    @rule()
    def rewrite_deletes(self) -> None:
        self.procedure("rewrite_position_delete_files(table => 'lives.t', options => map('rewrite-all', 'true'))")

    @rule()
    def rewrite_manifests(self) -> None:
        self.procedure("rewrite_manifests('lives.t')")

    @rule()
    def expire_snapshots(self) -> None:
        self.procedure("expire_snapshots(table => 'lives.t', older_than => TIMESTAMP '2999-01-01 00:00:00')")

    @rule()
    def remove_orphan_files(self) -> None:
        jvm = self.spark._jvm
        assert jvm is not None
        table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self.spark._jsparkSession, TABLE)
        # The procedure refuses files of the last day; the action behind it takes any time.
        actions = jvm.org.apache.iceberg.spark.actions.SparkActions.get(self.spark._jsparkSession)
        actions.deleteOrphanFiles(table).olderThan(jvm.java.lang.System.currentTimeMillis() + 1000).execute()

    @rule(rows=batches)
    def recreate(self, rows: Rows) -> None:
        self.spark.sql(f"DROP TABLE {TABLE} PURGE")
        with pytest.raises(NotFoundError):
            TableIndex.open(self.catalog, "lives.t")
        self.create(rows)

    @rule()
    def build_on_executors(self) -> None:
        self.index.build(self.spark)

    @rule()
    def compact(self) -> None:
        assert self.index.compact().skipped == ()

    @invariant()
    def find_what_they_should(self) -> None:
        self.step += 1
        if self.step % self.lag == 0:
            self.index.build(workers=1)
        self.spark.conf.set(ENABLED, "false")
        plain = self.spark.sql(f"SELECT * FROM {TABLE}").collect()
        self.spark.conf.set(ENABLED, "true")
        assert {row[0]: (row[1], row[2]) for row in plain} == self.now
        assert len(plain) == len(self.now)
        where, expected = self.matching(self.questions[self.step % len(self.questions)])
        found = self.spark.sql(f"SELECT n FROM {TABLE} WHERE {where}").collect()
        assert sorted(row[0] for row in found) == sorted(expected), where
        if self.step % 3 == 0:
            self.ask_groups(where, expected)
        if self.references:
            name = sorted(self.references)[self.step % len(self.references)]
            self.ask_reference(name, self.questions[(self.step + 1) % len(self.questions)])

    def ask_groups(self, where: str, expected: set[int]) -> None:
        """Ask for groups of a computed double: -0.0 and 0.0 are one, which the text of rows tells apart."""
        groups = self.spark.sql(f"SELECT {self.k} * -0.0D AS g, COUNT(*) AS c FROM {TABLE} WHERE {where} GROUP BY 1")
        counts = Counter(None if self.now[n][0] is None else 0.0 for n in expected)
        assert sorted(map(str, groups.collect())) == sorted(f"Row(g={g}, c={c})" for g, c in counts.items()), where

    def ask_reference(self, name: str, ask: Ask) -> None:
        """Ask what a branch or tag holds; a tag has the names of its own time."""
        source = f"{TABLE} VERSION AS OF '{name}'"
        _, k, s, *_ = self.spark.sql(f"SELECT * FROM {source}").columns
        where, tree = ask(k, s)
        content = self.contents[self.references[name]]
        expected = sorted(n for n, row in content.items() if evaluate(tree, {k: row[0], s: row[1]}) is True)
        sql = f"SELECT n FROM {source} WHERE {where}"
        plain, found = self.outcome(sql, enabled=False), self.outcome(sql, enabled=True)
        assert plain == found, (name, where)
        # Iceberg looks for the new name of a column in a branch that was last written with the old one.
        assert plain == expected or "Cannot find field" in str(plain)

    def outcome(self, sql: str, *, enabled: bool) -> list[int] | str:
        self.spark.conf.set(ENABLED, str(enabled).lower())
        try:
            return sorted(row[0] for row in self.spark.sql(sql).collect())
        except Py4JJavaError as error:
            return str(error.java_exception)
        finally:
            self.spark.conf.set(ENABLED, "true")


def test_queries_find_what_they_should_whatever_happened(hooked: SparkSession, catalog: SqlCatalog) -> None:
    with agreement.settings(hooked, {"spark.puffin-index.aggregates": "true"}):
        run_state_machine_as_test(partial(SparkHistory, hooked, catalog), settings=history_settings(2, 40))
    assert sum(report.dropped for report in planner.reports(hooked)) > 0
