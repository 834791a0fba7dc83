"""Open Parquet files through a FileIO; their footers are kept, as files of a table never change.

An imported file may have been replaced at its location, so a footer is found by the size of the file too. PyArrow hides
the compressed size of a row group, which decides to which byte range it belongs. So this size is parsed once more, from
bytes that Arrow itself writes.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, InputStream

from puffin_index.data.file_fields import FileField
from puffin_index.data.thrift_compact import CompactReader
from puffin_index.errors import CorruptFileError, NotFoundError
from puffin_index.storage.caches import shared_cache
from puffin_index.storage.files import StreamReader, open_stream
from puffin_index.storage.object_stream import ObjectStream
from puffin_index.storage.ranged import RangedReader, Span

Chunks: TypeAlias = tuple[int, Sequence[int]]
"""A row group, and ordinals of its column chunks."""

_FOOTERS_BYTES = 64 << 20
_LENGTH_BYTES = 4
_TAIL_BYTES = 64 * 1024
"""The end of a file, where the footer mostly lies."""

_footers, _footers_lock = shared_cache(_FOOTERS_BYTES, lambda footer: int(footer.serialized_size))


@dataclass(frozen=True, slots=True)
class OpenParquet:
    """An opened Parquet file."""

    parquet: pq.ParquetFile
    file: RangedReader
    _stream: ObjectStream | InputStream

    def with_dictionaries(self, names: Sequence[str]) -> pq.ParquetFile:
        """Return a reader of the same file that gives some columns as dictionaries (`coded_by_dictionary`)."""
        if not names:
            return self.parquet
        return parquet_file(self._stream, metadata=self.parquet.metadata, read_dictionary=list(names))


def coded_by_dictionary(group: pq.RowGroupMetaData, fields: Iterable[FileField]) -> list[str]:
    """Return the columns of strings whose values a row group has in dictionaries.

    To make strings of all values takes ten times as long as to leave them coded, where a few rows are wanted.
    """
    names: list[str] = []
    for field in fields:
        # Arrow tells columns by their path, in which a dot leads into a struct.
        arrow_type = field.field.type
        is_text = pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type)
        if is_text and "." not in field.field.name:
            chunk = group.column(field.leaves[0])
            # Outside of a dictionary, the length of a value alone has four bytes.
            if chunk.has_dictionary_page and chunk.total_uncompressed_size < _LENGTH_BYTES * chunk.num_values:
                names.append(field.field.name)
    return names


@contextmanager
def decoded(location: str, what: str) -> Iterator[None]:
    """Turn what Arrow raises for bytes that cannot be decoded into a `CorruptFileError`."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, CorruptFileError):
            raise
        raise CorruptFileError(f"{what}: {error}", location=location) from error


class FetchedParquet(pq.ParquetFile):  # type: ignore[misc]  # PyArrow has no types
    """A Parquet file in a store: column chunks are fetched before PyArrow asks for them one after the other."""

    def __init__(self, stream: ObjectStream, **options: object) -> None:
        if options.get("metadata") is None and stream.size:
            length = min(stream.size, _TAIL_BYTES)
            stream.fetch([(stream.size - length, length)])
        super().__init__(stream, **options)
        self.stream = stream


def fetch_columns(parquet: pq.ParquetFile, now: Iterable[Chunks], later: Iterable[Chunks] = ()) -> None:
    """Begin to read what is asked for next, near chunks in one request, and what fits into memory of the rest.

    Nothing is read ahead of a file that is not in a store that can be asked side by side.
    """
    if isinstance(parquet, FetchedParquet):
        ahead = (span for chunks in later for span in _spans(parquet, *chunks))
        parquet.stream.fetch([span for chunks in now for span in _spans(parquet, *chunks)], ahead)


def _spans(parquet: pq.ParquetFile, row_group: int, leaves: Sequence[int]) -> Iterator[Span]:
    for leaf in leaves:
        chunk = parquet.metadata.row_group(row_group).column(leaf)
        begins_with_dictionary = chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < chunk.data_page_offset
        start = chunk.dictionary_page_offset if begins_with_dictionary else chunk.data_page_offset
        if chunk.total_compressed_size:
            yield int(start), chunk.total_compressed_size


