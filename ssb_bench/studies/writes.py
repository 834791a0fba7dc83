"""Writes and questions by keys: each statement without the hook and with it, on the same snapshot of one table.

The table is rolled back after each execution, whose answer is what its snapshot has changed: data files taken away,
rows added, positions deleted. Where rows of keys are is asked of Spark without the hook.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import mul
from pathlib import Path
from typing import Annotated, Final

import duckdb
from pyspark.sql import SparkSession

import planner
from puffin_index import IndexDefinition, TableIndex
from ssb_bench.data.layout import NAMESPACE, local_path
from ssb_bench.spark_runs.bench import Bench, Repeats, Seen, Task
from ssb_bench.spark_runs.load import (
    DEFAULT_ROW_GROUP_ROWS,
    MERGE,
    expire_snapshots,
    note_indexed,
    row_group_properties,
    table_rows,
    write_table,
)
from ssb_bench.spark_runs.measure import Answer, answer_of, hooked
from ssb_bench.spark_runs.session import CATALOG, open_catalog

TITLE = "Writes by keys"
MOST_KEPT: Final = 1.1
"""The scan of the keys may read this many times the row groups that hold one."""
_TABLE: Final = f"{NAMESPACE}.keyed"
_SPARK_TABLE: Final = f"{CATALOG}.{_TABLE}"
_ADDED, _DELETED = 1, 2
_ROWS, _POSITIONS = 0, 1
"""How Iceberg's metadata say what became of a file, and what it has."""
_ENABLED: Final = "spark.puffin-index.enabled"
_MERGED_KEYS: Final = 1_000
_CHOICES: Final = {"recent": "ORDER BY lo_orderkey DESC, lo_linenumber DESC LIMIT 100000", "scattered": ""}
_MERGE: Final = MERGE.format(table=_SPARK_TABLE, source=f"{_SPARK_TABLE}_{{keys}}")
_DELETE: Final = f"DELETE FROM {_SPARK_TABLE} WHERE id IN (SELECT id FROM {_SPARK_TABLE}_{{keys}} WHERE id <= {{last}})"
_SUMS: Final = f"SELECT count(*), sum(lo_revenue) FROM {_SPARK_TABLE}"


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement by so many keys, and how many times as fast or in how many seconds the hook shall make it."""

    name: str
    keys: Sequence[str]
    sql: str
    count: int
    times_as_fast: float | None = None
    most_seconds: float | None = None
    properties: str = ""


_RECENT, _BOTH = ("recent",), ("recent", "scattered")
_LOCATE: Final = _Statement("planner.locate of 1,000", _BOTH, "", _MERGED_KEYS, None, 0.5)
_STATEMENTS: Final = (
    _Statement("MERGE merge-on-read of 1,100", _BOTH, _MERGE, 1_000, 10, None, "'write.merge.mode'='merge-on-read'"),
    _Statement("MERGE copy-on-write of 1,100", _RECENT, _MERGE, 1_000, 2, None, "'write.merge.mode'='copy-on-write'"),
    _Statement("DELETE of 100 by subquery", _BOTH, _DELETE, 100, 10, None, "'write.delete.mode'='merge-on-read'"),
    _Statement("join with a list of 1,000", _RECENT, f"{_SUMS} JOIN listed USING (id)", 1_000, None, 0.3),
    _Statement("IN a list of 1,000", _RECENT, f"{_SUMS} WHERE id IN (SELECT id FROM listed)", 1_000, None, 0.3),
    _Statement("= the least of a list", _RECENT, f"{_SUMS} WHERE id = (SELECT min(id) FROM listed)", 1, None, 0.3),
    _LOCATE,
)


def measure(
    bench: Bench,
    *,
    repeats: Repeats = 5,
    row_group_rows: Annotated[int, "Rows of a row group."] = DEFAULT_ROW_GROUP_ROWS,
) -> None:
    """Merge, delete, join and locate rows by keys, without and with the index; exit 1 if a result differs."""
    with bench.session() as spark:
        index = _make_table(spark, bench, row_group_rows)
        note_indexed(bench, index)
        with hooked(spark, aggregates=False):
            keyed = _Keyed(spark, index, row_group_rows)
            try:
                for task in keyed.tasks():
                    bench.compare([task], repeats=repeats)
            finally:
                keyed.clean_up()


def _make_table(spark: SparkSession, bench: Bench, row_group_rows: int) -> TableIndex:
    """Write the table and its index anew."""
    catalog = open_catalog(bench.layout.warehouse)
    catalog.create_namespace_if_not_exists(NAMESPACE)
    if catalog.table_exists(_TABLE):
        TableIndex.open_or_define(catalog, _TABLE).drop()
    rows = table_rows(spark, bench.layout, "lineorder")
    rows = rows.selectExpr("xxhash64(lo_orderkey, lo_linenumber) AS id", "*")
    write_table(rows, _SPARK_TABLE, row_group_properties(rows, row_group_rows) | {"format-version": "2"})
    index = TableIndex.create(catalog, _TABLE, IndexDefinition.of(bitmap=["id"]))
    index.build(spark)
    return index


@dataclass(slots=True)
class _Keyed:
    """The table, its snapshot, and where rows of the chosen keys are: data files and positions in them."""

    spark: SparkSession
    index: TableIndex
    row_group_rows: int
    snapshot: int = 0
    places: dict[str, dict[int, tuple[Path, int]]] = field(default_factory=dict)

    def tasks(self) -> Iterator[Task]:
        """Give the tasks; each is to be measured before the next is asked for."""
        self.snapshot = self._current()
        for keys in _CHOICES:
            self._choose(keys)
        listed = self.spark.createDataFrame([(one,) for one in self.places["recent"]], "id BIGINT")
        listed.createOrReplaceTempView("listed")
        for statement in _STATEMENTS:
            if statement.properties:
                self.spark.sql(f"ALTER TABLE {_SPARK_TABLE} SET TBLPROPERTIES ({statement.properties})")
            for keys in statement.keys:
                places = self.places[keys]
                first = [*places.values()][: statement.count]
                holding = len({(file, position // self.row_group_rows) for file, position in first})
                most: dict[str, float] = {"kept row groups": MOST_KEPT * holding}
                if statement.most_seconds is not None:
                    most["seconds"] = statement.most_seconds
                work: Callable[[bool], Seen] = partial(self._locate, [*places])
                if statement is not _LOCATE:
                    sql = statement.sql.format(keys=keys, last=[*places][statement.count - 1])
                    work = partial(self._execute, sql, holding, bool(statement.properties))
                yield Task(
                    f"{statement.name}, {keys}",
                    {side: partial(work, side == "with") for side in ("without", "with")},
                    most=most,
                    limit=partial(mul, 1 / statement.times_as_fast) if statement.times_as_fast else None,
                )

    def _execute(self, sql: str, holding: int, is_change: bool, on: bool) -> Seen:
        """Ask, or change the table and roll it back; say what came out, and what the scan of the keys read."""
        self._hook(on=on)
        before = planner.reports(self.spark)
        started = time.perf_counter()
        rows = self.spark.sql(sql).collect()
        seconds = time.perf_counter() - started
        new = [report for report in planner.reports(self.spark) if all(report is not one for one in before)]
        kept = [report.kept for report in new if on and report.table == _SPARK_TABLE]
        answer = self._changes() if is_change else answer_of(rows)
        if is_change:
            self.spark.sql(f"CALL {CATALOG}.system.rollback_to_snapshot('{_TABLE}', {self.snapshot})")
        return Seen(answer, {"holding row groups": holding} | ({"kept row groups": min(kept)} if kept else {}), seconds)

    def _locate(self, ids: Sequence[int], on: bool) -> Seen:
        """Ask where rows are, which Spark without the hook has to scan for."""
        self._hook(on=on)
        started = time.perf_counter()
        if on:
            table = planner.locate(self.index, {"id": [*ids]})
            rows = zip(*(table[name].to_pylist() for name in ("id", "_file", "_pos")), strict=True)
            places = {one: (local_path(file), at) for one, file, at in rows}
        else:
            places = self._places(ids)
        return Seen(answer_of(places.items()), {}, time.perf_counter() - started)

    def clean_up(self) -> None:
        """Delete what rolled-back statements wrote."""
        self._hook(on=False)
        for keys in _CHOICES:
            self.spark.sql(f"DROP TABLE IF EXISTS {_SPARK_TABLE}_{keys} PURGE")
        expire_snapshots(self.spark, _TABLE)
        self._hook(on=True)

    def _choose(self, keys: str) -> None:
        """Choose keys, find where their rows are, and write these and a tenth with new ids as the source of a MERGE."""
        self._hook(on=False)
        newest = f"SELECT id FROM {_SPARK_TABLE} {_CHOICES[keys]}"
        chosen = f"SELECT id FROM ({newest}) ORDER BY xxhash64(id, 7) LIMIT {_MERGED_KEYS}"
        ids = sorted(row.id for row in self.spark.sql(chosen).collect())
        self.places[keys] = self._places(ids)
        self._hook(on=True)
        rows = self.spark.sql(f"SELECT * FROM {_SPARK_TABLE} WHERE id IN {(*ids,)}").localCheckpoint()
        changed = rows.selectExpr("* EXCEPT (lo_quantity)", "lo_quantity + 1 AS lo_quantity").select(*rows.columns)
        new = rows.limit(_MERGED_KEYS // 10).selectExpr("id ^ 1099511627776 AS id", *rows.columns[1:])
        write_table(changed.union(new).coalesce(1), f"{_SPARK_TABLE}_{keys}", {})

    def _places(self, ids: Sequence[int]) -> dict[int, tuple[Path, int]]:
        """Ask Spark where rows are, by ascending id."""
        sql = f"SELECT id, _file, _pos FROM {_SPARK_TABLE} WHERE id IN {(*ids,)}"
        return {row[0]: (local_path(row[1]), row[2]) for row in sorted(self.spark.sql(sql).collect())}

    def _hook(self, *, on: bool) -> None:
        self.spark.conf.set(_ENABLED, str(on).lower())

    def _current(self) -> int:
        newest = f"SELECT snapshot_id FROM {_SPARK_TABLE}.history ORDER BY made_current_at DESC LIMIT 1"
        return int(self.spark.sql(newest).collect()[0][0])

    def _changes(self) -> Answer:
        """What the newest snapshot has taken away and added: data files, rows, and positions of deleted rows."""
        columns = "status, data_file.content AS content, data_file.file_path AS file"
        entries = self.spark.sql(f"SELECT {columns} FROM {_SPARK_TABLE}.entries WHERE snapshot_id = {self._current()}")
        found = [(row.status, row.content, str(local_path(row.file))) for row in entries.collect()]
        removed = sorted(file for status, _, file in found if status == _DELETED)
        rows, positions = (
            _digest([file for status, own, file in found if (status, own) == (_ADDED, content)])
            for content in (_ROWS, _POSITIONS)
        )
        text = f"{len(removed)} files less, {rows[0]:,} rows more, {positions[0]:,} positions deleted"
        return Answer(text, repr((removed, rows, positions)))


def _digest(files: Sequence[str]) -> tuple[int, int | None]:
    """The number of the rows of Parquet files, and a hash of them in any order."""
    if not files:
        return 0, None
    sql = "SELECT count(*), bit_xor(hash(t)) FROM (FROM read_parquet($files)) t"
    [(count, digest)] = duckdb.execute(sql, {"files": files}).fetchall()
    return int(count), int(digest)
