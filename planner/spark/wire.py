"""What crosses between Spark's JVM and the planner: requests as JSON, row groups as roaring bitmaps, and views.

An answer is empty (leave the scan as it was) or begins with one byte: `A` the table has no index, `V` a view follows,
`K` the row groups to read follow. A view, as `View.java` reads it, is one zlib stream of (all integers big-endian):

| size | meaning |
| --- | --- |
| 2 + n | version: length (uint16), UTF-8 |
| 4 | number of data files (int32) |
| for each data file: | |
| 4 + n | location: length (int32), UTF-8 |
| 4 + n | partition constants (`puffin_index.data.constants`): length (int32), ASCII |
| 8, 8, 4 | file size in bytes (int64), rows (int64), row groups (int32) = n |
| 8 n | where the byte range of each row group begins (int64), -1 in files that are read whole or not at all |

Row groups are numbered from 0 in this order.
"""

from __future__ import annotations

import zlib

from pyroaring import BitMap

from planner.view.index_view import IndexView
from puffin_index.storage.binary import write_int32_be, write_int64_be, write_uint16_be

_NOTE_CHARACTERS = 1_000
_START_BYTES = 8


def serialize_view(view: IndexView) -> bytes:
    """Serialise the numbering of a view's row groups."""
    version = view.version.encode()
    parts = [write_uint16_be(len(version)), version, write_int32_be(len(view.paths))]
    numbers = zip(
        view.paths,
        view.constants,
        view.file_sizes.tolist(),
        view.record_counts.tolist(),
        view.row_group_counts.tolist(),
        strict=True,
    )
    starts = view.range_starts.astype(">i8").tobytes()
    at = 0
    for path, constants, size, records, row_groups in numbers:
        encoded, fixed = path.encode(), constants.encode()
        parts += (
            write_int32_be(len(encoded)),
            encoded,
            write_int32_be(len(fixed)),
            fixed,
            write_int64_be(size),
            write_int64_be(records),
            write_int32_be(row_groups),
            starts[at : at + _START_BYTES * row_groups],
        )
        at += _START_BYTES * row_groups
    return zlib.compress(b"".join(parts), 1)


def serialize_kept(kept: BitMap, note: str) -> bytes:
    """Serialise an answer: a note (length as uint16, UTF-8; may be empty), then the row groups to read."""
    encoded = note[:_NOTE_CHARACTERS].encode()
    return write_uint16_be(len(encoded)) + encoded + kept.serialize()
