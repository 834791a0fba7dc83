"""Columns of keys from Arrow: as a whole, or gathered from batches in little more memory than the keys take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from puffin_index.columns import Column, KeyArray, float_keys, sort_dictionary
from puffin_index.errors import BuildError, UnsupportedError
from puffin_index.value_types import ValueType

_DECIMAL_KEY_BYTES = 16
_LEAST_MERGED_KEYS = 65_536


def column_of(values: pa.Array | pa.ChunkedArray, value_type: ValueType) -> Column:
    """Return the keys of an Arrow column.

    Args:
        values: The column as it was read: any Arrow type that can hold the values of `value_type`, narrower ones
            included (a column promoted since the file was written), or only NULLs of whatever type.
        value_type: What the values are in the table's schema.

    Raises:
        UnsupportedError: If values of this Arrow type are not values of this column, or one is out of range.
    """
    array = _one_array(values)
    row_count = len(array)
    valid = None if array.null_count == 0 else array.is_valid().to_numpy(zero_copy_only=False)
    if array.null_count == row_count:
        return Column(value_type, row_count, _null_keys(value_type, row_count), valid)
    try:
        keys = _int64_keys(array, value_type) if value_type.domain == "int64" else _bytes_keys(array, value_type)
    except pa.ArrowException as error:
        raise UnsupportedError(f"a {value_type.name} column cannot hold Arrow {array.type} values: {error}") from error
    return Column(value_type, row_count, keys, valid)


def gather_column(batches: Iterable[pa.Array], value_type: ValueType, row_count: int) -> Column:
    """Return the keys of a column that comes some rows at a time; each batch is given up when its keys are there.

    Args:
        batches: The column's rows in order, as `column_of` takes them.
        value_type: What the values are in the table's schema.
        row_count: How many rows there are.

    Raises:
        UnsupportedError: If values of this Arrow type are not values of this column, or one is out of range.
        BuildError: If there are fewer or more rows.
    """
    valid: npt.NDArray[np.bool_] | None = None

    def parts() -> Iterator[tuple[slice, Column]]:
        nonlocal valid
        end = 0
        for part in (column_of(batch, value_type) for batch in batches):
            place = slice(end, end + part.row_count)
            end = place.stop
            if end > row_count:
                break
            if part.valid is not None:
                valid = np.ones(row_count, np.bool_) if valid is None else valid
                valid[place] = part.valid
            yield place, part
        if end != row_count:
            raise BuildError(f"{end} rows of a row group of {row_count} were read")

    keys = _gather_integers(parts(), row_count) if value_type.domain == "int64" else _gather_bytes(parts())
    return Column(value_type, row_count, keys, valid)


def _gather_integers(parts: Iterable[tuple[slice, Column]], row_count: int) -> npt.NDArray[np.int64]:
    keys = np.empty(row_count, np.int64)
    for place, part in parts:
        keys[place] = part.int_keys
    return keys


def _gather_bytes(parts: Iterable[tuple[slice, Column]]) -> pa.DictionaryArray:
    """Code the keys of all parts by one dictionary, which is merged whenever it may have doubled."""
    chunks = [pa.array([], pa.large_binary()).dictionary_encode()]
    merged = fresh = 0
    for _, part in parts:
        chunks.append(part.bytes_keys.dictionary_encode())
        fresh += len(chunks[-1].dictionary)
        if fresh > max(merged, _LEAST_MERGED_KEYS):
            chunks = [_merge(chunks)]
            merged, fresh = len(chunks[0].dictionary), 0
    return sort_dictionary(_merge(chunks))


def _merge(chunks: list[pa.DictionaryArray]) -> pa.DictionaryArray:
    unified = pa.chunked_array(chunks).unify_dictionaries()
    indices = pa.concat_arrays([chunk.indices for chunk in unified.chunks])
    return pa.DictionaryArray.from_arrays(indices, unified.chunk(unified.num_chunks - 1).dictionary)


def _one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    array = values
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _null_keys(value_type: ValueType, row_count: int) -> KeyArray:
    if value_type.domain == "int64":
        return np.zeros(row_count, np.int64)
    return pa.nulls(row_count, pa.large_binary())


def _int64_keys(array: pa.Array, value_type: ValueType) -> npt.NDArray[np.int64]:
    found = array.type
    if value_type.is_floating and pa.types.is_floating(found):
        return float_keys(_fixed_width(array.cast(pa.float64()), np.int64).view(np.float64))
    if value_type.is_decimal and pa.types.is_decimal(found):
        wide = array.cast(pa.decimal128(38, value_type.decimal_scale))
        return np.ascontiguousarray(_fixed_width(wide, np.dtype("<i8"), parts=2)[0::2])
    match value_type.name:
        case "boolean" if pa.types.is_boolean(found):
            return _fixed_width(array.cast(pa.int64()), np.int64)
        case "int" | "long" if pa.types.is_integer(found):
            return _fixed_width(array.cast(pa.int64()), np.int64)
        case "date" if pa.types.is_date(found):
            return _fixed_width(array.cast(pa.date32()), np.int32).astype(np.int64)
        case "time" if pa.types.is_time(found):
            return _fixed_width(array.cast(pa.time64("us")), np.int64)
        case "timestamp" | "timestamptz" | "timestamp_ns" | "timestamptz_ns" if pa.types.is_timestamp(found):
            unit = "ns" if value_type.name.endswith("_ns") else "us"
            return _fixed_width(array.cast(pa.timestamp(unit, found.tz)), np.int64)
        case _:
            raise _mismatch(found, value_type)


def _mismatch(found: pa.DataType, value_type: ValueType) -> UnsupportedError:
    return UnsupportedError(f"a {value_type.name} column cannot hold Arrow {found} values")


def _fixed_width(array: pa.Array, dtype: npt.DTypeLike, parts: int = 1) -> npt.NDArray[np.int64]:
    """The values buffer of a fixed-width array, `parts` numbers a value."""
    width = np.dtype(dtype).itemsize * parts
    return np.frombuffer(array.buffers()[1], dtype, count=len(array) * parts, offset=array.offset * width)


def _bytes_keys(array: pa.Array, value_type: ValueType) -> pa.LargeBinaryArray:
    found = array.type
    if value_type.is_decimal:
        if not pa.types.is_decimal(found):
            raise _mismatch(found, value_type)
        return _wide_decimal_keys(array.cast(pa.decimal128(38, value_type.decimal_scale)))
    is_text = pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found)
    is_fixed = pa.types.is_fixed_size_binary(found) and not pa.types.is_decimal(found)
    is_plain = pa.types.is_binary(found) or pa.types.is_large_binary(found) or pa.types.is_binary_view(found)
    length = value_type.fixed_length
    fits = is_plain or (is_fixed and length in (None, found.byte_width))
    # A string column may have been written as plain BYTE_ARRAY; anything but a string column never holds text.
    if not (fits or (is_text and value_type.name == "string")):
        raise _mismatch(found, value_type)
    return array.cast(pa.large_binary())


def _wide_decimal_keys(array: pa.Array) -> pa.LargeBinaryArray:
    raw = np.frombuffer(
        array.buffers()[1], np.uint8, len(array) * _DECIMAL_KEY_BYTES, array.offset * _DECIMAL_KEY_BYTES
    )
    keys = np.ascontiguousarray(raw.reshape(-1, _DECIMAL_KEY_BYTES)[:, ::-1])
    keys[:, 0] ^= 0x80
    offsets = np.arange(0, (len(array) + 1) * _DECIMAL_KEY_BYTES, _DECIMAL_KEY_BYTES, dtype=np.int64)
    valid = None if array.null_count == 0 else pa.array(array.is_valid().to_numpy(zero_copy_only=False))
    flags = None if valid is None else valid.buffers()[1]
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(array), [flags, pa.py_buffer(offsets), pa.py_buffer(keys)]
    )
