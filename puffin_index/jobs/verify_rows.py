"""Checking indexes against the data: a row group's values are read again, and no value may be missed.

Statistics must be equal. A bloom filter must have every key. Postings and merged bit slices are decoded and compared
key by key. Other bitmaps, merged or not, and bit slices of one row group are asked for sets of keys: for each bit of
the keys' ranks (from 1), those whose rank has it. If all answers are right, each row has the right key. Of more than
`PROVEN_KEYS` distinct keys so many are asked for like this, the rest by ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from cachetools import LRUCache
from pyroaring import BitMap

from puffin_index.data.row_groups import OpenDataFile, read_keys
from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.jobs.verify_segment import Finding
from puffin_index.keys.columns import Column, KeyArray, SortedColumn, plain_keys, sort_column
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.map_key import split_kind
from puffin_index.keys.values import value_type_named
from puffin_index.kinds.base import RowSet
from puffin_index.kinds.bloom.kind import BloomIndex, key_hashes
from puffin_index.kinds.bloom.matrix import BloomMatrix
from puffin_index.kinds.bloom.matrix_build import BloomBits, filters_of_matrix
from puffin_index.kinds.bsi.merged_slices import MergedSlices
from puffin_index.kinds.merged import MergedIndex
from puffin_index.kinds.postings.look_up import Postings
from puffin_index.kinds.postings.merged_bitmap import MergedBitmap
from puffin_index.kinds.registry import statistics_of
from puffin_index.roaring.read import row_set_of_ascending
from puffin_index.segments.directory import FieldKind, statistics_key
from puffin_index.segments.open_payload import open_payload
from puffin_index.segments.source_segment import IndexedFile, SourceSegment
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.ranged import RangedReader

PROVEN_KEYS = 4096
_RANGES = 16
_MOST_DECODED = 4

_Ask = Callable[[LeafTest], RowSet]
_Place = tuple[str, FieldKind, int]


class DecodedPayloads:
    """The payloads that were decoded last: the row groups of a segment are checked one after another."""

    def __init__(self) -> None:
        self._columns: LRUCache[_Place, list[Column]] = LRUCache(_MOST_DECODED)
        self._filters: LRUCache[_Place, list[BloomBits]] = LRUCache(_MOST_DECODED)

    def columns(self, location: str, key: FieldKind, row: int, index: MergedIndex) -> list[Column]:
        """The column of each row group that postings or merged bit slices cover."""
        place = location, key, row
        if place not in self._columns:
            self._columns[place] = index.columns()
        return self._columns[place]

    def filters(self, location: str, key: FieldKind, row: int, matrix: BloomMatrix) -> list[BloomBits]:
        """The bloom filter of each row group that a matrix covers."""
        place = location, key, row
        if place not in self._filters:
            self._filters[place] = filters_of_matrix(matrix)
        return self._filters[place]


def check_row_group(
    opened: OpenDataFile,
    file: IndexedFile,
    ordinal: int,
    key: FieldKind,
    source: SourceSegment,
    reader: RangedReader,
    decoded: DecodedPayloads,
) -> Iterator[Finding]:
    """Compare one index of one row group with the data.

    Args:
        opened: The data file.
        file: Where its indexes are.
        ordinal: The row group, from 0 in the data file.
        key: The index.
        source: The segment that has it.
        reader: Its bytes.
        decoded: Payloads that were decoded before.
    """
    name = f"field {key[0]} {key[1]}, row group {ordinal} of {file.file.path}"
    try:
        value_type = value_type_named(source.value_type(key))
        column = read_keys(opened, ordinal, split_kind(*key)[0], value_type)
        row_group = file.parts[key].first_row_group + ordinal
        wrong = [*_check_statistics(column, source, key, row_group)]
        wrong += _check_index(column, source, reader, key, row_group, decoded)
    except (CorruptFileError, UnsupportedError) as error:
        wrong = [error.reason if isinstance(error, CorruptFileError) else str(error)]
    for what in wrong:
        yield Finding(source.location, name, 0, what)


def _check_statistics(column: Column, source: SourceSegment, key: FieldKind, row_group: int) -> Iterator[str]:
    stored = source.directories[statistics_key(key)].slice(row_group, 1).to_pylist()[0]
    found = statistics_of(column)
    for name in ("row_count", "null_count", "nan_count", "distinct_count", "minimum", "maximum"):
        if stored[name] != getattr(found, name):
            yield f"{name} is {stored[name]!r}, the data has {getattr(found, name)!r}"


def _check_index(
    column: Column,
    source: SourceSegment,
    reader: RangedReader,
    key: FieldKind,
    row_group: int,
    decoded: DecodedPayloads,
) -> Iterator[str]:
    row = int(source.payload_rows[key][row_group])
    place = row_group - source.covered(key, row).start
    opened = open_payload(source, reader, key, row)
    match opened:
        case BloomIndex():
            if not opened.contains_all(sort_column(column).keys):
                yield "the bloom filter misses a value"
        case BloomMatrix():
            one = decoded.filters(source.location, key, row, opened)[place]
            if not one.contains_all(key_hashes(sort_column(column).keys, opened.form)):
                yield "the bloom filter misses a value"
        case MergedBitmap():
            base, row_count = source.spans[row_group].tolist()
            yield from check_tests(column, lambda test: _part_of(opened.rows(test), base, row_count))
        case Postings() | MergedSlices():
            yield from _compare_columns(decoded.columns(source.location, key, row, opened)[place], column)
        case _:
            yield from check_tests(column, opened.evaluate)


def _part_of(rows: BitMap, base: int, row_count: int) -> RowSet:
    """The rows of one row group, numbered from 0."""
    inside = rows & BitMap(range(base, base + row_count))
    return RowSet(inside.shift(-base), True)


def _compare_columns(stored: Column, column: Column) -> Iterator[str]:
    valid, stored_valid = _valid(column), _valid(stored)
    if not np.array_equal(valid, stored_valid):
        yield f"{np.count_nonzero(valid != stored_valid)} rows are NULL in the data or in the index, not in both"
    elif not _of_rows(stored, valid).equals(_of_rows(column, valid)):
        yield "rows of other keys than the data has"


def _valid(column: Column) -> Flags:
    return np.ones(column.row_count, np.bool_) if column.valid is None else column.valid


def _of_rows(column: Column, valid: Flags) -> pa.Array:
    """The keys of the rows that are not NULL, in the widest form that a column may have them in."""
    if isinstance(column.keys, np.ndarray):
        return pa.array(column.keys.astype(np.int64, copy=False)).filter(pa.array(valid))
    return plain_keys(column).filter(pa.array(valid))


def check_tests(column: Column, ask: _Ask) -> Iterator[str]:
    """Ask an index for sets and ranges of keys; say which answers are not those of the column."""
    ordered = sort_column(column)
    rows = ordered.rows  # before the keys: both are sorted at once
    codes = ordered.codes
    valid = _valid(column)
    assert len(rows) == column.valid_count
    for test, is_asked in _tests(ordered):
        truth = _row_set(valid & is_asked[codes] if ordered.distinct_count else np.zeros(column.row_count, np.bool_))
        yield from _compare(test, ask(test), truth)
    yield from _compare(NullTest(True), ask(NullTest(True)), _row_set(~valid))


def _tests(ordered: SortedColumn) -> Iterator[tuple[LeafTest, Flags]]:
    """Tests, and which of the distinct keys each asks for."""
    count = ordered.distinct_count
    chosen = np.unique(np.linspace(0, count - 1, min(count, PROVEN_KEYS)).astype(np.int64))
    for bit in range(len(chosen).bit_length()):
        places = chosen[(np.arange(1, len(chosen) + 1) >> bit) & 1 == 1]
        if len(places):
            yield SetTest(_keys(ordered.keys, places)), _flags(count, places)
    cuts = np.unique(np.linspace(0, count, _RANGES + 1).astype(np.int64)) if count else np.zeros(0, np.int64)
    for low, high in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        ends = _keys(ordered.keys, np.array([low, high - 1]))
        yield RangeTest(ends[0], ends[1]), _flags(count, np.arange(low, high))


def _keys(keys: KeyArray, places: Ints) -> tuple[int, ...] | tuple[bytes, ...]:
    return tuple(keys[places].tolist()) if isinstance(keys, np.ndarray) else tuple(keys.take(places).to_pylist())


def _flags(count: int, places: Ints) -> Flags:
    flags = np.zeros(count, np.bool_)
    flags[places] = True
    return flags


def _row_set(flags: Flags) -> BitMap:
    return row_set_of_ascending(np.flatnonzero(flags))


def _compare(test: LeafTest, answer: RowSet, truth: BitMap) -> Iterator[str]:
    missed = truth - answer.rows
    if missed:
        yield f"{_described(test)} misses {len(missed)} rows, the first is {missed.min()}"
    elif answer.exact and answer.rows != truth:
        yield f"{_described(test)} claims {len(answer.rows - truth)} rows that do not match"


def _described(test: LeafTest) -> str:
    match test:
        case SetTest(keys):
            return f"a test for {len(keys)} keys from {keys[0]!r} to {keys[-1]!r}"
        case RangeTest(low, high):
            return f"a test for keys from {low!r} to {high!r}"
        case NullTest():
            return "a test for NULL"
