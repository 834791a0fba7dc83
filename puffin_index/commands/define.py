"""The commands that say what to index: `create`, `add` and `remove`; and the options that name columns and kinds."""

import functools
import json
from collections.abc import Callable, Iterable

import click

from puffin_index.commands.main import NamedTable, console, parse_properties, table_command
from puffin_index.definition.index_definition import IndexDefinition
from puffin_index.errors import DefinitionError
from puffin_index.table_index import TableIndex


def split_names(texts: Iterable[str]) -> list[str]:
    """Read names from an option that may be given several times, each time with names between commas."""
    names = (name.strip() for text in texts for name in text.split(","))
    return list(dict.fromkeys(name for name in names if name))


def definition_options(*, with_options: bool = True) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Add `--bitmap`, `--bsi`, `--bloom` and, if wanted, `--option`; the command gets what they say as `definition`."""

    def decorate(command: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(command)
        def run(
            *,
            bitmap: tuple[str, ...],
            bsi: tuple[str, ...],
            bloom: tuple[str, ...],
            options: tuple[str, ...] = (),
            **others: object,
        ) -> object:
            of_kind = {"bitmap": split_names(bitmap), "bsi": split_names(bsi), "bloom": split_names(bloom)}
            definition = IndexDefinition.of(**of_kind, options=parse_properties(options))
            return command(definition=definition, **others)

        own = run
        if with_options:
            own = click.option(
                "--option", "options", multiple=True, metavar="COL.KEY=VALUE", help="An option of a column's index."
            )(own)
        for kind, what in (("bloom", "a bloom filter"), ("bsi", "a bit-sliced index"), ("bitmap", "a bitmap index")):
            help_text = f"Columns with {what}; may be repeated."
            own = click.option(f"--{kind}", multiple=True, metavar="C1,C2", help=help_text)(own)
        return own

    return decorate


@click.command("create")
@table_command
@definition_options()
@click.option("--replace", is_flag=True, help="Let the new definition take away what the present one has.")
def create_command(table: NamedTable, definition: IndexDefinition, replace: bool) -> None:
    """Define the index of TABLE. Nothing is built yet."""
    catalog, name = table.open_catalog()
    try:
        index = TableIndex.create(catalog, name, definition, replace=replace)
    except DefinitionError as error:
        if "would take away" not in str(error):
            raise
        raise DefinitionError(f"{error}. --replace does it, and `puffin-index add` keeps the rest") from error
    print_index(table, index)


@click.command("add")
@table_command
@definition_options()
def add_command(table: NamedTable, definition: IndexDefinition) -> None:
    """Add kinds to the index definition of TABLE, and keep the rest. Nothing is built yet."""
    index = table.open_index()
    index.add_kinds(definition)
    print_index(table, index)


@click.command("remove")
@table_command
@definition_options(with_options=False)
def remove_command(table: NamedTable, definition: IndexDefinition) -> None:
    """Take kinds out of the index definition of TABLE, and keep the rest. `expire` deletes their bytes."""
    index = table.open_index()
    index.remove_kinds(definition)
    print_index(table, index)


def print_index(table: NamedTable, index: TableIndex) -> None:
    """Print where the index of a table is, and its definition; no segment is read."""
    columns = [{"name": c.name, "field_id": c.field_id, "kinds": sorted(c.kinds)} for c in index.columns]
    index_table = ".".join(index.index_table.name())
    if table.as_json:
        click.echo(json.dumps({"table": index.name, "index_table": index_table, "columns": columns}))
        return
    described = "; ".join(f"{c.name}: {', '.join(sorted(c.kinds))}" for c in index.columns)
    console.print(f"{index_table}: {described}\nbuild it with: puffin-index build {table.name}", highlight=False)
