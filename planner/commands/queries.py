"""The commands on queries: `explain`, `count` and `aggregate`."""

import click

from planner.arrow.aggregate import aggregate_with_plan, count
from planner.arrow.plan import plan
from planner.condition.session_time import DEFAULT_ZONE
from puffin_index.commands.main import console, open_index, show, table_command
from puffin_index.data.data_table import find_snapshot
from puffin_index.table_index import TableIndex

_zone_option = click.option(
    "--session-zone",
    default=DEFAULT_ZONE,
    show_default=True,
    metavar="ZONE",
    help="The time zone of timestamps that name none, as in Spark's session.",
)


@click.command("explain")
@table_command
@click.argument("where")
@click.option("--snapshot-id", type=int, help="Plan a scan of this snapshot.")
@click.option("--ref", help="Plan a scan of this branch or tag.")
@_zone_option
@click.option("--all", "with_row_groups", is_flag=True, help="List the kept row groups.")
def explain_command(
    table: str,
    properties: tuple[str, ...],
    as_json: bool,
    where: str,
    snapshot_id: int | None,
    ref: str | None,
    session_zone: str,
    with_row_groups: bool,
) -> None:
    """Show which row groups of TABLE a query with this WHERE text reads, and why."""
    index, snapshot_id = _open_at(table, properties, snapshot_id, ref)
    scan_plan = plan(index, where, snapshot_id, session_zone=session_zone)
    show(scan_plan, as_json=as_json)
    for split in scan_plan.splits if with_row_groups and not as_json else ():
        if split.verdict == "kept":
            rows = f", {split.rows} rows match" if split.rows is not None else ""
            console.print(f"kept {split.data_file} row group {split.row_group}: {split.reason}{rows}", highlight=False)


def _open_at(
    table: str, properties: tuple[str, ...], snapshot_id: int | None, ref: str | None
) -> tuple[TableIndex, int | None]:
    if snapshot_id is not None and ref is not None:
        raise click.UsageError("give --snapshot-id or --ref, not both")
    index = open_index(table, properties)
    if ref is None:
        return index, snapshot_id
    snapshot = find_snapshot(index.data_table, ref=ref)
    return index, snapshot.snapshot_id if snapshot else None


@click.command("count")
@table_command
@click.argument("where", required=False)
@click.option("--snapshot-id", type=int, help="Count the rows of this snapshot.")
@click.option("--ref", help="Count the rows of this branch or tag.")
@_zone_option
def count_command(
    table: str,
    properties: tuple[str, ...],
    as_json: bool,
    where: str | None,
    snapshot_id: int | None,
    ref: str | None,
    session_zone: str,
) -> None:
    """Count the rows of TABLE that satisfy this WHERE text, from the index as far as it is exact."""
    index, snapshot_id = _open_at(table, properties, snapshot_id, ref)
    show(count(index, where, snapshot_id, session_zone=session_zone), as_json=as_json)


@click.command("aggregate")
@table_command
@click.argument("aggregates")
@click.option("--where", help="Aggregate the rows that satisfy this WHERE text.")
@click.option("--group-by", default="", metavar="COLUMNS", help="Columns to group by, between commas.")
@click.option("--snapshot-id", type=int, help="Aggregate the rows of this snapshot.")
@click.option("--ref", help="Aggregate the rows of this branch or tag.")
@_zone_option
def aggregate_command(
    table: str,
    properties: tuple[str, ...],
    as_json: bool,
    aggregates: str,
    where: str | None,
    group_by: str,
    snapshot_id: int | None,
    ref: str | None,
    session_zone: str,
) -> None:
    """Print AGGREGATES of TABLE, such as "count(*), sum(c) AS s", from the index as far as it is exact."""
    index, snapshot_id = _open_at(table, properties, snapshot_id, ref)
    found = aggregate_with_plan(index, where, aggregates, group_by, snapshot_id, session_zone=session_zone)
    show(found, as_json=as_json)
