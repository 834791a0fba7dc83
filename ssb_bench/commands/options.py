"""Options that commands share, the console, and a Spark session for a command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

import click
from pyspark.sql import SparkSession
from rich.console import Console

from ssb_bench.data.layout import Layout
from ssb_bench.spark_runs.indexing import IndexColumns
from ssb_bench.spark_runs.java import require_java
from ssb_bench.spark_runs.load import DEFAULT_ROW_GROUP_ROWS
from ssb_bench.spark_runs.session import create_session
from ssb_bench.spark_runs.spark_log import stderr_to

# Iceberg estimates the dimension `part` as larger than Spark's 10 MB: joining it would shuffle all of lineorder, which
# takes five times as long as all else and hides what an index costs.
_SPARK_CONF = {"spark.sql.autoBroadcastJoinThreshold": "64MB"}

P = ParamSpec("P")
R = TypeVar("R")


def layout_options(function: Callable[P, R]) -> Callable[P, R]:
    """Add `--data` and `--sf`."""
    data = click.option(
        "--data",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("data"),
        show_default=True,
        help="Directory of the data; each scale factor has its own below it.",
    )
    scale = click.option("--sf", "scale_factor", type=float, default=1.0, show_default=True, help="Scale factor.")
    return scale(data(function))


def spark_options(function: Callable[P, R]) -> Callable[P, R]:
    """Add `--cores` and `--memory`."""
    cores = click.option("--cores", type=click.IntRange(min=1), default=2, show_default=True, help="Spark's threads.")
    memory = click.option("--memory", default="3g", show_default=True, help="Heap of Spark's process.")
    return cores(memory(function))


def row_group_option(function: Callable[P, R]) -> Callable[P, R]:
    """Add `--row-group-rows`."""
    return click.option(
        "--row-group-rows",
        type=click.IntRange(min=1),
        default=DEFAULT_ROW_GROUP_ROWS,
        show_default=True,
        help="Rows of a row group of lineorder.",
    )(function)


def repeat_option(function: Callable[P, R]) -> Callable[P, R]:
    """Add `--repeats`."""
    return click.option(
        "--repeats",
        type=click.IntRange(min=1),
        default=5,
        show_default=True,
        help="Measured executions of each query on each side, after one that warms up.",
    )(function)


def index_options(function: Callable[P, R]) -> Callable[P, R]:
    """Add the columns of each index kind."""
    default = IndexColumns()
    for kind, columns in (("bloom", default.bloom), ("bsi", default.bsi), ("bitmap", default.bitmap)):
        function = click.option(
            f"--{kind}", default=",".join(columns), show_default=True, help=f"Columns with a {kind} index, by comma."
        )(function)
    return function


def make_console() -> Console:
    """Make the console that commands print on."""
    # A pipe or a log has no width of its own; the 80 columns that rich assumes would break the tables.
    return Console(width=None if sys.stdout.isatty() else 120)


@contextmanager
def spark_session(layout: Layout, cores: int, memory: str, console: Console) -> Iterator[SparkSession]:
    """Start Spark with its own messages in a file, and stop it at the end."""
    require_java()
    log = layout.root / "spark.log"
    with console.status("starting Spark (the first time it downloads Iceberg)"), stderr_to(log):
        spark = create_session(layout.warehouse, cores=cores, memory=memory, name="ssb-bench", conf=_SPARK_CONF)
    try:
        yield spark
    finally:
        spark.stop()


def index_columns(bitmap: str, bsi: str, bloom: str) -> IndexColumns:
    """Read the columns of each index kind."""
    return IndexColumns(
        *(tuple(name.strip() for name in names.split(",") if name.strip()) for names in (bitmap, bsi, bloom))
    )
