"""The commands that say what to index: `create`."""

from __future__ import annotations

import json

import click

from puffin_index.catalogue.open_catalog import QualifiedTable, open_catalog
from puffin_index.commands.main import console, parse_properties, table_command
from puffin_index.definition.index_definition import IndexDefinition
from puffin_index.table_index import TableIndex


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()] if text else []


@click.command("create")
@table_command
@click.option("--bitmap", metavar="C1,C2", help="Columns with a bitmap index.")
@click.option("--bsi", metavar="C1,C2", help="Columns with a bit-sliced index.")
@click.option("--bloom", metavar="C1,C2", help="Columns with a bloom filter.")
@click.option("--option", "options", multiple=True, metavar="COL.KEY=VALUE", help="An option of a column's index.")
def create_command(
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
