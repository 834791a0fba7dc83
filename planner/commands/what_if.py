"""The command `what-if`: what a WHERE would read with other indexes."""

from __future__ import annotations

from collections.abc import Iterable

import click
from pyiceberg.table import Table

from planner.advice.sample import DEFAULT_SAMPLE
from planner.advice.what_if import what_if
from planner.advice.what_if_answer import DEFAULT_BYTES_PER_SECOND
from puffin_index.catalogue.index_table import TableName
from puffin_index.catalogue.open_catalog import QualifiedTable, open_catalog
from puffin_index.commands.definition_options import definition_options, split_names
from puffin_index.commands.main import parse_properties, show, table_command
from puffin_index.data.data_table import open_table
from puffin_index.definition.index_definition import IndexDefinition

_MEBIBYTE = 1024 * 1024


def open_data_table(table: str, properties: Iterable[str]) -> Table:
    """Open a table named on the command line, whether it has an index or not."""
    name = QualifiedTable.parse(table)
    catalog = open_catalog(name.catalog, parse_properties(properties))
    return open_table(catalog, TableName.parse(name.name).identifier)


@click.command("what-if")
@table_command
@click.argument("where")
@definition_options()
@click.option("--without", multiple=True, metavar="COL.KIND", help="Leave out this existing index.")
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    default=DEFAULT_SAMPLE,
    show_default=True,
    help="Measure so many row groups at most; 0 for all.",
)
@click.option("--snapshot-id", type=int, help="Ask about this snapshot.")
@click.option(
    "--mib-per-second",
    type=click.FloatRange(min=0, min_open=True),
    default=DEFAULT_BYTES_PER_SECOND / _MEBIBYTE,
    show_default=True,
    help="How fast one core reads data.",
)
def what_if_command(
    table: str,
    properties: tuple[str, ...],
    as_json: bool,
    where: str,
    definition: IndexDefinition,
    without: tuple[str, ...],
    sample: int,
    snapshot_id: int | None,
    mib_per_second: float,
) -> None:
    """Measure what a query with this WHERE text would read of TABLE if it had other indexes. Nothing is changed."""
    answer = what_if(
        open_data_table(table, properties),
        where,
        definition if definition.columns else None,
        without=split_names(without),
        sample=sample or None,
        snapshot_id=snapshot_id,
        bytes_per_second=mib_per_second * _MEBIBYTE,
    )
    show(answer, as_json=as_json)
