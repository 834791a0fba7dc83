"""Deleted rows of data files: by positions, in delete files (Parquet, ORC) or deletion vectors (Puffin), or by values.

Equality delete files (Parquet, ORC) delete the rows of older data files that have their values, compared as Iceberg's
Java library does: NULL equals NULL, NaN equals NaN, and -0.0 is not 0.0. Sources: Iceberg's Puffin specification (blob
`deletion-vector-v1`) and table specification ("Position Delete Files", "Equality Delete Files").
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from cachetools import cached
from pyarrow.orc import ORCFile
from pyiceberg.io import FileIO
from pyroaring import BitMap

from puffin_index.data.file_fields import FileField, identify_fields
from puffin_index.data.orc_footer import open_orc
from puffin_index.data.parquet import open_parquet
from puffin_index.data.stored_types import parquet_type, reads_alike
from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.formats.puffin import read_blob, read_footer
from puffin_index.keys.arrow_keys import signed_keys
from puffin_index.keys.value_types import ValueType, value_type_named
from puffin_index.roaring import deserialize, row_set_of
from puffin_index.storage.arrays import Flags
from puffin_index.storage.binary import Buffer, ByteCursor
from puffin_index.storage.caches import shared_cache
from puffin_index.storage.files import FileReader
from puffin_index.storage.ranged import RangedReader

DELETION_VECTOR = "deletion-vector-v1"
REFERENCED_DATA_FILE = "referenced-data-file"

_MAGIC = bytes.fromhex("D1D33964")
_CACHE_BYTES = 256 << 20
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


def _size_of(content: Positions | tuple[pa.Array, ...]) -> int:
    if isinstance(content, tuple):
        return 64 + sum(int(keys.nbytes) for keys in content)
    # A position takes at most two bytes: containers of bits or runs are smaller than arrays.
    return sum(len(path) + 64 + 2 * len(rows) for path, rows in content.items())


_read, _read_lock = shared_cache(_CACHE_BYTES, _size_of)


def is_kept(delete: DeleteFile) -> bool:
    """Return whether memory holds what is in a delete file."""
    with _read_lock:
        return delete in _read


def deleted_positions(io: FileIO, data_file: str, delete_files: Iterable[DeleteFile]) -> BitMap:
    """Read the positions, from 0, of a data file's deleted rows. Delete files are kept, as they never change.

    Raises UnsupportedError for an unknown format or positions beyond 2^32, CorruptFileError, and NotFoundError.
    """
    rows = BitMap()
    for delete_file in delete_files:
        rows |= _positions(io, delete_file).get(data_file, BitMap())
    return rows


@cached(_read, key=lambda _, delete_file: delete_file, lock=_read_lock)
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
    codes = np.asarray(paths.indices.to_numpy(zero_copy_only=False), np.int64)
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(paths.dictionary)))
    parts = np.split(positions[order], ends[:-1]) if len(ends) else []
    most = int(positions.max(initial=0)) + 1
    return {path: row_set_of(part, most) for path, part in zip(paths.dictionary.to_pylist(), parts, strict=True)}


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
    return deserialize(
        inner.bytes(inner.remaining), _MOST_POSITIONS, location=location, offset=offset + 4 + inner.position
    )


class DeleteColumn(NamedTuple):
    """A column by which rows are deleted: its field id, its Iceberg type, and whether the table still has it."""

    field_id: int
    type: str
    is_live: bool

    @property
    def value_type(self) -> ValueType:
        """The type of its keys, or raise UnsupportedError if its values have no keys."""
        return value_type_named(self.type)


@dataclass(frozen=True, slots=True)
class EqualityDelete(DeleteFile):
    """An equality delete file that applies to a data file, with its columns by ascending field id."""

    columns: tuple[DeleteColumn, ...]


@cached(_read, key=lambda _, delete: delete, lock=_read_lock)
def read_equality_delete(io: FileIO, delete: EqualityDelete) -> tuple[pa.Array, ...]:
    """Read the keys (`signed_keys`) of each column of an equality delete file, and keep them.

    Raises UnsupportedError for other formats than Parquet and ORC, a column that the file lacks, and values that have
    no keys; CorruptFileError for a broken file; and NotFoundError.
    """
    if delete.format not in ("PARQUET", "ORC"):
        raise UnsupportedError(f"equality delete file {delete.path} is {delete.format}; known: Parquet, ORC")
    try:
        types = [column.value_type for column in delete.columns]
        with open_orc(io, delete.path) if delete.format == "ORC" else open_parquet(io, delete.path) as file:
            fields = _fields(file, delete)
            try:
                # One by one, by ordinals of leaves in Parquet: names may have dots in them.
                values = [_values(file, field, own) for field, own in zip(fields, types, strict=True)]
            except pa.ArrowInvalid as error:
                raise CorruptFileError(f"not an equality delete file: {error}", location=delete.path) from error
        return tuple(signed_keys(own, value_type) for own, value_type in zip(values, types, strict=True))
    except UnsupportedError as error:
        raise UnsupportedError(f"equality delete file {delete.path}: {error}") from error


def _fields(file: pq.ParquetFile | ORCFile, delete: EqualityDelete) -> list[FileField]:
    schema = file.schema if isinstance(file, ORCFile) else file.schema_arrow
    found = identify_fields(schema, delete.format, None)
    try:
        paths = [found.find((column.field_id,)) if found else () for column in delete.columns]
    except LookupError as error:
        raise UnsupportedError(str(error)) from error
    missing = [column.field_id for column, path in zip(delete.columns, paths, strict=True) if not path]
    if not paths or missing or len(set(schema.names)) < len(schema.names):
        raise UnsupportedError(f"no columns of the field ids {missing}, or two of one name")
    return [path[0] for path in paths]


def _values(file: pq.ParquetFile | ORCFile, field: FileField, value_type: ValueType) -> pa.ChunkedArray:
    if isinstance(file, ORCFile):
        return pa.chunked_array([file.read(columns=[field.field.name]).column(0)])
    stored = parquet_type(file.schema, field.leaves[0])
    if not reads_alike(stored, value_type):
        raise UnsupportedError(f"{stored} values, of which Iceberg's readers make other {value_type.name} values")
    return file.reader.read_all(column_indices=list(field.leaves)).column(0)


def distinct_rows(parts: Sequence[tuple[pa.Array, ...]]) -> pa.Table:
    """Return the distinct rows of several delete files of the same columns, which get their places as names."""
    tables = [pa.table(list(keys), names=[str(place) for place in range(len(keys))]) for keys in parts]
    return pa.concat_tables(tables).group_by(tables[0].column_names).aggregate([])


def are_among(rows: Sequence[pa.Array], keys: pa.Table) -> Flags:
    """Say which rows, given by the keys of each column, are among some rows of keys; NULL equals NULL."""
    codes, known = rows[0], keys.column(0)
    for own, column in zip(rows[1:], keys.columns[1:], strict=True):
        before, distinct = known.unique(), column.unique()
        # Codes of all columns so far, numbered anew so that they stay small; NULL where a value is not among the keys.
        codes, known = (
            pc.add(
                pc.multiply(pc.index_in(code, before).cast(pa.int64()), len(distinct)),
                pc.index_in(values, distinct).cast(pa.int64()),
            )
            for code, values in ((codes, own), (known, column))
        )
    return np.asarray(pc.is_in(codes, known).to_numpy(zero_copy_only=False), np.bool_)
