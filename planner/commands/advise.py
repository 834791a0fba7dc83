"""The commands `advise`, `benefits` and `what-if`: which indexes are, were, or would be worth it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from pyiceberg.table import Table
from rich.progress import TimeElapsedColumn

from planner.advice.advise import DEFAULT_ADVICE_SAMPLE, DEFAULT_MAX_SHARE, advise
from planner.advice.sample import DEFAULT_SAMPLE
from planner.advice.what_if import what_if
from planner.query_log import DEFAULT_BYTES_PER_SECOND, benefits
from puffin_index.commands.define import definition_options, split_names
from puffin_index.commands.main import NamedTable, console, progress_line, table_command
from puffin_index.data.data_table import open_table
from puffin_index.definition.index_definition import IndexDefinition
from puffin_index.errors import PuffinIndexError
from puffin_index.index_table.table import TableName


def _open_data_table(table: NamedTable) -> Table:
    """Open the table of a command, whether it has an index or not."""
    catalog, name = table.open_catalog()
    return open_table(catalog, TableName.parse(name))


def _speed_option(help_text: str) -> Callable[[Callable[..., object]], Callable[..., object]]:
    least, default = click.IntRange(min=1), DEFAULT_BYTES_PER_SECOND
    return click.option("--bytes-per-second", type=least, default=default, help=help_text)


def _sample_option(default: int) -> Callable[[Callable[..., object]], Callable[..., object]]:
    help_text = "Measure at most this many row groups; 0 for all."
    return click.option("--sample", type=click.IntRange(min=0), default=default, help=help_text)


@click.command("what-if")
@table_command
@click.argument("where")
@definition_options()
@click.option("--without", multiple=True, metavar="COL.KIND", help="Leave out this existing index.")
@_sample_option(DEFAULT_SAMPLE)
@click.option("--snapshot-id", type=int, help="Ask about this snapshot.")
@_speed_option("How fast one core reads data.")
def what_if_command(
    table: NamedTable, where: str, definition: IndexDefinition, without: tuple[str, ...], sample: int, **options: Any
) -> None:
    """Measure what a query with this WHERE text would read of TABLE if it had other indexes. Nothing is changed."""
    opened, added = _open_data_table(table), definition if definition.columns else None
    table.show(what_if(opened, where, added, without=split_names(without), sample=sample or None, **options))


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _share(_: click.Context, __: click.Parameter, value: str) -> float:
    """Read a share, written `30%` or `0.3`."""
    text = value.strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share < float("inf"):
        raise click.BadParameter(f"{text!r} is no share: write 30% or 0.3")
    return share


@click.command("advise")
@table_command
@click.option("--queries", type=_FILE, metavar="FILE", help="SQL statements, between semicolons.")
@click.option("--query-log", metavar="FOLDER", help="The hook's own log of queries, with literals.")
@click.option(
    "--max-share",
    callback=_share,
    default=f"{DEFAULT_MAX_SHARE:.0%}",
    metavar="SHARE",
    help="The most bytes of all indexes, as a share of the data.",
)
@_sample_option(DEFAULT_ADVICE_SAMPLE)
@click.option("--create", is_flag=True, help="Add the proposals to the definition of the index; build it afterwards.")
def advise_command(table: NamedTable, queries: Path | None, sample: int, **options: Any) -> None:
    """Propose indexes of TABLE for the queries that were asked, and name the ones that nobody needs."""
    if (queries is None) == (options["query_log"] is None):
        raise click.UsageError("give one of --queries and --query-log")
    text = _read(queries) if queries is not None else None
    with progress_line(TimeElapsedColumn()) as update:
        options["progress"] = lambda now: update(description=str(now))
        advice = advise(_open_data_table(table), text, sample=sample or None, **options)
    table.show(advice)
    if advice.created and not table.as_json:
        console.print(f"build it with: puffin-index build {table.name}", highlight=False, soft_wrap=True)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PuffinIndexError(f"{file} is no text in UTF-8: {error}") from error


@click.command("benefits")
@table_command
@click.option("--query-log", required=True, metavar="FOLDER", help="The folder of the query log.")
@_speed_option("How fast a query reads row groups.")
def benefits_command(table: NamedTable, query_log: str, bytes_per_second: int) -> None:
    """Show what the indexes of TABLE have saved its queries in Spark, and which ones no query used."""
    table.show(benefits(table.open_index(), query_log, bytes_per_second=bytes_per_second))
