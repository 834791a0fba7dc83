"""The commands that say what to index: `create`, `add` and `remove`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TypeVar

import click

from puffin_index.catalogue.open_catalog import QualifiedTable, open_catalog
from puffin_index.commands.main import console, open_index, parse_properties, table_command
from puffin_index.definition.index_definition import IndexDefinition
from puffin_index.errors import DefinitionError
from puffin_index.table_index import TableIndex

_Command = TypeVar("_Command", bound=Callable[..., object])


def _kind_options(command: _Command) -> _Command:
    for kind, what in (("bloom", "a bloom filter"), ("bsi", "a bit-sliced index"), ("bitmap", "a bitmap index")):
        help_text = f"Columns with {what}; may be repeated."
        command = click.option(f"--{kind}", multiple=True, metavar="C1,C2", help=help_text)(command)
    return table_command(command)


_index_options = click.option(
    "--option", "options", multiple=True, metavar="COL.KEY=VALUE", help="An option of a column's index."
)


@click.command("create")
@_kind_options
@_index_options
@click.option("--replace", is_flag=True, help="Let the new definition take away what the present one has.")
def create_command(
    table: str,
    properties: tuple[str, ...],
    as_json: bool,
    bitmap: tuple[str, ...],
    bsi: tuple[str, ...],
    bloom: tuple[str, ...],
    options: tuple[str, ...],
    replace: bool,
) -> None:
    """Define the index of TABLE. Nothing is built yet."""
    name = QualifiedTable.parse(table)
    definition = _definition(bitmap, bsi, bloom, options)
    catalog = open_catalog(name.catalog, parse_properties(properties))
    try:
        index = TableIndex.create(catalog, name.name, definition, replace=replace)
    except DefinitionError as error:
        if "would take away" not in str(error):
            raise
        raise DefinitionError(f"{error}. --replace does it, and `puffin-index add` keeps the rest") from error
    _print(table, index, as_json)


@click.command("add")
@_kind_options
@_index_options
def add_command(
    table: str,
    properties: tuple[str, ...],
    as_json: bool,
    bitmap: tuple[str, ...],
    bsi: tuple[str, ...],
    bloom: tuple[str, ...],
    options: tuple[str, ...],
) -> None:
    """Add kinds to the index definition of TABLE, and keep the rest. Nothing is built yet."""
    definition = _definition(bitmap, bsi, bloom, options)
    index = open_index(table, properties)
    index.add_kinds(definition)
    _print(table, index, as_json)


@click.command("remove")
@_kind_options
def remove_command(
    table: str,
    properties: tuple[str, ...],
    as_json: bool,
    bitmap: tuple[str, ...],
    bsi: tuple[str, ...],
    bloom: tuple[str, ...],
) -> None:
    """Take kinds out of the index definition of TABLE, and keep the rest. `expire` deletes their bytes."""
    definition = _definition(bitmap, bsi, bloom)
    index = open_index(table, properties)
    index.remove_kinds(definition)
    _print(table, index, as_json)


def _definition(
    bitmap: Iterable[str], bsi: Iterable[str], bloom: Iterable[str], options: Iterable[str] = ()
) -> IndexDefinition:
    return IndexDefinition.of(
        bitmap=_names(bitmap), bsi=_names(bsi), bloom=_names(bloom), options=parse_properties(options)
    )


def _names(texts: Iterable[str]) -> list[str]:
    names = (name.strip() for text in texts for name in text.split(","))
    return list(dict.fromkeys(name for name in names if name))


def _print(table: str, index: TableIndex, as_json: bool) -> None:
    columns = [{"name": c.name, "field_id": c.field_id, "kinds": sorted(c.kinds)} for c in index.columns]
    index_table = ".".join(index.index_table.name())
    if as_json:
        click.echo(json.dumps({"table": index.name, "index_table": index_table, "columns": columns}))
        return
    described = "; ".join(f"{c.name}: {', '.join(sorted(c.kinds))}" for c in index.columns)
    console.print(f"{index_table}: {described}", highlight=False)
    console.print(f"build it with: puffin-index build {table}", highlight=False)
