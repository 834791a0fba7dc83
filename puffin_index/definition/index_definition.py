"""The index definition: which columns carry which index kinds, with which options; how it changes and fits a table.

Users name columns; the code identifies columns by Iceberg field ids, so that a rename changes nothing. `column#k#key`
names one key of a map column. Resolving checks a definition against a schema; errors name the column and the kind.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.schema import Schema, _index_parents
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType

from puffin_index.errors import DefinitionError, UnsupportedError, did_you_mean
from puffin_index.keys.map_key import SEPARATOR, ColumnId, MapKey, key_text, split_name, stored_kind
from puffin_index.keys.value_types import ValueType, value_type_of
from puffin_index.kinds.kind import Options
from puffin_index.kinds.registry import KINDS, kind_named


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
        **others: Iterable[str],
    ) -> IndexDefinition:
        """Make a definition from column names by kind, and options by `column.key`, for all kinds that know the key.

        Raises DefinitionError if a kind is unknown, columns are no list, or an option names a column without an index
        or a key that no kind knows.
        """
        kinds_of: dict[str, dict[str, dict[str, str]]] = {}
        for kind, names in {"bitmap": bitmap, "bsi": bsi, "bloom": bloom, **others}.items():
            kind_named(kind)
            if isinstance(names, str):
                # Python would take each letter for a column.
                raise DefinitionError(f"{kind}={names!r} is one text: give a list of columns, {kind}=[{names!r}]")
            for name in names:
                kinds_of.setdefault(name, {})[kind] = {}
        for option, value in (options or {}).items():
            name, _, key = option.rpartition(".")
            if name not in kinds_of:
                raise DefinitionError(
                    f"option {option!r} is not `column.key` of an indexed column{did_you_mean(name, kinds_of)}"
                )
            takers = [kind for kind in kinds_of[name] if key in KINDS[kind].option_names]
            if not takers:
                known = sorted({key for kind in kinds_of[name] for key in KINDS[kind].option_names})
                raise DefinitionError(
                    f"option {option!r}: no index of column {name!r} knows {key!r}; known: {', '.join(known) or 'none'}"
                    f"{did_you_mean(key, known)}"
                )
            for kind in takers:
                kinds_of[name][kind][key] = str(value)
        return cls(tuple(IndexedColumn(name, kinds) for name, kinds in kinds_of.items()))


@dataclass(frozen=True, slots=True)
class ResolvedColumn:
    """One column of a definition, or one key of a map (`map#k#key`), bound to a schema, with the options of each kind.

    The field id is the map's for a key, which has the spelling of `puffin_index.keys.map_key`.
    """

    field_id: int
    name: str
    value_type: ValueType
    kinds: Mapping[str, Options] = field(hash=False)
    map_key: str | None = None

    @property
    def column_id(self) -> ColumnId:
        """The subject of the indexes."""
        return self.field_id if self.map_key is None else MapKey(self.field_id, self.map_key)

    def stored_kind(self, kind: str) -> str:
        """Return the stored form of a kind, or of `statistics`, which files keep beside the field id."""
        return stored_kind(kind, self.map_key)


def resolve(definition: IndexDefinition, schema: Schema) -> tuple[ResolvedColumn, ...]:
    """Bind a definition to a schema, in the order of field ids.

    Raises DefinitionError if a column is missing or cannot be indexed, or if a kind or option does not fit its column.
    """
    if not definition.columns:
        raise DefinitionError("an index definition needs at least one column")
    columns = [_resolve_column(column, schema) for column in definition.columns]
    named = Counter((column.field_id, column.map_key) for column in columns)
    duplicates = [column.name for column in columns if named[column.field_id, column.map_key] > 1]
    if duplicates:
        raise DefinitionError(f"columns are named twice: {', '.join(duplicates)}")
    return tuple(sorted(columns, key=lambda column: (column.field_id, column.map_key or "")))


def _resolve_column(column: IndexedColumn, schema: Schema) -> ResolvedColumn:
    name, key = (column.name, None) if _is_column(schema, column.name) else split_name(column.name)
    return _resolve_field(find_field(schema, name), key, column, schema)


def _is_column(schema: Schema, name: str) -> bool:
    """Return whether a name, as it stands, is that of a column; the name may contain `#k#`."""
    try:
        schema.find_field(name, case_sensitive=False)
    except ValueError:
        return False
    return True


def _resolve_field(found: NestedField, key: str | None, column: IndexedColumn, schema: Schema) -> ResolvedColumn:
    name = schema.find_column_name(found.field_id) or column.name
    values = _indexed_type(column.name, found.field_type, key)
    try:
        if key is not None and isinstance(found.field_type, MapType):
            key = key_text(key, found.field_type.key_type)
            name = f"{name}{SEPARATOR}{key}"
        value_type = value_type_of(values)
    except (UnsupportedError, DefinitionError) as error:
        raise DefinitionError(f"column {column.name!r}: {error}") from error
    for kind, options in column.kinds.items():
        own = kind_named(kind)
        try:
            own.check(value_type, options)
        except DefinitionError as error:
            raise DefinitionError(f"column {column.name!r}: {error}") from error
    kinds = {kind: dict(options) for kind, options in column.kinds.items()}
    return ResolvedColumn(found.field_id, name, value_type, kinds, key)


def _indexed_type(name: str, field_type: IcebergType, key: str | None) -> PrimitiveType:
    """Return the type of the values of a column, or of one key of a map column."""
    if key is None:
        if isinstance(field_type, PrimitiveType):
            return field_type
        hint = (
            f"name one of its keys: {name}{SEPARATOR}key"
            if isinstance(field_type, MapType)
            else "only leaves can be indexed"
        )
        raise DefinitionError(f"column {name!r} is a {field_type}: {hint}")
    if not isinstance(field_type, MapType):
        raise DefinitionError(f"column {name!r} is a {field_type}: `{SEPARATOR}` names a key of a map")
    if isinstance(field_type.value_type, PrimitiveType):
        return field_type.value_type
    raise DefinitionError(f"column {name!r} is a {field_type}: only keys of primitive values can be indexed")


def find_field(schema: Schema, name: str) -> NestedField:
    """Find a column by its case-insensitive name. Dots join the names of structs and leaf; names may contain dots, too.

    Raises DefinitionError if the column is missing, or lies in a list or a map.
    """
    try:
        found = schema.find_field(name, case_sensitive=False)
    except ValueError as error:
        columns = ", ".join(f.name for f in schema.fields)
        near = did_you_mean(name, schema.column_names)
        raise DefinitionError(f"there is no column {name!r}; the table has: {columns}{near}") from error
    parents = _index_parents(schema)
    above = parents.get(found.field_id)
    while above is not None:
        parent_type = schema.find_type(above)
        if isinstance(parent_type, ListType | MapType):
            raise DefinitionError(f"column {name!r} lies in a {parent_type}: a row may have many values there")
        above = parents.get(above)
    return found


def to_json(columns: tuple[ResolvedColumn, ...]) -> str:
    """Serialise a resolved definition (a property of the index table)."""
    return json.dumps(
        [
            {"field-id": c.field_id, "name": c.name, "kinds": {kind: dict(opts) for kind, opts in c.kinds.items()}}
            | ({} if c.map_key is None else {"map-key": c.map_key})
            for c in columns
        ],
        sort_keys=True,
    )


def from_json(text: str, schema: Schema) -> tuple[ResolvedColumn, ...]:
    """Read a definition back and bind it to the current schema, leaving out columns that do not fit the schema."""
    columns: list[ResolvedColumn] = []
    for item in json.loads(text):
        # `retyped_columns` reports columns that have another type by now.
        with suppress(DefinitionError):
            found = _resolve_item(item, schema)
            columns += [found] if found is not None else []
    return tuple(columns)


def retyped_columns(text: str, schema: Schema) -> list[str]:
    """Return sentences about columns of a stored definition whose current type does not fit their indexes."""
    reasons: list[str] = []
    for item in json.loads(text):
        try:
            _resolve_item(item, schema)
        except DefinitionError as error:
            reasons.append(str(error))
    return reasons


def stored_kinds(text: str) -> dict[tuple[int, str], Options]:
    """Return the options of all stored indexes by field id and stored kind, whatever became of the columns."""
    return {
        (item["field-id"], stored_kind(kind, item.get("map-key"))): options
        for item in json.loads(text)
        for kind, options in item["kinds"].items()
    }


def _resolve_item(item: Mapping[str, Any], schema: Schema) -> ResolvedColumn | None:
    """Bind one column of a stored definition; return None for a dropped column."""
    name = schema.find_column_name(item["field-id"])
    if name is None:
        return None
    found = schema.find_field(item["field-id"])
    return _resolve_field(found, item.get("map-key"), IndexedColumn(name, item["kinds"]), schema)


def losses(stored: str, new: Sequence[ResolvedColumn]) -> list[str]:
    """Return what a new definition takes away from a stored one, kind by kind, as text."""
    names = {_place(item): _name(item) for item in json.loads(stored)}
    wanted = stored_kinds(to_json(tuple(new)))
    lost: list[str] = []
    for (field_id, kind), options in stored_kinds(stored).items():
        plain, _, key = kind.partition(SEPARATOR)
        name = names[field_id, key]
        if (field_id, kind) not in wanted:
            lost.append(f"{plain} of {name}")
        elif wanted[field_id, kind] != options:
            before, after = _described(options), _described(wanted[field_id, kind])
            lost.append(f"the options of {plain} of {name} ({before}; now {after})")
    return lost


def with_kinds(stored: str, columns: Sequence[ResolvedColumn]) -> str:
    """Add kinds to a stored definition; the options of a kind that is there already are replaced."""
    items = {_place(item): item for item in json.loads(stored)}
    for item in json.loads(to_json(tuple(columns))):
        known = items.setdefault(_place(item), {**item, "kinds": {}})
        known["kinds"] |= item["kinds"]
    return json.dumps([items[place] for place in sorted(items)], sort_keys=True)


def without_kinds(stored: str, columns: Sequence[ResolvedColumn]) -> str:
    """Take kinds out of a stored definition, or raise DefinitionError if the definition lacks one of the kinds."""
    items = {_place(item): item for item in json.loads(stored)}
    for column in columns:
        item = items.get((column.field_id, column.map_key or ""), {"kinds": {}})
        for kind in column.kinds:
            if kind not in item["kinds"]:
                there = "; ".join(f"{_name(one)}: {', '.join(sorted(one['kinds']))}" for one in items.values())
                raise DefinitionError(f"column {column.name!r} has no {kind} to remove; the definition has {there}")
            del item["kinds"][kind]
    return json.dumps([items[place] for place in sorted(items) if items[place]["kinds"]], sort_keys=True)


def _place(item: Any) -> tuple[int, str]:
    return item["field-id"], item.get("map-key") or ""


def _name(item: Any) -> str:
    return str(item["name"])


def _described(options: Any) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(options.items())) or "none"


def fit_warnings(columns: Sequence[ResolvedColumn], bytes_per_row: Mapping[int, float] | None = None) -> list[str]:
    """Return one sentence for each kind that suits its column badly, in the order of the columns.

    No data are read: type and size of a column suggest the number of distinct values. Sizes are bytes a row in the data
    files, by field id, as far as known.
    """
    sizes = bytes_per_row or {}
    return [
        f"column {column.name!r}: {sentence}"
        for column in columns
        for kind, options in column.kinds.items()
        for sentence in kind_named(kind).misfits(column.value_type, options, sizes.get(column.field_id))
    ]
