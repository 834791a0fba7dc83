"""The offset index of a column chunk: where each data page lies, and which rows the page holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from puffin_index.data.pages.footer import ColumnChunk
from puffin_index.data.thrift_compact import I32, I64, LIST, CompactReader, broken_means_corrupt, varints_of
from puffin_index.errors import CorruptFileError
from puffin_index.storage.arrays import Ints
from puffin_index.storage.binary import Buffer

_PAGE_LOCATIONS = 1
_OFFSET, _SIZE, _FIRST_ROW = 1, 2, 3
_USUAL_HEADERS = np.array([1 << 4 | I64, 1 << 4 | I32, 1 << 4 | I64, 0], np.uint64)
"""A PageLocation of three fields, in order, and its end."""
_LEAST_LOCATION_BYTES = 7
"""Three fields of a byte of header and at least a byte of value, and the end."""


@dataclass(frozen=True, slots=True)
class OffsetIndex:
    """The data pages of a column chunk.

    Attributes:
        offsets: Where each page begins in the file, header included; ascending.
        sizes: The bytes of each page, header included.
        first_rows: The first row of each page, and the number of rows of the row group: one number more than pages.
        dictionary: Offset and bytes of what precedes the first data page.
    """

    offsets: Ints
    sizes: Ints
    first_rows: Ints
    dictionary: tuple[int, int]

    @property
    def page_count(self) -> int:
        """The number of data pages."""
        return len(self.offsets)

    @property
    def byte_count(self) -> int:
        """The memory of the offset index, in bytes."""
        return 256 + int(self.offsets.nbytes + self.sizes.nbytes + self.first_rows.nbytes)

    def pages_of(self, rows: Ints, *, is_repeated: bool = False) -> Ints:
        """Return the pages that hold some ascending rows, ascending.

        Args:
            rows: Rows of the row group.
            is_repeated: Whether a row can have several values. Some writers of old let such a row go on in the next
                page, so that the next page is read, too, after the last row of a page. (A page that begins within a
                row has a row more than this index says, which `PageReader` refuses.)
        """
        ends = np.searchsorted(rows, self.first_rows)
        wanted = np.diff(ends) > 0
        if is_repeated:
            has_last_row = wanted & (rows[ends[1:] - 1] == self.first_rows[1:] - 1)
            wanted[1:] |= has_last_row[:-1]
        return np.flatnonzero(wanted)


def most_pages(chunk: ColumnChunk) -> int:
    """Return how many data pages a column chunk has at most, without a read; 1 without an offset index."""
    return 1 if chunk.offset_index is None else max(1, chunk.offset_index[1] // _LEAST_LOCATION_BYTES)


def parse_offset_index(data: Buffer, chunk: ColumnChunk, row_count: int, location: str) -> OffsetIndex | None:
    """Parse an offset index, and check it against its column chunk.

    Args:
        data: The bytes of the offset index.
        chunk: The column chunk.
        row_count: The rows of the row group.
        location: The file.

    Returns:
        The offset index; None if a page begins no row. Such a page is empty or goes on with a row, which only a read of
        the page would tell. PyArrow writes empty pages.

    Raises:
        CorruptFileError: If the bytes are no offset index, pages overlap or leave the chunk, or rows do not ascend.
    """
    assert chunk.offset_index is not None
    at = chunk.offset_index[0]
    with broken_means_corrupt("the offset index", location, at):
        places = _page_locations(data)

    def check(holds: bool, reason: str) -> None:
        if not holds:
            raise CorruptFileError(f"offset index: {reason}", location=location, offset=at)

    check(len(places) > 0, "no page")
    offsets, sizes, first_rows = np.ascontiguousarray(places.T)
    end = chunk.start + chunk.size
    # Each number is bounded before numbers are added, so that no sum overflows.
    check(bool(((offsets >= chunk.start) & (offsets < end)).all()), "a page begins outside of its column chunk")
    check(bool(((sizes > 0) & (sizes <= end - offsets)).all()), "a page ends outside of its column chunk")
    check(bool((offsets[1:] - offsets[:-1] >= sizes[:-1]).all()), "two pages overlap")
    rows = np.append(first_rows, row_count)
    check(first_rows[0] == 0 and bool((rows[1:] >= rows[:-1]).all()), "first rows of pages do not ascend")
    if (rows[1:] == rows[:-1]).any():
        return None
    return OffsetIndex(offsets, sizes, rows, (chunk.start, int(offsets[0]) - chunk.start))


def _page_locations(data: Buffer) -> Ints:
    """Offset, bytes and first row of each page: shape (pages, 3).

    Raises:
        ValueError: If a page lacks one of the three.
    """
    reader = CompactReader(bytes(data))
    for number, kind in reader.fields():
        if (number, kind) != (_PAGE_LOCATIONS, LIST):
            reader.skip(kind)
            continue
        count, _ = reader.list_header()
        found = varints_of(reader.data[reader.at :], 7 * count)
        # A header is a byte of 7 bits, so that headers and values alternate in what is read as integers.
        if found is not None and (found.reshape(-1, 7)[:, 0::2] == _USUAL_HEADERS).all():
            values = found.reshape(-1, 7)[:, 1::2]
            return (values >> np.uint64(1)).astype(np.int64) ^ -(values & np.uint64(1)).astype(np.int64)
        rows = []
        for _ in range(count):
            one = reader.integers()
            rows.append([one[_OFFSET], one[_SIZE], one[_FIRST_ROW]])
        return np.array(rows, np.int64).reshape(-1, 3)
    return np.empty((0, 3), np.int64)
