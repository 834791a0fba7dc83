"""Clustered keys: of each query, the row groups that the planner keeps, beside those that hold a match.

Queries of one or two columns are SQL text, which the planner and DuckDB read. What holds a match is found by DuckDB in
the rows of the data files. What minimum and maximum keep is what the planner keeps when it may read no index.
"""

import logging
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from typing import Annotated, Final, Literal, get_args

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import planner
from puffin_index import IndexDefinition, TableIndex
from puffin_index.storage.arrays import Flags, Ints
from ssb_bench.data.layout import local_path
from ssb_bench.results.record import Number, Step, together
from ssb_bench.spark_runs.bench import Bench
from ssb_bench.spark_runs.session import open_catalog

TITLE = "Keys in bursts"
NAMESPACE: Final = "clustered"
Order = Literal["sorted", "partly sorted", "random"]
Kind = Literal["string", "long", "timestamp"]
ORDERS: Final[tuple[Order, ...]] = get_args(Order)
BURSTS: Final = (1, 4, 12, 50, 500)
FIRST_ROWS: Final = 10
MOST_KEPT: Final = 1.1
"""An index may keep this many times the row groups that hold a match, wherever fewer than half of them do."""
MOST_REGRET: Final = 0.02
LEAST_REGRET_SECONDS: Final = 0.015
"""Planning that drops nothing may take this share of the scan, or so many seconds if that is more."""
HOPELESS_LISTS: Final = (100, 20_000)
KEYS: Final[dict[Kind, str]] = {
    "string": "printf('u%08x', {})",
    "long": "{}",
    "timestamp": "make_timestamp(1704067200000000 + 1000 * ({})::BIGINT)",
}
"""How DuckDB makes a key of its number: in the same order."""
STEP: Final = 1009
"""Numbers of keys are multiples of this; those between are no keys."""

_BURSTS_OF_KEY: Final = 3
_LATENESS: Final = 0.2
_PAYLOAD_BYTES: Final = 300
_ROW_BYTES: Final = 360
_SEED: Final = 20_250
_PREFIX_LENGTH: Final = 6
"""A prefix of an `u` and five of eight digits has four keys."""
_PAIRS: Final = 5
_PATIENCE_MILLISECONDS: Final = 1e6
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Grid:
    """The columns of a table, and its rows."""

    rows: int = 2_000_000
    file_rows: int = 1_000_000
    orders: Sequence[Order] = ORDERS
    kinds: Sequence[Kind] = tuple(KEYS)


