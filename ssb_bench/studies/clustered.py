"""Clustered keys: of each query, the row groups that the planner keeps, beside those that hold a match.

Keys come in bursts, as the lines of a session do, with three bursts of each key. A table has a column for each order,
type and length of bursts, and a payload that does not compress. `sorted`: keys ascend over time. `partly sorted`:
bursts come late by up to a fifth of the table. `random`: bursts come in any order.

Queries of one or two columns are SQL text, which the planner and DuckDB read. What holds a match is found by DuckDB in
the rows of the data files. What minimum and maximum keep is what the planner keeps when it may read no index.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Final, Literal, get_args

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import planner
from puffin_index import IndexDefinition, TableIndex
from puffin_index.storage.arrays import Flags, Ints
from ssb_bench.results.studies import BurstCell, BurstTable, ClusteredRun, Regret
from ssb_bench.spark_runs.measure import in_turns
from ssb_bench.spark_runs.session import describe_host, open_catalog

NAMESPACE: Final = "clustered"
Order = Literal["sorted", "partly sorted", "random"]
Kind = Literal["string", "long", "timestamp"]
ORDERS: Final[tuple[Order, ...]] = get_args(Order)
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
BURSTS: Final = (1, 4, 12, 50, 500)
PAYLOAD: Final = "payload"

_BURSTS_OF_KEY: Final = 3
_LATENESS: Final = 0.2
_STEP: Final = 1009
_FIRST_MICROSECOND: Final = 1_704_067_200_000_000
_MICROSECONDS_OF_STEP: Final = 1_000
_PAYLOAD_BYTES: Final = 300
_DEFAULT_ROW_GROUP_BYTES: Final = 128 * 1024 * 1024
_SAMPLE_ROWS: Final = 100_000
_SEED: Final = 20_250
_SEED_OF_QUERIES: Final = 20_251


@dataclass(frozen=True, slots=True)
class Size:
    """How large row groups are: so many rows, or (None) as many as fill Iceberg's default of 128 MB."""

    name: str
    rows: int | None


@dataclass(frozen=True, slots=True)
class Grid:
    """The columns of a table, and its rows."""

    rows: int = 2_000_000
    file_rows: int = 1_000_000
    orders: Sequence[Order] = ORDERS
    kinds: Sequence[Kind] = KINDS


DEFAULT_GRID: Final = Grid()
SIZES: Final = (Size("20,000 rows", 20_000), Size("250,000 rows", 250_000), Size("128 MB", None))


def column_name(order: Order, kind: Kind, burst: int) -> str:
    """Name the column of an order, a type and a length of bursts."""
    return f"{order.replace(' ', '_')}_{kind}_{burst}"


