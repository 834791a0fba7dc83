"""The command `advise`: which indexes a workload is worth."""

from __future__ import annotations

from pathlib import Path

import click

from planner.advice.advise import DEFAULT_ADVICE_SAMPLE, DEFAULT_MAX_SHARE, advise
from planner.commands.what_if import open_data_table
from puffin_index.commands.main import console, show, table_command
from puffin_index.errors import PuffinIndexError

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
    show_default=True,
    metavar="SHARE",
    help="The most bytes of all indexes, as a share of the data.",
)
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    default=DEFAULT_ADVICE_SAMPLE,
    show_default=True,
    help="Measure so many row groups at most; 0 for all.",
)
@click.option("--create", is_flag=True, help="Add the proposals to the definition of the index; build it afterwards.")
def advise_command(
    table: str,
    properties: tuple[str, ...],
    as_json: bool,
    queries: Path | None,
    query_log: str | None,
    max_share: float,
    sample: int,
    create: bool,
) -> None:
    """Propose indexes of TABLE for the queries that were asked, and name the ones that nobody needs."""
    if (queries is None) == (query_log is None):
        raise click.UsageError("give one of --queries and --query-log")
    advice = advise(
        open_data_table(table, properties),
        _read(queries) if queries is not None else None,
        query_log=query_log,
        max_share=max_share,
        sample=sample or None,
        create=create,
    )
    show(advice, as_json=as_json)
    if advice.created and not as_json:
        console.print(f"build it with: puffin-index build {table}", highlight=False, soft_wrap=True)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PuffinIndexError(f"{file} is no text in UTF-8: {error}") from error
