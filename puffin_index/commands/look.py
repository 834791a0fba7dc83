"""The commands that show an index: `status` and `inspect`."""

import click

from puffin_index.commands.main import NamedTable, open_file, show, table_command, warn
from puffin_index.errors import PuffinIndexError
from puffin_index.formats.paimon_container import read_container
from puffin_index.formats.puffin import read_footer
from puffin_index.segments.inspection import ContainerContent, PuffinContent, is_container, summarize_directories


@click.command("status")
@table_command
def status_command(table: NamedTable) -> None:
    """Say how much of TABLE is indexed."""
    index = table.open_index()
    table.show(index.status())
    if not table.as_json:
        for warning in index.warnings:
            warn(warning)


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
