"""Equality delete files (Parquet, ORC): each row deletes the rows of older data files that have its values.

Values are compared as Iceberg's Java library compares them: NULL equals NULL, NaN equals NaN, and -0.0 is not 0.0.
Source: Iceberg's table specification ("Equality Delete Files").
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from cachetools import LRUCache, cached
from pyarrow.orc import ORCFile
from pyiceberg.io import FileIO

from puffin_index.data.deletes import DeleteFile
from puffin_index.data.file_fields import FileField, identify_fields
from puffin_index.data.orc_footer import open_orc
from puffin_index.data.parquet import open_parquet
from puffin_index.data.stored_types import parquet_type, reads_alike
from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.keys.arrow_keys import signed_keys
from puffin_index.keys.value_types import ValueType, value_type_named
from puffin_index.storage.arrays import Flags
from puffin_index.storage.caches import cleared_by

_CACHE_BYTES = 128 << 20


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


_read: LRUCache[EqualityDelete, tuple[pa.Array, ...]] = LRUCache(
    maxsize=_CACHE_BYTES, getsizeof=lambda keys: 64 + sum(own.nbytes for own in keys)
)
_read_lock = threading.Lock()
cleared_by(_read.clear, _read_lock)


def is_kept(delete: EqualityDelete) -> bool:
    """Return whether memory holds the keys of an equality delete file."""
    with _read_lock:
        return delete in _read


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
