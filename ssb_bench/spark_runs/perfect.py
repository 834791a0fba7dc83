"""Perfect pruning in Spark: a session whose scans are told for free which row groups hold a match.

The oracle of perfect pruning: the row groups of data files that really hold a match, found by DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

import duckdb
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from planner.spark.rules import compile_java, hook_source, jvm_of, make, rules_of, set_rules
from puffin_index.data.data_table import list_data_files
from ssb_bench.data.dataset import open_duckdb
from ssb_bench.data.layout import Layout, local_path
from ssb_bench.errors import BenchError
from ssb_bench.spark_runs.indexing import TABLE
from ssb_bench.spark_runs.session import open_catalog

Survivors = Mapping[str, Sequence[int]]
"""Ordinals of the row groups with a match, by location of the data file; every file of the table is there."""


def data_file_locations(layout: Layout, table: str = TABLE) -> list[str]:
    """List the data files of a table's current snapshot."""
    return sorted(file.path for file in list_data_files(open_catalog(layout.warehouse).load_table(table)))


def row_group_rows(paths: Sequence[Path]) -> int:
    """Give the rows of every row group that is not the last of its file.

    Raises:
        BenchError: If they have different sizes: then the row group of a row is not its number by one size.
    """
    sizes: set[int] = set()
    longest = 1
    for path in paths:
        footer = pq.read_metadata(path)
        rows = [footer.row_group(ordinal).num_rows for ordinal in range(footer.num_row_groups)]
        sizes.update(rows[:-1])
        longest = max(longest, *rows)
    if len(sizes) > 1 or longest > max(sizes, default=longest):
        raise BenchError(f"the row groups of the table have different sizes: {sorted(sizes)}")
    return max(sizes, default=longest)


def find_survivors(locations: Sequence[str], where: str, layout: Layout | None = None) -> Survivors:
    """Find which row groups hold a row that satisfies `where`.

    Args:
        locations: Data files with row groups of one size (their last ones apart).
        where: A SQL predicate that DuckDB and Spark read alike.
        layout: The data, if the predicate has subqueries on the SSB tables.
    """
    paths = {str(local_path(location)): location for location in locations}
    rows = row_group_rows([Path(path) for path in paths])
    found: dict[str, list[int]] = {location: [] for location in locations}
    with duckdb.connect() if layout is None else open_duckdb(layout) as connection:
        hits = connection.execute(
            f"SELECT DISTINCT filename, file_row_number // {rows} FROM "
            f"read_parquet({list(paths)!r}, filename = true, file_row_number = true) WHERE {where}"
        ).fetchall()
    for path, ordinal in sorted(hits):
        found[paths[path]].append(int(ordinal))
    return found


def count_survivors(survivors: Survivors) -> int:
    """Count the row groups that hold a match."""
    return sum(map(len, survivors.values()))


if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_RULE: Final = "io.puffinindex.bench.KeepRowGroups"


@contextmanager
def perfect_pruning(spark: SparkSession) -> Iterator[Callable[[Survivors], None]]:
    """Install the rule in a session and take it out at the end.

    Yields:
        What lets the next queries read the surviving row groups only. No query's time includes this call.
    """
    source = files("ssb_bench.spark_runs").joinpath("KeepRowGroups.java").read_text(encoding="utf-8")
    rule = make(spark, compile_java(spark, [hook_source("ScanTasks.java"), source]), _RULE)
    before = rules_of(spark)
    set_rules(spark, [*before, rule])
    try:
        yield partial(_keep, spark, rule)
    finally:
        set_rules(spark, before)


def _keep(spark: SparkSession, rule: JavaObject, survivors: Survivors) -> None:
    ordinals = jvm_of(spark).java.util.HashMap()
    for location, kept in survivors.items():
        ordinals.put(location, ",".join(map(str, kept)))
    rule.keep(ordinals)
