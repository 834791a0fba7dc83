"""Open Parquet files through a FileIO. Memory keeps their footers, as files of a table never change."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from cachetools import LRUCache
from pyiceberg.io import FileIO

from puffin_index.errors import CorruptFileError, NotFoundError
from puffin_index.storage.caches import cleared_by
from puffin_index.storage.files import StreamReader

_FOOTERS_BYTES = 64 << 20

_footers: LRUCache[str, pq.FileMetaData] = LRUCache(
    maxsize=_FOOTERS_BYTES, getsizeof=lambda footer: int(footer.serialized_size)
)
_footers_lock = threading.Lock()
cleared_by(_footers.clear, _footers_lock)


@dataclass(frozen=True, slots=True)
class OpenParquet:
    """An opened Parquet file.

    Attributes:
        parquet: Arrow's reader.
        file: The bytes of the file.
    """

    parquet: pq.ParquetFile
    file: StreamReader


@contextmanager
def decoded(location: str, what: str) -> Iterator[None]:
    """Turn what Arrow raises for bytes that cannot be decoded into a `CorruptFileError`."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, CorruptFileError):
            raise
        raise CorruptFileError(f"{what}: {error}", location=location) from error


@contextmanager
def open_parquet(io: FileIO, location: str) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file for Arrow's reader alone; otherwise as `open_parquet_file`."""
    with open_parquet_file(io, location) as opened:
        yield opened.parquet


@contextmanager
def open_parquet_file(io: FileIO, location: str) -> Iterator[OpenParquet]:
    """Open a Parquet file; its footer is read once and kept.

    Raises:
        NotFoundError: If the file does not exist.
        CorruptFileError: If the file is not a Parquet file.
    """
    with _footers_lock:
        footer = _footers.get(location)
    try:
        stream = io.new_input(location).open(seekable=True)
    except FileNotFoundError as error:
        raise NotFoundError(f"file not found: {location}") from error
    with stream:
        try:
            parquet = pq.ParquetFile(stream, metadata=footer, pre_buffer=True, coerce_int96_timestamp_unit="us")
        except pa.ArrowInvalid as error:
            raise CorruptFileError(f"it cannot be read as Parquet: {error}", location=location) from error
        with _footers_lock:
            if footer is None and parquet.metadata.serialized_size < _FOOTERS_BYTES:
                _footers[location] = parquet.metadata
        yield OpenParquet(parquet, StreamReader(stream, location))
