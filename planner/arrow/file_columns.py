"""The columns of one data file as a schema sees them: by field id, through renames, promotions and added columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.exceptions import ResolveError
from pyiceberg.io.pyarrow import (
    ArrowAccessor,
    ArrowProjectionVisitor,
    UnsupportedPyArrowTypeException,
    pyarrow_to_schema,
    schema_to_pyarrow,
)
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.types import ListType, MapType

from puffin_index.data.column_source import Reading
from puffin_index.data.file_fields import PARQUET_FIELD_ID, FileField, FileFields, identify_fields
from puffin_index.data.stored_types import check_stored, parquet_type
from puffin_index.errors import UnsupportedError
from puffin_index.storage.caches import cleared_by

# AttributeError: PyIceberg asks a number in place of a timestamp for its zone.
_PROJECTION_ERRORS = (
    *(ValueError, TypeError, AttributeError),
    *(ResolveError, UnsupportedPyArrowTypeException, pa.ArrowException),
)


_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


@dataclass(frozen=True, slots=True)
class FileColumns:
    """How a schema maps to a data file, with stored types of leaves and values of identity partitions by field id."""

    reading: Reading
    fields: FileFields
    stored: Callable[[int], str]
    constants: Mapping[int, object]
    location: str
    _checked: set[int] = dataclasses.field(default_factory=set, repr=False, compare=False)

    @classmethod
    def of(
        cls, reading: Reading, parquet: pq.ParquetFile, constants: Mapping[int, object], location: str
    ) -> FileColumns:
        """Match a file's columns to field ids, or raise UnsupportedError if two fields of the file have one name."""
        file_schema = parquet.schema_arrow
        if len(set(file_schema.names)) < len(file_schema.names):
            raise UnsupportedError(f"data file {location}: two of its columns have one name")
        fields = identify_fields(file_schema, "PARQUET", reading.name_mapping)
        assert fields is not None
        return cls(reading, fields, partial(parquet_type, parquet.schema), constants, location)

    def fields_of(self, field_ids: Iterable[int]) -> list[FileField]:
        """The file's top-level fields that hold some columns; raise UnsupportedError if Arrow reads other values."""
        paths = {field_id: path for field_id in field_ids if (path := self._path(field_id))}
        for field_id in paths.keys() - self._checked:
            check_stored(self.stored, paths[field_id][-1], self.reading.schema, self.location)
            self._checked.add(field_id)
        return list({path[0].leaves.start: path[0] for path in paths.values()}.values())

    def _path(self, field_id: int) -> tuple[FileField, ...]:
        if field_id in self.constants:
            return ()
        try:
            return self.fields.find(self.reading.path(field_id))
        except LookupError as error:
            raise UnsupportedError(f"data file {self.location}: {error}") from error

    def values(self, table: pa.Table, field_id: int) -> pa.Array | pa.ChunkedArray:
        """The values of a primitive column; one value for all rows where the file lacks it."""
        path = self._path(field_id)
        if path:
            column = table.column(path[0].field.name)
            for part in path[1:]:
                # struct_field makes rows NULL whose struct is NULL.
                column = pc.struct_field(column, part.field.name)
            return column
        schema = self.reading.schema
        field = schema.find_field(field_id)
        if field not in schema.fields and (field.initial_default is not None or field_id in self.constants):
            raise UnsupportedError(f"column {field.name} inside a struct has a value that the file does not hold")
        value = self.constants.get(field_id, field.initial_default)
        return pa.array([value], schema_to_pyarrow(field.field_type, include_field_ids=False))

    def project(self, table: pa.Table, projection: Schema, target: pa.Schema) -> pa.Table:
        """Give rows of the file the shape of a projection (in Arrow: `target`), or raise UnsupportedError."""
        unchanged = self._unchanged(table, projection, target)
        if unchanged is not None:
            return unchanged
        # Only ids of top-level fields: an id that comes from a position may equal that of a field inside of a struct.
        wanted = frozenset({field.field_id for field in projection.fields} - self.constants.keys())
        try:
            file_schema = identified_schema(self.fields.fields, wanted)
            visitor = _Projection(
                file_schema,
                downcast_ns_timestamp_to_us=True,
                projected_missing_fields=dict(self.constants),
                allow_timestamp_tz_mismatch=True,
            )
            # An initial default would win over a partition constant that is NULL.
            hidden = {field_id for field_id, value in self.constants.items() if value is None}
            fields = (
                field.model_copy(update={"initial_default": None}) if field.field_id in hidden else field
                for field in projection.fields
            )
            projected = visit_with_partner(Schema(*fields), table, visitor, ArrowAccessor(file_schema))
            return pa.Table.from_arrays(projected.flatten(), names=target.names).cast(target)
        except _PROJECTION_ERRORS as error:
            raise UnsupportedError(
                f"data file {self.location}: columns cannot be read as the table's schema has them: {error}"
            ) from error

    def _unchanged(self, table: pa.Table, projection: Schema, target: pa.Schema) -> pa.Table | None:
        """The projection, if columns differ by name at most: PyIceberg takes a fifth of reading a few rows."""
        by_id = {field.field_id: field.field for field in self.fields.fields}
        if len(by_id) < len(self.fields.fields):
            return None
        columns: list[pa.ChunkedArray] = []
        for field, wanted in zip(projection.fields, target, strict=True):
            own = None if field.field_id in self.constants else by_id.get(field.field_id)
            # Types that have children are left to PyIceberg.
            if own is None or own.type.num_fields or wanted.type not in (own.type, _LARGE.get(own.type)):
                return None
            column = table.column(own.name)
            if not wanted.nullable and column.null_count:
                return None
            columns.append(column if column.type == wanted.type else column.cast(wanted.type))
        return pa.Table.from_arrays(columns, schema=target)


