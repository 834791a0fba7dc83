"""The form of keys in arrays: their width, and the bits of doubles and wide decimals."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from puffin_index.keys.value_types import ValueType
from puffin_index.storage.arrays import Bytes, Floats, Ints

IntColumnKeys: TypeAlias = npt.NDArray[np.signedinteger]
"""Keys of rows in the int64 domain, no wider than the values."""

_NAN_BITS = 0x7FF8_0000_0000_0000
NAN_KEY = _NAN_BITS
_LOW_63_BITS = np.int64(0x7FFF_FFFF_FFFF_FFFF)
_DECIMAL_KEY_BYTES = 16
# Working arrays of this many elements stay in the processor's cache.
_AT_ONCE = 65_536


def key_dtype(value_type: ValueType) -> np.dtype[np.signedinteger]:
    """Return the narrowest type that holds the keys of all values of a type in the int64 domain."""
    match value_type.name:
        case "boolean":
            return np.dtype(np.int8)
        case "int" | "date":
            return np.dtype(np.int32)
        case _:
            return np.dtype(np.int64)


def float_keys(values: Floats) -> Ints:
    """Return the keys of doubles: their bits, in the order of Spark's comparison."""
    keys = np.empty(len(values), np.int64)
    for start in range(0, len(values), _AT_ONCE):
        some, bits = values[start : start + _AT_ONCE], keys[start : start + _AT_ONCE]
        with np.errstate(invalid="ignore"):  # the bits under a NULL may be a signalling NaN
            np.add(some, 0.0, out=bits.view(np.float64))  # -0.0 + 0.0 is 0.0
        bits[np.isnan(some)] = _NAN_BITS
        bits ^= (bits >> np.int64(63)) & _LOW_63_BITS
    return keys


def floats_of_keys(keys: Ints) -> Floats:
    """Return the doubles of some keys."""
    return (keys ^ ((keys >> np.int64(63)) & _LOW_63_BITS)).view(np.float64)


def wide_decimal_limbs(keys: pa.LargeBinaryArray) -> Ints:
    """Return the keys of decimals of more than 18 digits as numbers of 32 bits, the highest first: shape (n, 4)."""
    return _wide_decimal_bytes(keys).view(">u4").astype(np.int64)


def decimals_of_wide_keys(keys: pa.LargeBinaryArray, precision: int, scale: int) -> pa.Decimal128Array:
    """Return the decimals of keys of more than 18 digits; NULL where a key is NULL."""
    filled = keys.fill_null(b"\x80" + bytes(_DECIMAL_KEY_BYTES - 1)) if keys.null_count else keys
    raw = _wide_decimal_bytes(filled).copy()
    raw[:, 0] ^= 0x80
    flags = pa.array(keys.is_valid().to_numpy(zero_copy_only=False)).buffers()[1] if keys.null_count else None
    values = pa.py_buffer(np.ascontiguousarray(raw[:, ::-1]))
    return pa.Decimal128Array.from_buffers(pa.decimal128(precision, scale), len(keys), [flags, values])


def _wide_decimal_bytes(keys: pa.LargeBinaryArray) -> Bytes:
    """Return the bytes of keys without NULL: shape (n, 16)."""
    start = keys.buffers()[1]
    first = int(np.frombuffer(start, np.int64, 1, 8 * keys.offset)[0]) if len(keys) else 0
    content = keys.buffers()[2] if len(keys) else b""
    return np.frombuffer(content, np.uint8, len(keys) * _DECIMAL_KEY_BYTES, first).reshape(-1, _DECIMAL_KEY_BYTES)


def wide_decimal_keys(array: pa.Decimal128Array) -> pa.LargeBinaryArray:
    """Return the keys of decimals of more than 18 digits: their 16 bytes, big-endian, the sign bit flipped."""
    raw = np.frombuffer(
        array.buffers()[1], np.uint8, len(array) * _DECIMAL_KEY_BYTES, array.offset * _DECIMAL_KEY_BYTES
    )
    keys = np.ascontiguousarray(raw.reshape(-1, _DECIMAL_KEY_BYTES)[:, ::-1])
    keys[:, 0] ^= 0x80
    offsets = np.arange(0, (len(array) + 1) * _DECIMAL_KEY_BYTES, _DECIMAL_KEY_BYTES, dtype=np.int64)
    valid = None if array.null_count == 0 else pa.array(array.is_valid().to_numpy(zero_copy_only=False))
    flags = None if valid is None else valid.buffers()[1]
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(array), [flags, pa.py_buffer(offsets), pa.py_buffer(keys)]
    )
