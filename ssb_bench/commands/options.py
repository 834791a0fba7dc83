"""Options that commands share, and what they stand for: a layout, a Spark session, columns, a file of results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeAlias

import click
from pyspark.sql import SparkSession
from rich.console import Console

from ssb_bench.data.layout import Layout, write_record
from ssb_bench.report.document import Part, render
from ssb_bench.spark_runs.indexing import IndexColumns
from ssb_bench.spark_runs.load import DEFAULT_ROW_GROUP_ROWS
from ssb_bench.spark_runs.session import create_session, require_java, stderr_to

# Iceberg estimates the dimension `part` as larger than Spark's 10 MB. Joining it would shuffle all of lineorder, which
# takes five times as long as all else and hides what an index costs.
_SPARK_CONF = {"spark.sql.autoBroadcastJoinThreshold": "64MB"}

FILE = click.Path(path_type=Path, dir_okay=False)
POSITIVE = click.IntRange(min=1)

# Any: click calls a command with whatever its options are.
Command: TypeAlias = Callable[..., Any]
Option: TypeAlias = Callable[[Command], Command]

row_group_option = click.option(
    "--row-group-rows",
    type=POSITIVE,
    default=DEFAULT_ROW_GROUP_ROWS,
    show_default=True,
    help="Rows of a row group of lineorder.",
)
repeat_option = click.option(
    "--repeats",
    type=POSITIVE,
    default=5,
    show_default=True,
    help="Measured executions of each query on each side, after one that warms up.",
)


def layout_options(command: Command) -> Command:
    """Add `--data` and `--sf`; the command gets a `layout`."""

    @click.option(
        "--data",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("data"),
        show_default=True,
        help="Directory of the data; each scale factor has its own below it.",
    )
    @click.option("--sf", "scale_factor", type=float, default=1.0, show_default=True, help="Scale factor.")
    @wraps(command)
    def with_layout(*, data: Path, scale_factor: float, **others: object) -> object:
        return command(layout=Layout.of(data, scale_factor), **others)

    return with_layout


@dataclass(frozen=True, slots=True)
class SparkSize:
    """How large Spark's process is."""

    cores: int
    memory: str

    @contextmanager
    def session(self, layout: Layout, console: Console, packages: Sequence[str] = ()) -> Iterator[SparkSession]:
        """Start Spark with its own messages in a file, and stop it at the end."""
        require_java()
        log = layout.root / "spark.log"
        with console.status("starting Spark (the first time it downloads Iceberg)"), stderr_to(log):
            spark = create_session(
                layout.warehouse,
                cores=self.cores,
                memory=self.memory,
                name="ssb-bench",
                packages=packages,
                conf=_SPARK_CONF,
            )
        try:
            yield spark
        finally:
            spark.stop()


def spark_options(command: Command) -> Command:
    """Add `--cores` and `--memory`; the command gets a `size`."""

    @click.option("--cores", type=POSITIVE, default=2, show_default=True, help="Spark's threads.")
    @click.option("--memory", default="3g", show_default=True, help="Heap of Spark's process.")
    @wraps(command)
    def with_size(*, cores: int, memory: str, **others: object) -> object:
        return command(size=SparkSize(cores, memory), **others)

    return with_size


def index_options(command: Command) -> Command:
    """Add the columns of each index kind; the command gets `columns`."""

    @_column_option("bitmap", IndexColumns().bitmap)
    @_column_option("bsi", IndexColumns().bsi)
    @_column_option("bloom", IndexColumns().bloom)
    @wraps(command)
    def with_columns(*, bitmap: str, bsi: str, bloom: str, **others: object) -> object:
        names = ([name.strip() for name in text.split(",")] for text in (bitmap, bsi, bloom))
        return command(columns=IndexColumns(*(tuple(filter(None, of_kind)) for of_kind in names)), **others)

    return with_columns


def _column_option(kind: str, default: Sequence[str]) -> Option:
    return click.option(
        f"--{kind}", default=",".join(default), show_default=True, help=f"Columns with a {kind} index, by comma."
    )


def make_console() -> Console:
    """Make the console that commands print on."""
    # A pipe or a log has no width of its own; the 80 columns that rich assumes would break the tables.
    return Console(width=None if sys.stdout.isatty() else 120)


def finish(console: Console, path: Path, record: object, parts: Iterator[Part], failures: Sequence[str] = ()) -> None:
    """Write what was measured, print it, and exit with 1 if there are failures."""
    write_record(path, record)
    console.print(render(parts))
    console.print(f"JSON: {path}", soft_wrap=True)
    if failures:
        sys.exit(1)