@lru_cache(len(ORDERS) * len(BURSTS))
def draw_keys(order: Order, burst: int, rows: int) -> Ints:
    """Draw the number of the key of each row."""
    random = np.random.default_rng([_SEED, ORDERS.index(order), burst])
    numbers = np.arange(-(-rows // burst), dtype=np.int64)
    if order == "partly sorted":
        numbers = np.argsort(numbers + random.uniform(0, _LATENESS * len(numbers), len(numbers)))
    elif order == "random":
        numbers = random.permutation(numbers)
    return np.repeat(numbers // _BURSTS_OF_KEY, burst)[:rows]


def keys_of(kind: Kind, numbers: Ints, beside: int = 0) -> pa.Array:
    """Make keys of their numbers, in the same order, or values beside them that are no keys."""
    values = numbers * _STEP + beside
    if kind == "long":
        return pa.array(values)
    if kind == "timestamp":
        return pa.array(_FIRST_MICROSECOND + values * _MICROSECONDS_OF_STEP, pa.timestamp("us"))
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[values[:, None] >> np.arange(28, -4, -4) & 15]
    text = np.column_stack([np.full(len(values), ord("u"), np.uint8), digits])
    fixed = pa.Array.from_buffers(pa.binary(text.shape[1]), len(text), [None, pa.py_buffer(text.tobytes())])
    return fixed.cast(pa.binary()).cast(pa.string())


def make_table(catalog: Catalog, size: Size, grid: Grid) -> TableIndex:
    """Write a table and its index: bitmaps of strings and longs, bit slices of timestamps."""
    sample = _make_rows(grid, 0, _SAMPLE_ROWS)
    limit = size.rows or int(_DEFAULT_ROW_GROUP_BYTES / _bytes_per_row(sample))
    name = f"{NAMESPACE}.t_{size.name.replace(',', '').replace(' ', '_')}"
    # A file is one append, whatever its bytes.
    properties = {"write.parquet.row-group-limit": str(limit), "write.target-file-size-bytes": str(1 << 40)}
    catalog.create_namespace_if_not_exists(NAMESPACE)
    table = catalog.create_table(name, sample.schema, properties=properties)
    for start in range(0, grid.rows, grid.file_rows):
        table.append(_make_rows(grid, start, start + grid.file_rows))
    names = [name for name in sample.column_names if name != PAYLOAD]
    bsi = [name for name in names if "timestamp" in name]
    definition = IndexDefinition.of(bitmap=[name for name in names if name not in bsi], bsi=bsi)
    index = TableIndex.create(catalog, name, definition)
    index.build(workers=2)
    index.refresh()
    return index


def _make_rows(grid: Grid, start: int, stop: int) -> pa.Table:
    columns: dict[str, pa.Array] = {}
    for order, burst in product(grid.orders, BURSTS):
        numbers = draw_keys(order, burst, grid.rows)[start:stop]
        columns |= {column_name(order, kind, burst): keys_of(kind, numbers) for kind in grid.kinds}
    count = min(stop, grid.rows) - start
    payload = pa.py_buffer(np.random.default_rng([_SEED, start]).bytes(count * _PAYLOAD_BYTES))
    columns[PAYLOAD] = pa.Array.from_buffers(pa.binary(_PAYLOAD_BYTES), count, [None, payload])
    return pa.table(columns)


def _bytes_per_row(sample: pa.Table) -> float:
    """About how many bytes of a data file a row takes."""
    sink = pa.BufferOutputStream()
    pq.write_table(sample, sink, compression="zstd")
    return float(sink.getvalue().size) / len(sample)


@dataclass(frozen=True, slots=True)
class RowGroups:
    """The row groups of a table as its data files have them, and the number of each file's first one."""

    files: Sequence[str]
    first: Mapping[str, int]
    rows: Ints
    sizes: Ints

    @classmethod
    def of(cls, table: Table) -> RowGroups:
        """Read the footers of a table's data files."""
        files = sorted(task.file.file_path for task in table.scan().plan_files())
        metadata = [pq.read_metadata(_local(file)) for file in files]
        groups = [of_file.row_group(at) for of_file in metadata for at in range(of_file.num_row_groups)]
        counts = np.cumsum([0, *(of_file.num_row_groups for of_file in metadata)])
        return cls(
            files,
            dict(zip(files, counts.tolist(), strict=False)),
            np.array([group.num_rows for group in groups]),
            np.array(
                [sum(group.column(at).total_compressed_size for at in range(group.num_columns)) for group in groups]
            ),
        )

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Read columns of all rows, and the number of each row in the order of the row groups as `row`."""
        read = pa.concat_tables(pq.read_table(_local(file), columns=[*columns]) for file in self.files)
        return read.append_column("row", pa.array(np.arange(len(read))))

    def of_rows(self, rows: Ints) -> Ints:
        """Give the row group of each row."""
        return np.searchsorted(np.cumsum(self.rows), rows, side="right")


def _local(path: str) -> str:
    return path.removeprefix("file://")


FIRST_ROWS: Final = 10
_LISTED_KEYS: Final = 3
_FEW_KEYS: Final = 4
_MANY_KEYS: Final = 64
_PREFIX_LENGTH: Final = 6
"""A prefix of an `u` and five of eight digits has four keys."""


@dataclass(frozen=True, slots=True)
class Query:
    """Rows that satisfy a condition; of these the first ten by a column, greatest first, if there is an order."""

    where: str | None
    order_by: str | None = None

    @property
    def order(self) -> str | None:
        """The order as SQL."""
        return None if self.order_by is None else f"{self.order_by} DESC"


def draw_queries(
    random: np.random.Generator, order: Order, kind: Kind, burst: int, rows: int
) -> Iterator[tuple[str, Query]]:
    """Draw a query of each sort around a row of the table, with its name.

    `range` and `prefix` have four keys, `both` 64 of one column and 64 of another, whose bursts are of another length.
    """
    column, beside = column_name(order, kind, burst), BURSTS[BURSTS.index(burst) - 1]
    other, row = column_name(order, kind, beside), int(random.integers(rows))
    keys, other_keys = draw_keys(order, burst, rows), draw_keys(order, beside, rows)
    listed = keys[random.integers(0, rows, _LISTED_KEYS)]
    [key], [absent] = literals(kind, keys[[row]]), literals(kind, keys[[row]], beside=1)
    many = _around(column, kind, int(keys[row]), _MANY_KEYS)
    yield "needle", Query(f"{column} = {key}")
    yield "absent", Query(f"{column} = {absent}")
    yield "list", Query(f"{column} IN ({', '.join(literals(kind, listed))})")
    yield "range", Query(_around(column, kind, int(keys[row]), _FEW_KEYS))
    if kind == "string":
        yield "prefix", Query(f"{column} LIKE {key[: _PREFIX_LENGTH + 1]}%'")
    yield "both", Query(f"{many} AND {_around(other, kind, int(other_keys[row]), _MANY_KEYS)}")
    yield "first", Query(None, order_by=column)
    yield "first of range", Query(many, order_by=other)


def literals(kind: Kind, numbers: Ints, beside: int = 0) -> list[str]:
    """Write keys of their numbers as SQL, or values beside them that are no keys."""
    values = keys_of(kind, numbers, beside).to_pylist()
    return [str(value) if kind == "long" else f"{'TIMESTAMP ' * (kind == 'timestamp')}'{value}'" for value in values]


def _around(column: str, kind: Kind, key: int, count: int) -> str:
    """Write a range of `count` keys around a key as SQL."""
    first = max(0, key - count // 2)
    return f"{column} BETWEEN {' AND '.join(literals(kind, np.array([first, first + count - 1])))}"


def matching_rows(query: Query, rows: duckdb.DuckDBPyRelation) -> tuple[Ints, Ints]:
    """Ask DuckDB for the numbers of the rows that the answer may hold, and of those that it must.

    With an order, the last of the first rows may be any of those that are equal to it.
    """
    found = rows if query.where is None else rows.filter(query.where)
    if query.order_by is None:
        numbers: Ints = found.project("row").fetchnumpy()["row"]
        return numbers, numbers
    column = duckdb.ColumnExpression(query.order_by)
    last = found.project(query.order_by).order(query.order_by + " DESC").limit(FIRST_ROWS).fetchall()[-1][0]
    may, must = (found.filter(test).project("row").fetchnumpy()["row"] for test in (column >= last, column > last))
    return may, must


DEFAULT_TRIALS: Final = 2
HOPELESS_LISTS: Final = (100, 20_000)
PAIRS: Final = 5
_PATIENCE_MILLISECONDS: Final = 1e6
_SUMS: Final = ("row_groups", "matching", "kept", "without", "wrong", "index_bytes", "data_bytes")
_log = logging.getLogger(__name__)


def measure_clustered(
    warehouse: Path,
    *,
    grid: Grid = DEFAULT_GRID,
    sizes: Sequence[Size] = SIZES,
    trials: int = DEFAULT_TRIALS,
) -> ClusteredRun:
    """Make tables in a folder, emptied before and after, and plan the queries of every cell."""
    shutil.rmtree(warehouse, ignore_errors=True)
    catalog = open_catalog(warehouse)
    facts, cells, failures, regrets = list[BurstTable](), list[BurstCell](), list[str](), list[Regret]()
    for size in sizes:
        _log.info("row groups of %s: writing and indexing", size.name)
        index = make_table(catalog, size, grid)
        groups, status = RowGroups.of(index.data_table), index.status()
        most = int(groups.rows.max())
        facts.append(BurstTable(size.name, len(groups), most, status.data_bytes, status.index_bytes))
        _log.info("row groups of %s: planning", size.name)
        cells += measure_cells(index, groups, size, grid, trials, failures)
        if size == sizes[-1]:
            regrets += measure_regrets(index, grid)
    catalog.close()
    shutil.rmtree(warehouse, ignore_errors=True)
    failures += [f"{cell.name}: {cell.wrong} row groups with matches are dropped" for cell in cells if cell.wrong]
    return ClusteredRun(grid.rows, trials, describe_host(), tuple(facts), tuple(cells), tuple(failures), tuple(regrets))


def measure_cells(
    index: TableIndex, groups: RowGroups, size: Size, grid: Grid, trials: int, failures: list[str]
) -> Iterator[BurstCell]:
    """Plan the queries of every cell of a table, and find what holds a match; warnings count as failures."""
    for order, kind in product(grid.orders, grid.kinds):
        rows = duckdb.from_arrow(groups.read([column_name(order, kind, burst) for burst in BURSTS]))
        for burst in BURSTS:
            random = np.random.default_rng([_SEED_OF_QUERIES, ORDERS.index(order), KINDS.index(kind), burst])
            tried: dict[str, list[BurstCell]] = {}
            for _ in range(trials):
                for name, query in draw_queries(random, order, kind, burst, grid.rows):
                    empty = BurstCell(size.name, order, kind, burst, name)
                    tried.setdefault(name, []).append(_try(index, groups, rows, query, empty, failures))
            yield from map(_together, tried.values())


def measure_regrets(index: TableIndex, grid: Grid) -> Iterator[Regret]:
    """Plan and scan, in pairs, lists of keys that lie all over a table: the row groups of these have every list."""
    for kind, count in product(grid.kinds, HOPELESS_LISTS):
        random = np.random.default_rng([_SEED_OF_QUERIES, KINDS.index(kind), count])
        column, keys = column_name(grid.orders[-1], kind, 1), draw_keys(grid.orders[-1], 1, grid.rows)
        planning, scanning, plans = list[float](), list[float](), list[planner.ScanPlan]()
        for turn in in_turns(("warm", "plan", "scan"), PAIRS):
            listed = {column: keys_of(kind, keys[random.integers(0, grid.rows, count)])}
            started = time.perf_counter()
            if turn == "scan":
                planner.scan(index, None, [column], keys=listed, planning_milliseconds=0, refresh=False).read_all()
                scanning.append(time.perf_counter() - started)
                continue
            made = planner.plan(index, keys=listed, refresh=False)
            if turn == "plan":
                planning.append(made.planning_seconds)
                plans.append(made)
        read, dropped = (max(getattr(plan, name) for plan in plans) for name in ("index_bytes_read", "dropped"))
        yield Regret(f"{count:,} {kind}s", tuple(planning), tuple(scanning), read, dropped)


def _try(
    index: TableIndex,
    groups: RowGroups,
    rows: duckdb.DuckDBPyRelation,
    query: Query,
    cell: BurstCell,
    failures: list[str],
) -> BurstCell:
    """Plan a query, and put what came out into a cell."""
    plan = partial(planner.plan, index, query.where, planning_milliseconds=_PATIENCE_MILLISECONDS, refresh=False)
    made = plan(order_by=query.order, limit=None if query.order is None else FIRST_ROWS)
    kept, without = _kept(made, groups), _kept(plan(byte_budget=0), groups)
    failures += [f"{query.where}, order {query.order}: {warning}" for warning in made.warnings]
    matching, wrong = judge(query, rows, groups, kept)
    return replace(
        cell,
        row_groups=len(groups),
        matching=matching,
        kept=int(kept.sum()),
        without=int(without.sum()),
        wrong=wrong,
        index_bytes=made.index_bytes_read,
        data_bytes=int(groups.sizes[without].sum()),
        planning_seconds=made.planning_seconds,
    )


def _together(trials: Sequence[BurstCell]) -> BurstCell:
    sums = {name: sum(getattr(trial, name) for trial in trials) for name in _SUMS}
    return replace(trials[0], **sums, planning_seconds=max(trial.planning_seconds for trial in trials))


def judge(query: Query, rows: duckdb.DuckDBPyRelation, groups: RowGroups, kept: Flags) -> tuple[int, int]:
    """Count the row groups that hold a match, and those of them that are dropped though the answer needs them."""
    may, must = matching_rows(query, rows)
    group_of_match = groups.of_rows(may)
    wrong = np.unique(groups.of_rows(must))
    missed = int((~kept[wrong]).sum())
    if query.order is not None and kept[group_of_match].sum() < min(FIRST_ROWS, len(group_of_match)):
        # Rows that are equal to the last one are as good as each other, but there have to be enough.
        missed = max(missed, 1)
    return len(np.unique(group_of_match)), missed


def _kept(plan: planner.ScanPlan, groups: RowGroups) -> Flags:
    """Which row groups of the table a plan keeps; those of files that Iceberg leaves out are dropped."""
    first = np.array([groups.first[file] for file in plan.data_files], np.int64)
    kept = np.zeros(len(groups), np.bool_)
    kept[(first[plan.file_of] + plan.ordinals)[plan.kept_mask]] = True
    return kept
