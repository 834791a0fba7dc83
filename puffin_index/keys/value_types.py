"""The Iceberg types that an index supports, the domain of their keys, and the form that Paimon's formats store.

The forms are in docs/formats.md, Stored forms. The layout keeps the form, because a column promoted later (int to long,
float to double) still has blobs of its old form.
"""

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from puffin_index.errors import UnsupportedError
from puffin_index.keys.sorted_keys import bytes_of_keys
from puffin_index.storage.arrays import Floats, Ints, stretches

Domain: TypeAlias = Literal["int64", "bytes"]

INT64_DECIMAL_PRECISION = 18
MAXIMUM_DECIMAL_PRECISION = 38

_TEMPORAL = ("date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
_INT64_NAMES = frozenset({"boolean", "int", "long", "float", "double", *_TEMPORAL})
_BYTES_NAMES = frozenset({"string", "uuid", "binary"})
_DECIMAL = re.compile(r"decimal\((\d{1,2}), ?(\d{1,2})\)")
_FIXED = re.compile(r"fixed\[(\d{1,9})\]")


@dataclass(frozen=True, slots=True)
class ValueType:
    """An Iceberg primitive type by its own name, without blanks: `decimal(38,2)`, `timestamptz_ns`, `fixed[16]`."""

    name: str

    @property
    def domain(self) -> Domain:
        """Whether keys are 64-bit integers or bytes."""
        is_narrow = self.is_decimal and self.decimal_precision <= INT64_DECIMAL_PRECISION
        return "int64" if is_narrow or self.name in _INT64_NAMES else "bytes"

    @property
    def is_floating(self) -> bool:
        """Whether this is float or double, whose keys are mapped bits."""
        return self.name in ("float", "double")

    @property
    def is_decimal(self) -> bool:
        """Whether this is a decimal of any precision and scale."""
        return self.name.startswith("decimal(")

    @property
    def decimal_precision(self) -> int:
        """The precision of a decimal; 0 for other types."""
        return _decimal_of(self.name)[0]

    @property
    def decimal_scale(self) -> int:
        """The scale of a decimal; 0 for other types."""
        return _decimal_of(self.name)[1]

    @property
    def fixed_length(self) -> int | None:
        """The length of every value in bytes, for uuid and fixed; None for other types."""
        if self.name == "uuid":
            return 16
        found = _FIXED.fullmatch(self.name)
        return int(found[1]) if found else None


def _decimal_of(name: str) -> tuple[int, int]:
    found = _DECIMAL.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def value_type_of(iceberg_type: object) -> ValueType:
    """Return the value type of an Iceberg type, or raise UnsupportedError if its values have no keys."""
    return value_type_named(str(iceberg_type))


def value_type_named(name: str) -> ValueType:
    """Return the value type of an Iceberg type string, or raise UnsupportedError if no value type has the string."""
    canonical = name.replace(", ", ",")
    if canonical in _INT64_NAMES or canonical in _BYTES_NAMES or _FIXED.fullmatch(canonical):
        return ValueType(canonical)
    precision, scale = _decimal_of(canonical)
    if 0 < precision <= MAXIMUM_DECIMAL_PRECISION and scale <= precision:
        return ValueType(canonical)
    raise UnsupportedError(f"a column of type {name} cannot be indexed")


IntColumnKeys: TypeAlias = npt.NDArray[np.signedinteger]
"""Keys of rows in the int64 domain, no wider than the values."""

NAN_KEY = 0x7FF8_0000_0000_0000
_LOW_63_BITS = np.int64(0x7FFF_FFFF_FFFF_FFFF)
_DECIMAL_KEY_BYTES = 16


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
    for start, end in stretches(len(values)):
        some, bits = values[start:end], keys[start:end]
        with np.errstate(invalid="ignore"):  # the bits under a NULL may be a signalling NaN
            np.add(some, 0.0, out=bits.view(np.float64))  # -0.0 + 0.0 is 0.0
        bits[np.isnan(some)] = NAN_KEY
        bits ^= (bits >> np.int64(63)) & _LOW_63_BITS
    return keys


def floats_of_keys(keys: Ints) -> Floats:
    """Return the doubles of some keys."""
    return (keys ^ ((keys >> np.int64(63)) & _LOW_63_BITS)).view(np.float64)


def decimals_of_wide_keys(keys: pa.LargeBinaryArray, precision: int, scale: int) -> pa.Decimal128Array:
    """Return the decimals of keys of more than 18 digits; NULL where a key is NULL."""
    filled = keys.fill_null(b"\x80" + bytes(_DECIMAL_KEY_BYTES - 1)) if keys.null_count else keys
    content = bytes_of_keys(filled)[0] if len(keys) else np.empty(0, np.uint8)
    raw = content.reshape(-1, _DECIMAL_KEY_BYTES).copy()
    raw[:, 0] ^= 0x80
    flags = pa.array(keys.is_valid().to_numpy(zero_copy_only=False)).buffers()[1] if keys.null_count else None
    values = pa.py_buffer(np.ascontiguousarray(raw[:, ::-1]))
    return pa.Decimal128Array.from_buffers(pa.decimal128(precision, scale), len(keys), [flags, values])


def wide_decimal_keys(array: pa.Decimal128Array) -> pa.LargeBinaryArray:
    """Return the keys of decimals of more than 18 digits: their 16 bytes, big-endian, the sign bit flipped."""
    raw = np.frombuffer(
        array.buffers()[1], np.uint8, len(array) * _DECIMAL_KEY_BYTES, array.offset * _DECIMAL_KEY_BYTES
    )
    keys = np.ascontiguousarray(raw.reshape(-1, _DECIMAL_KEY_BYTES)[:, ::-1])
    keys[:, 0] ^= 0x80
    offsets = np.arange(0, (len(array) + 1) * _DECIMAL_KEY_BYTES, _DECIMAL_KEY_BYTES, dtype=np.int64)
    flags = pa.array(array.is_valid().to_numpy(zero_copy_only=False)).buffers()[1] if array.null_count else None
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(array), [flags, pa.py_buffer(offsets), pa.py_buffer(keys)]
    )


