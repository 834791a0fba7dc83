"""The commands that show an index: `status` and `inspect`."""

import json

import click

from puffin_index.commands.main import console, error_console, open_file, open_index, show, table_command
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


@click.command("status")
@table_command
def status_command(table: str, properties: tuple[str, ...], as_json: bool) -> None:
    """Say how much of TABLE is indexed."""
    index = open_index(table, properties)
    show(index.status(), as_json=as_json)
    if not as_json:
        for warning in index.warnings:
            error_console.print(f"warning: {warning}", highlight=False, soft_wrap=True, markup=False)


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
