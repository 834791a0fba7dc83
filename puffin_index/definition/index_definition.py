"""The index definition: which columns carry which index kinds, with which options; how it changes and fits a table.

Users name columns; the code identifies columns by Iceberg field ids, so that a rename changes nothing. `column#k#key`
names one key of a map column, `column#c#part` what its rows contain. Resolving checks a definition against a schema;
errors name the column and the kind.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pyiceberg.schema import Schema, _index_parents
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StringType

from puffin_index.definition.column_names import field_named, fields_named
from puffin_index.errors import DefinitionError, NotFoundError, UnsupportedError, did_you_mean
from puffin_index.keys import map_key
from puffin_index.keys.contents import BLOCK_ROWS, WORD_BLOCK_ROWS
from puffin_index.keys.map_key import ColumnId, Contents, FieldKind, MapKey, Part
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
    """A subject of indexes, named as users do (`map#k#key`), bound to a schema, with the options of its kinds."""

    column_id: ColumnId
    name: str
    value_type: ValueType
    kinds: Mapping[str, Options] = field(hash=False)

    @property
    def field_id(self) -> int:
        """The field id of the column."""
        return map_key.field_of(self.column_id)

    @property
    def block_rows(self) -> int:
        """The rows of a block of words."""
        return next((int(own[BLOCK_ROWS]) for own in self.kinds.values() if BLOCK_ROWS in own), WORD_BLOCK_ROWS)


def resolve(definition: IndexDefinition, schema: Schema) -> tuple[ResolvedColumn, ...]:
    """Bind a definition to a schema, in the order of field ids.

    Raises DefinitionError if a column is missing or cannot be indexed, or if a kind or option does not fit its column.
    """
    if not definition.columns:
        raise DefinitionError("an index definition needs at least one column")
    columns = [one for column in definition.columns for one in _resolve_column(column, schema)]
    named = Counter(column.column_id for column in columns)
    duplicates = [column.name for column in columns if named[column.column_id] > 1]
    if duplicates:
        raise DefinitionError(f"columns are named twice: {', '.join(duplicates)}")
    return tuple(sorted(columns, key=lambda column: place_of(column.column_id)))


def _resolve_column(column: IndexedColumn, schema: Schema) -> list[ResolvedColumn]:
    """Resolve a column: what its kinds index of it by the option `content`, and the column itself."""
    # The name of a column may contain `#k#`.
    name, key, part = (
        (column.name, None, None) if fields_named(schema, column.name) else map_key.split_name(column.name)
    )
    found = _find_field(schema, name)
    kinds_of: dict[Part | None, dict[str, Options]] = {}
    for kind, given in column.kinds.items():
        options = dict(given)
        own = (
            map_key.part_named(column.name, options.pop(map_key.CONTENT))
            if map_key.CONTENT in options and part is None
            else part
        )
        kinds_of.setdefault(own, {})[kind] = options
    return [
        _resolve_field(found, _subject(found, key, own, column.name), IndexedColumn(column.name, kinds), schema)
        for own, kinds in kinds_of.items()
    ]


def _subject(found: NestedField, key: str | None, part: Part | None, name: str) -> ColumnId:
    if part is not None:
        return Contents(found.field_id, part)
    if key is None:
        return found.field_id
    try:
        spelled = map_key.key_text(key, found.field_type.key_type) if isinstance(found.field_type, MapType) else key
    except (UnsupportedError, DefinitionError) as error:
        raise DefinitionError(f"column {name!r}: {error}") from error
    return MapKey(found.field_id, spelled)


def _resolve_field(found: NestedField, subject: ColumnId, column: IndexedColumn, schema: Schema) -> ResolvedColumn:
    name = f"{schema.find_column_name(found.field_id) or column.name}{map_key.suffix_of(subject)}"
    values = _indexed_type(column.name, found.field_type, subject)
    try:
        value_type = value_type_of(values)
    except UnsupportedError as error:
        raise DefinitionError(f"column {column.name!r}: {error}") from error
    for kind, options in column.kinds.items():
        own = kind_named(kind)
        try:
            own.check(value_type, options)
        except DefinitionError as error:
            raise DefinitionError(f"column {column.name!r}: {error}") from error
        if isinstance(subject, Contents) and not own.takes_contents(options):
            raise DefinitionError(f"column {column.name!r}: kind {kind} knows one value a row, not several")
        if BLOCK_ROWS in options and subject != Contents(found.field_id, "words"):
            raise DefinitionError(f"column {column.name!r}: option {BLOCK_ROWS} is for indexes of words")
    return ResolvedColumn(subject, name, value_type, {kind: dict(options) for kind, options in column.kinds.items()})


def _indexed_type(name: str, field_type: IcebergType, subject: ColumnId) -> PrimitiveType:
    """Return the type of the values of a column, of one key of a map column, or of what the rows contain."""
    match subject, field_type:
        case int(), PrimitiveType():
            return field_type
        case int(), MapType():
            raise DefinitionError(
                f"column {name!r} is a {field_type}: name one of its keys: {name}{map_key.SEPARATOR}key; or index all "
                f"keys or values: {name}{map_key.CONTENT_SEPARATOR}keys, {name}{map_key.CONTENT_SEPARATOR}values"
            )
        case int(), ListType(element_type=PrimitiveType()):
            raise DefinitionError(
                f"column {name!r} is a {field_type}: only leaves can be indexed, or its elements, "
                f"{name}{map_key.CONTENT_SEPARATOR}elements"
            )
        case int(), _:
            raise DefinitionError(f"column {name!r} is a {field_type}: only leaves can be indexed")
        case MapKey(), MapType(value_type=PrimitiveType() as own):
            return own
        case MapKey(), MapType():
            raise DefinitionError(f"column {name!r} is a {field_type}: only keys of primitive values can be indexed")
        case MapKey(), _:
            raise DefinitionError(f"column {name!r} is a {field_type}: `{map_key.SEPARATOR}` names a key of a map")
        case Contents(part=part), _:
            contained = contained_type(field_type, part)
            if isinstance(contained, PrimitiveType):
                return contained
            raise DefinitionError(f"column {name!r} is a {field_type}, which has no {part} of a primitive type")
    raise AssertionError(subject)


def contained_type(field_type: IcebergType, part: Part) -> IcebergType | None:
    """Return the type of what the rows of a column contain; None for another type of column."""
    match field_type, part:
        case StringType(), "words":
            return field_type
        case ListType(element_type=own), "elements":
            return own
        case MapType(key_type=own), "keys":
            return own
        case MapType(value_type=own), "values":
            return own
        case _:
            return None


def _find_field(schema: Schema, name: str) -> NestedField:
    """Find a column, or raise DefinitionError if the column is missing, or lies in a list or a map."""
    try:
        found = field_named(schema, name)
    except NotFoundError as error:
        raise DefinitionError(str(error)) from error
    parents = _index_parents(schema)
    above: int | None = found.field_id
    while above is not None and (above := parents.get(above)) is not None:
        parent_type = schema.find_type(above)
        if isinstance(parent_type, ListType | MapType):
            raise DefinitionError(f"column {name!r} lies in a {parent_type}: a row may have many values there")
    return found


@dataclass(frozen=True, slots=True)
class BoundDefinition:
    """The columns of a stored definition, or of table properties, that fit the schema, and why others do not."""

    columns: tuple[ResolvedColumn, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column of a stored definition by its name of old, whatever became of the column."""

    column_id: ColumnId
    name: str
    kinds: Mapping[str, Options]


