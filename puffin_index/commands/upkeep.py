"""The commands that look after an index (`verify`, `compact`, `expire`, `drop`, `follow`), and `export`."""

import json
import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from puffin_index.commands.main import console, error_console, open_index, parse_properties, table_command
from puffin_index.display import format_bytes
from puffin_index.errors import PuffinIndexError, UnsupportedError
from puffin_index.formats.paimon_container import read_container
from puffin_index.index_table.open_catalog import QualifiedTable, open_catalog
from puffin_index.jobs.compact import CompactProgress
from puffin_index.jobs.drop import drop_index
from puffin_index.jobs.verify import DEFAULT_SAMPLE, VerifyProgress
from puffin_index.storage.ranged import BytesReader
from puffin_index.table_index import TableIndex
from puffin_index.units import parse_duration, parse_size


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except UnsupportedError as error:
        raise click.BadParameter(str(error)) from error


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except UnsupportedError as error:
        raise click.BadParameter(str(error)) from error


class _VerifyBars(Progress):
    """Shows the progress of a verification in a terminal, and nothing elsewhere."""

    def __init__(self) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=error_console,
            transient=True,
            disable=not error_console.is_terminal,
        )
        self._segments = self.add_task("segments", total=None)
        self._row_groups = self.add_task("row groups", total=None)

    def show(self, now: VerifyProgress) -> None:
        """Show how far the verification is."""
        self.update(self._segments, completed=now.segments_done, total=now.segments_total)
        self.update(self._row_groups, completed=now.row_groups_done, total=now.row_groups_total or None)


@click.command("verify")
@table_command
@click.option(
    "--sample", type=click.IntRange(min=0), default=DEFAULT_SAMPLE, show_default=True, help="Row groups to recompute."
)
@click.option("--all", "everything", is_flag=True, help="Recompute all row groups.")
@click.option("--repair", is_flag=True, help="Drop what is bad and index it anew.")
def verify_command(
    table: str, properties: tuple[str, ...], as_json: bool, sample: int, everything: bool, repair: bool
) -> None:
    """Check the index of TABLE: checksums, directories, and a sample against the data.

    Exits with 1 if something is wrong and was not repaired.
    """
    index, row_groups = open_index(table, properties), None if everything else sample
    with _VerifyBars() as bars:
        report = index.verify(row_groups, repair=repair, progress=bars.show)
    if as_json:
        click.echo(json.dumps(asdict(report)))
    else:
        console.print(
            f"{report.indexed_data_files} of {report.data_files} data files indexed; {report.segments} segments and "
            f"{report.blobs} blobs read, {report.row_groups} row groups recomputed: {len(report.findings)} findings",
            highlight=False,
            soft_wrap=True,
        )
        for finding in report.findings:
            error_console.print(str(finding), highlight=False, soft_wrap=True, markup=False)
        if repair and report.findings:
            console.print(f"indexed anew: {report.repaired_data_files} data files", highlight=False)
    if report.findings and not repair:
        sys.exit(1)


@click.command("compact")
@table_command
@click.option("--target-size", type=_size, default="256MiB", show_default=True, help="About how large segments become.")
def compact_command(table: str, properties: tuple[str, ...], as_json: bool, target_size: int) -> None:
    """Merge the small segments of TABLE's index into large ones, so that queries read it with few requests."""

    def listen(now: CompactProgress) -> None:
        if not as_json and now.segments:
            error_console.print(
                f"{now.files_done} of {now.files_total} data files, {format_bytes(now.index_bytes)}", highlight=False
            )

    report = open_index(table, properties).compact(target_size, listen)
    if as_json:
        click.echo(json.dumps(asdict(report)))
        return
    console.print(
        f"{report.segments_before} segments became {report.segments_after}: {report.rewritten} rewritten as "
        f"{report.segments}, {format_bytes(report.index_bytes)}, in {report.seconds:.1f} s",
        highlight=False,
    )
    for segment, reason in report.skipped:
        error_console.print(f"not rewritten: {segment}: {reason}", highlight=False, soft_wrap=True, markup=False)


