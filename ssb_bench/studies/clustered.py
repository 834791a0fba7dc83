"""Clustered keys: of each query, the row groups that the planner keeps, beside those that hold a match.

What holds a match is found by Arrow in the data files. What minimum and maximum keep is what the planner keeps when it
may read no index. Some queries are also timed without Spark: the planner's scan, and PyIceberg's with the same filter.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

import planner
from planner.condition.iceberg_filters import file_filter
from planner.condition.sql.parser import read_where
from puffin_index import TableIndex
from puffin_index.storage.arrays import Flags
from ssb_bench.results.studies import BurstCell, BurstTable, ClusteredRun, TimedScan
from ssb_bench.spark_runs.measure import seconds_of, time_in_turns
from ssb_bench.spark_runs.session import describe_host, open_catalog
from ssb_bench.studies.clustered_data import (
    BURSTS,
    DEFAULT_GRID,
    FIRST_ROWS,
    KINDS,
    ORDERS,
    PAYLOAD,
    SIZES,
    Grid,
    Query,
    RowGroups,
    Size,
    column_name,
    draw_queries,
    make_table,
    matching_rows,
)

DEFAULT_TRIALS: Final = 2
DEFAULT_REPEATS: Final = 5
_PATIENCE_MILLISECONDS: Final = 1e6
_TIMED_BURST: Final = 12
_SUMS: Final = ("row_groups", "matching", "kept", "without", "wrong", "index_bytes", "data_bytes")
_SEED: Final = 20_251


def measure_clustered(
    warehouse: Path,
    *,
    grid: Grid = DEFAULT_GRID,
    sizes: Sequence[Size] = SIZES,
    trials: int = DEFAULT_TRIALS,
    repeats: int = DEFAULT_REPEATS,
    on_step: Callable[[str], None] = lambda _: None,
) -> ClusteredRun:
    """Make tables in a folder, emptied before and after, plan the queries of every cell, and time some in pairs."""
    shutil.rmtree(warehouse, ignore_errors=True)
    catalog = open_catalog(warehouse)
    facts, cells, scans, failures = list[BurstTable](), list[BurstCell](), list[TimedScan](), list[str]()
    for size in sizes:
        on_step(f"row groups of {size.name}: writing and indexing")
        index = make_table(catalog, size, grid)
        groups, status = RowGroups.of(index.data_table), index.status()
        most = int(groups.rows.max())
        facts.append(BurstTable(size.name, len(groups), most, status.data_bytes, status.index_bytes))
        on_step(f"row groups of {size.name}: planning")
        cells += measure_cells(index, groups, size, grid, trials, failures)
        if repeats:
            on_step(f"row groups of {size.name}: reading")
            scans += time_scans(index, groups, size, grid, repeats, failures)
    catalog.close()
    shutil.rmtree(warehouse, ignore_errors=True)
    failures += [f"{cell.name}: {cell.wrong} row groups with matches are dropped" for cell in cells if cell.wrong]
    return ClusteredRun(grid.rows, trials, describe_host(), tuple(facts), tuple(cells), tuple(scans), tuple(failures))


def measure_cells(
    index: TableIndex, groups: RowGroups, size: Size, grid: Grid, trials: int, failures: list[str]
) -> Iterator[BurstCell]:
    """Plan the queries of every cell of a table, and find what holds a match; warnings count as failures."""
    for order, kind in product(grid.orders, grid.kinds):
        names = [column_name(order, kind, burst) for burst in BURSTS]
        table = groups.read(names)
        columns = {name: table.column(name).chunk(0) for name in names}
        for burst in BURSTS:
            random = np.random.default_rng([_SEED, ORDERS.index(order), KINDS.index(kind), burst])
            tried: dict[str, list[BurstCell]] = {}
            for _ in range(trials):
                for name, query in draw_queries(random, order, kind, burst, grid.rows):
                    empty = BurstCell(size.name, order, kind, burst, name)
                    tried.setdefault(name, []).append(_try(index, groups, columns, query, empty, failures))
            yield from map(_together, tried.values())


def _try(
    index: TableIndex,
    groups: RowGroups,
    columns: Mapping[str, pa.Array],
    query: Query,
    cell: BurstCell,
    failures: list[str],
) -> BurstCell:
    """Plan a query, and put what came out into a cell."""
    plan = partial(planner.plan, index, query.where, planning_milliseconds=_PATIENCE_MILLISECONDS, refresh=False)
    made = plan(order_by=query.order, limit=None if query.order is None else FIRST_ROWS)
    kept, without = _kept(made, groups), _kept(plan(byte_budget=0), groups)
    failures += [f"{query.where}, order {query.order}: {warning}" for warning in made.warnings]
    matching, wrong = judge(query, columns, groups, kept)
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


def judge(query: Query, columns: Mapping[str, pa.Array], groups: RowGroups, kept: Flags) -> tuple[int, int]:
    """Count the row groups that hold a match, and those of them that are dropped though the answer needs them."""
    may, must = matching_rows(query, columns)
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


def time_scans(
    index: TableIndex, groups: RowGroups, size: Size, grid: Grid, repeats: int, failures: list[str]
) -> Iterator[TimedScan]:
    """Read a column and the payload of the rows of some queries, with the index and without, in turns."""
    order, kind = grid.orders[-1], grid.kinds[0]
    names = (column_name(order, kind, _TIMED_BURST), PAYLOAD)
    for name, query in draw_queries(np.random.default_rng(_SEED), order, kind, _TIMED_BURST, grid.rows):
        if query.where is None or query.order is not None:
            continue
        found: dict[str, int] = {}
        arms = {"without": partial(_rows_without, index, query.where, names, found)}
        arms["with"] = partial(_rows_with, index, query.where, names, found)
        times = time_in_turns({arm: partial(seconds_of, read) for arm, read in arms.items()}, repeats)
        if found["with"] != found["without"]:
            failures.append(f"{query.where}: {found['with']} rows with the index, {found['without']} without")
        kept = int(_kept(planner.plan(index, query.where, refresh=False), groups).sum())
        yield TimedScan(size.name, name, len(groups), kept, tuple(times["without"]), tuple(times["with"]))


def _rows_without(index: TableIndex, where: str, names: tuple[str, ...], found: dict[str, int]) -> None:
    schema = index.data_table.schema()
    row_filter = file_filter(read_where(where, schema), schema)
    found["without"] = len(index.data_table.scan(row_filter=row_filter, selected_fields=names).to_arrow())


def _rows_with(index: TableIndex, where: str, names: tuple[str, ...], found: dict[str, int]) -> None:
    found["with"] = len(planner.scan(index, where, names, refresh=False).read_all())