AnyColumn = TypeVar("AnyColumn", StoredColumn, ResolvedColumn)


def to_json(columns: Iterable[AnyColumn]) -> str:
    """Serialise a definition (a property of the index table) in its order, leaving out columns without a kind."""
    items: list[dict[str, Any]] = []
    for column in sorted(columns, key=lambda column: place_of(column.column_id)):
        kinds = {kind: dict(options) for kind, options in column.kinds.items()}
        item = {"field-id": map_key.field_of(column.column_id), "name": column.name, "kinds": kinds}
        items += [item | map_key.details_of(column.column_id)] if kinds else []
    return json.dumps(items, sort_keys=True)


def from_json(text: str, schema: Schema) -> BoundDefinition:
    """Read a definition back and bind it to the schema, without dropped columns; warn of those that no longer fit."""
    columns: list[ResolvedColumn] = []
    warnings: list[str] = []
    for column in stored_columns(text):
        field_id = map_key.field_of(column.column_id)
        name = schema.find_column_name(field_id)
        if name is None:
            continue
        try:
            found = schema.find_field(field_id)
            columns.append(_resolve_field(found, column.column_id, IndexedColumn(name, column.kinds), schema))
        except DefinitionError as error:
            warnings.append(str(error))
    return BoundDefinition(tuple(columns), tuple(warnings))


