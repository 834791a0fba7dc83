"""The command `benefits`: what the indexes of a table were good for."""

from __future__ import annotations

import json
from collections.abc import Iterable

import click
from rich.table import Table as RichTable

from planner.query_log.benefits import DEFAULT_BYTES_PER_SECOND, Benefits, Sums, benefits
from puffin_index.commands.main import console, error_console, escape, open_index, table_command
from puffin_index.display import format_bytes

_HEADERS = (
    "scans",
    "row groups",
    "dropped by default",
    "by index",
    "answered",
    "bytes saved",
    "index bytes",
    "seconds saved",
)


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
    if as_json:
        click.echo(json.dumps(found.to_json()))
    else:
        _print(found)


def _print(found: Benefits) -> None:
    _print_sums("by day", ("day",), (((day.isoformat(),), sums) for day, sums in found.by_day.items()), found.total)
    _print_sums("by index (a scan counts for each)", ("column", "kind"), found.by_index.items())
    for column, kind in found.unused:
        console.print(f"no query used: {escape(column)} ({kind})", highlight=False, soft_wrap=True)
    console.print(
        f"{found.audits} audits checked {found.audited_row_groups} row groups, {len(found.misses)} misses; "
        f"{found.scans_not_trusted} scans read everything because of a miss",
        highlight=False,
        soft_wrap=True,
    )
    for miss in found.misses:
        error_console.print(f"miss: {escape(miss)}", highlight=False, soft_wrap=True)
    console.print(found.assumption, highlight=False, soft_wrap=True)


def _print_sums(
    title: str, names: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], Sums]], total: Sums | None = None
) -> None:
    shown = RichTable(title=title)
    for name in names:
        shown.add_column(name)
    for header in _HEADERS:
        shown.add_column(header, justify="right")
    for key, sums in rows:
        shown.add_row(*map(escape, key), *_cells(sums))
    if total is not None:
        shown.add_row("total", *_cells(total))
    console.print(shown)


def _cells(sums: Sums) -> tuple[str, ...]:
    return (
        str(sums.scans),
        str(sums.row_groups),
        str(sums.dropped_by_default),
        str(sums.dropped_by_index),
        str(sums.answered),
        format_bytes(sums.bytes_saved),
        format_bytes(sums.index_bytes),
        f"{sums.seconds_saved:.1f}",
    )
