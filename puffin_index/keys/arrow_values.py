"""Keys as the Arrow values that they stand for: the way back from `puffin_index.keys.arrow_keys`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from puffin_index.keys.forms import decimals_of_wide_keys, floats_of_keys
from puffin_index.keys.value_types import ValueType


def arrow_of_keys(keys: pa.Array, value_type: ValueType, arrow_type: pa.DataType) -> pa.Array:
    """Return the values of keys.

    Args:
        keys: int64 or large_binary, by the domain of the type; NULL for NULL.
        value_type: The type of the values.
        arrow_type: The Arrow type of such a column (`schema_to_pyarrow`).
    """
    if isinstance(arrow_type, pa.ExtensionType):
        return arrow_type.wrap_array(arrow_of_keys(keys, value_type, arrow_type.storage_type))
    if value_type.is_decimal:
        if value_type.domain == "bytes":
            return decimals_of_wide_keys(keys, arrow_type.precision, arrow_type.scale)
        return with_scale(keys.cast(pa.decimal128(19, 0)), arrow_type)
    if value_type.is_floating:
        nulls = pc.is_null(keys).to_numpy(zero_copy_only=False)
        filled = np.asarray(pc.fill_null(keys, 0).to_numpy(zero_copy_only=False), np.int64)
        return pa.array(floats_of_keys(filled), mask=nulls).cast(arrow_type)
    match value_type.name:
        case "boolean":
            return pc.not_equal(keys, 0)
        case "int" | "date":
            return keys.cast(pa.int32()).cast(arrow_type)
        case _ if value_type.domain == "int64":
            return keys.cast(arrow_type)
        case "string":
            # The bytes of data files may be no UTF-8, which a cast would refuse.
            return pa.Array.from_buffers(
                pa.large_string(), len(keys), keys.buffers(), keys.null_count, keys.offset
            ).cast(arrow_type)
        case _ if value_type.fixed_length is not None:
            return keys.cast(pa.binary()).cast(arrow_type)
        case _:
            return keys.cast(arrow_type)


def with_scale(unscaled: pa.Decimal128Array, decimal_type: pa.Decimal128Type) -> pa.Decimal128Array:
    """Return unscaled numbers as decimals.

    Raises:
        ArrowInvalid: If a number has more digits than the type.
    """
    exact = unscaled.cast(pa.decimal128(decimal_type.precision, 0))
    return pa.Array.from_buffers(decimal_type, len(exact), exact.buffers(), exact.null_count, exact.offset)


def texts_of_uuids(uuids: pa.UuidArray) -> pa.StringArray:
    """Return UUIDs as text in lower case: `f79c3e09-677c-4bbd-a479-3f349cb785e7`."""
    stored = uuids.storage
    raw = np.frombuffer(stored.buffers()[1] or b"", np.uint8)[16 * stored.offset :][: 16 * len(stored)]
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[np.stack((raw >> 4, raw & 15), axis=-1)].reshape(-1, 32)
    texts = np.insert(digits, (8, 12, 16, 20), ord("-"), axis=1)
    joined = pa.Array.from_buffers(pa.binary(36), len(stored), [None, pa.py_buffer(texts.tobytes())])
    return pc.if_else(stored.is_valid(), joined.cast(pa.binary()).cast(pa.string()), pa.scalar(None, pa.string()))
