"""Values as keys: the form in which an index orders, compares and hashes the values of an Iceberg column.

The keys of each type are in docs/formats.md, Keys. A float is widened to a double first, so that a column promoted from
float to double keeps its keys.
"""

import math
from contextlib import suppress
from datetime import date, datetime, time
from decimal import ROUND_DOWN, Context, Decimal, Inexact, InvalidOperation, Overflow
from uuid import UUID

import numpy as np
from pyiceberg.utils.datetime import (
    date_to_days,
    datetime_to_micros,
    days_to_date,
    micros_to_time,
    micros_to_timestamp,
    micros_to_timestamptz,
    time_to_micros,
)

from puffin_index.errors import UnsupportedError
from puffin_index.keys.asked import INT64_MAXIMUM, INT64_MINIMUM
from puffin_index.keys.leaf import Key
from puffin_index.keys.value_types import ValueType, float_keys, floats_of_keys

_DECIMAL_BIAS = 2**127
_DECIMAL_KEY_BYTES = 16
_NANOS_PER_MICRO = 1000
# More digits than the widest decimal has, so that a value out of range is detected instead of rounded.
_EXACT = Context(prec=80, rounding=ROUND_DOWN, traps=[Inexact, InvalidOperation, Overflow])


def key_of(value: object, value_type: ValueType) -> Key:
    """Return the key of a value, which is a PyIceberg `Literal.value` or of the natural Python type.

    Integers stand for days of a date, for microseconds of a time or timestamp, and for nanoseconds of the `_ns` types.
    A value for a float column is rounded to 32 bits, like Iceberg's float literals. Raises UnsupportedError if the
    value is not one of the type.
    """
    with suppress(ArithmeticError, ValueError):
        key = _int64_key(value, value_type) if value_type.domain == "int64" else _bytes_key(value, value_type)
        if key is not None:
            return key
    raise UnsupportedError(f"{value!r} is not a value of a {value_type.name} column")


def _int64_key(value: object, value_type: ValueType) -> int | None:
    key: int | None = None
    if value_type.is_floating:
        key = _floating_key(value, value_type)
    elif value_type.is_decimal:
        key = _unscaled(value, value_type)
    elif value_type.name == "boolean":
        key = int(value) if isinstance(value, bool | np.bool_) else None
    elif isinstance(value, int | np.integer) and not isinstance(value, bool):
        key = int(value)
    else:
        key = _temporal_key(value, value_type.name)
    return key if key is not None and INT64_MINIMUM <= key <= INT64_MAXIMUM else None


def _floating_key(value: object, value_type: ValueType) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        return None
    number = float(value)
    if value_type.name == "float":
        with np.errstate(over="ignore"):
            rounded = float(np.float32(number))
        if math.isinf(rounded) and not math.isinf(number):
            return None
        number = rounded
    return int(float_keys(np.array([number], np.float64))[0])


def _temporal_key(value: object, name: str) -> int | None:
    match value:
        case datetime() if name.startswith("timestamp"):
            micros = datetime_to_micros(value)
            return micros * _NANOS_PER_MICRO if name.endswith("_ns") else micros
        case datetime():
            return None
        case date() if name == "date":
            return date_to_days(value)
        case time() if name == "time":
            return time_to_micros(value)
        case _:
            return None


def _unscaled(value: object, value_type: ValueType) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    return int(_EXACT.scaleb(Decimal(value), value_type.decimal_scale).to_integral_exact(context=_EXACT))


def _bytes_key(value: object, value_type: ValueType) -> bytes | None:
    if value_type.is_decimal:
        unscaled = _unscaled(value, value_type)
        if unscaled is None or not -_DECIMAL_BIAS <= unscaled < _DECIMAL_BIAS:
            return None
        return wide_decimal_key(unscaled)
    match value:
        case str() if value_type.name == "string":
            return value.encode("utf-8")
        case UUID() if value_type.name == "uuid":
            return value.bytes
        case str() if value_type.name == "uuid":
            return UUID(value).bytes
        case bytes() | bytearray() | memoryview() if value_type.name != "string":
            return bytes(value)
        case _:
            return None


def wide_decimal_key(unscaled: int) -> bytes:
    """Return the key of a decimal of more than 18 digits. Raises OverflowError if the number has more than 128 bits."""
    return (unscaled + _DECIMAL_BIAS).to_bytes(_DECIMAL_KEY_BYTES, "big")


def unscaled_of(key: Key) -> int:
    """Return the unscaled value of a decimal's key, or a whole number's own."""
    return key if isinstance(key, int) else int.from_bytes(key, "big") - _DECIMAL_BIAS


def value_of(key: Key, value_type: ValueType) -> object:
    """Return the value of a key as a Python object that prints well.

    Nanosecond timestamps become ISO text, and so do temporal values that Python's own types cannot hold.
    """
    return _value_of_bytes(key, value_type) if isinstance(key, bytes) else _value_of_int(key, value_type)


def _value_of_int(key: int, value_type: ValueType) -> object:
    match value_type.name:
        case "boolean":
            return bool(key)
        case "float" | "double":
            return float(floats_of_keys(np.array([key], np.int64))[0])
        case "date" | "time" | "timestamp" | "timestamptz" | "timestamp_ns" | "timestamptz_ns":
            return _temporal_value(key, value_type.name)
        case _ if value_type.is_decimal:
            return Decimal(key).scaleb(-value_type.decimal_scale)
        case _:
            return key


def _temporal_value(key: int, name: str) -> object:
    try:
        match name:
            case "date":
                return days_to_date(key)
            case "time":
                return micros_to_time(key) if 0 <= key < 86_400_000_000 else key
            case "timestamp":
                return micros_to_timestamp(key)
            case "timestamptz":
                return micros_to_timestamptz(key)
            case _:
                return f"{np.datetime64(key, 'ns')}{'+00:00' if name.startswith('timestamptz') else ''}"
    except OverflowError:
        return str(np.datetime64(key, "D" if name == "date" else "us"))


def _value_of_bytes(key: bytes, value_type: ValueType) -> object:
    if value_type.is_decimal:
        return Decimal(unscaled_of(key)).scaleb(-value_type.decimal_scale, context=_EXACT)
    if value_type.name == "string":
        return key.decode("utf-8", "replace")
    if value_type.name == "uuid" and len(key) == 16:
        return UUID(bytes=key)
    return key
