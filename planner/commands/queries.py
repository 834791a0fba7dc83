"""The commands on queries: `explain`, `count` and `aggregate`."""

from __future__ import annotations

import json

import click
from rich.table import Column
from rich.table import Table as RichTable

from planner.predicate.session_time import DEFAULT_ZONE
from planner.prune.pruned import Reason
from planner.report.scan_plan import ScanPlan
from planner.scans.aggregate import aggregate_with_plan
from planner.scans.count import count
from planner.scans.plan import plan
from puffin_index.commands.main import console, error_console, escape, open_index, table_command
from puffin_index.data.data_table import find_snapshot
from puffin_index.display import format_bytes
from puffin_index.table_index import TableIndex

_zone_option = click.option(
    "--session-zone",
    default=DEFAULT_ZONE,
    show_default=True,
    metavar="ZONE",
    help="The time zone of timestamps that name none, as in Spark's session.",
)
_SHOWN_GROUPS = 100
_DROPPING = {reason.code for reason in Reason if reason.drops}


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
    if as_json:
        click.echo(json.dumps(scan_plan.to_json()))
    else:
        _print_plan(scan_plan, with_row_groups)


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
    counted = count(index, where, snapshot_id, session_zone=session_zone)
    if as_json:
        click.echo(json.dumps(counted.to_json()))
        return
    console.print(
        f"{counted.rows} rows; {counted.row_groups_read} of {counted.row_groups} row groups had to be read, "
        f"{format_bytes(counted.plan.index_bytes_read)} of index, "
        f"{format_bytes(counted.data_read.bytes_read)} of data, {counted.seconds * 1000:.0f} ms",
        highlight=False,
        soft_wrap=True,
    )
    _print_unused(counted.plan)
    for warning in counted.plan.warnings:
        error_console.print(f"warning: {warning}", highlight=False, soft_wrap=True)


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
    if as_json:
        click.echo(json.dumps(found.to_json(), default=str))
        return
    shown = RichTable(*(escape(name) for name in found.table.column_names))
    for row in found.table.slice(0, _SHOWN_GROUPS).to_pylist():
        shown.add_row(*("NULL" if value is None else escape(str(value)) for value in row.values()))
    console.print(shown)
    if found.table.num_rows > _SHOWN_GROUPS:
        console.print(f"and {found.table.num_rows - _SHOWN_GROUPS} more; --json prints all", highlight=False)
    console.print(
        f"{found.row_groups_read} of {found.row_groups} row groups had to be read, {found.row_groups_indexed} were "
        f"answered by indexes and {found.row_groups_settled} by statistics, "
        f"{format_bytes(found.plan.index_bytes_read)} of index, {found.seconds * 1000:.0f} ms",
        highlight=False,
        soft_wrap=True,
    )
    _print_unused(found.plan)
    for warning in found.plan.warnings:
        error_console.print(f"warning: {warning}", highlight=False, soft_wrap=True)


def _print_plan(scan_plan: ScanPlan, with_row_groups: bool) -> None:
    console.print(
        f"{scan_plan.table}, snapshot {scan_plan.snapshot_id}: {scan_plan.kept} of {scan_plan.row_groups} row groups "
        f"kept, {scan_plan.dropped} dropped, {scan_plan.unindexed} not indexed; {scan_plan.index_reads} reads and "
        f"{format_bytes(scan_plan.index_bytes_read)} of index, {scan_plan.planning_seconds * 1000:.0f} ms",
        highlight=False,
        soft_wrap=True,
    )
    if scan_plan.staleness:
        console.print(scan_plan.staleness, highlight=False, soft_wrap=True)
    reasons = RichTable("reason", "", Column("row groups", justify="right"))
    for code, row_groups in scan_plan.reason_counts().items():
        reasons.add_row(code, "dropped" if code in _DROPPING else "kept", str(row_groups))
    console.print(reasons)
    for implied in scan_plan.implied:
        console.print(f"implied by {implied}", highlight=False, soft_wrap=True, markup=False)
    _print_unused(scan_plan)
    funnel = RichTable(title="funnel")
    for header in ("stage", "entered", "dropped", "reads", "bytes", "ms"):
        funnel.add_column(header, justify="left" if header == "stage" else "right")
    for stage in scan_plan.funnel:
        funnel.add_row(
            stage.name,
            str(stage.entered),
            str(stage.dropped),
            str(stage.reads),
            format_bytes(stage.bytes_read),
            f"{stage.seconds * 1000:.1f}",
        )
    console.print(funnel)
    for split in (split for split in scan_plan.splits if with_row_groups and split.verdict == "kept"):
        rows = f", {split.rows} rows match" if split.rows is not None else ""
        console.print(f"kept {split.data_file} row group {split.row_group}: {split.reason}{rows}", highlight=False)
    for warning in scan_plan.warnings:
        error_console.print(f"warning: {warning}", highlight=False, soft_wrap=True)


def _print_unused(scan_plan: ScanPlan) -> None:
    for unused in scan_plan.unused:
        console.print(f"not used: {unused}", highlight=False, soft_wrap=True, markup=False)