class _Projection(ArrowProjectionVisitor):
    """PyIceberg's projection, which makes empty lists and maps of NULL ones that hold structs."""

    def list(self, list_type: ListType, list_array: pa.Array | None, value_array: pa.Array | None) -> pa.Array | None:
        return _with_nulls(super().list(list_type, list_array, value_array), list_array, "values")

    def map(
        self, map_type: MapType, map_array: pa.Array | None, key_result: pa.Array | None, value_result: pa.Array | None
    ) -> pa.Array | None:
        return _with_nulls(super().map(map_type, map_array, key_result, value_result), map_array, "keys", "items")


def _with_nulls(found: pa.Array | None, own: pa.Array | None, *parts: str) -> pa.Array | None:
    """Lists or maps that were made of a file's own, with the NULLs of these."""
    if found is None or own is None or found.null_count == own.null_count:
        return found
    offsets = pa.array(found.offsets.to_numpy())
    contents = [getattr(found, part) for part in parts]
    return type(found).from_arrays(offsets, *contents, type=found.type, mask=own.is_null())


# Row groups of a scan have the same fields, and the conversion takes a tenth of reading a few of their rows.
@lru_cache(maxsize=64)
def identified_schema(fields: tuple[FileField, ...], wanted: frozenset[int]) -> Schema:
    """The Iceberg schema of a file's top-level fields that hold some columns, or raise ValueError without a type."""
    arrow_fields = [_with_ids(field) for field in fields if field.field_id in wanted]
    # Iceberg's timestamps have microseconds; other writers may write nanoseconds.
    return pyarrow_to_schema(pa.schema(arrow_fields), downcast_ns_timestamp_to_us=True)


cleared_by(identified_schema.cache_clear)


def _with_ids(field: FileField) -> pa.Field:
    """A field with the field ids of itself and its children; children of a struct without an id are left out."""
    arrow_type = field.field.type
    children = [_with_ids(child) for child in field.children if child.field_id is not None]
    if pa.types.is_struct(arrow_type):
        arrow_type = pa.struct(children)
    elif len(children) < len(field.children):
        raise ValueError(f"the elements of {field.field.name!r} have no field ids")
    elif pa.types.is_map(arrow_type):
        arrow_type = pa.map_(*children)
    elif children:
        arrow_type = pa.large_list(children[0]) if pa.types.is_large_list(arrow_type) else pa.list_(children[0])
    return field.field.with_type(arrow_type).with_metadata({PARQUET_FIELD_ID: str(field.field_id)})
