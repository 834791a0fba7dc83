"""The columns of one data file as a schema sees them: by field id, through renames, promotions and added columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import ArrowAccessor, ArrowProjectionVisitor, pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import StructType

from puffin_index.errors import UnsupportedError


def constants_of(partition: Record, spec: PartitionSpec) -> dict[int, object]:
    """The values of a file's identity partitions by column; where the file lacks the column, they stand for it."""
    return {
        field.source_id: partition[position]
        for position, field in enumerate(spec.fields)
        if isinstance(field.transform, IdentityTransform) and partition[position] is not None
    }


@dataclass(frozen=True, slots=True)
class FileColumns:
    """How a schema maps to the columns of one data file.

    Attributes:
        schema: The schema of the scan.
        file_schema: The file's own, by field id.
        constants: Values of identity partitions by field id.
    """

    schema: Schema
    file_schema: Schema
    constants: Mapping[int, object]

    @classmethod
    def of(
        cls,
        schema: Schema,
        file_schema: pa.Schema,
        constants: Mapping[int, object],
        name_mapping: NameMapping | None,
        location: str,
    ) -> FileColumns:
        """Match a file's columns to field ids.

        Raises:
            UnsupportedError: If it has neither field ids nor names that the table maps.
        """
        try:
            # Iceberg's timestamps have microseconds; files of other writers may have finer ones.
            found = pyarrow_to_schema(file_schema, name_mapping, downcast_ns_timestamp_to_us=True)
        except (ValueError, TypeError) as error:
            raise UnsupportedError(
                f"data file {location}: its columns cannot be matched to field ids: {error}"
            ) from error
        return cls(schema, found, constants)

    def names(self, field_ids: Iterable[int]) -> list[str]:
        """The file's top-level columns that hold these columns; those that the file lacks are left out."""
        paths = (self._path(field_id) for field_id in field_ids)
        return list(dict.fromkeys(path[0] for path in paths if path))

    def _path(self, field_id: int) -> tuple[str, ...]:
        return _path_to(self.file_schema.as_struct(), field_id)

    def values(self, table: pa.Table, field_id: int) -> pa.Array | pa.ChunkedArray:
        """The values of a primitive column; one value for all rows where the file lacks it."""
        path = self._path(field_id)
        if path:
            column = table.column(path[0])
            for part in path[1:]:
                # struct_field takes the parent's NULLs along.
                column = pc.struct_field(column, part)
            return column
        field = self.schema.find_field(field_id)
        if field.initial_default is not None and field not in self.schema.fields:
            raise UnsupportedError(f"column {field.name} with a default inside a struct that was written without it")
        value = self.constants.get(field_id, field.initial_default)
        return pa.array([value], schema_to_pyarrow(field.field_type, include_field_ids=False))

    def project(self, table: pa.Table, projection: Schema, target: pa.Schema) -> pa.Table:
        """Give rows the shape of a projection of the schema.

        Args:
            table: Columns of the file as they were read; at least one.
            projection: What to give.
            target: Its Arrow schema.
        """
        visitor = ArrowProjectionVisitor(
            self.file_schema,
            downcast_ns_timestamp_to_us=True,
            projected_missing_fields=dict(self.constants),
            allow_timestamp_tz_mismatch=True,
        )
        try:
            projected = visit_with_partner(projection, table, visitor, ArrowAccessor(self.file_schema))
        except (ValueError, pa.ArrowException) as error:
            raise UnsupportedError(f"columns cannot be read as the table's schema has them: {error}") from error
        assert isinstance(projected, pa.StructArray)
        return pa.Table.from_arrays(projected.flatten(), names=target.names).cast(target)


def _path_to(struct: StructType, field_id: int) -> tuple[str, ...]:
    """The names that lead to a field through structs; empty if there is none."""
    for field in struct.fields:
        if field.field_id == field_id:
            return (field.name,)
        if isinstance(field.field_type, StructType):
            inner = _path_to(field.field_type, field_id)
            if inner:
                return (field.name, *inner)
    return ()
