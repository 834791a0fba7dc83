"""The commands that show an index: `status` and `inspect`."""

import json
from dataclasses import asdict

import click
from rich.table import Table as RichTable

from puffin_index.commands.main import console, error_console, escape, open_file, open_index, table_command
from puffin_index.display import format_bytes
from puffin_index.formats.paimon_container import Container, read_container
from puffin_index.formats.puffin import read_footer
from puffin_index.segments.inspection import (
    blob_table,
    container_document,
    container_table,
    directory_table,
    is_container,
    segment_document,
    summarize_directories,
)
from puffin_index.storage.files import FileReader
from puffin_index.table_index import IndexStatus


@click.command("status")
@table_command
def status_command(table: str, properties: tuple[str, ...], as_json: bool) -> None:
    """Say how much of TABLE is indexed."""
    index = open_index(table, properties)
    status = index.status()
    if as_json:
        click.echo(json.dumps(_status_json(status)))
        return
    grid = RichTable(title=f"index of {status.table}, snapshot {status.snapshot_id}", show_header=False)
    grid.add_row("index table", status.index_table)
    grid.add_row("data files", f"{status.indexed_data_files} of {status.data_files} indexed")
    grid.add_row("row groups", f"{status.indexed_row_groups} of {status.row_groups} indexed")
    grid.add_row("segments", str(status.segments))
    share = status.live_index_bytes / status.data_bytes if status.data_bytes else 0.0
    live, total = format_bytes(status.live_index_bytes), format_bytes(status.total_index_bytes)
    grid.add_row("size", f"{live} beside {format_bytes(status.data_bytes)} ({share:.0%})")
    grid.add_row("in all", f"{total}, with directories and the indexes that only other snapshots need")
    grid.add_row("behind", _describe_lag(status))
    for sentence in status.outdated:
        grid.add_row("outdated", sentence)
    for sentence in status.left_out:
        grid.add_row("left out", sentence)
    for column in status.columns:
        kinds = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in column.live_kinds.items())
        beside = "" if column.data_bytes is None else f" beside {format_bytes(column.data_bytes)}"
        grid.add_row(column.name, kinds + beside)
    console.print(grid)
    for warning in index.warnings:
        error_console.print(f"warning: {escape(warning)}", highlight=False, soft_wrap=True)


def _describe_lag(status: IndexStatus) -> str:
    if not status.snapshots_behind:
        return "nothing"
    snapshots = "1 snapshot" if status.snapshots_behind == 1 else f"{status.snapshots_behind} snapshots"
    return f"{snapshots}, {format_bytes(status.unindexed_bytes)}"


def _status_json(status: IndexStatus) -> dict[str, object]:
    fields = asdict(status)
    fields["columns"] = [
        {
            "name": column.name,
            "field_id": column.field_id,
            "kinds": sorted(column.kinds),
            "index_bytes": column.index_bytes,
            "kind_bytes": column.kinds,
            "live_index_bytes": column.live_bytes,
            "live_kind_bytes": column.live_kinds,
            "data_bytes": column.data_bytes,
        }
        for column in status.columns
    ]
    return fields


@click.command("inspect")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect_command(file: str, as_json: bool) -> None:
    """List what is in FILE, a segment or other Puffin file or a Paimon index container.

    FILE is a path or any location that PyIceberg reads.
    """
    with open_file(file) as reader:
        if is_container(reader):
            _print_container(file, read_container(reader), as_json)
        else:
            _print_puffin(file, reader, as_json)


def _print_container(file: str, container: Container, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(container_document(file, container)))
        return
    title = f"{file}, {format_bytes(container.size)}, indexes of {len(container.indexes)} columns"
    console.print(container_table(title, container))


def _print_puffin(file: str, reader: FileReader, as_json: bool) -> None:
    puffin = read_footer(reader)
    if as_json:
        click.echo(json.dumps(segment_document(file, puffin, summarize_directories(reader, puffin))))
        return
    # A broken directory should not hide the blobs.
    console.print(blob_table(f"{file}, {format_bytes(puffin.file_size)}, {len(puffin.blobs)} blobs", puffin))
    directories = summarize_directories(reader, puffin)
    if directories:
        console.print(directory_table(directories))