def stored_columns(text: str) -> list[StoredColumn]:
    """Return the columns of a stored definition."""
    return [StoredColumn(map_key.column_of_details(item), item["name"], item["kinds"]) for item in json.loads(text)]


def place_of(column: ColumnId) -> tuple[int, str]:
    """Return the place of a column in the order of definitions: by field id, then by what stands behind the name."""
    return map_key.field_of(column), map_key.suffix_of(column)


def indexes_of(columns: Iterable[AnyColumn]) -> dict[FieldKind, Options]:
    """Return the options of each index of a definition."""
    return {map_key.index_of(column.column_id, kind): own for column in columns for kind, own in column.kinds.items()}


def without_indexes(columns: Iterable[AnyColumn], gone: Container[FieldKind]) -> tuple[AnyColumn, ...]:
    """Leave indexes out of a definition, and columns without any other."""
    left: list[AnyColumn] = []
    for column in columns:
        kinds = {
            kind: own for kind, own in column.kinds.items() if map_key.index_of(column.column_id, kind) not in gone
        }
        left += [replace(column, kinds=kinds)] if kinds else []
    return tuple(left)


def stored_kinds(text: str) -> dict[FieldKind, Options]:
    """Return the options of all indexes of a stored definition."""
    return indexes_of(stored_columns(text))


def fit_warnings(columns: Sequence[ResolvedColumn]) -> list[str]:
    """Return a sentence for each kind that suits its column badly."""
    return [
        f"column {column.name!r}: {sentence}"
        for column in columns
        for kind, options in column.kinds.items()
        for sentence in kind_named(kind).misfits(column.value_type, options)
    ]


_PREFIX = "file-index."


def read_properties(properties: Mapping[str, str], schema: Schema) -> BoundDefinition:
    """Read the definition in the data table's own properties, in Paimon's spelling; any engine can set the properties.

    | property | meaning |
    | --- | --- |
    | `file-index.<type>.columns` | columns, separated by commas, to index by `bitmap`, `bsi` or `bloom-filter` |
    | `file-index.<type>.<column>.<option>` | an option of one column's index: `fpp`, `items` and so on |

    Source: seed 001. Properties name columns by their current names; the old name of a renamed column is unknown.
    Unusable properties are left out with a warning: another engine's property is no reason to stop a build.
    """
    columns: tuple[ResolvedColumn, ...] = ()
    warnings: list[str] = []
    for kind, index_type in ((name, own.paimon_name) for name, own in KINDS.items() if own.paimon_name):
        key = f"{_PREFIX}{index_type}.columns"
        names = [name.strip() for name in properties.get(key, "").split(",") if name.strip()]
        for name in dict.fromkeys(names):
            prefix = f"{_PREFIX}{index_type}.{name}."
            given = {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}
            # A remaining dot means an option of a column whose name begins like this column's name.
            options = {key: value for key, value in given.items() if key and "." not in key}
            try:
                resolved = _resolve_column(IndexedColumn(name, {kind: options}), schema)
            except DefinitionError as error:
                warnings.append(f"table property {key}: {error}")
            else:
                columns = unite(columns, resolved)
    return BoundDefinition(columns, tuple(warnings))


def unite(first: Sequence[ResolvedColumn], second: Sequence[ResolvedColumn]) -> tuple[ResolvedColumn, ...]:
    """Unite two definitions; if both have a kind of a column, the options of the first count."""
    united = {column.column_id: column for column in second}
    for column in first:
        other = united.get(column.column_id)
        united[column.column_id] = replace(column, kinds={**(other.kinds if other else {}), **column.kinds})
    return tuple(united[column_id] for column_id in sorted(united, key=place_of))
