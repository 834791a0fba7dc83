"""The index definition: which columns carry which index kinds, with which options.

Users name columns; inside, a column is its Iceberg field id, so that a rename changes nothing. Resolving checks a
definition against a schema and refuses what cannot be built, naming the column and the kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyiceberg.schema import Schema
from pyiceberg.types import ListType, MapType, NestedField, PrimitiveType

from puffin_index.errors import DefinitionError, UnsupportedError
from puffin_index.kinds import KINDS
from puffin_index.values import ValueType, value_type_of

Options = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class IndexedColumn:
    """One column by name, with its kinds and each kind's options."""

    name: str
    kinds: Mapping[str, Options]


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """The columns to index, as a user names them."""

    columns: tuple[IndexedColumn, ...]

    @classmethod
    def of(
        cls,
        *,
        bitmap: Iterable[str] = (),
        bsi: Iterable[str] = (),
        bloom: Iterable[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> IndexDefinition:
        """Make a definition from column names by kind.

        Args:
            bitmap: Columns with a bitmap index.
            bsi: Columns with a bit-sliced index.
            bloom: Columns with a bloom filter.
            options: `{"column.key": value}`; a key goes to those of the column's kinds that know it.

        Raises:
            DefinitionError: If an option names a column without an index or a key that none of its kinds knows.
        """
        kinds_of: dict[str, dict[str, dict[str, str]]] = {}
        for kind, names in (("bitmap", bitmap), ("bsi", bsi), ("bloom", bloom)):
            for name in names:
                kinds_of.setdefault(name, {})[kind] = {}
        for option, value in (options or {}).items():
            name, _, key = option.rpartition(".")
            if name not in kinds_of:
                raise DefinitionError(f"option {option!r} is not `column.key` of an indexed column")
            takers = [kind for kind in kinds_of[name] if key in KINDS[kind].option_names]
            if not takers:
                known = sorted({key for kind in kinds_of[name] for key in KINDS[kind].option_names})
                raise DefinitionError(
                    f"option {option!r}: no index of column {name!r} knows {key!r}; known: {', '.join(known) or 'none'}"
                )
            for kind in takers:
                kinds_of[name][kind][key] = str(value)
        return cls(tuple(IndexedColumn(name, kinds) for name, kinds in kinds_of.items()))


@dataclass(frozen=True, slots=True)
class ResolvedColumn:
    """One column of a definition, bound to a schema."""

    field_id: int
    name: str
    value_type: ValueType
    kinds: Mapping[str, Options] = field(hash=False)


def resolve(definition: IndexDefinition, schema: Schema) -> tuple[ResolvedColumn, ...]:
    """Bind a definition to a schema, in the order of field ids.

    Raises:
        DefinitionError: If a column is not there, cannot be indexed, or a kind or option does not fit it.
    """
    if not definition.columns:
        raise DefinitionError("an index definition needs at least one column")
    columns = [_resolve_column(column, schema) for column in definition.columns]
    duplicates = {column.field_id for column in columns if [c.field_id for c in columns].count(column.field_id) > 1}
    if duplicates:
        raise DefinitionError(
            f"columns are named twice: {', '.join(c.name for c in columns if c.field_id in duplicates)}"
        )
    return tuple(sorted(columns, key=lambda column: column.field_id))


def _resolve_column(column: IndexedColumn, schema: Schema) -> ResolvedColumn:
    found = find_field(schema, column.name)
    if not isinstance(found.field_type, PrimitiveType):
        raise DefinitionError(f"column {column.name!r} is a {found.field_type}: only leaves can be indexed")
    try:
        value_type = value_type_of(found.field_type)
    except UnsupportedError as error:
        raise DefinitionError(f"column {column.name!r}: {error}") from error
    for kind, options in column.kinds.items():
        if kind not in KINDS:
            raise DefinitionError(f"unknown index kind {kind!r}; known: {', '.join(KINDS)}")
        try:
            KINDS[kind].check(value_type, options)
        except DefinitionError as error:
            raise DefinitionError(f"column {column.name!r}: {error}") from error
    name = schema.find_column_name(found.field_id) or column.name
    return ResolvedColumn(found.field_id, name, value_type, {kind: dict(opts) for kind, opts in column.kinds.items()})


def find_field(schema: Schema, name: str) -> NestedField:
    """Find a column by its (dotted, case-insensitive) name.

    Raises:
        DefinitionError: If it is not there, or lies in a list or a map.
    """
    try:
        found = schema.find_field(name, case_sensitive=False)
    except ValueError as error:
        columns = ", ".join(f.name for f in schema.fields)
        raise DefinitionError(f"there is no column {name!r}; the table has: {columns}") from error
    parts = name.split(".")
    for depth in range(1, len(parts)):
        parent = schema.find_field(".".join(parts[:depth]), case_sensitive=False)
        if isinstance(parent.field_type, ListType | MapType):
            raise DefinitionError(f"column {name!r} lies in a {parent.field_type}: a row may have many values there")
    return found


def to_json(columns: tuple[ResolvedColumn, ...]) -> str:
    """Serialise a resolved definition (a property of the index table)."""
    return json.dumps(
        [
            {"field-id": c.field_id, "name": c.name, "kinds": {kind: dict(opts) for kind, opts in c.kinds.items()}}
            for c in columns
        ],
        sort_keys=True,
    )


def from_json(text: str, schema: Schema) -> tuple[ResolvedColumn, ...]:
    """Read a definition back and bind it to the table's schema of today; columns dropped since are left out."""
    columns: list[ResolvedColumn] = []
    for item in json.loads(text):
        name = schema.find_column_name(item["field-id"])
        if name is None:
            continue
        columns.append(_resolve_column(IndexedColumn(name, item["kinds"]), schema))
    return tuple(columns)
