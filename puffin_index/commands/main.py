"""The command line: the commands on the index itself. `planner.commands.main` adds the commands on queries."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError, RESTError
from pyiceberg.io import load_file_io
from requests.exceptions import RequestException
from rich.console import Console
from rich.table import Table as RichTable
from sqlalchemy.exc import SQLAlchemyError

from puffin_index.catalogue.open_catalog import QualifiedTable, open_catalog
from puffin_index.definition.index_definition import IndexDefinition
from puffin_index.display import format_bytes
from puffin_index.errors import CatalogError, PuffinIndexError
from puffin_index.formats.paimon_container import Container, read_container
from puffin_index.formats.puffin import read_footer
from puffin_index.jobs.processor import settings_of_executors
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
from puffin_index.table_index import IndexStatus, TableIndex

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A pipe has no width; a wide console keeps words in tables whole.
console = Console(width=None if sys.stdout.isatty() else 200)
error_console = Console(stderr=True)

_Command = TypeVar("_Command", bound=Callable[..., object])


class _Group(click.Group):
    """Prints errors of this project as one sentence and exits with 1."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (SQLAlchemyError, RequestException, RESTError) as error:
            _fail(CatalogError(f"the catalog does not answer: {str(error).splitlines()[0]}"))
        except PuffinIndexError as error:
            _fail(error)
        except (NoSuchTableError, NoSuchNamespaceError, CommitFailedException) as error:
            _fail(CatalogError(str(error)))
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            _fail(PuffinIndexError(str(error)))


def _fail(error: PuffinIndexError) -> NoReturn:
    error_console.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
    sys.exit(1)


def escape(text: str) -> str:
    """Keep rich from reading brackets as its markup."""
    return text.replace("[", r"\[")


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="puffin-index")
@click.option("-v", "--verbose", is_flag=True, help="Show what is done, a log line each.")
def main(verbose: bool) -> None:
    """Split-level indexes for Apache Iceberg tables.

    TABLE is catalog.namespace.table; the catalog comes from PyIceberg's configuration.
    """
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )


def table_command(command: _Command) -> _Command:
    """Add the parameters of all commands on a table: TABLE, `--catalog-property` and `--json`."""
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
    command = click.option(
        "--catalog-property", "properties", multiple=True, metavar="K=V", help="Override a catalog property."
    )(command)
    return click.argument("table")(command)


def parse_properties(properties: Iterable[str]) -> dict[str, str]:
    """Read `key=value` options."""
    pairs: dict[str, str] = {}
    for item in properties:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"{item!r} should read key=value")
        pairs[key] = value
    return pairs


def open_index(table: str, properties: Iterable[str]) -> TableIndex:
    """Open the index of a table named on the command line."""
    name = QualifiedTable.parse(table)
    return TableIndex.open(open_catalog(name.catalog, parse_properties(properties)), name.name)


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()] if text else []


@main.command()
@table_command
@click.option("--bitmap", metavar="C1,C2", help="Columns with a bitmap index.")
@click.option("--bsi", metavar="C1,C2", help="Columns with a bit-sliced index.")
@click.option("--bloom", metavar="C1,C2", help="Columns with a bloom filter.")
@click.option("--option", "options", multiple=True, metavar="COL.KEY=VALUE", help="An option of a column's index.")
def create(
    table: str,
    properties: tuple[str, ...],
    as_json: bool,
    bitmap: str | None,
    bsi: str | None,
    bloom: str | None,
    options: tuple[str, ...],
) -> None:
    """Define the index of TABLE. Nothing is built yet."""
    name = QualifiedTable.parse(table)
    definition = IndexDefinition.of(
        bitmap=_names(bitmap), bsi=_names(bsi), bloom=_names(bloom), options=parse_properties(options)
    )
    index = TableIndex.create(open_catalog(name.catalog, parse_properties(properties)), name.name, definition)
    columns = [{"name": c.name, "field_id": c.field_id, "kinds": sorted(c.kinds)} for c in index.columns]
    index_table = ".".join(index.index_table.name())
    if as_json:
        click.echo(json.dumps({"table": index.name, "index_table": index_table, "columns": columns}))
        return
    described = "; ".join(f"{c.name}: {', '.join(sorted(c.kinds))}" for c in index.columns)
    console.print(f"{index_table}: {described}", highlight=False)
    console.print(f"build it with: puffin-index build {table}", highlight=False)


def spark_session(name: str) -> SparkSession:
    """Start or get a Spark session for a command.

    Raises:
        PuffinIndexError: If PySpark is not installed or does not start.
    """
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise PuffinIndexError(
            "pyspark is not installed: use --engine local, or install puffin-index[spark]"
        ) from error
    try:
        builder = SparkSession.builder.appName(f"puffin-index {name}")
        for setting, value in settings_of_executors().items():
            builder = builder.config(setting, value)
        return builder.getOrCreate()
    except (PySparkRuntimeError, RuntimeError, OSError) as error:
        raise PuffinIndexError(f"Spark does not start ({error}): install Java 17+ or use --engine local") from error


@main.command("status")
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


@main.command("inspect")
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


def open_file(file: str) -> FileReader:
    """Open a file named on the command line: a path, or any location that PyIceberg reads."""
    location = Path(file).absolute().as_uri() if "://" not in file else file
    return FileReader(load_file_io(location=location), location)


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