@click.command("expire")
@table_command
@click.option(
    "--older-than",
    type=_duration,
    metavar="DURATION",
    default="3d",
    show_default=True,
    help="Files of no commit may belong to a running build for so long.",
)
@click.option("--dry-run", is_flag=True, help="List what would be deleted, change nothing.")
def expire_command(
    table: str, properties: tuple[str, ...], as_json: bool, older_than: timedelta, dry_run: bool
) -> None:
    """Drop what no snapshot of TABLE needs: entries, segments, leftovers of dead builds."""
    report = open_index(table, properties).expire(older_than, dry_run=dry_run)
    if as_json:
        click.echo(json.dumps(asdict(report)))
        return
    console.print(
        f"{'would drop' if dry_run else 'dropped'} {report.entries} entries, {report.directories} directories, "
        f"{report.snapshots} snapshots of the index table; {report.segments} segments (of which {report.leftovers} "
        f"never committed) and {report.table_files} table files, {format_bytes(report.bytes)}",
        highlight=False,
        soft_wrap=True,
    )
    if dry_run:
        for file in report.files:
            console.print(file, highlight=False, soft_wrap=True, markup=False)


@click.command("drop")
@table_command
def drop_command(table: str, properties: tuple[str, ...], as_json: bool) -> None:
    """Drop the index of TABLE, and nothing else. TABLE may be the index table itself, if the data table is gone."""
    name = QualifiedTable.parse(table)
    report = drop_index(open_catalog(name.catalog, parse_properties(properties)), name.name)
    if as_json:
        click.echo(json.dumps(asdict(report)))
        return
    console.print(
        f"dropped {report.index_table}: {report.segments} segments, {format_bytes(report.bytes)}", highlight=False
    )
    for file in report.kept:
        error_console.print(f"not ours, kept: {file}", highlight=False, soft_wrap=True, markup=False)


@click.command("follow")
@table_command
def follow_command(table: str, properties: tuple[str, ...], as_json: bool) -> None:
    """Rename the index table that TABLE left behind when it was renamed in its namespace."""
    name = QualifiedTable.parse(table)
    index = TableIndex.follow(open_catalog(name.catalog, parse_properties(properties)), name.name)
    index_table = ".".join(index.index_table.name())
    if as_json:
        click.echo(json.dumps({"table": index.name, "index_table": index_table}))
        return
    console.print(f"the index of {index.name} is {index_table}", highlight=False, soft_wrap=True)


@click.command("export")
@table_command
@click.option("--data-file", required=True, metavar="F", help="The data file: its location, or the last parts of it.")
@click.option("--row-group", type=click.IntRange(min=0), help="The row group of F, from 0.  [default: the only one]")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="The new container, such as F.index.")
def export_command(
    table: str, properties: tuple[str, ...], as_json: bool, data_file: str, row_group: int | None, output: Path
) -> None:
    """Write the indexes that TABLE has of a data file as a container that Paimon reads."""
    exported = open_index(table, properties).export_indexes(data_file, row_group)
    try:
        with output.open("xb") as stream:
            stream.write(exported.data)
    except FileExistsError as error:
        raise PuffinIndexError(f"{output} exists already") from error
    indexes = read_container(BytesReader.of(exported.data, str(output))).indexes
    left_out = [asdict(place) for place in exported.left_out]
    if as_json:
        kinds = {column: list(bodies) for column, bodies in indexes.items()}
        click.echo(
            json.dumps({"output": str(output), "bytes": len(exported.data), "indexes": kinds, "left_out": left_out})
        )
        return
    described = "; ".join(f"{column}: {', '.join(bodies)}" for column, bodies in indexes.items())
    console.print(
        f"{output}, {format_bytes(len(exported.data))}: {described}", highlight=False, soft_wrap=True, markup=False
    )
    for place in exported.left_out:
        error_console.print(
            f"left out: {place.kind} of field {place.field_id}: Paimon cannot read {place.blob_type}",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )
