"""Partition constants: the values that identity partitions give to all rows of a data file, whatever the file holds.

Iceberg reads these columns from the manifest and not from the file (`PartitionUtil.constantsMap`). The text form of the
constants is part of an index entry (docs/formats.md, Partition constants). Both sides of the Spark hook make the text,
so the text does not state types.
"""

from datetime import date, datetime, time
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from puffin_index.errors import UnsupportedError
from puffin_index.keys.columns import Column
from puffin_index.keys.value_types import ValueType, float_keys, key_dtype
from puffin_index.keys.values import wide_decimal_key

NULL = "null"


def constants_text(partition: Record, spec: PartitionSpec) -> str:
    """Return the text form of the constants of a file with this partition; empty without identity partitions."""
    found = {
        field.source_id: _text(partition[position])
        for position, field in enumerate(spec.fields)
        if isinstance(field.transform, IdentityTransform)
    }
    return ";".join(f"{field_id}={found[field_id]}" for field_id in sorted(found))


def parse_constants(text: str) -> dict[int, str]:
    """Return the text of each constant by field id."""
    pairs = (pair.partition("=") for pair in text.split(";") if pair)
    return {int(field_id): value for field_id, _, value in pairs}


def _text(value: object) -> str:
    match value:
        case None:
            return NULL
        case bool() | np.bool_():
            return str(int(value))
        case int():
            return str(value)
        case float():
            return str(int(float_keys(np.array([value], np.float64))[0]))
        case Decimal():
            sign, digits, _ = value.as_tuple()
            return str(int("".join(map(str, digits))) * (-1 if sign else 1))
        case datetime():
            return str(datetime_to_micros(value))
        case date():
            return str(date_to_days(value))
        case time():
            return str(time_to_micros(value))
        case str():
            return "x" + value.encode("utf-8", "surrogatepass").hex()
        case UUID():
            return "x" + value.bytes.hex()
        case bytes() | bytearray() | memoryview():
            return "x" + bytes(value).hex()
        case _:
            raise UnsupportedError(f"a partition value of type {type(value).__name__}")


def constant_column(text: str, value_type: ValueType, row_count: int) -> Column:
    """Return the keys of a column with one value in all rows, or raise UnsupportedError if it is not of this type."""
    try:
        key = _key(text, value_type)
    except (ValueError, OverflowError) as error:
        raise UnsupportedError(f"a {value_type.name} column cannot hold the partition value {text}") from error
    if value_type.domain == "int64":
        valid = np.zeros(row_count, np.bool_) if key is None else None
        return Column(value_type, row_count, np.full(row_count, key or 0, key_dtype(value_type)), valid)
    if key is None or not row_count:
        return Column(value_type, row_count, pa.nulls(row_count, pa.large_binary()), np.zeros(row_count, np.bool_))
    codes = pa.array(np.zeros(row_count, np.uint32))
    return Column(
        value_type, row_count, pa.DictionaryArray.from_arrays(codes, pa.array([key], pa.large_binary())), None
    )


def _key(text: str, value_type: ValueType) -> int | bytes | None:
    if text == NULL:
        return None
    if text.startswith("x") is (value_type.domain == "int64" or value_type.is_decimal):
        raise ValueError(text)
    if value_type.domain == "int64":
        return int(text)
    if value_type.is_decimal:
        return wide_decimal_key(int(text))
    return bytes.fromhex(text[1:])