def parquet_file(stream: ObjectStream | InputStream | BinaryIO, **options: object) -> pq.ParquetFile:
    """Open a Parquet file; `options` are those of `pq.ParquetFile`, and the footer is read if it is not among them."""
    # Arrow would buffer ahead in its threads for input, all of which may be waiting for rows in `write_dataset`.
    # Iceberg reads INT96 as microseconds.
    options |= {"pre_buffer": False, "coerce_int96_timestamp_unit": "us"}
    return FetchedParquet(stream, **options) if isinstance(stream, ObjectStream) else pq.ParquetFile(stream, **options)


@contextmanager
def open_parquet(io: FileIO, location: str, size: int | None = None) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file for Arrow's reader alone; otherwise as `open_parquet_file`."""
    with open_parquet_file(io, location, size) as opened:
        yield opened.parquet


@contextmanager
def open_parquet_file(io: FileIO, location: str, size: int | None = None) -> Iterator[OpenParquet]:
    """Open a Parquet file, whose footer is read once and kept, or raise NotFoundError or CorruptFileError."""
    with _footers_lock:
        footer = _footers.get((location, size))
    try:
        stream = open_stream(io, location, size)
        with cast(BinaryIO, stream):
            try:
                parquet = parquet_file(stream, metadata=footer)
            except pa.ArrowInvalid as error:
                raise CorruptFileError(f"it cannot be read as Parquet: {error}", location=location) from error
            with _footers_lock:
                if footer is None and parquet.metadata.serialized_size < _FOOTERS_BYTES:
                    _footers[location, size] = parquet.metadata
            yield OpenParquet(parquet, StreamReader(stream, location), stream)
    except FileNotFoundError as error:
        raise NotFoundError(f"file not found: {location}") from error


_NOT_SHOWN = (pa.ArrowException, OSError, IndexError)
"""Raised where a footer has no row group, no column, or only encrypted metadata of it."""

_MAGIC_BYTES = 4

# Field ids of parquet.thrift.
_FILE_ROW_GROUPS, _GROUP_COMPRESSED_SIZE = 4, 6


def row_group_places(footer: pq.FileMetaData) -> tuple[list[int], list[int]] | None:
    """Return the first byte of each row group, and its midpoint; None if the footer does not state all of them.

    The midpoint decides which range of bytes a row group belongs to, as parquet-java says.
    """
    offsets: list[int] = []
    midpoints: list[int] = []
    try:
        for ordinal, stated in enumerate(_stated_sizes(footer)):
            group = footer.row_group(ordinal)
            first = group.column(0)
            # `ParquetMetadataConverter.filterFileMetaDataByMidpoint` of parquet-java.
            every = (group.column(leaf).total_compressed_size for leaf in range(group.num_columns))
            size = sum(every) if stated is None else stated
            if size < 0:
                return None
            data_page, dictionary = first.data_page_offset, first.dictionary_page_offset
            # Some writers state 0 for a missing dictionary page; parquet-java then takes 0 as the first byte.
            offset = data_page if dictionary is None else min(data_page, dictionary)
            offsets.append(offset)
            midpoints.append(offset + size // 2)
    except _NOT_SHOWN:
        return None
    return offsets, midpoints


def has_offset_index(footer: pq.FileMetaData) -> bool:
    """Return whether a column chunk of the first row group has an offset index; writers make them for all or none."""
    try:
        first = footer.row_group(0)
        return any(first.column(leaf).has_offset_index for leaf in range(first.num_columns))
    except _NOT_SHOWN:
        return False


def _stated_sizes(footer: pq.FileMetaData) -> list[int | None]:
    """Return the compressed size of each row group; None where the footer does not state it."""
    written = io.BytesIO()
    footer.write_metadata_file(written)
    reader = CompactReader(written.getvalue(), _MAGIC_BYTES)
    sizes: list[int | None] = []
    for number, kind in reader.fields():
        if number == _FILE_ROW_GROUPS:
            sizes += [reader.integers().get(_GROUP_COMPRESSED_SIZE) for _ in range(reader.list_header()[0])]
        else:
            reader.skip(kind)
    return sizes