BYTES, BOOLEAN, INT32, INT64, FLOAT32, FLOAT64 = 0, 1, 4, 8, -4, -8

DTYPES: dict[int, np.dtype[np.generic]] = {
    BOOLEAN: np.dtype(">i1"),
    INT32: np.dtype(">i4"),
    INT64: np.dtype(">i8"),
    FLOAT32: np.dtype(">f4"),
    FLOAT64: np.dtype(">f8"),
}
"""The types of stored numbers by form, big-endian."""

_FORMS = {"boolean": BOOLEAN, "int": INT32, "date": INT32, "float": FLOAT32, "double": FLOAT64}


def form_of(value_type: ValueType) -> int:
    """Return the stored form of a type."""
    return BYTES if value_type.domain == "bytes" else _FORMS.get(value_type.name, INT64)


def check_form(form: int, value_type: ValueType, location: str) -> None:
    """Raise UnsupportedError unless a blob has the form of its column's type, or of a type it was promoted from."""
    own = form_of(value_type)
    promoted = {INT64: (INT32,), FLOAT64: (FLOAT32,)}
    if form != own and form not in promoted.get(own, ()):
        raise UnsupportedError(f"{location}: form {form} is not one of a {value_type.name} column")


def width_of(form: int) -> int:
    """Return the length of a value in bytes; 0 for byte strings."""
    return abs(form)


def to_stored(keys: Ints, form: int) -> npt.NDArray[np.generic]:
    """Return the stored numbers of keys. A narrow form holds only keys of its own types."""
    if form not in (FLOAT32, FLOAT64):
        return keys
    # A key that no float represents becomes infinite or NaN; callers convert back and compare.
    with np.errstate(over="ignore", invalid="ignore"):
        return floats_of_keys(keys).astype(DTYPES[form].newbyteorder("="))


def from_stored(numbers: npt.NDArray[np.generic], form: int) -> Ints:
    """Return the keys of stored numbers."""
    if form not in (FLOAT32, FLOAT64):
        return numbers.astype(np.int64)
    return float_keys(numbers.astype(np.float64))
