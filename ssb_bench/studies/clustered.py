"""Clustered keys: of each query, the row groups that the planner keeps, beside those that hold a match.

What holds a match is found by DuckDB in the rows of the data files. What minimum and maximum keep is what the planner
keeps when it may read no index.
"""

import logging
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

import duckdb
import numpy as np

import planner
from puffin_index import TableIndex
from puffin_index.storage.arrays import Flags
from ssb_bench.results.studies import BurstCell, BurstTable, ClusteredRun
from ssb_bench.spark_runs.session import describe_host, open_catalog
from ssb_bench.studies.clustered_data import (
    BURSTS,
    DEFAULT_GRID,
    FIRST_ROWS,
    KINDS,
    ORDERS,
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
_PATIENCE_MILLISECONDS: Final = 1e6
_SUMS: Final = ("row_groups", "matching", "kept", "without", "wrong", "index_bytes", "data_bytes")
_SEED: Final = 20_251
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
    facts, cells, failures = list[BurstTable](), list[BurstCell](), list[str]()
    for size in sizes:
        _log.info("row groups of %s: writing and indexing", size.name)
        index = make_table(catalog, size, grid)
        groups, status = RowGroups.of(index.data_table), index.status()
        most = int(groups.rows.max())
        facts.append(BurstTable(size.name, len(groups), most, status.data_bytes, status.index_bytes))
        _log.info("row groups of %s: planning", size.name)
        cells += measure_cells(index, groups, size, grid, trials, failures)
    catalog.close()
    shutil.rmtree(warehouse, ignore_errors=True)
    failures += [f"{cell.name}: {cell.wrong} row groups with matches are dropped" for cell in cells if cell.wrong]
    return ClusteredRun(grid.rows, trials, describe_host(), tuple(facts), tuple(cells), tuple(failures))


def measure_cells(
    index: TableIndex, groups: RowGroups, size: Size, grid: Grid, trials: int, failures: list[str]
) -> Iterator[BurstCell]:
    """Plan the queries of every cell of a table, and find what holds a match; warnings count as failures."""
    for order, kind in product(grid.orders, grid.kinds):
        rows = duckdb.from_arrow(groups.read([column_name(order, kind, burst) for burst in BURSTS]))
        for burst in BURSTS:
            random = np.random.default_rng([_SEED, ORDERS.index(order), KINDS.index(kind), burst])
            tried: dict[str, list[BurstCell]] = {}
            for _ in range(trials):
                for name, query in draw_queries(random, order, kind, burst, grid.rows):
                    empty = BurstCell(size.name, order, kind, burst, name)
                    tried.setdefault(name, []).append(_try(index, groups, rows, query, empty, failures))
            yield from map(_together, tried.values())


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
