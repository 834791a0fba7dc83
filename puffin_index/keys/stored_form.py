"""The stored form of a key: the value as Paimon's formats store and hash it.

| form | number | value | Iceberg types | Paimon type that reads it |
| --- | --- | --- | --- | --- |
| BYTES | 0 | length as a big-endian int32, then the bytes of the key | string | STRING |
| | | | binary, fixed, uuid, decimal of more than 18 digits | (in a bloom filter:) BYTES |
| BOOLEAN | 1 | 1 byte, 0 or 1 | boolean | BOOLEAN; TINYINT in a bloom filter |
| INT32 | 4 | big-endian int32 | int, date | INT, DATE |
| INT64 | 8 | big-endian int64 | long, timestamp, timestamptz | BIGINT, TIMESTAMP(6), TIMESTAMP_LTZ(6) |
| | | | time, timestamp_ns, timestamptz_ns, decimal of at most 18 digits (unscaled) | BIGINT |
| FLOAT32 | -4 | big-endian binary32 | float | FLOAT |
| FLOAT64 | -8 | big-endian binary64 | double | DOUBLE |

The layout keeps the form, because a column promoted later (int to long, float to double) still has blobs of its old
form.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from puffin_index.keys.forms import float_keys, floats_of_keys
from puffin_index.keys.value_types import ValueType
from puffin_index.storage.arrays import Ints

BYTES, BOOLEAN, INT32, INT64, FLOAT32, FLOAT64 = 0, 1, 4, 8, -4, -8

_DTYPES: dict[int, np.dtype[np.generic]] = {
    BOOLEAN: np.dtype(">i1"),
    INT32: np.dtype(">i4"),
    INT64: np.dtype(">i8"),
    FLOAT32: np.dtype(">f4"),
    FLOAT64: np.dtype(">f8"),
}
_FORMS = {"boolean": BOOLEAN, "int": INT32, "date": INT32, "float": FLOAT32, "double": FLOAT64}


def form_of(value_type: ValueType) -> int:
    """Return the stored form of a type."""
    return BYTES if value_type.domain == "bytes" else _FORMS.get(value_type.name, INT64)


def is_form_of(form: int, value_type: ValueType) -> bool:
    """Return whether blobs of a column may have a form: that of its type, or of a type it was promoted from."""
    own = form_of(value_type)
    promoted = {INT64: (INT32,), FLOAT64: (FLOAT32,)}
    return form == own or form in promoted.get(own, ())


def width_of(form: int) -> int:
    """Return the length of a value in bytes; 0 for byte strings."""
    return abs(form)


def dtype_of(form: int) -> np.dtype[np.generic]:
    """Return the type of stored numbers, big-endian."""
    return _DTYPES[form]


def to_stored(keys: Ints, form: int) -> npt.NDArray[np.generic]:
    """Return the stored numbers of keys. A narrow form holds only keys of its own types."""
    if form not in (FLOAT32, FLOAT64):
        return keys
    # A key that no float represents becomes infinite or NaN; callers convert back and compare.
    with np.errstate(over="ignore", invalid="ignore"):
        return floats_of_keys(keys).astype(_DTYPES[form].newbyteorder("="))


def from_stored(numbers: npt.NDArray[np.generic], form: int) -> Ints:
    """Return the keys of stored numbers."""
    if form not in (FLOAT32, FLOAT64):
        return numbers.astype(np.int64)
    return float_keys(numbers.astype(np.float64))
