"""The commands that exchange indexes with Paimon: `export` and `import`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from puffin_index.commands.main import console, error_console, open_file, open_index, table_command
from puffin_index.display import format_bytes
from puffin_index.errors import PuffinIndexError
from puffin_index.formats.paimon_container import read_container
from puffin_index.storage.ranged import BytesReader

_DATA_FILE = "The data file: its location, or the last parts of it."


@click.command("export")
@table_command
@click.option("--data-file", required=True, metavar="F", help=_DATA_FILE)
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


@click.command("import")
@table_command
@click.option("--data-file", required=True, metavar="F", help=_DATA_FILE + " It has one row group.")
@click.option("--input", "container", required=True, metavar="X", help="The container: a path or a location.")
def import_command(table: str, properties: tuple[str, ...], as_json: bool, data_file: str, container: str) -> None:
    """Add indexes from a container of Paimon's to the index of TABLE, once they agree with the data file.

    Only indexes of the definition are imported.
    """
    with open_file(container) as reader:
        report = open_index(table, properties).import_indexes(data_file, read_container(reader))
    if as_json:
        click.echo(json.dumps(asdict(report)))
        return
    described = "; ".join(f"{column}: {', '.join(kinds)}" for column, kinds in report.imported.items())
    console.print(
        f"{report.data_file}: imported {described}, {format_bytes(report.index_bytes)}",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )
    for sentence in report.left_out:
        error_console.print(f"left out: {sentence}", highlight=False, soft_wrap=True, markup=False)
