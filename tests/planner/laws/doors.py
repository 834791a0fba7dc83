"""The ways to the rows that have some values in a column: datasets, look-ups by key, and places of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

import planner
from puffin_index import TableIndex
from puffin_index.errors import PuffinIndexError
from tests.planner.laws.iceberg_reading import (
    NAME_MAPPING,
    LeafColumn,
    OddFileError,
    leaf_columns,
    live_files,
    schema_at,
)


@dataclass(frozen=True, slots=True)
class LiveRow:
    """A row as a plain scan reads it; field 1, its `number`, tells rows apart. Data files may lack the field."""

    number: int | None
    value: Any
    file: str
    position: int


def check_every_door(index: TableIndex, table: Table, snapshot_id: int | None, step: int) -> None:
    """Ask for the rows that have some keys, through every door; steps ask about different columns and keys."""
    schema = schema_at(table, snapshot_id)
    columns = [column for column in leaf_columns(schema.fields) if len(column.ids) == 1]
    (numbered,) = (column for column in columns if column.field.field_id == 1)
    asked = columns[step % len(columns)]
    names, arrow = (numbered.name, asked.name), schema.as_arrow().field(asked.name).type
    try:
        rows = _live_rows(table, snapshot_id, numbered, asked)
    except OddFileError:
        with suppress(PuffinIndexError):
            _ask(index, snapshot_id, names, pa.array([1, None, 2]).cast(arrow))
        return
    known = sorted({row.value for row in rows} - {None})
    keys = [*known[step % 3 :: 2], None, *known[:1]]
    assert _ask(index, snapshot_id, names, pa.array(keys, arrow)) == _expected(rows, keys), (names, keys, snapshot_id)


def _live_rows(table: Table, snapshot_id: int | None, numbered: LeafColumn, asked: LeafColumn) -> list[LiveRow]:
    mapping = table.properties.get(NAME_MAPPING)
    return [
        LiveRow(row[numbered.name], row[asked.name], live.file.file_path, at)
        for live in live_files(table, snapshot_id)
        for at, row in enumerate(live.rows([numbered, asked], mapping))
        if at not in live.deleted
    ]


def _ask(index: TableIndex, snapshot_id: int | None, names: tuple[str, str], keys: pa.Array) -> list[Any]:
    number, column = names
    data = planner.dataset(index, snapshot_id)
    wanted = pc.field(column).isin(keys.drop_null().unique())
    looked_up = planner.get(index, {column: keys}, [number], snapshot_id)
    located = planner.locate(index, {column: keys}, snapshot_id)
    return [
        Counter(zip(*looked_up.to_pydict().values(), strict=True)),
        Counter(zip(*located.to_pydict().values(), strict=True)),
        Counter(data.to_table(columns=[number], filter=wanted)[number].to_pylist()),
        Counter(data.to_table(columns=[number], filter=pc.field(column).is_null())[number].to_pylist()),
        data.count_rows(wanted),
    ]


def _expected(rows: Sequence[LiveRow], keys: Sequence[Any]) -> list[Any]:
    """What `_ask` gives, found row by row."""
    here = [row for row in rows if row.value is not None and row.value in keys]
    return [
        Counter((place, row.number) for place, key in enumerate(keys) for row in here if row.value == key),
        Counter((row.file, row.position, row.value) for row in here),
        Counter(row.number for row in here),
        Counter(row.number for row in rows if row.value is None),
        len(here),
    ]
