"""The fields of a data file, and the table columns that Iceberg matches them with.

Iceberg has one rule for a whole file (`ReadConf` for Parquet, `OrcIterable` for ORC):

1. If any field of the file has a field id, columns are found by field ids alone. Fields without an id are never read.
2. Otherwise, if the table has a name mapping, the mapping gives the ids, by the names that lead to a field.
3. Otherwise the top-level fields of a Parquet file have the ids 1, 2, 3 … in their order; nested fields have no ids.
   Iceberg finds the columns of an ORC file by their current names; ORC files of this kind are not indexed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import pyarrow as pa
from pyiceberg.table.name_mapping import NameMapping

PARQUET_FIELD_ID = b"PARQUET:field_id"
ORC_FIELD_ID = b"iceberg.id"


class Rule(StrEnum):
    """The rule by which Iceberg finds the columns of a data file."""

    FIELD_IDS = "field-ids"
    NAME_MAPPING = "name-mapping"
    POSITION = "position"
    PARTITION = "partition"
    """The column is a constant of the file's partition; Iceberg does not read it from the file."""


@dataclass(frozen=True, slots=True)
class FileField:
    """A field of a data file, the ordinals of its leaf columns, and the table column's id that Iceberg matches it with.

    Children are the fields of a struct, key and value of a map, or the element of a list.
    """

    field: pa.Field
    field_id: int | None
    leaves: range
    children: tuple[FileField, ...]


@dataclass(frozen=True, slots=True)
class FileFields:
    """The top-level fields of a data file, and the rule that identified them."""

    rule: Rule
    fields: tuple[FileField, ...]

    def find(self, path: Sequence[int]) -> tuple[FileField, ...]:
        """Find a column by the ids that lead to it through structs; return the fields on the way, none if it is absent.

        Raises LookupError if two fields of the file have one id, or the file has the column in another place.
        """
        found: list[FileField] = []
        level = self.fields
        for field_id in path:
            here = [field for field in level if field.field_id == field_id]
            if len(here) > 1:
                raise LookupError(f"{len(here)} of its fields have the field id {field_id}")
            if not here:
                break
            found.append(here[0])
            level = here[0].children if pa.types.is_struct(here[0].field.type) else ()
        if len(found) == len(path):
            return tuple(found)
        if any(field.field_id == path[-1] for field in _every(self.fields)):
            raise LookupError(f"its field of the field id {path[-1]} lies elsewhere than in the table")
        return ()


def identify_fields(schema: pa.Schema, file_format: str, name_mapping: NameMapping | None) -> FileFields | None:
    """Match the fields of a file with table columns; None for an ORC file that is read by current names."""
    key = ORC_FIELD_ID if file_format == "ORC" else PARQUET_FIELD_ID
    named = [(field.name, field) for field in schema]

    def own_id(field: pa.Field, _: str) -> int | None:
        text = (field.metadata or {}).get(key, b"")
        return int(text) if text.isdigit() else None

    fields = _identify(named, own_id)
    if any(field.field_id is not None for field in _every(fields)):
        return FileFields(Rule.FIELD_IDS, fields)
    if name_mapping is not None:
        ids = {name: field.field_id for name, field in name_mapping._field_by_name.items()}
        return FileFields(Rule.NAME_MAPPING, _identify(named, lambda _, path: ids.get(path)))
    if file_format == "ORC":
        return None
    return FileFields(
        Rule.POSITION, tuple(replace(field, field_id=ordinal) for ordinal, field in enumerate(fields, start=1))
    )


def leaf_count(arrow_type: pa.DataType) -> int:
    """Return the number of leaf columns of a Parquet field of this type."""
    if isinstance(arrow_type, pa.BaseExtensionType):
        arrow_type = arrow_type.storage_type
    children = children_of(arrow_type)
    return sum(leaf_count(child.type) for _, child in children) if children else 1


def _identify(
    fields: Iterable[tuple[str, pa.Field]],
    id_of: Callable[[pa.Field, str], int | None],
    above: str = "",
    first_leaf: int = 0,
) -> tuple[FileField, ...]:
    """Identify fields by their name in name mappings; `id_of` gets a field, and the names that lead to it."""
    identified: list[FileField] = []
    for name, field in fields:
        path, leaves = above + name, range(first_leaf, first_leaf + leaf_count(field.type))
        children = _identify(children_of(field.type), id_of, f"{path}.", first_leaf)
        identified.append(FileField(field, id_of(field, path), leaves, children))
        first_leaf = leaves.stop
    return tuple(identified)


def children_of(arrow_type: pa.DataType) -> list[tuple[str, pa.Field]]:
    """Return the fields inside a field, with their names in name mappings."""
    if pa.types.is_struct(arrow_type):
        return [(field.name, field) for field in arrow_type]
    if pa.types.is_map(arrow_type):
        return [("key", arrow_type.key_field), ("value", arrow_type.item_field)]
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type) or pa.types.is_fixed_size_list(arrow_type):
        return [("element", arrow_type.value_field)]
    return []


def _every(fields: Sequence[FileField]) -> Iterator[FileField]:
    for field in fields:
        yield field
        yield from _every(field.children)
