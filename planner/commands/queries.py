"""The commands on queries: `explain`, `count` and `aggregate`."""

import functools
from collections.abc import Callable
from typing import Any

import click

from planner.arrow.aggregate import aggregate_with_plan, count
from planner.arrow.plan import plan
from planner.condition.session_time import DEFAULT_ZONE
from puffin_index.commands.main import NamedTable, console, table_command
from puffin_index.data.data_table import find_snapshot


def _query_command(command: Callable[..., object]) -> Callable[..., object]:
    """Add what all queries take: table, snapshot or ref, time zone.

    Beside its own arguments and the table, the command gets `index`, `snapshot_id` and `session_zone` for the planner.
    """

    @table_command
    @click.option("--snapshot-id", type=int, help="Ask this snapshot.")
    @click.option("--ref", help="Ask this branch or tag.")
    @click.option(
        "--session-zone",
        default=DEFAULT_ZONE,
        metavar="ZONE",
        help="The time zone of timestamps that name none, as in Spark's session.",
    )
    @functools.wraps(command)
    def run(*, table: NamedTable, snapshot_id: int | None, ref: str | None, **others: object) -> object:
        if snapshot_id is not None and ref is not None:
            raise click.UsageError("give --snapshot-id or --ref, not both")
        index = table.open_index()
        if ref is not None:
            snapshot = find_snapshot(index.data_table, ref=ref)
            snapshot_id = snapshot.snapshot_id if snapshot else None
        return command(table=table, index=index, snapshot_id=snapshot_id, **others)

    return run


@click.command("explain")
@_query_command
@click.argument("where")
@click.option("--all", "with_row_groups", is_flag=True, help="List the kept row groups.")
def explain_command(table: NamedTable, where: str, with_row_groups: bool, **query: Any) -> None:
    """Show which row groups of TABLE a query with this WHERE text reads, and why."""
    scan_plan = plan(where=where, **query)
    table.show(scan_plan)
    for split in scan_plan.splits if with_row_groups and not table.as_json else ():
        if split.verdict == "kept":
            rows = f", {split.rows} rows match" if split.rows is not None else ""
            console.print(f"kept {split.data_file} row group {split.row_group}: {split.reason}{rows}", highlight=False)


@click.command("count")
@_query_command
@click.argument("where", required=False)
def count_command(table: NamedTable, where: str | None, **query: Any) -> None:
    """Count the rows of TABLE that satisfy this WHERE text, from the index as far as it is exact."""
    table.show(count(where=where, **query))


@click.command("aggregate")
@_query_command
@click.argument("aggregates")
@click.option("--where", help="Aggregate the rows that satisfy this WHERE text.")
@click.option(
    "--group-by", default="", show_default=False, metavar="COLUMNS", help="Columns to group by, between commas."
)
def aggregate_command(table: NamedTable, aggregates: str, where: str | None, group_by: str, **query: Any) -> None:
    """Print AGGREGATES of TABLE, such as "count(*), sum(c) AS s", from the index as far as it is exact."""
    table.show(aggregate_with_plan(where=where, aggregates=aggregates, group_by=group_by, **query))
