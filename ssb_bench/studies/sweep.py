"""The sweep: selectivity x clustering x row-group size x number of predicates, planned for real, beside the theory.

Generated tables of four columns, uniform over 2^31. `random`: in no order; `sorted`: in the order of the first column;
`half-sorted`: sorted, then every other row's first column shuffled among those rows. A predicate of selectivity s over
p columns is a range of share s^(1/p) of each, at a random place. Theory, for rows in no order: a row group of R rows
holds a match with probability 1 - (1 - s)^R. `holding` is the share that really does: no index can keep fewer.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal, get_args

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog

import planner
from puffin_index import IndexDefinition, TableIndex
from puffin_index.storage.arrays import Ints
from ssb_bench.errors import BenchError
from ssb_bench.spark_runs.session import open_catalog

NAMESPACE: Final = "sweep"
Clustering = Literal["sorted", "half-sorted", "random"]
CLUSTERINGS: Final[tuple[Clustering, ...]] = get_args(Clustering)
ROW_GROUP_ROWS: Final = (50_000, 100_000, 250_000, 1_000_000)
SELECTIVITIES: Final = tuple(10.0**-exponent for exponent in range(8, 0, -1))
PREDICATES: Final = (1, 2, 3, 4)
DEFAULT_ROWS: Final = 4_000_000
_RANGE: Final = 1 << 31
_SEED: Final = 20_240

Where = Sequence[tuple[int, int]]
"""For each column from the first: the least value, and the one after the greatest."""


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One point of the grid, averaged over its trials.

    Attributes:
        clustering: Order of the rows.
        row_group_rows: R.
        predicates: How many columns are restricted.
        selectivity: s.
        row_groups: Row groups of the table.
        kept: Share of the row groups that the planner keeps.
        holding: Share of the row groups that really hold a match.
        theory: 1 - (1 - s)^R.
        index_bytes: Index bytes read, median.
        planning_seconds: Median.
        without_seconds: Spark's time without the index, median; None where it was not measured.
        with_seconds: Spark's time with it.
    """

    clustering: Clustering
    row_group_rows: int
    predicates: int
    selectivity: float
    row_groups: int
    kept: float
    holding: float
    theory: float
    index_bytes: int
    planning_seconds: float
    without_seconds: float | None = None
    with_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Sweep:
    """The points of a sweep.

    Attributes:
        rows: Rows of each table.
        machine: Hardware and versions.
        points: The points, in the order of their tables.
    """

    FORMAT: ClassVar = "ssb-bench/sweep/1"

    rows: int
    machine: dict[str, str | int]
    points: tuple[SweepPoint, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """What is swept."""

    rows: int = DEFAULT_ROWS
    clusterings: tuple[Clustering, ...] = CLUSTERINGS
    row_group_rows: tuple[int, ...] = ROW_GROUP_ROWS
    selectivities: tuple[float, ...] = SELECTIVITIES
    predicates: tuple[int, ...] = PREDICATES
    trials: int = 5
    file_rows: int = 1_000_000


def table_name(clustering: Clustering, row_group_rows: int) -> str:
    """Name the table of a clustering and row-group size."""
    return f"{NAMESPACE}.t_{clustering.replace('-', '_')}_{row_group_rows}"


def run_sweep(warehouse: Path, grid: Grid, on_step: Callable[[str], None] = lambda _: None) -> list[SweepPoint]:
    """Make the tables anew under `warehouse`, index them and plan every point of the grid.

    Raises:
        BenchError: If the planner drops a row group that holds a match.
    """
    shutil.rmtree(warehouse, ignore_errors=True)
    catalog = open_catalog(warehouse)
    catalog.create_namespace_if_not_exists(NAMESPACE)
    points: list[SweepPoint] = []
    for clustering in grid.clusterings:
        columns = make_columns(clustering, grid.rows)
        for rows in grid.row_group_rows:
            on_step(f"{clustering}, row groups of {rows:,}: writing and indexing")
            index = _make_table(catalog, clustering, rows, columns, grid.file_rows)
            on_step(f"{clustering}, row groups of {rows:,}: planning")
            points += _plan_points(index, clustering, rows, columns, grid)
    return points


def make_columns(clustering: Clustering, rows: int) -> list[Ints]:
    """Draw the four columns of a table."""
    random = np.random.default_rng(_SEED)
    columns = [random.integers(0, _RANGE, rows, dtype=np.int64) for _ in PREDICATES]
    if clustering != "random":
        columns[0].sort()
    if clustering == "half-sorted":
        columns[0][::2] = random.permutation(columns[0][::2])
    return columns


def _make_table(
    catalog: Catalog, clustering: Clustering, row_group_rows: int, columns: Sequence[Ints], file_rows: int
) -> TableIndex:
    names = [f"c{number}" for number in range(1, 1 + len(columns))]
    data = pa.table([pa.array(values) for values in columns], names)
    name = table_name(clustering, row_group_rows)
    table = catalog.create_table(name, data.schema, properties={"write.parquet.row-group-limit": str(row_group_rows)})
    for start in range(0, len(data), file_rows):
        table.append(data.slice(start, file_rows))
    index = TableIndex.create(catalog, name, IndexDefinition.of(bitmap=names, bsi=names))
    index.build(workers=2)
    return index


def _plan_points(
    index: TableIndex, clustering: Clustering, row_group_rows: int, columns: Sequence[Ints], grid: Grid
) -> Iterator[SweepPoint]:
    rows = len(columns[0])
    row_group_of = _row_groups(rows, row_group_rows, grid.file_rows)
    random = np.random.default_rng(_SEED + 1)
    for predicates in grid.predicates:
        for selectivity in grid.selectivities:
            plans, holding = [], []
            for _ in range(grid.trials):
                where = draw_where(random, predicates, selectivity)
                plans.append(planner.plan(index, where_text(where)))
                holding.append(len(np.unique(row_group_of[_matches(columns, where)])))
                if plans[-1].kept < holding[-1]:
                    raise BenchError(f"the planner dropped a row group with a match: {where_text(where)}")
            # Not the count of a plan, which lacks the files that Iceberg leaves out by its own statistics.
            count = int(row_group_of[-1]) + 1
            yield SweepPoint(
                clustering,
                row_group_rows,
                predicates,
                selectivity,
                count,
                statistics.mean(plan.kept for plan in plans) / count,
                statistics.mean(holding) / count,
                theory(selectivity, min(row_group_rows, rows)),
                int(statistics.median(plan.index_bytes_read for plan in plans)),
                statistics.median(plan.planning_seconds for plan in plans),
            )


def theory(selectivity: float, row_group_rows: int) -> float:
    """Give the probability that a row group of rows in no order holds a match: 1 - (1 - s)^R."""
    return float(-np.expm1(row_group_rows * np.log1p(-selectivity)))


def draw_where(random: np.random.Generator, predicates: int, selectivity: float) -> Where:
    """Draw ranges over the first columns that together have a selectivity."""
    width = max(1, round(_RANGE * selectivity ** (1 / predicates)))
    starts = random.integers(0, _RANGE - width, predicates, endpoint=True).tolist()
    return [(start, start + width) for start in starts]


def where_text(where: Where) -> str:
    """Give ranges as SQL."""
    return " AND ".join(f"c{at} >= {low} AND c{at} < {high}" for at, (low, high) in enumerate(where, 1))


def _matches(columns: Sequence[Ints], where: Where) -> Ints:
    rows = np.flatnonzero((columns[0] >= where[0][0]) & (columns[0] < where[0][1]))
    for values, (low, high) in zip(columns[1:], where[1:], strict=False):
        there = values[rows]
        rows = rows[(there >= low) & (there < high)]
    return rows


def _row_groups(rows: int, row_group_rows: int, file_rows: int) -> Ints:
    """Number the row group of each row; files end row groups."""
    row = np.arange(rows, dtype=np.int64)
    a_file = -(-file_rows // row_group_rows)
    return np.asarray(row // file_rows * a_file + row % file_rows // row_group_rows, np.int64)
