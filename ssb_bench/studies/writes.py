"""Writes and questions by keys: each statement without the hook and with it, on the same snapshot of one table.

The table is lineorder with an id in no order, like UUIDs. Keys are recent (of the newest rows, which few row groups
hold) or scattered. A statement is measured in turns, and the table is rolled back after each execution. The last
snapshots that it made without and with the hook must have changed the same: data files taken away, rows added,
positions deleted. Where rows of keys are is asked of Spark without the hook, which also says how many row groups hold a
key.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
from pyspark.sql import SparkSession

import planner
from puffin_index import IndexDefinition, TableIndex
from ssb_bench.data.layout import NAMESPACE, Layout, local_path, read_if_there, write_record
from ssb_bench.results.studies import WritesRun, WriteStep
from ssb_bench.spark_runs.load import row_group_properties, table_rows, write_table
from ssb_bench.spark_runs.measure import in_turns
from ssb_bench.spark_runs.run import hooked
from ssb_bench.spark_runs.session import CATALOG, describe_machine, open_catalog

_TABLE: Final = f"{NAMESPACE}.keyed"
_SPARK_TABLE: Final = f"{CATALOG}.{_TABLE}"
_ENABLED: Final = "spark.puffin-index.enabled"
_NEWEST_ROWS: Final = 100_000
_MERGED_KEYS: Final = 1_000
_DELETED_KEYS: Final = 100
_LONG_SECONDS: Final = 10.0
_CHOICES: Final = {"recent": f"ORDER BY lo_orderkey DESC, lo_linenumber DESC LIMIT {_NEWEST_ROWS}", "scattered": ""}
_MERGE: Final = (
    f"MERGE INTO {_SPARK_TABLE} t USING {_SPARK_TABLE}_{{keys}} s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)
_DELETE: Final = f"DELETE FROM {_SPARK_TABLE} WHERE id IN (SELECT id FROM {_SPARK_TABLE}_{{keys}} WHERE id <= {{last}})"
_log = logging.getLogger(__name__)

Place = tuple[str, int]
"""A data file and a position in it."""


@dataclass(frozen=True, slots=True)
class _Made:
    """What the table was made of."""

    scale_factor: float
    row_group_rows: int


def measure_writes(spark: SparkSession, layout: Layout, *, repeats: int, row_group_rows: int) -> WritesRun:
    """Make the table unless it is there, and measure everything; nothing else may run in the session.

    Raises BenchError without the SSB files.
    """
    _make_table(spark, layout, row_group_rows)
    index = TableIndex.open(open_catalog(layout.warehouse), _TABLE)
    with hooked(spark, aggregates=False):
        study = _Study(spark, index, repeats)
        try:
            steps = study.run()
        finally:
            study.clean_up()
    status = index.status()
    return WritesRun(
        scale_factor=layout.scale_factor,
        machine=describe_machine(spark),
        rows=int(index.data_table.inspect.files()["record_count"].to_numpy().sum()),
        data_files=status.data_files,
        row_groups=status.row_groups,
        data_bytes=status.data_bytes,
        index_bytes=status.index_bytes,
        steps=tuple(steps),
        failures=tuple(study.failures),
    )


def _make_table(spark: SparkSession, layout: Layout, row_group_rows: int) -> None:
    record, made = layout.warehouse / "keyed.json", _Made(layout.scale_factor, row_group_rows)
    if read_if_there(record, _Made) == made:
        return
    _log.info("writing %s", _TABLE)
    record.unlink(missing_ok=True)
    catalog = open_catalog(layout.warehouse)
    catalog.create_namespace_if_not_exists(NAMESPACE)
    if catalog.table_exists(_TABLE):
        TableIndex.open_or_define(catalog, _TABLE).drop()
    rows = table_rows(spark, layout, "lineorder").selectExpr("xxhash64(lo_orderkey, lo_linenumber) AS id", "*")
    write_table(rows, _SPARK_TABLE, row_group_properties(rows, row_group_rows) | {"format-version": "2"})
    TableIndex.create(catalog, _TABLE, IndexDefinition.of(bitmap=["id"])).build(spark)
    write_record(record, made)


@dataclass(slots=True)
class _Study:
    """The table, its snapshot, and where rows of the chosen keys are."""

    spark: SparkSession
    index: TableIndex
    repeats: int
    failures: list[str] = field(default_factory=list)
    ids: dict[str, list[int]] = field(default_factory=dict)
    places: dict[str, dict[int, Place]] = field(default_factory=dict)
    snapshot: int = 0

    def run(self) -> list[WriteStep]:
        self.snapshot = self._current()
        for keys in _CHOICES:
            self._choose(keys)
        steps = []
        for mode, ratio, choices in (("merge-on-read", 10.0, tuple(_CHOICES)), ("copy-on-write", 2.0, ("recent",))):
            self.spark.sql(f"ALTER TABLE {_SPARK_TABLE} SET TBLPROPERTIES ('write.merge.mode'='{mode}')")
            for keys in choices:
                steps.append(self._statement(f"MERGE {mode} of 1,100", keys, _MERGE, _MERGED_KEYS, ratio))
        self.spark.sql(f"ALTER TABLE {_SPARK_TABLE} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
        for keys in _CHOICES:
            steps.append(self._statement("DELETE of 100 by subquery", keys, _DELETE, _DELETED_KEYS, 10.0))
        return [*steps, *self._lists(), *map(self._locate, _CHOICES)]

    def clean_up(self) -> None:
        """Delete what rolled-back statements wrote."""
        self._hook(on=False)
        for keys in _CHOICES:
            self.spark.sql(f"DROP TABLE IF EXISTS {_SPARK_TABLE}_{keys} PURGE")
        now = "TIMESTAMP '2100-01-01 00:00:00'"
        self.spark.sql(f"CALL {CATALOG}.system.expire_snapshots(table => '{_TABLE}', older_than => {now})")
        self._hook(on=True)

    def _choose(self, keys: str) -> None:
        """Choose keys, find where their rows are, and write these and a tenth with new ids as the source of a MERGE."""
        self._hook(on=False)
        newest = f"SELECT id FROM {_SPARK_TABLE} {_CHOICES[keys]}"
        chosen = f"SELECT id FROM ({newest}) ORDER BY xxhash64(id, 7) LIMIT {_MERGED_KEYS}"
        self.ids[keys] = sorted(row.id for row in self.spark.sql(chosen).collect())
        self.places[keys] = self._places(keys)
        self._hook(on=True)
        rows = self.spark.sql(f"SELECT * FROM {_SPARK_TABLE} WHERE id IN ({self._listed(keys)})").localCheckpoint()
        changed = rows.selectExpr("id", *(_plus_one(name) for name in rows.columns[1:]))
        new = rows.limit(_MERGED_KEYS // 10).selectExpr("id ^ 1099511627776 AS id", *rows.columns[1:])
        write_table(changed.union(new).coalesce(1), f"{_SPARK_TABLE}_{keys}", {})

    def _listed(self, keys: str) -> str:
        return ", ".join(map(str, self.ids[keys]))

    def _places(self, keys: str) -> dict[int, Place]:
        """Ask Spark where rows are."""
        sql = f"SELECT id, _file, _pos FROM {_SPARK_TABLE} WHERE id IN ({self._listed(keys)})"
        found = self.spark.sql(sql).collect()
        return {row["id"]: (row["_file"], row["_pos"]) for row in found}

    def _holding(self, keys: str, count: int) -> int:
        """Count the row groups that hold one of the first ids."""
        places = [self.places[keys][one] for one in self.ids[keys][:count]]
        held = 0
        for file in {file for file, _ in places}:
            footer = pq.read_metadata(local_path(file))
            ends = np.cumsum([footer.row_group(ordinal).num_rows for ordinal in range(footer.num_row_groups)])
            held += len(np.unique(np.searchsorted(ends, [at for own, at in places if own == file], "right")))
        return held

    def _statement(self, name: str, keys: str, sql: str, count: int, least_ratio: float) -> WriteStep:
        """Measure a statement that writes."""
        made: dict[bool, int] = {}

        def execute(on: bool) -> None:
            self.spark.sql(sql.format(keys=keys, last=self.ids[keys][count - 1]))
            made[on] = self._current()

        step = self._measured(name, keys, execute, count, least_ratio=least_ratio, after=self._roll_back)
        changes = [self._changes(made[on]) for on in (False, True)]
        if changes[0] != changes[1]:
            self.failures.append(f"{name}, {keys} keys: {changes[1]} with the hook, {changes[0]} without")
        return step

    def _lists(self) -> list[WriteStep]:
        """Measure questions by keys of a list of Python."""
        ids = self.ids["recent"]
        self.spark.createDataFrame([(one,) for one in ids], "id BIGINT").createOrReplaceTempView("listed")
        one = "SELECT count(*), sum(lo_revenue) FROM"
        questions = {
            "join with a list of 1,000": (f"{one} {_SPARK_TABLE} JOIN listed USING (id)", _MERGED_KEYS),
            "IN a list of 1,000": (f"{one} {_SPARK_TABLE} WHERE id IN (SELECT id FROM listed)", _MERGED_KEYS),
            "= the least of a list": (f"{one} {_SPARK_TABLE} WHERE id = (SELECT min(id) FROM listed)", 1),
        }
        steps = []
        for name, (sql, count) in questions.items():
            answers: dict[bool, object] = {}

            def ask(on: bool, sql: str = sql, answers: dict[bool, object] = answers) -> None:
                answers[on] = self.spark.sql(sql).collect()

            steps.append(self._measured(name, "recent", ask, count, most_seconds=0.3))
            if answers[True] != answers[False]:
                self.failures.append(f"{name}: {answers[True]} with the hook, {answers[False]} without")
        return steps

    def _locate(self, keys: str) -> WriteStep:
        """Measure where rows are, which Spark without the hook has to scan for."""
        found: dict[int, Place] = {}

        def ask(on: bool) -> None:
            if on:
                rows = planner.locate(self.index, {"id": self.ids[keys]})
                places = zip(rows["_file"].to_pylist(), rows["_pos"].to_pylist(), strict=True)
                found.update(zip(rows["id"].to_pylist(), places, strict=True))
            else:
                self._places(keys)

        step = self._measured("planner.locate of 1,000", keys, ask, _MERGED_KEYS, most_seconds=0.5)
        if {one: (local_path(file), at) for one, (file, at) in found.items()} != {
            one: (local_path(file), at) for one, (file, at) in self.places[keys].items()
        }:
            self.failures.append(f"planner.locate, {keys} keys: other places than in Spark")
        return step

    def _measured(
        self,
        name: str,
        keys: str,
        execute: Callable[[bool], None],
        count: int,
        *,
        least_ratio: float | None = None,
        most_seconds: float | None = None,
        after: Callable[[], None] | None = None,
    ) -> WriteStep:
        """Execute without and with the hook in turns, after once each to warm up unless that took long anyway."""
        _log.info("measuring %s, %s keys", name, keys)
        seconds: dict[bool, list[float]] = {False: [], True: []}
        kept: int | None = None
        for on in in_turns((False, True), 1 + self.repeats):
            if len(seconds[on]) == self.repeats and seconds[on][0] > _LONG_SECONDS:
                continue
            self._hook(on=on)
            before = planner.reports(self.spark)
            started = time.perf_counter()
            execute(on)
            seconds[on].append(time.perf_counter() - started)
            if on:
                new = [report for report in planner.reports(self.spark) if all(report is not one for one in before)]
                kept = min((report.kept for report in new if report.table == _SPARK_TABLE), default=None)
            if after is not None:
                after()
        without, with_index = (tuple(seconds[on][-self.repeats :]) for on in (False, True))
        return WriteStep(name, keys, without, with_index, kept, self._holding(keys, count), least_ratio, most_seconds)

    def _hook(self, *, on: bool) -> None:
        self.spark.conf.set(_ENABLED, str(on).lower())

    def _current(self) -> int:
        newest = f"SELECT snapshot_id FROM {_SPARK_TABLE}.history ORDER BY made_current_at DESC LIMIT 1"
        return int(self.spark.sql(newest).collect()[0][0])

    def _roll_back(self) -> None:
        self.spark.sql(f"CALL {CATALOG}.system.rollback_to_snapshot('{_TABLE}', {self.snapshot})")

    def _changes(self, snapshot: int) -> tuple[object, ...]:
        """What a snapshot has added and taken away: data files, rows, and positions of deleted rows."""
        table = self.index.data_table.refresh()
        made = table.snapshot_by_id(snapshot)
        assert made is not None
        entries = [
            entry
            for manifest in made.manifests(table.io)
            if manifest.added_snapshot_id == snapshot
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            if entry.status != ManifestEntryStatus.EXISTING
        ]
        removed = {entry.data_file.file_path for entry in entries if entry.status == ManifestEntryStatus.DELETED}
        added = [entry.data_file for entry in entries if entry.status == ManifestEntryStatus.ADDED]
        return removed, *(
            _digest([local_path(file.file_path) for file in added if file.content == content])
            for content in (DataFileContent.DATA, DataFileContent.POSITION_DELETES)
        )


def _digest(files: Sequence[Path]) -> tuple[object, ...] | None:
    """The number of the rows of Parquet files, and a hash of them in any order."""
    if not files:
        return None
    with duckdb.connect() as connection:
        names = [str(file) for file in files]
        sql = "SELECT count(*), bit_xor(hash(t)) FROM (FROM read_parquet(?)) t"
        return connection.execute(sql, [names]).fetchone()


def _plus_one(name: str) -> str:
    return f"lo_quantity + 1 AS {name}" if name == "lo_quantity" else name
