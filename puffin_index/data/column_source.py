"""The place in a data file that a column is read from by Iceberg's rules, and that its index was built from.

The keys of a column depend on the data file and on everything that Iceberg consults to find the column in the file: the
rule (`puffin_index.data.file_fields`) and the field ids on the way, the name mapping, the default, the constant of an
identity partition. The index entry records all of these. Table metadata can change them later: by a rename and a new
column of the old name, by another name mapping, or by restoring older metadata, after which field ids are given out
again. The planner does not use an entry that no longer agrees.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import MappedField, NameMapping, parse_mapping_from_json
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from puffin_index.data.file_fields import FileField, FileFields, Rule
from puffin_index.errors import UnsupportedError
from puffin_index.storage.caches import cleared_by

NAME_MAPPING_PROPERTY = "schema.name-mapping.default"

FieldSource = tuple[int, str]
"""A field id, and the source of that column as text."""


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """The rule and field ids by which a column was found in a data file, or is absent there and NULL.

    For a map, the ids are also those of its key and value, for a list that of its element. `names` has the names of
    each id in the name mapping, if that is the rule.
    """

    rule: Rule
    ids: tuple[int, ...]
    names: tuple[tuple[str, ...], ...] = ()
    is_absent: bool = False

    def to_text(self) -> str:
        """The source as JSON, as the index table has it."""
        document: dict[str, object] = {"by": self.rule.value, "ids": self.ids}
        if self.names:
            document["names"] = self.names
        if self.is_absent:
            document["absent"] = True
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def of_text(cls, text: str) -> ColumnSource:
        """Read a source back, or raise ValueError if the text is not a source."""
        document = json.loads(text)
        try:
            names = tuple(tuple(map(str, level)) for level in document.get("names", ()))
            return cls(Rule(document["by"]), tuple(map(int, document["ids"])), names, bool(document.get("absent")))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{text!r} is no column source") from error


@dataclass(frozen=True)
class Reading:
    """The rules by which a scan finds columns in data files; the schema may be only the part that the scan reads."""

    schema: Schema
    name_mapping: NameMapping | None = None

    def ids(self, field_id: int) -> tuple[int, ...]:
        """Return the field ids that lead to a column outside of lists, and those of its key and value or element."""
        return self._paths.get(field_id, ())

    def path(self, field_id: int) -> tuple[int, ...]:
        """Return the same ids without those of key and value or element."""
        ids = self.ids(field_id)
        return ids[: len(ids) - len(_inner_ids(self.schema.find_type(field_id)))] if ids else ()

    def names(self, field_id: int) -> tuple[tuple[str, ...], ...]:
        """Return the names in the name mapping of each id that leads to a column."""
        level: Sequence[MappedField] = self.name_mapping.root if self.name_mapping else ()
        names: list[tuple[str, ...]] = []
        ids = self.ids(field_id)
        depth = len(self.path(field_id))
        for part in ids[:depth]:
            mapped = [field for field in level if field.field_id == part]
            names.append(_names(mapped))
            level = [child for field in mapped for child in field.fields]
        names += [_names([field for field in level if field.field_id == part]) for part in ids[depth:]]
        return tuple(names)

    def default(self, field_id: int) -> object:
        """Return the value that stands for a column missing in a data file; None for NULL."""
        return self.schema.find_field(field_id).initial_default

    def rejects(self, sources: Iterable[FieldSource]) -> frozenset[FieldSource]:
        """Return the sources that the scan would not read; sources of columns missing in the schema are not judged."""
        return frozenset(one for one in sources if self.ids(one[0]) and self.objection(*one) is not None)

    def objection(self, field_id: int, text: str) -> str | None:
        """Return the reason why the scan would not read a column from a source; None if the scan would."""
        try:
            source = ColumnSource.of_text(text)
        except ValueError:
            return "this release does not know how it was found"
        if source.ids != self.ids(field_id):
            return "its field id belonged to a column in another place"
        if source.is_absent and self.default(field_id) is not None:
            return "it had no default value"
        is_mapped = source.rule is Rule.NAME_MAPPING
        if is_mapped and (self.name_mapping is None or source.names != self.names(field_id)):
            return "the name mapping had other names for it"
        if source.rule is Rule.POSITION and self.name_mapping is not None:
            return "the table had no name mapping"
        return None

    @cached_property
    def _paths(self) -> dict[int, tuple[int, ...]]:
        return dict(_paths((), self.schema.fields))


def _paths(above: tuple[int, ...], fields: Iterable[NestedField]) -> Iterable[tuple[int, tuple[int, ...]]]:
    for field in fields:
        path = (*above, field.field_id)
        yield field.field_id, (*path, *_inner_ids(field.field_type))
        if isinstance(field.field_type, StructType):
            yield from _paths(path, field.field_type.fields)


def _inner_ids(field_type: IcebergType) -> tuple[int, ...]:
    """Return the field ids of a map's key and value, or of a list's element."""
    match field_type:
        case MapType():
            return field_type.key_id, field_type.value_id
        case ListType():
            return (field_type.element_id,)
        case _:
            return ()


def _names(mapped: Iterable[MappedField]) -> tuple[str, ...]:
    return tuple(sorted({name for field in mapped for name in field.names}))


def reading_of(table: Table, schema: Schema | None = None) -> Reading:
    """Return the rules of a table's scans, or raise UnsupportedError if its name mapping cannot be read."""
    text = table.properties.get(NAME_MAPPING_PROPERTY)
    return Reading(schema or table.schema(), parse_name_mapping(text))


