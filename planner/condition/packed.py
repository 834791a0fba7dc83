"""Long lists of values as the hook's `PackedList.java` writes them: whole numbers, or texts and bytes."""

from base64 import b64decode
from typing import Final, TypeAlias

import numpy as np

from puffin_index.storage.arrays import Ints

Contents: TypeAlias = tuple[int, ...] | tuple[bytes, ...]
"""Values as Spark has them: of a date the days, of a timestamp the microseconds since 1970; of a text its bytes."""

_HEADER_BYTES: Final = 5
_LENGTH_BYTES: Final = 4


def unpacked(text: str) -> Contents:
    """Return the values of a base64 list of the form `N` or `B` (docs/hook-protocol.md), or raise ValueError."""
    data = b64decode(text, validate=True)
    form, count = data[:1], int.from_bytes(data[1:_HEADER_BYTES])
    if form == b"N" and len(data) == _HEADER_BYTES + 8 * count:
        return tuple(np.frombuffer(data, ">i8", count, _HEADER_BYTES).tolist())
    first = _HEADER_BYTES + _LENGTH_BYTES * count
    if form == b"B" and len(data) >= first:
        lengths: Ints = np.frombuffer(data, ">u4", count, _HEADER_BYTES).astype(np.int64)
        ends = first + np.cumsum(lengths)
        if (int(ends[-1]) if count else first) == len(data):
            return tuple(data[start:end] for start, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True))
    raise ValueError("no list of values")
