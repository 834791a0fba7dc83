"""The command `benefits`: what the indexes of a table were good for."""

from __future__ import annotations

import click

from planner.query_log.benefits import DEFAULT_BYTES_PER_SECOND, benefits
from puffin_index.commands.main import open_index, show, table_command


@click.command("benefits")
@table_command
@click.option("--query-log", required=True, metavar="FOLDER", help="The folder of the query log.")
@click.option(
    "--bytes-per-second",
    type=click.IntRange(min=1),
    default=DEFAULT_BYTES_PER_SECOND,
    show_default=True,
    help="How fast a query reads row groups.",
)
def benefits_command(
    table: str, properties: tuple[str, ...], as_json: bool, query_log: str, bytes_per_second: int
) -> None:
    """Show what the indexes of TABLE have saved its queries in Spark, and which ones no query used."""
    found = benefits(open_index(table, properties), query_log, bytes_per_second=bytes_per_second)
    show(found, as_json=as_json)
