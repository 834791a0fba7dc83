"""Writes and questions by keys: each statement without the hook and with it, on the same snapshot of one table.

The table is rolled back after each execution, whose answer is what its snapshot has changed: data files taken away,
rows added, positions deleted. Where rows of keys are is asked of Spark without the hook.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import mul
from pathlib import Path
from string import Template
from typing import Annotated, Final, TypeAlias

import duckdb
from pyspark.sql import SparkSession

import planner
from puffin_index import IndexDefinition, TableIndex
from ssb_bench.data.layout import NAMESPACE, local_path
from ssb_bench.data.workload import queries_of
from ssb_bench.spark_runs import load
from ssb_bench.spark_runs.bench import Bench, Repeats, Seen, Task
from ssb_bench.spark_runs.measure import Answer, answer_of, both_sides
from ssb_bench.spark_runs.session import CATALOG, open_catalog

TITLE = "Writes by keys"
MOST_KEPT: Final = 1.1
"""The scan of the keys may read this many times the row groups that hold one."""
_TABLE: Final = f"{NAMESPACE}.keyed"
_SPARK_TABLE: Final = f"{CATALOG}.{_TABLE}"
_ADDED, _DELETED = 1, 2
_ROWS, _POSITIONS = 0, 1
"""How Iceberg's metadata say what became of a file, and what it has."""
_CHOICES: Final = {"recent": load.RECENT, "scattered": ""}
_NEW_ROWS: Final = 100

Places: TypeAlias = Mapping[int, tuple[Path, int]]
"""Where rows are, by ascending id: data files and positions in them."""


def measure(
    bench: Bench,
    *,
    repeats: Repeats = 5,
    row_group_rows: Annotated[int, "Rows of a row group."] = load.DEFAULT_ROW_GROUP_ROWS,
) -> None:
    """Merge, delete, join and locate rows by keys, without and with the index; exit 1 if a result differs."""
    with bench.session() as spark:
        index = _make_table(spark, bench, row_group_rows)
        with both_sides(spark, aggregates=False) as sides:
            try:
                # Properties of the table change from task to task.
                for task in _Keyed(spark, sides, index, row_group_rows).tasks():
                    bench.compare([task], repeats=repeats)
            finally:
                load.drop_changes(spark, _TABLE, map(_source, _CHOICES))


def _make_table(spark: SparkSession, bench: Bench, row_group_rows: int) -> TableIndex:
    """Write the table and its index anew."""
    catalog = open_catalog(bench.layout.warehouse)
    catalog.create_namespace_if_not_exists(NAMESPACE)
    if catalog.table_exists(_TABLE):
        TableIndex.open_or_define(catalog, _TABLE).drop()
    rows = load.table_rows(spark, bench.layout, "lineorder")
    rows = rows.selectExpr("xxhash64(lo_orderkey, lo_linenumber) AS id", "*")
    load.write_table(rows, _SPARK_TABLE, load.row_group_properties(rows, row_group_rows) | {"format-version": "2"})
    return load.index_table(bench, spark, _TABLE, IndexDefinition.of(bitmap=["id"]))


def _source(keys: str) -> str:
    return f"{_SPARK_TABLE}_{keys}"


@dataclass(frozen=True, slots=True)
class _Keyed:
    """The table and its index, and sessions on both sides."""

    spark: SparkSession
    sides: Mapping[str, SparkSession]
    index: TableIndex
    row_group_rows: int

    def tasks(self) -> Iterator[Task]:
        """Give the tasks; each is to be measured before the next is asked for."""
        snapshot = load.newest_snapshot(self.spark, _SPARK_TABLE).snapshot_id
        places = {
            keys: self._places(load.write_source(self.spark, _SPARK_TABLE, _source(keys), among, _NEW_ROWS))
            for keys, among in _CHOICES.items()
        }
        listed = [(one,) for one in places["recent"]]
        for session in self.sides.values():
            session.createDataFrame(listed, "id BIGINT").createOrReplaceTempView("listed")
        for query in queries_of("writes"):
            headers, properties = query.headers, query.headers.get("properties")
            if properties is not None:
                self.spark.sql(f"ALTER TABLE {_SPARK_TABLE} SET TBLPROPERTIES ({properties})")
            for keys in headers["keys"].split():
                first = [*places[keys].items()][: int(headers["count"])]
                holding = len({(file, position // self.row_group_rows) for _, (file, position) in first})
                most: dict[str, float] = {"kept row groups": MOST_KEPT * holding}
                if "most-seconds" in headers:
                    most["seconds"] = float(headers["most-seconds"])
                times_as_fast = headers.get("times-as-fast")
                work: Callable[[str], Seen] = partial(self._locate, [*places[keys]])
                if query.sql:
                    sql = Template(query.sql).substitute(table=_SPARK_TABLE, source=_source(keys), last=first[-1][0])
                    work = partial(self._execute, sql, holding, None if properties is None else snapshot)
                yield Task(
                    f"{query.title}, {keys}",
                    {side: partial(work, side) for side in self.sides},
                    most=most,
                    limit=partial(mul, 1 / float(times_as_fast)) if times_as_fast else None,
                )

    def _execute(self, sql: str, holding: int, snapshot: int | None, side: str) -> Seen:
        """Ask, or change the table and roll it back; say what came out, and what the scan of the keys read."""
        spark = self.sides[side]
        before = planner.reports(spark)
        started = time.perf_counter()
        rows = spark.sql(sql).collect()
        seconds = time.perf_counter() - started
        new = [report for report in planner.reports(spark) if all(report is not one for one in before)]
        kept = [report.kept for report in new if report.table == _SPARK_TABLE]
        answer = answer_of(rows) if snapshot is None else _changes(spark)
        if snapshot is not None:
            load.roll_back(spark, _TABLE, snapshot)
        return Seen(answer, {"holding row groups": holding} | ({"kept row groups": min(kept)} if kept else {}), seconds)

    def _locate(self, ids: Sequence[int], side: str) -> Seen:
        """Ask where rows are, which Spark without the hook has to scan for."""
        started = time.perf_counter()
        if side == "with":
            table = planner.locate(self.index, {"id": [*ids]})
            rows = zip(*(table[name].to_pylist() for name in ("id", "_file", "_pos")), strict=True)
            places: Places = {one: (local_path(file), at) for one, file, at in rows}
        else:
            places = self._places(ids)
        return Seen(answer_of(places.items()), {}, time.perf_counter() - started)

    def _places(self, ids: Sequence[int]) -> Places:
        """Ask Spark where rows are."""
        sql = f"SELECT id, _file, _pos FROM {_SPARK_TABLE} WHERE id IN {(*ids,)}"
        return {row[0]: (local_path(row[1]), row[2]) for row in sorted(self.spark.sql(sql).collect())}


def _changes(spark: SparkSession) -> Answer:
    """What the newest snapshot has taken away and added: data files, rows, and positions of deleted rows."""
    columns, snapshot = (
        "status, data_file.content AS content, data_file.file_path AS file",
        load.newest_snapshot(spark, _SPARK_TABLE),
    )
    entries = spark.sql(f"SELECT {columns} FROM {_SPARK_TABLE}.entries WHERE snapshot_id = {snapshot.snapshot_id}")
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