@lru_cache(maxsize=64)
def parse_name_mapping(text: str | None) -> NameMapping | None:
    """Read a name mapping, if there is one, or raise UnsupportedError if the text is not a name mapping."""
    if text is None:
        return None
    try:
        return parse_mapping_from_json(text)
    except ValueError as error:
        raise UnsupportedError(f"table property {NAME_MAPPING_PROPERTY} is no name mapping: {error}") from error


cleared_by(parse_name_mapping.cache_clear)


@dataclass(frozen=True, slots=True)
class LocatedColumn:
    """A column in a data file: the source that the index entry records, and the fields that lead to it, or a constant.

    There is no path if the file lacks the column or Iceberg does not read it there. A constant is the partition's, as
    text.
    """

    source: ColumnSource
    path: tuple[FileField, ...] = ()
    constant: str | None = None


def locate_column(
    fields: FileFields, reading: Reading, constants: Mapping[int, str], field_id: int, location: str
) -> LocatedColumn:
    """Find a column, a leaf of structs, a map or a list, in a data file, whose location is for error messages.

    `reading` has the rules of the table's scans; `constants` are those of the file's partition, by field id. Raises
    UnsupportedError if it is uncertain what Iceberg would read.
    """
    ids = reading.ids(field_id)
    if not ids:
        raise UnsupportedError(f"data file {location}: the table has no column of the field id {field_id}")
    column = reading.schema.find_field(field_id)
    path = reading.path(field_id)
    inner = ids[len(path) :]
    about = f"data file {location}, column {reading.schema.find_column_name(field_id)!r}"
    if field_id in constants:
        if len(path) > 1:
            raise UnsupportedError(f"{about}: the table is partitioned by a field of a struct")
        return LocatedColumn(ColumnSource(Rule.PARTITION, ids), constant=constants[field_id])
    if fields.rule is Rule.POSITION and (len(path) > 1 or inner):
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
    if inner:
        if pa.types.is_map(found[-1].field.type) != isinstance(column.field_type, MapType):
            raise UnsupportedError(f"{about}: column {found[-1].field_id} is a {found[-1].field.type} there")
        if tuple(child.field_id for child in found[-1].children) != inner:
            raise UnsupportedError(f"{about}: what the column holds has other field ids than in the table")
    elif pa.types.is_nested(found[-1].field.type):
        raise UnsupportedError(f"{about}: the file has a {found[-1].field.type} there")
    return LocatedColumn(ColumnSource(fields.rule, ids, names), found)
