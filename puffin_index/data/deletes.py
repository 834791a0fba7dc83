"""Deleted rows of data files: positional delete files (Parquet, ORC) and deletion vectors (Puffin) as positions.

Sources: Iceberg's Puffin specification (blob `deletion-vector-v1`) and table specification ("Position Delete Files").
"""

import threading
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from cachetools import LRUCache, cached
from pyiceberg.io import FileIO
from pyroaring import BitMap

from puffin_index.data.orc_footer import open_orc
from puffin_index.data.parquet import open_parquet
from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.formats.puffin import read_blob, read_footer
from puffin_index.roaring import read as roaring_read
from puffin_index.storage.arrays import Ints
from puffin_index.storage.binary import Buffer, ByteCursor
from puffin_index.storage.caches import cleared_by
from puffin_index.storage.files import FileReader
from puffin_index.storage.ranged import RangedReader

DELETION_VECTOR = "deletion-vector-v1"
REFERENCED_DATA_FILE = "referenced-data-file"

_MAGIC = bytes.fromhex("D1D33964")
_CACHE_BYTES = 128 << 20
_MOST_POSITIONS = 1 << 32

Positions = Mapping[str, BitMap]
"""Deleted positions by data file."""


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A delete file that applies to a data file, of the format `PARQUET`, `ORC` or `PUFFIN`; no other can be read."""

    path: str
    file_size: int
    record_count: int
    format: str


_read: LRUCache[str, Positions] = LRUCache(
    maxsize=_CACHE_BYTES,
    # A position takes at most two bytes: containers of bits or runs are smaller than arrays.
    getsizeof=lambda positions: sum(len(path) + 64 + 2 * len(rows) for path, rows in positions.items()),
)
_read_lock = threading.Lock()
cleared_by(_read.clear, _read_lock)


def is_kept(delete_file: DeleteFile) -> bool:
    """Return whether memory holds the positions of a delete file."""
    with _read_lock:
        return delete_file.path in _read


def deleted_positions(io: FileIO, data_file: str, delete_files: Iterable[DeleteFile]) -> BitMap:
    """Read the positions, from 0, of a data file's deleted rows. Delete files are kept, as they never change.

    Raises UnsupportedError for an unknown format or positions beyond 2^32, CorruptFileError, and NotFoundError.
    """
    rows = BitMap()
    for delete_file in delete_files:
        rows |= _positions(io, delete_file).get(data_file, BitMap())
    return rows


@cached(_read, key=lambda _, delete_file: delete_file.path, lock=_read_lock)
def _positions(io: FileIO, delete_file: DeleteFile) -> Positions:
    match delete_file.format:
        case "PARQUET" | "ORC":
            return read_positional_deletes(io, delete_file.path, delete_file.format)
        case "PUFFIN":
            with FileReader(io, delete_file.path, delete_file.file_size) as reader:
                return read_deletion_vectors(reader)
        case _:
            raise UnsupportedError(
                f"delete file {delete_file.path} is {delete_file.format}; known: Parquet, ORC, Puffin"
            )


def read_positional_deletes(io: FileIO, location: str, file_format: str = "PARQUET") -> Positions:
    """Read a positional delete file, `PARQUET` or `ORC`.

    Raises CorruptFileError if it lacks the columns `file_path` and `pos` or a position is negative, UnsupportedError if
    one is 2^32 or more, and NotFoundError.
    """
    with open_orc(io, location) if file_format == "ORC" else open_parquet(io, location) as file:
        try:
            table = file.read(columns=["file_path", "pos"]).combine_chunks()
            paths = table.column("file_path").cast(pa.large_string()).combine_chunks().dictionary_encode()
            column = table.column("pos").cast(pa.int64())
        except (pa.ArrowInvalid, KeyError) as error:
            raise CorruptFileError(f"not a positional delete file: {error}", location=location) from error
    if paths.null_count or column.null_count:
        raise CorruptFileError("a positional delete file with a NULL", location=location)
    positions = np.asarray(column.to_numpy(), np.int64)
    if len(positions) and positions.min() < 0:
        raise CorruptFileError(f"position {positions.min()} in a positional delete file", location=location)
    if len(positions) and positions.max() >= _MOST_POSITIONS:
        raise UnsupportedError(f"{location}: position {positions.max()}; known are those below 2^32")
    return _by_path(paths, positions)


def _by_path(paths: pa.DictionaryArray, positions: Ints) -> Positions:
    codes = np.asarray(paths.indices.to_numpy(zero_copy_only=False), np.int64)
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(paths.dictionary)))
    parts = np.split(positions[order], ends[:-1]) if len(ends) else []
    most = int(positions.max(initial=0)) + 1
    return {
        path: roaring_read.row_set_of(part, most)
        for path, part in zip(paths.dictionary.to_pylist(), parts, strict=True)
    }


def read_deletion_vectors(reader: RangedReader) -> Positions:
    """Read all deletion vectors of a Puffin file, ignoring blobs of other types.

    Raises CorruptFileError if one breaks its format, UnsupportedError if a position is 2^32 or more.
    """
    positions: dict[str, BitMap] = {}
    for blob in read_footer(reader).blobs:
        if blob.type != DELETION_VECTOR:
            continue
        data_file = blob.properties.get(REFERENCED_DATA_FILE)
        if data_file is None:
            raise CorruptFileError(
                f"a deletion vector without {REFERENCED_DATA_FILE}", location=reader.location, offset=blob.offset
            )
        rows = parse_deletion_vector(read_blob(reader, blob), location=reader.location, offset=blob.offset)
        positions[data_file] = positions.get(data_file, BitMap()) | rows
    return positions


def parse_deletion_vector(data: Buffer, *, location: str = "<bytes>", offset: int = 0) -> BitMap:
    """Read the positions of a deletion vector, a blob.

    Raises CorruptFileError if the bytes are not one, UnsupportedError if a position is 2^32 or more.
    """
    cursor = ByteCursor(data, location, offset)
    length = cursor.uint32_be()
    if length != cursor.remaining - 4 or length < len(_MAGIC) + 8:
        raise cursor.corrupt(f"a deletion vector of {length} bytes in a blob of {cursor.position + cursor.remaining}")
    body = cursor.bytes(length)
    if zlib.crc32(body) != cursor.uint32_be():
        raise CorruptFileError("a deletion vector's CRC-32 is wrong", location=location, offset=offset)
    inner = ByteCursor(body, location, offset + 4)
    magic = bytes(inner.bytes(len(_MAGIC), "magic"))
    if magic != _MAGIC:
        raise CorruptFileError(f"not a deletion vector: {magic!r}", location=location, offset=offset + 4)
    count = inner.uint64_le()
    if count == 0:
        inner.expect_end()
        return BitMap()
    key = inner.uint32_le()
    if count > 1 or key:
        raise UnsupportedError(f"{location}: a deletion vector with positions of 2^32 and more")
    return roaring_read.deserialize(
        inner.bytes(inner.remaining), _MOST_POSITIONS, location=location, offset=offset + 4 + inner.position
    )
