"""What a Parquet footer says of column chunks and their pages, and a footer for some pages of a row group.

PyArrow shows no offset indexes, and writes no such footer. So the footer is cut here into raw fields: most are copied,
few are read.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow.parquet as pq
from cachetools import cached

from puffin_index.data import thrift_compact as thrift
from puffin_index.errors import CorruptFileError
from puffin_index.storage.arrays import Ints
from puffin_index.storage.binary import Buffer
from puffin_index.storage.caches import shared_cache

_MAGIC_BYTES = 4
_CACHED_BYTES = 64 << 20

# Field ids of parquet.thrift.
_FILE_VERSION, _FILE_SCHEMA, _FILE_ROWS, _FILE_ROW_GROUPS, _FILE_KEY_VALUES, _FILE_CREATOR = 1, 2, 3, 4, 5, 6
_GROUP_COLUMNS, _GROUP_BYTES, _GROUP_ROWS = 1, 2, 3
_CHUNK_FILE, _CHUNK_OFFSET, _CHUNK_METADATA, _CHUNK_INDEX_OFFSET, _CHUNK_INDEX_BYTES = 1, 2, 3, 4, 5
_CHUNK_CRYPTO, _CHUNK_ENCRYPTED_METADATA = 8, 9
_COLUMN_VALUES, _COLUMN_BYTES, _COLUMN_DATA_PAGE, _COLUMN_INDEX_PAGE, _COLUMN_DICTIONARY = 5, 7, 9, 10, 11
_COLUMN_UNUSED = (8, _COLUMN_INDEX_PAGE, _COLUMN_DICTIONARY, 12, 14, 15, 16, 17)
"""Key-values, places of pages, statistics, bloom filters: of the whole chunk, and of no use to decode some pages."""

_ZERO = (thrift.I64, thrift.integer_bytes(0))
_NO_CHUNK = thrift.struct_bytes(
    {
        _CHUNK_OFFSET: _ZERO,
        _CHUNK_METADATA: (
            thrift.STRUCT,
            # Type, encodings, path, codec, values, bytes, bytes and place: what a reader of footers insists on.
            thrift.struct_bytes(
                {
                    1: (thrift.I32, b"\0"),
                    2: (thrift.LIST, thrift.list_bytes(thrift.I32, [])),
                    3: (thrift.LIST, thrift.list_bytes(thrift.BINARY, [])),
                    4: (thrift.I32, b"\0"),
                }
                | dict.fromkeys((_COLUMN_VALUES, 6, _COLUMN_BYTES, _COLUMN_DATA_PAGE), _ZERO)
            ),
        ),
    }
)


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """A column chunk, the place of its offset index if any, and the metadata that holds for some of its pages, too."""

    start: int
    size: int
    offset_index: tuple[int, int] | None
    metadata: thrift.RawFields = field(repr=False)

    def part(self, dictionary_at: int | None, data_at: int, size: int, values: int) -> bytes:
        """Return the bytes of a ColumnChunk for some pages of this one.

        These are the offsets of dictionary page (None without one) and first data page, the bytes of all pages, and the
        values of the data pages, NULLs included.
        """
        numbers = {_COLUMN_VALUES: values, _COLUMN_BYTES: size, _COLUMN_DATA_PAGE: data_at}
        if dictionary_at is not None:
            numbers[_COLUMN_DICTIONARY] = dictionary_at
        places = {number: (thrift.I64, thrift.integer_bytes(value)) for number, value in numbers.items()}
        return thrift.struct_bytes(
            {_CHUNK_OFFSET: _ZERO, _CHUNK_METADATA: (thrift.STRUCT, thrift.struct_bytes({**self.metadata, **places}))}
        )


@dataclass(frozen=True, slots=True)
class FooterLayout:
    """What footers of all row groups have (version, schema, key-values, creator), and each RowGroup's bytes."""

    file_fields: thrift.RawFields
    row_groups: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """About how many bytes of memory the layout takes."""
        return sum(len(value) for _, value in self.file_fields.values()) + sum(map(len, self.row_groups))

    def chunks(self, ordinal: int, leaves: Collection[int], location: str) -> dict[int, ColumnChunk]:
        """Return chunks of leaves in a row group, if not encrypted or elsewhere, or raise CorruptFileError."""
        chunks: dict[int, ColumnChunk] = {}
        with thrift.broken_means_corrupt("the row group", location, 0):
            reader = thrift.CompactReader(self.row_groups[ordinal])
            for number, kind in reader.fields():
                if number != _GROUP_COLUMNS:
                    reader.skip(kind)
                    continue
                length, inner = reader.list_header()
                for leaf in range(length):
                    if leaf not in leaves:
                        reader.skip(inner)
                    elif (chunk := _chunk(reader)) is not None:
                        chunks[leaf] = chunk
        return chunks

    def footer(self, row_count: int, leaf_count: int, chunks: Mapping[int, bytes]) -> bytes:
        """Return a footer of one row group with some column chunks by leaf; nobody may read the others."""
        rows = (thrift.I64, thrift.integer_bytes(row_count))
        columns = thrift.list_bytes(thrift.STRUCT, [chunks.get(leaf, _NO_CHUNK) for leaf in range(leaf_count)])
        group = thrift.struct_bytes({_GROUP_COLUMNS: (thrift.LIST, columns), _GROUP_BYTES: _ZERO, _GROUP_ROWS: rows})
        groups = (thrift.LIST, thrift.list_bytes(thrift.STRUCT, [group]))
        return thrift.struct_bytes({**self.file_fields, _FILE_ROWS: rows, _FILE_ROW_GROUPS: groups})


