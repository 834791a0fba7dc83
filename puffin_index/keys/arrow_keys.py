"""Columns of keys from Arrow, whole or gathered from batches in little more memory than keys need; and back."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from puffin_index.errors import BuildError, UnsupportedError
from puffin_index.keys.columns import Column, SortedColumn, plain_keys
from puffin_index.keys.merge import SPILL_BYTES, merge_keys, spill
from puffin_index.keys.value_types import (
    IntColumnKeys,
    ValueType,
    decimals_of_wide_keys,
    float_keys,
    floats_of_keys,
    key_dtype,
)
from puffin_index.storage.arrays import Flags, Rows

LARGE_COLUMN_BYTES = 96 * 1024 * 1024
"""Columns of a row group up to this size are taken as a whole, which is faster."""

_Number = TypeVar("_Number", bound=np.generic)


def column_of(values: pa.Array | pa.ChunkedArray, value_type: ValueType) -> Column:
    """Return the keys of an Arrow column, perhaps narrower before a promotion, or raise UnsupportedError."""
    array = _one_array(values)
    row_count = len(array)
    valid = None if array.null_count == 0 else array.is_valid().to_numpy(zero_copy_only=False)
    if array.null_count == row_count:
        is_int = value_type.domain == "int64"
        nothing = np.zeros(row_count, key_dtype(value_type)) if is_int else pa.nulls(row_count, pa.large_binary())
        return Column(value_type, row_count, nothing, valid)
    try:
        keys = _int64_keys(array, value_type) if value_type.domain == "int64" else _bytes_values(array, value_type)
    except pa.ArrowException as error:
        raise UnsupportedError(f"a {value_type.name} column cannot hold Arrow {array.type} values: {error}") from error
    return Column(value_type, row_count, keys, valid)


def gather_column(batches: Iterable[pa.Array], value_type: ValueType, row_count: int) -> Column:
    """Return the keys of a column that comes in batches, each as for `column_of`, with `row_count` rows in all.

    A column of ordinary size is taken as a whole. For a larger column, each batch is freed as soon as its keys are
    made, and byte keys are coded by a dictionary, which may lie in a file (`puffin_index.keys.merge`).

    Raises BuildError if the batches have fewer or more rows, and what `column_of` raises.
    """
    first, rest = _take_until(batches, LARGE_COLUMN_BYTES)
    if rest is None:
        column = column_of(pa.chunked_array(first), value_type) if first else column_of(pa.nulls(0), value_type)
        if column.row_count != row_count:
            raise BuildError(f"{column.row_count} rows of a row group of {row_count} were read")
        return column
    return _gather_large(chain(given_up(first), rest), value_type, row_count)


def _take_until(batches: Iterable[pa.Array], most_bytes: int) -> tuple[list[pa.Array], Iterator[pa.Array] | None]:
    """Take batches until they exceed `most_bytes`; return them and the remaining batches (None if no batch remains)."""
    taken: list[pa.Array] = []
    rest = iter(batches)
    for batch in rest:
        taken.append(batch)
        if sum(one.nbytes for one in taken) > most_bytes:
            return taken, rest
    return taken, None


def given_up(batches: list[pa.Array]) -> Iterator[pa.Array]:
    """Give batches away, so that nothing keeps them."""
    batches.reverse()
    while batches:
        yield batches.pop()


def _gather_large(batches: Iterable[pa.Array], value_type: ValueType, row_count: int) -> Column:
    valid: Flags | None = None

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

    if value_type.domain == "int64":
        int_keys: IntColumnKeys = np.empty(row_count, key_dtype(value_type))
        for place, part in parts():
            int_keys[place] = part.int_keys
        return Column(value_type, row_count, int_keys, valid)
    dictionary, codes = _gather_bytes(part for _, part in parts())
    indices = pa.array(codes, mask=None if valid is None else ~valid)
    return Column(value_type, row_count, pa.DictionaryArray.from_arrays(indices, dictionary), valid)


_CodedKeys: TypeAlias = tuple[pa.LargeBinaryArray, Rows]
"""Sorted distinct keys, and rows as places in them; the places of NULL rows are arbitrary."""


def _gather_bytes(parts: Iterable[Column]) -> _CodedKeys:
    """Code the keys of all parts by one dictionary, merged whenever the new keys might have doubled its size."""
    gathered: list[_CodedKeys] = [(pa.array([], pa.large_binary()), np.empty(0, np.uint32))]
    fresh_bytes = 0
    for part in parts:
        own = SortedColumn(part)
        dictionary, codes = own.keys, own.codes
        fresh_bytes += dictionary.nbytes
        # Dictionaries that wait for a merge may grow as large as the merged one: they, too, must leave memory in time.
        gathered.append((spill([dictionary]) if fresh_bytes > SPILL_BYTES else dictionary, codes))
        if fresh_bytes > max(gathered[0][0].nbytes, SPILL_BYTES // 4):
            gathered, fresh_bytes = [_merge(gathered)], 0
    return _merge(gathered)


def _merge(gathered: list[_CodedKeys]) -> _CodedKeys:
    keys, ranks = merge_keys([dictionary for dictionary, _ in gathered])
    codes = [rank[own] if len(rank) else own for (_, own), rank in zip(gathered, ranks, strict=True)]
    return keys, np.concatenate(codes)


def _one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    array = values
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _int64_keys(array: pa.Array, value_type: ValueType) -> IntColumnKeys:
    found = array.type
    if value_type.is_floating and pa.types.is_floating(found):
        return float_keys(_fixed_width(array.cast(pa.float64()), np.dtype(np.float64)))
    if value_type.is_decimal and pa.types.is_decimal(found):
        wide = array.cast(pa.decimal128(18, value_type.decimal_scale))
        return np.ascontiguousarray(_fixed_width(wide, np.dtype("<i8"), parts=2)[0::2])
    return _fixed_width(array.cast(_cast_type(found, value_type)), key_dtype(value_type))


def _cast_type(found: pa.DataType, value_type: ValueType) -> pa.DataType:
    """Return the Arrow type whose raw values are the keys."""
    match value_type.name:
        case "boolean" if pa.types.is_boolean(found):
            return pa.int8()
        case "int" if pa.types.is_integer(found):
            return pa.int32()
        case "long" if pa.types.is_integer(found):
            return pa.int64()
        case "date" if pa.types.is_date(found):
            return pa.date32()
        case "time" if pa.types.is_time(found):
            return pa.time64("us")
        case "timestamp" | "timestamptz" | "timestamp_ns" | "timestamptz_ns" if pa.types.is_timestamp(found):
            return pa.timestamp("ns" if value_type.name.endswith("_ns") else "us", found.tz)
        case _:
            raise _mismatch(found, value_type)


def _mismatch(found: pa.DataType, value_type: ValueType) -> UnsupportedError:
    return UnsupportedError(f"a {value_type.name} column cannot hold Arrow {found} values")


def _fixed_width(array: pa.Array, dtype: np.dtype[_Number], parts: int = 1) -> npt.NDArray[_Number]:
    """Return the values buffer of a fixed-width array as numbers, `parts` numbers per value."""
    width = dtype.itemsize * parts
    return np.frombuffer(array.buffers()[1], dtype, count=len(array) * parts, offset=array.offset * width)


def _bytes_values(array: pa.Array, value_type: ValueType) -> pa.Array:
    found = array.type
    if value_type.is_decimal:
        if not pa.types.is_decimal(found):
            raise _mismatch(found, value_type)
        is_wide = pa.types.is_decimal128(found) and found.scale == value_type.decimal_scale
        return array if is_wide else array.cast(pa.decimal128(38, value_type.decimal_scale))
    is_text = pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found)
    is_fixed = pa.types.is_fixed_size_binary(found) and not pa.types.is_decimal(found)
    is_plain = pa.types.is_binary(found) or pa.types.is_large_binary(found) or pa.types.is_binary_view(found)
    length = value_type.fixed_length
    fits = is_plain or (is_fixed and length in (None, found.byte_width))
    # Some writers store string columns as plain BYTE_ARRAY, but no other column ever holds text.
    if not (fits or (is_text and value_type.name == "string")):
        raise _mismatch(found, value_type)
    return array


NEGATIVE_ZERO_KEY: Final = -1
"""The mapped bits of -0.0, which no other double has."""


def key_array(column: Column) -> pa.Array:
    """Return the keys of a column as Arrow has them, NULL where the row is NULL."""
    if not isinstance(column.keys, np.ndarray):
        return plain_keys(column)
    nulls = None if column.valid is None else ~column.valid
    return pa.array(column.keys.astype(np.int64, copy=False), mask=nulls)


def signed_keys(values: pa.Array | pa.ChunkedArray, value_type: ValueType) -> pa.Array:
    """Return keys as `key_array` has them, `NEGATIVE_ZERO_KEY` for -0.0; raises UnsupportedError as `column_of`."""
    column = column_of(values, value_type)
    if not value_type.is_floating:
        return key_array(column)
    return pc.if_else(pa.array(signed_zeros(values, column)), NEGATIVE_ZERO_KEY, key_array(column))


def signed_zeros(values: pa.Array | pa.ChunkedArray, column: Column) -> Flags:
    """Say which values are -0.0; `column` has their keys."""
    doubles = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    return np.asarray(np.signbit(doubles) & (column.int_keys == 0), np.bool_)


def arrow_of_keys(keys: pa.Array, value_type: ValueType, arrow_type: pa.DataType) -> pa.Array:
    """Return the Arrow values (`schema_to_pyarrow`) of keys, which are int64 or large_binary by domain."""
    if isinstance(arrow_type, pa.ExtensionType):
        return arrow_type.wrap_array(arrow_of_keys(keys, value_type, arrow_type.storage_type))
    if value_type.is_decimal:
        if value_type.domain == "bytes":
            return decimals_of_wide_keys(keys, arrow_type.precision, arrow_type.scale)
        return with_scale(keys.cast(pa.decimal128(19, 0)), arrow_type)
    if value_type.is_floating:
        nulls = pc.is_null(keys).to_numpy(zero_copy_only=False)
        filled = np.asarray(pc.fill_null(keys, 0).to_numpy(zero_copy_only=False), np.int64)
        return pa.array(floats_of_keys(filled), mask=nulls).cast(arrow_type)
    match value_type.name:
        case "boolean":
            return pc.not_equal(keys, 0)
        case "int" | "date":
            return keys.cast(pa.int32()).cast(arrow_type)
        case _ if value_type.domain == "int64":
            return keys.cast(arrow_type)
        case "string":
            # The bytes of data files may be no UTF-8, which a cast would refuse.
            return pa.Array.from_buffers(
                pa.large_string(), len(keys), keys.buffers(), keys.null_count, keys.offset
            ).cast(arrow_type)
        case _ if value_type.fixed_length is not None:
            return keys.cast(pa.binary()).cast(arrow_type)
        case _:
            return keys.cast(arrow_type)


def with_scale(unscaled: pa.Decimal128Array, decimal_type: pa.Decimal128Type) -> pa.Decimal128Array:
    """Return unscaled numbers as decimals, or raise ArrowInvalid if a number has more digits than the type."""
    exact = unscaled.cast(pa.decimal128(decimal_type.precision, 0))
    return pa.Array.from_buffers(decimal_type, len(exact), exact.buffers(), exact.null_count, exact.offset)
