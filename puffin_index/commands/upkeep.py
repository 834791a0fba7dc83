"""The commands that show an index or look after it, and `export`."""

import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import click

from puffin_index.commands.define import print_index
from puffin_index.commands.logs import show_progress
from puffin_index.commands.main import NamedTable, open_file, show, table_command
from puffin_index.errors import PuffinIndexError, UnsupportedError
from puffin_index.formats.paimon_container import read_container
from puffin_index.formats.puffin import read_footer
from puffin_index.jobs.drop import drop_index
from puffin_index.jobs.verify import DEFAULT_SAMPLE
from puffin_index.segments.inspection import ContainerContent, PuffinContent, is_container, summarize_directories
from puffin_index.table_index import TableIndex
from puffin_index.units import parse_duration, parse_size

_Value = TypeVar("_Value")


def _read_by(parse: Callable[[str], _Value]) -> Callable[[str], _Value]:
    def read(text: str) -> _Value:
        try:
            return parse(text)
        except UnsupportedError as error:
            raise click.BadParameter(str(error)) from error

    return read


@click.command("verify")
@table_command
@click.option("--sample", type=click.IntRange(min=0), default=DEFAULT_SAMPLE, help="Row groups to recompute.")
@click.option("--all", "everything", is_flag=True, help="Recompute all row groups.")
@click.option("--repair", is_flag=True, help="Drop what is bad and index it anew.")
def verify_command(table: NamedTable, sample: int, everything: bool, repair: bool) -> None:
    """Check the index of TABLE: checksums, directories, and a sample against the data.

    Exits with 1 if something is wrong and was not repaired.
    """
    show_progress()
    report = table.open_index().verify(None if everything else sample, repair=repair)
    table.show(report)
    if report.findings and not repair:
        sys.exit(1)


@click.command("compact")
@table_command
@click.option(
    "--target-size",
    type=_read_by(parse_size),
    metavar="SIZE",
    default="256MiB",
    help="About how large segments become.",
)
def compact_command(table: NamedTable, target_size: int) -> None:
    """Merge the small segments of TABLE's index into large ones, so that queries read it with few requests."""
    show_progress()
    table.show(table.open_index().compact(target_size))


@click.command("expire")
@table_command
@click.option(
    "--older-than",
    type=_read_by(parse_duration),
    metavar="DURATION",
    default="3d",
    help="Files of no commit may belong to a running build for so long.",
)
@click.option("--dry-run", is_flag=True, help="List what would be deleted, change nothing.")
def expire_command(table: NamedTable, older_than: timedelta, dry_run: bool) -> None:
    """Drop what no snapshot of TABLE needs: entries, segments, leftovers of dead builds."""
    table.show(table.open_index().expire(older_than, dry_run=dry_run))


@click.command("drop")
@table_command
def drop_command(table: NamedTable) -> None:
    """Drop the index of TABLE, and nothing else. TABLE may be the index table itself, if the data table is gone."""
    table.show(drop_index(*table.open_catalog()))


@click.command("follow")
@table_command
def follow_command(table: NamedTable) -> None:
    """Rename the index table that TABLE left behind when it was renamed in its namespace."""
    print_index(table, TableIndex.follow(*table.open_catalog()))


@click.command("export")
@table_command
@click.option("--data-file", required=True, metavar="F", help="The data file: its location, or the last parts of it.")
@click.option("--row-group", type=click.IntRange(min=0), help="The row group of F, from 0.  [default: the only one]")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="The new container, such as F.index.")
def export_command(table: NamedTable, data_file: str, row_group: int | None, output: Path) -> None:
    """Write the indexes that TABLE has of a data file as a container that Paimon reads."""
    exported = table.open_index().export_indexes(data_file, row_group)
    try:
        with output.open("xb") as stream:
            stream.write(exported.data)
    except FileExistsError as error:
        raise PuffinIndexError(f"{output} exists already") from error
    table.show(replace(exported, output=str(output)))


@click.command("status")
@table_command
def status_command(table: NamedTable) -> None:
    """Say how much of TABLE is indexed."""
    table.show(table.open_index().status())


@click.command("inspect")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect_command(file: str, as_json: bool) -> None:
    """List what is in FILE, a segment or other Puffin file or a Paimon index container.

    FILE is a path or any location that PyIceberg reads.
    """
    with open_file(file) as reader:
        if is_container(reader):
            show(ContainerContent(file, read_container(reader)), as_json=as_json)
            return
        footer = read_footer(reader)
        try:
            directories = summarize_directories(reader, footer)
        except PuffinIndexError:
            # A broken directory should not hide the blobs.
            if not as_json:
                show(PuffinContent(file, footer, ()), as_json=False)
            raise
        show(PuffinContent(file, footer, directories), as_json=as_json)
