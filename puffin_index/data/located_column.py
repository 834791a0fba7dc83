"""Locate a table column in one data file by Iceberg's rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.types import MapType

from puffin_index.data.column_source import ColumnSource, Reading
from puffin_index.data.file_fields import FileField, FileFields, Rule
from puffin_index.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class LocatedColumn:
    """A column of the table in a data file.

    Attributes:
        source: The source that the index entry records.
        path: The file's fields that lead to the column, the column last; empty if the file lacks the column or Iceberg
            does not read it from the file.
        constant: The partition constant of all rows, as text (`puffin_index.data.constants`), if any.
    """

    source: ColumnSource
    path: tuple[FileField, ...] = ()
    constant: str | None = None


def locate_column(
    fields: FileFields, reading: Reading, constants: Mapping[int, str], field_id: int, location: str
) -> LocatedColumn:
    """Find a column in a data file.

    Args:
        fields: The file's fields.
        reading: The rules by which scans of the table find columns.
        constants: The constants of the file's partition, by field id.
        field_id: The column: a leaf of structs, or a map.
        location: The data file, for error messages.

    Raises:
        UnsupportedError: If it is uncertain what Iceberg would read, or the column does not have one value per row.
    """
    ids = reading.ids(field_id)
    if not ids:
        raise UnsupportedError(f"data file {location}: the table has no column of the field id {field_id}")
    column = reading.schema.find_field(field_id)
    is_map = isinstance(column.field_type, MapType)
    path = ids[:-2] if is_map else ids
    about = f"data file {location}, column {reading.schema.find_column_name(field_id)!r}"
    if field_id in constants:
        if len(path) > 1:
            raise UnsupportedError(f"{about}: the table is partitioned by a field of a struct")
        return LocatedColumn(ColumnSource(Rule.PARTITION, ids), constant=constants[field_id])
    if fields.rule is Rule.POSITION and (len(path) > 1 or is_map):
        raise UnsupportedError(f"{about}: the file has no field ids and the table has no name mapping")
    try:
        found = fields.find(path)
    except LookupError as error:
        raise UnsupportedError(f"{about}: {error}") from error
    names = reading.names(field_id) if fields.rule is Rule.NAME_MAPPING else ()
    if not found:
        if reading.default(field_id) is not None:
            raise UnsupportedError(f"{about}: the file lacks the column, which has a default value there")
        return LocatedColumn(ColumnSource(fields.rule, ids, names, is_absent=True))
    if is_map:
        _check_map(found[-1], ids[-2:], about)
    elif pa.types.is_nested(found[-1].field.type):
        raise UnsupportedError(f"{about}: the file has a {found[-1].field.type} there")
    return LocatedColumn(ColumnSource(fields.rule, ids, names), found)


def _check_map(found: FileField, ids: tuple[int, ...], about: str) -> None:
    if not pa.types.is_map(found.field.type):
        raise UnsupportedError(f"{about}: column {found.field_id} is no map there")
    if tuple(child.field_id for child in found.children) != ids:
        raise UnsupportedError(f"{about}: the key or the value of the map has another field id than in the table")