SIZES: Final = {"20,000 rows": 20_000, "250,000 rows": 250_000, "128 MB": (128 << 20) // _ROW_BYTES}
"""The rows of row groups; 128 MB is Iceberg's default."""


def measure(
    bench: Bench,
    grid: Grid | None = None,
    sizes: Mapping[str, int] = SIZES,
    *,
    rows: Annotated[int, "Rows of a table."] = 2_000_000,
    trials: Annotated[int, "Queries of each cell."] = 2,
) -> None:
    """Plan queries of keys in bursts: what is kept, beside what holds a match; exit 1 if a match is dropped."""
    grid = grid or Grid(rows)
    warehouse = bench.layout.root / "clustered"
    shutil.rmtree(warehouse, ignore_errors=True)
    catalog = open_catalog(warehouse)
    for size, row_group_rows in sizes.items():
        _log.info("row groups of %s: writing and indexing", size)
        index = make_table(catalog, size, row_group_rows, grid)
        groups, status = RowGroups.of(index.data_table), index.status()
        facts = {name: getattr(status, name) for name in ("row_groups", "data_bytes", "index_bytes")}
        bench.note(f"row groups of {size}", **facts, most_rows=int(groups.rows.max()), rows=grid.rows, trials=trials)
        _log.info("row groups of %s: planning", size)
        bench.steps += measure_cells(index, groups, f"row groups of {size}", grid, trials, bench.troubles)
        if size == [*sizes][-1]:
            bench.steps += measure_regrets(index, grid)
    catalog.close()
    shutil.rmtree(warehouse, ignore_errors=True)


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
    return np.repeat(numbers // _BURSTS_OF_KEY * STEP, burst)[:rows]


def make_table(catalog: Catalog, size: str, row_group_rows: int, grid: Grid) -> TableIndex:
    """Write a table and its index: bitmaps of strings and longs, bit slices of timestamps."""
    schema, name = _make_rows(grid, 0, 1).schema, f"{NAMESPACE}.t_{size.replace(',', '').replace(' ', '_')}"
    # A file is one append, whatever its bytes.
    properties = {"write.parquet.row-group-limit": str(row_group_rows), "write.target-file-size-bytes": str(1 << 40)}
    catalog.create_namespace_if_not_exists(NAMESPACE)
    table = catalog.create_table(name, schema, properties=properties)
    for start in range(0, grid.rows, grid.file_rows):
        table.append(_make_rows(grid, start, start + grid.file_rows))
    bsi = [name for name in schema.names if "timestamp" in name]
    bitmap = [name for name in schema.names if name not in (*bsi, "payload")]
    index = TableIndex.create(catalog, name, IndexDefinition.of(bitmap=bitmap, bsi=bsi))
    index.build(workers=2)
    index.refresh()
    return index


def _make_rows(grid: Grid, start: int, stop: int) -> pa.Table:
    cells = [*product(grid.orders, BURSTS)]
    # DuckDB finds this by its name.
    numbers = {f"n{at}": draw_keys(*cell, grid.rows)[start:stop] for at, cell in enumerate(cells)}
    keys = [
        f"{KEYS[kind].format(f'n{at}')} AS {column_name(order, kind, burst)}"
        for (at, (order, burst)), kind in product(enumerate(cells), grid.kinds)
    ]
    with duckdb.connect() as connection:
        connection.register("numbers", pa.table(numbers))
        rows = connection.sql(f"SELECT {', '.join(keys)} FROM numbers").to_arrow_table()
    payload = pa.py_buffer(np.random.default_rng([_SEED, start]).bytes(len(rows) * _PAYLOAD_BYTES))
    return rows.append_column("payload", pa.Array.from_buffers(pa.binary(_PAYLOAD_BYTES), len(rows), [None, payload]))


@dataclass(frozen=True, slots=True)
class RowGroups:
    """The row groups of a table as its data files have them: rows, bytes, and the number of each file's first one."""

    first: dict[str, int]
    rows: Ints
    sizes: Ints

    @classmethod
    def of(cls, table: Table) -> "RowGroups":
        """Read the footers of a table's data files."""
        first: dict[str, int] = {}
        groups: list[pq.RowGroupMetaData] = []
        for file in sorted(task.file.file_path for task in table.scan().plan_files()):
            footer, first[file] = pq.read_metadata(local_path(file)), len(groups)
            groups += [footer.row_group(at) for at in range(footer.num_row_groups)]
        sizes = [sum(group.column(at).total_compressed_size for at in range(group.num_columns)) for group in groups]
        return cls(first, np.array([group.num_rows for group in groups]), np.array(sizes))

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Read columns of all rows, and the number of the `row_group` of each."""
        read = pa.concat_tables(pq.read_table(local_path(file), columns=[*columns]) for file in self.first)
        return read.append_column("row_group", pa.array(np.repeat(np.arange(len(self.rows)), self.rows)))

    def kept(self, plan: planner.ScanPlan) -> Flags:
        """Which row groups of the table a plan keeps; those of files that Iceberg leaves out are dropped."""
        first = np.array([self.first[file] for file in plan.data_files], np.int64)
        kept = np.zeros(len(self.rows), np.bool_)
        kept[(first[plan.file_of] + plan.ordinals)[plan.kept_mask]] = True
        return kept


@dataclass(frozen=True, slots=True)
class Query:
    """Rows that satisfy a condition; of these the first ten by a column, greatest first, if there is an order."""

    where: str | None
    order_by: str | None = None


def draw_queries(
    random: np.random.Generator, order: Order, kind: Kind, burst: int, rows: int
) -> Iterator[tuple[str, Query]]:
    """Draw a query of each sort around a row of the table, with its name."""
    column, beside = column_name(order, kind, burst), BURSTS[BURSTS.index(burst) - 1]
    other, row = column_name(order, kind, beside), int(random.integers(rows))
    keys = draw_keys(order, burst, rows)
    key, other_key = int(keys[row]), int(draw_keys(order, beside, rows)[row])
    listed = [literal(kind, int(one)) for one in keys[random.integers(0, rows, 3)]]
    many = _around(column, kind, key, 64)
    yield "needle", Query(f"{column} = {literal(kind, key)}")
    yield "absent", Query(f"{column} = {literal(kind, key + 1)}")
    yield "list", Query(f"{column} IN ({', '.join(listed)})")
    yield "range", Query(_around(column, kind, key, 4))
    if kind == "string":
        yield "prefix", Query(f"{column} LIKE {literal(kind, key)[: _PREFIX_LENGTH + 1]}%'")
    yield "both", Query(f"{many} AND {_around(other, kind, other_key, 64)}")
    yield "first", Query(None, order_by=column)
    yield "first of range", Query(many, order_by=other)


def literal(kind: Kind, number: int) -> str:
    """Write the key of a number as SQL."""
    [(value,)] = duckdb.execute(f"SELECT {KEYS[kind].format(number)}").fetchall()
    return str(value) if kind == "long" else f"{'TIMESTAMP ' * (kind == 'timestamp')}'{value}'"


def _around(column: str, kind: Kind, key: int, count: int) -> str:
    """Write a range of `count` keys around a key as SQL."""
    first = max(0, key - count // 2 * STEP)
    return f"{column} BETWEEN {literal(kind, first)} AND {literal(kind, first + (count - 1) * STEP)}"


def measure_cells(
    index: TableIndex, groups: RowGroups, heading: str, grid: Grid, trials: int, troubles: list[str]
) -> Iterator[Step]:
    """Plan the queries of every cell of a table, and find what holds a match; warnings count as failures."""
    for order, kind in product(grid.orders, grid.kinds):
        rows = groups.read([column_name(order, kind, burst) for burst in BURSTS])
        for burst in BURSTS:
            random = np.random.default_rng([_SEED + 1, ORDERS.index(order), [*KEYS].index(kind), burst])
            tried: dict[str, list[tuple[Step, Step]]] = {}
            for _ in range(trials):
                for name, query in draw_queries(random, order, kind, burst, grid.rows):
                    tried.setdefault(name, []).append(_plan(index, groups, rows, query, troubles))
            for name, pairs in tried.items():
                case = f"{kind}s, bursts of {burst}"
                bounds, found = (
                    replace(together(steps), name=f"{name}, {order}", heading=heading, case=case)
                    for steps in zip(*pairs, strict=True)
                )
                yield bounds
                matching, dropped = found.counts["matching"], found.counts.pop("dropped")
                is_selective = 2 * matching < found.counts["row groups"]
                failure = f"{dropped} row groups with matches are dropped" if dropped else None
                yield replace(found, most={"kept": MOST_KEPT * matching} if is_selective else {}, failure=failure)


def measure_regrets(index: TableIndex, grid: Grid) -> Iterator[Step]:
    """Plan and scan, in turns, lists of keys that every row group of a table has: what planning takes for nothing."""
    for kind, count in product(grid.kinds, HOPELESS_LISTS):
        random = np.random.default_rng([_SEED + 2, [*KEYS].index(kind), count])
        column, numbers = column_name(grid.orders[-1], kind, 1), draw_keys(grid.orders[-1], 1, grid.rows)
        planning, scanning, plans = list[float](), list[float](), list[planner.ScanPlan]()
        for _ in range(1 + _PAIRS):
            drawn = pa.table({"n": numbers[random.integers(0, grid.rows, count)]})
            keys = {column: duckdb.from_arrow(drawn).project(KEYS[kind].format("n")).fetchnumpy().popitem()[1].tolist()}
            plans.append(planner.plan(index, keys=keys, refresh=False))
            planning.append(plans[-1].planning_seconds)
            started = time.perf_counter()
            planner.scan(index, None, [column], keys=keys, planning_milliseconds=0, refresh=False).read_all()
            scanning.append(time.perf_counter() - started)
        name, heading = f"{count:,} {kind}s", "lists of keys that every row group has"
        yield Step(name, "scan without", tuple(scanning[1:]), heading=heading)
        most = max(MOST_REGRET * statistics.median(scanning[1:]), LEAST_REGRET_SECONDS)
        read: dict[str, Number] = {"index bytes": plans[-1].index_bytes_read, "dropped": plans[-1].dropped}
        yield Step(name, "planning", tuple(planning[1:]), counts=read, most={"seconds": most}, heading=heading)


def _plan(index: TableIndex, groups: RowGroups, rows: pa.Table, query: Query, troubles: list[str]) -> tuple[Step, Step]:
    """Plan a query: what minimum and maximum keep, and what the index keeps beside what matches."""
    plan = partial(planner.plan, index, query.where, planning_milliseconds=_PATIENCE_MILLISECONDS, refresh=False)
    order = None if query.order_by is None else f"{query.order_by} DESC"
    made = plan(order_by=order, limit=FIRST_ROWS if order else None)
    troubles += [f"{query.where}, order {order}: {warning}" for warning in made.warnings]
    kept, kept_by_bounds, count = groups.kept(made), groups.kept(plan(byte_budget=0)), len(groups.rows)
    matching, dropped = judge(query, rows, kept)
    bounds: dict[str, Number] = {"kept": int(kept_by_bounds.sum()), "row groups": count}
    bounds["data bytes"] = int(groups.sizes[kept_by_bounds].sum())
    found: dict[str, Number] = {"kept": int(kept.sum()), "matching": matching, "dropped": dropped}
    found |= {"index bytes": made.index_bytes_read, "row groups": count}
    return Step("", "min and max", counts=bounds), Step("", "with", (made.planning_seconds,), counts=found)


def judge(query: Query, rows: pa.Table, kept: Flags) -> tuple[int, int]:
    """Count the row groups that hold a match, and those of them that are dropped though the answer needs them.

    With an order, the last of the first rows may be any of those that are equal to it.
    """
    matching, column = f"rows WHERE ({query.where or 'true'})", query.order_by
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        last = f"(SELECT min({column}) FROM (SELECT {column} FROM {matching} ORDER BY 1 DESC LIMIT {FIRST_ROWS}))"
        tests = ("true", "true") if column is None else (f"{column} >= {last}", f"{column} > {last}")
        counts = f"row_group, count(*) AS may, count(*) FILTER ({tests[1]}) AS must"
        found = connection.execute(f"SELECT {counts} FROM {matching} AND {tests[0]} GROUP BY 1").fetchnumpy()
    is_kept = kept[found["row_group"]]
    wrong = int((~is_kept & (found["must"] > 0)).sum())
    if column is not None and found["may"][is_kept].sum() < min(FIRST_ROWS, found["may"].sum()):
        # Rows that are equal to the last one are as good as each other, but there have to be enough.
        wrong = max(wrong, 1)
    return len(is_kept), wrong
