"""Read the places of row groups from a Parquet footer, as parquet-java reads them.

PyArrow hides the compressed size that a footer states for a row group, and which optional fields are set. Both decide
which byte range a row group belongs to. So this module parses the footer once more, in Thrift's compact protocol, from
bytes that Arrow itself writes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow.parquet as pq

_MAGIC_BYTES = 4

_FALSE, _TRUE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 2, 1, 3, 7, 8, 9, 10, 12
_INTEGERS = frozenset({4, 5, 6})
_LONG_LIST = 15

# Field ids of parquet.thrift.
_FILE_ROW_GROUPS = 4
_GROUP_COLUMNS, _GROUP_COMPRESSED_SIZE = 1, 6
_CHUNK_METADATA = 3
_COLUMN_COMPRESSED_SIZE, _COLUMN_DATA_PAGE, _COLUMN_DICTIONARY_PAGE = 7, 9, 11


@dataclass(frozen=True, slots=True)
class RowGroupPlace:
    """The place of a row group, as parquet-java computes it.

    Attributes:
        offset: The first byte of the first column.
        midpoint: The byte that decides which range of bytes the row group belongs to.
    """

    offset: int
    midpoint: int


def row_group_places(footer: pq.FileMetaData) -> tuple[RowGroupPlace, ...] | None:
    """Return the place of each row group; None if the footer does not state all places."""
    written = io.BytesIO()
    footer.write_metadata_file(written)
    reader = _CompactReader(written.getvalue(), _MAGIC_BYTES)
    places: list[RowGroupPlace | None] = []
    for number, kind in reader.fields():
        if number == _FILE_ROW_GROUPS:
            places += [_place(reader) for _ in range(reader.list_length())]
        else:
            reader.skip(kind)
    known = tuple(place for place in places if place is not None)
    return known if len(known) == len(places) else None


def _place(reader: _CompactReader) -> RowGroupPlace | None:
    """Read a RowGroup: `ParquetMetadataConverter.filterFileMetaDataByMidpoint` of parquet-java."""
    chunks: list[dict[int, int]] = []
    stated_size: int | None = None
    for number, kind in reader.fields():
        if number == _GROUP_COLUMNS:
            chunks = [_column_numbers(reader) for _ in range(reader.list_length())]
        elif number == _GROUP_COMPRESSED_SIZE:
            stated_size = reader.integer()
        else:
            reader.skip(kind)
    if not chunks or _COLUMN_DATA_PAGE not in chunks[0]:
        return None
    if stated_size is None:
        if not all(_COLUMN_COMPRESSED_SIZE in chunk for chunk in chunks):
            return None
        stated_size = sum(chunk[_COLUMN_COMPRESSED_SIZE] for chunk in chunks)
    if stated_size < 0:
        return None
    data_page = chunks[0][_COLUMN_DATA_PAGE]
    # Some writers state 0 for a missing dictionary page; parquet-java then takes 0 as the first byte.
    offset = min(data_page, chunks[0].get(_COLUMN_DICTIONARY_PAGE, data_page))
    return RowGroupPlace(offset, offset + stated_size // 2)


def _column_numbers(reader: _CompactReader) -> dict[int, int]:
    """Read a ColumnChunk; return the integers of its metadata by field id; empty without metadata."""
    numbers: dict[int, int] = {}
    for number, kind in reader.fields():
        if number != _CHUNK_METADATA:
            reader.skip(kind)
            continue
        for column_number, column_kind in reader.fields():
            if column_kind in _INTEGERS:
                numbers[column_number] = reader.integer()
            else:
                reader.skip(column_kind)
    return numbers


@dataclass(slots=True)
class _CompactReader:
    """Reads Thrift's compact protocol; the bytes come from Arrow's own writer."""

    data: bytes
    at: int

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield id and type of each field of a struct; the caller must read or skip each value."""
        number = 0
        while True:
            header = self.data[self.at]
            self.at += 1
            if not header:
                return
            number = number + (header >> 4) if header >> 4 else self.integer()
            yield number, header & 15

    def integer(self) -> int:
        """Read an integer of 16 to 64 bits."""
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def list_length(self) -> int:
        """Read the header of a list; return the number of its elements."""
        return self._list_header()[0]

    def skip(self, kind: int) -> None:
        """Skip a value of a field."""
        if kind in _INTEGERS:
            self._varint()
        elif kind == _BINARY:
            # Reading the length moves the position, so `self.at += self._varint()` would add to the old position.
            length = self._varint()
            self.at += length
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        elif kind in (_LIST, _SET):
            length, inner = self._list_header()
            for _ in range(length):
                # A boolean takes a byte in a list, but none in a struct, where the type holds its value.
                self.skip(_BYTE if inner in (_TRUE, _FALSE) else inner)
        elif kind == _BYTE:
            self.at += 1
        elif kind == _DOUBLE:
            self.at += 8
        elif kind not in (_TRUE, _FALSE):
            raise AssertionError(f"parquet.thrift has no type {kind}")

    def _list_header(self) -> tuple[int, int]:
        header = self.data[self.at]
        self.at += 1
        length = header >> 4
        return self._varint() if length == _LONG_LIST else length, header & 15

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