def _chunk(reader: thrift.CompactReader) -> ColumnChunk | None:
    metadata: thrift.RawFields | None = None
    numbers: dict[int, int] = {}
    is_elsewhere = False
    for number, kind in reader.fields():
        if number == _CHUNK_METADATA:
            metadata = reader.raw_fields()
        elif kind in thrift.INTEGERS:
            numbers[number] = reader.integer()
        else:
            is_elsewhere |= number in (_CHUNK_FILE, _CHUNK_CRYPTO, _CHUNK_ENCRYPTED_METADATA)
            reader.skip(kind)
    if metadata is None or is_elsewhere:
        return None
    size, data_page = _integer(metadata, _COLUMN_BYTES), _integer(metadata, _COLUMN_DATA_PAGE)
    if size is None or data_page is None:
        return None
    # Some writers state 0 for a missing dictionary page.
    start = min(data_page, _integer(metadata, _COLUMN_DICTIONARY) or data_page)
    offset, length = numbers.get(_CHUNK_INDEX_OFFSET), numbers.get(_CHUNK_INDEX_BYTES)
    kept = {number: raw for number, raw in metadata.items() if number not in _COLUMN_UNUSED}
    return ColumnChunk(start, size, (offset, length) if offset and length else None, kept)


def _integer(fields: Mapping[int, tuple[int, bytes]], number: int) -> int | None:
    return thrift.CompactReader(fields[number][1]).integer() if number in fields else None


_layouts, _layouts_lock = shared_cache(_CACHED_BYTES, lambda layout: layout.size)


@cached(_layouts, key=lambda _, location, size: (location, size), lock=_layouts_lock)
def layout_of(footer: pq.FileMetaData, location: str, size: int) -> FooterLayout:
    """Cut the footer of a file of some size into its parts, once a file, or raise CorruptFileError."""
    del size
    written = io.BytesIO()
    footer.write_metadata_file(written)
    reader = thrift.CompactReader(written.getvalue(), _MAGIC_BYTES)
    fields: thrift.RawFields = {}
    groups: list[bytes] = []
    with thrift.broken_means_corrupt("the footer", location, 0):
        for number, kind in reader.fields():
            if number == _FILE_ROW_GROUPS:
                length, inner = reader.list_header()
                groups = [reader.raw(inner) for _ in range(length)]
            elif number in (_FILE_VERSION, _FILE_SCHEMA, _FILE_KEY_VALUES, _FILE_CREATOR):
                fields[number] = (kind, reader.raw(kind))
            else:
                reader.skip(kind)
    return FooterLayout(fields, tuple(groups))


_PAGE_LOCATIONS = 1
_OFFSET, _SIZE, _FIRST_ROW = 1, 2, 3
_USUAL_HEADERS = np.array([1 << 4 | thrift.I64, 1 << 4 | thrift.I32, 1 << 4 | thrift.I64, 0], np.uint64)
"""A PageLocation of three fields, in order, and its end."""
_LEAST_LOCATION_BYTES = 7
"""Three fields of a byte of header and at least a byte of value, and the end."""


@dataclass(frozen=True, slots=True)
class OffsetIndex:
    """The data pages of a column chunk: where each begins, ascending, and its bytes, header included; and first rows.

    These have one number more than there are pages, the rows of the row group. `dictionary` is offset and bytes of what
    precedes the first data page.
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


@dataclass(frozen=True, slots=True, eq=False)
class HeldRows:
    """Which pages of a column chunk hold some rows, ascending, the rows of each, and each row's place among theirs."""

    pages: Ints
    row_counts: Ints
    positions: Ints

    @classmethod
    def of(cls, first_rows: Ints, rows: Ints, *, is_repeated: bool = False) -> HeldRows:
        """Find ascending rows, given `OffsetIndex.first_rows`.

        A row can have several values if `is_repeated`. Some writers of old let such a row go on in the next page, so
        the next page is read, too, after the last row of a page. (`PageReader` refuses a page that begins within a
        row.)
        """
        ends = np.searchsorted(rows, first_rows)
        counts = np.diff(ends)
        wanted = counts > 0
        if is_repeated:
            has_last_row = wanted & (rows[ends[1:] - 1] == first_rows[1:] - 1)
            wanted[1:] |= has_last_row[:-1]
        pages = np.flatnonzero(wanted)
        row_counts = np.diff(first_rows)[pages]
        moved = np.cumsum(row_counts) - row_counts - first_rows[pages]
        return cls(pages, row_counts, rows + np.repeat(moved, counts[pages]))


def most_pages(chunk: ColumnChunk) -> int:
    """Return how many data pages a column chunk has at most, without a read; 1 without an offset index."""
    return 1 if chunk.offset_index is None else max(1, chunk.offset_index[1] // _LEAST_LOCATION_BYTES)


def parse_offset_index(data: Buffer, chunk: ColumnChunk, row_count: int, location: str) -> OffsetIndex | None:
    """Parse the bytes of an offset index, and check it against its column chunk; None if a page begins no row.

    Such a page is empty or goes on with a row, which only a read of the page would tell. PyArrow writes empty pages.
    Raises CorruptFileError if the bytes are no offset index, pages overlap or leave the chunk, or rows do not ascend.
    """
    assert chunk.offset_index is not None
    at = chunk.offset_index[0]
    with thrift.broken_means_corrupt("the offset index", location, at):
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
    """Offset, bytes and first row of each page: shape (pages, 3); raises ValueError if a page lacks one of them."""
    reader = thrift.CompactReader(bytes(data))
    for number, kind in reader.fields():
        if (number, kind) != (_PAGE_LOCATIONS, thrift.LIST):
            reader.skip(kind)
            continue
        count, _ = reader.list_header()
        found = thrift.varints_of(reader.data[reader.at :], 7 * count)
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
