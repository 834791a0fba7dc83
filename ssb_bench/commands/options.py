"""Options that commands share, and what they stand for: a layout, a Spark session, columns, a file of results."""

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

from ssb_bench.data.layout import Layout
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


def setting(
    name: str, default: object, text: str, kind: click.ParamType[Any] = POSITIVE, *, multiple: bool = False
) -> Option:
    """Make an option with a default that its help shows."""
    typed = click.FloatRange(min=0) if multiple else kind
    return click.option(name, type=typed, default=default, show_default=True, multiple=multiple, help=text)


def many(name: str, parameter: str, choices: Sequence[str], text: str) -> Option:
    """Make an option of some names that may be given again."""
    kind = click.Choice(choices)
    return click.option(name, parameter, multiple=True, type=kind, metavar="NAME", help=f"{text} May be given again.")


row_group_option = setting("--row-group-rows", DEFAULT_ROW_GROUP_ROWS, "Rows of a row group of lineorder.")
repeat_option = setting("--repeats", 5, "Measured executions of each query on each side, after one that warms up.")


def layout_options(command: Command) -> Command:
    """Add `--data` and `--sf`; the command gets a `layout`."""
    folder = click.Path(path_type=Path, file_okay=False)

    @setting("--data", Path("data"), "Directory of the data; each scale factor has its own below it.", folder)
    @setting("--sf", 1.0, "Scale factor.", click.FLOAT)
    @wraps(command)
    def with_layout(*, data: Path, sf: float, **others: object) -> object:
        return command(layout=Layout.of(data, sf), **others)

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
                layout.warehouse, cores=self.cores, memory=self.memory, packages=packages, conf=_SPARK_CONF
            )
        try:
            yield spark
        finally:
            spark.stop()


def spark_options(command: Command) -> Command:
    """Add `--cores` and `--memory`; the command gets a `size`."""

    @setting("--cores", 2, "Spark's threads.")
    @setting("--memory", "3g", "Heap of Spark's process.", click.STRING)
    @wraps(command)
    def with_size(*, cores: int, memory: str, **others: object) -> object:
        return command(size=SparkSize(cores, memory), **others)

    return with_size


def make_console() -> Console:
    """Make the console that commands print on."""
    # A pipe or a log has no width of its own; the 80 columns that rich assumes would break the tables.
    return Console(width=None if sys.stdout.isatty() else 120)
