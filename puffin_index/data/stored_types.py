"""Which columns of data files Iceberg's readers give as Arrow does.

Iceberg's readers go by the stored type, and hardly look at the column's: they never convert a stored number, and those
for batches, for rows and for other engines differ. Imported files may store a column as anything. So a stored type is
trusted for the types of columns for which none of these readers gives other values than Arrow.
"""

import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from puffin_index.data.file_fields import FileField
from puffin_index.errors import UnsupportedError
from puffin_index.keys.value_types import ValueType, value_type_of

_INTEGERS: Final = ("int", "long")
_TIMESTAMPS: Final = ("timestamp", "timestamptz")
_ALIKE: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        # Parquet. Readers do not tell UTC from local time.
        "BOOLEAN": ("boolean",),
        "INT32": _INTEGERS,
        "INT32 INT(8)": _INTEGERS,
        "INT32 INT(16)": _INTEGERS,
        "INT32 INT(32)": _INTEGERS,
        "INT32 DATE": ("date",),
        "INT32 TIME(MILLIS)": ("time",),
        "INT64": ("long",),
        "INT64 INT(64)": ("long",),
        "INT64 TIME(MICROS)": ("time",),
        "INT64 TIMESTAMP(MICROS)": _TIMESTAMPS,
        "INT64 TIMESTAMP(NANOS)": ("timestamp_ns", "timestamptz_ns"),
        "INT96": _TIMESTAMPS,
        "FLOAT": ("float", "double"),
        "DOUBLE": ("double",),
        # Of strings that are not marked as such, Spark shows those of 16 bytes as UUIDs, if they are in a dictionary.
        "BYTE_ARRAY": ("binary",),
        "BYTE_ARRAY STRING": ("string",),
        "BYTE_ARRAY ENUM": ("string",),
        "BYTE_ARRAY JSON": ("string",),
        "BYTE_ARRAY BSON": ("binary",),
        "FIXED_LEN_BYTE_ARRAY(16) UUID": ("uuid",),
        # ORC. Java trims a CHAR, and Arrow does not.
        "ORC BOOLEAN": ("boolean",),
        "ORC BYTE": ("int",),
        "ORC SHORT": ("int",),
        "ORC INT": _INTEGERS,
        "ORC LONG": ("long", "time"),
        "ORC FLOAT": ("float", "double"),
        "ORC DOUBLE": ("double",),
        "ORC STRING": ("string",),
        "ORC VARCHAR": ("string",),
        "ORC BINARY": ("uuid", "fixed", "binary"),
        "ORC DATE": ("date",),
        "ORC TIMESTAMP": ("timestamp", "timestamp_ns"),
        "ORC TIMESTAMP_INSTANT": ("timestamptz", "timestamptz_ns"),
    }
)
"""The types of columns by stored types; decimals and bytes of a fixed length are compared by their numbers."""

_DECIMAL: Final = re.compile(r".* DECIMAL\((\d+),(\d+)\)")
_FIXED: Final = re.compile(r"FIXED_LEN_BYTE_ARRAY\((\d+)\)")


def parquet_type(schema: pq.ParquetSchema, leaf: int) -> str:
    """Name the type of a leaf column of a Parquet file: `INT64 TIMESTAMP(MILLIS)`."""
    column = schema.column(leaf)
    kind, physical = column.logical_type.type, str(column.physical_type)
    if physical == "FIXED_LEN_BYTE_ARRAY":
        physical = f"{physical}({column.length})"
    if kind == "NONE":
        return physical
    details = json.loads(column.logical_type.to_json())
    match kind:
        case "INT":
            kind = f"{'' if details['isSigned'] else 'U'}INT({details['bitWidth']})"
        case "TIME" | "TIMESTAMP":
            kind = f"{kind}({details['timeUnit'].removesuffix('econds').upper()})"
        case "DECIMAL":
            kind = f"{kind}({details['precision']},{details['scale']})"
        case "UNKNOWN":
            # What has no name of its own in Arrow: a column of nothing but NULLs, an interval.
            kind = str(details["Type"]).upper()
    return f"{physical} {kind}"


def check_stored(
    stored: Callable[[int], str], field: FileField, schema: Schema, location: str, value_type: ValueType | None = None
) -> None:
    """Check that Iceberg's readers give the values that Arrow reads from a field, or raise UnsupportedError.

    `stored` names the type of a leaf. Values are read as those of the schema unless `value_type` is given: a tag may
    hold files of before the table was replaced by one with other types.
    """
    for child in field.children:
        check_stored(stored, child, schema, location, value_type if child is field.children[-1] else None)
    if field.children or field.field_id is None:
        return
    try:
        value_type = value_type or value_type_of(schema.find_type(field.field_id))
    except (ValueError, UnsupportedError):
        # Nobody reads the field, or its values have no keys.
        return
    own = stored(field.leaves[0])
    if not reads_alike(own, value_type):
        raise UnsupportedError(
            f"data file {location}: column {schema.find_column_name(field.field_id)!r} is stored as {own}, of which "
            f"Iceberg's readers make other {value_type.name} values than Arrow, or none"
        )


def reads_alike(stored: str, value_type: ValueType) -> bool:
    """Whether Iceberg's readers give the values of a column from a stored type as Arrow does."""
    decimal, fixed = _DECIMAL.fullmatch(stored), _FIXED.fullmatch(stored)
    if decimal is not None:
        precision, scale = map(int, decimal.groups())
        return scale == value_type.decimal_scale and precision <= value_type.decimal_precision
    if fixed is not None and int(fixed[1]) == value_type.fixed_length:
        return True
    return value_type.name.split("[")[0] in _ALIKE.get(stored, ())
