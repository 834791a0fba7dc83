"""Read the places of row groups from a Parquet footer, as parquet-java reads them.

PyArrow hides the compressed size that a footer states for a row group, and which optional fields are set. Both decide
which byte range a row group belongs to. So this module parses the footer once more, in Thrift's compact protocol, from
bytes that Arrow itself writes.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import pyarrow.parquet as pq

from puffin_index.data.thrift_compact import CompactReader

_MAGIC_BYTES = 4

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
    reader = CompactReader(written.getvalue(), _MAGIC_BYTES)
    places: list[RowGroupPlace | None] = []
    for number, kind in reader.fields():
        if number == _FILE_ROW_GROUPS:
            places += [_place(reader) for _ in range(reader.list_header()[0])]
        else:
            reader.skip(kind)
    known = tuple(place for place in places if place is not None)
    return known if len(known) == len(places) else None


def _place(reader: CompactReader) -> RowGroupPlace | None:
    """Read a RowGroup: `ParquetMetadataConverter.filterFileMetaDataByMidpoint` of parquet-java."""
    chunks: list[dict[int, int]] = []
    stated_size: int | None = None
    for number, kind in reader.fields():
        if number == _GROUP_COLUMNS:
            chunks = [_column_numbers(reader) for _ in range(reader.list_header()[0])]
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


def _column_numbers(reader: CompactReader) -> dict[int, int]:
    """Read a ColumnChunk; return the integers of its metadata by field id; empty without metadata."""
    numbers: dict[int, int] = {}
    for number, kind in reader.fields():
        if number == _CHUNK_METADATA:
            numbers = reader.integers()
        else:
            reader.skip(kind)
    return numbers
