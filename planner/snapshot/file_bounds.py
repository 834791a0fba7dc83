"""What manifests say of data files: partition values, and the bounds and counts of columns. No index is needed."""

from collections.abc import Sequence
from datetime import date
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform, Transform, TruncateTransform

from planner.clock import Clock
from planner.condition.tree.nodes import Predicate
from planner.condition.tree.partitions import partition_tests, partition_type
from planner.condition.tree.tree import PredicateTree
from planner.prune.zone_map import JoinedVerdicts, Verdicts, judge_by_zone_map
from planner.view.directories import FieldStatistics
from puffin_index.errors import UnsupportedError
from puffin_index.keys.columns import KeyArray
from puffin_index.keys.leaf import Key, LeafTest, NullTest
from puffin_index.keys.value_types import NAN_KEY, ValueType, float_keys, value_type_named
from puffin_index.keys.values import key_of, unscaled_of, wide_decimal_key
from puffin_index.storage.arrays import Flags

_EPOCH: Final = date(1970, 1, 1).toordinal()
_FORMS: Final = {"int": ("<i4",), "date": ("<i4",), "long": ("<i4", "<i8"), "float": ("<f4",), "double": ("<f4", "<f8")}
"""How bounds are stored; those of a promoted column as those of its old type. Other types have `<i8`."""
_REPLACED: Final = (b"\xef\xbf\xbd", b"\xef\xbf\xbe")
"""What writers put into a bound or a partition value for bytes that are no text; with 1 added, in an upper bound."""


def may_match(table: Table, schema: Schema, files: Sequence[DataFile], predicate: Predicate, clock: Clock) -> Flags:
    """Say which data files may have a row that satisfies a predicate, as far as the time allows; others may."""
    tree = PredicateTree(predicate)
    verdicts = JoinedVerdicts(tree, len(files))
    manifests = _Manifests(table, schema, files)
    for number, leaf in enumerate(tree.leaves):
        if clock.is_over:
            break
        if isinstance(leaf.field_id, int):
            possible = manifests.may_match(leaf.field_id, leaf.test, value_type_named(leaf.value_type))
            verdicts.put(number, Verdicts(possible, np.zeros(len(files), np.bool_)))
    return verdicts.root.possible


class _Manifests:
    def __init__(self, table: Table, schema: Schema, files: Sequence[DataFile]) -> None:
        self._schema, self._files, self._specs = schema, files, table.specs()
        self._nested = schema.field_ids - {field.field_id for field in schema.fields}
        self._of_columns: dict[tuple[int, bool], FieldStatistics] = {}
        self._of_partitions: dict[tuple[int, int], FieldStatistics] = {}
        self._of_spec: dict[int, list[int]] = {}
        for number, file in enumerate(files):
            self._of_spec.setdefault(file.spec_id, []).append(number)

    def may_match(self, field_id: int, test: LeafTest, value_type: ValueType) -> Flags:
        key = field_id, isinstance(test, NullTest)
        if key not in self._of_columns:
            self._of_columns[key] = self._column(field_id, value_type, only_counts=key[1])
        possible = _possible(test, self._of_columns[key])
        for spec_id, numbers in self._of_spec.items():
            for position, field in enumerate(self._specs[spec_id].fields if spec_id in self._specs else ()):
                result = partition_type(field.transform, value_type) if field.source_id == field_id else None
                if result is None:
                    continue
                tests = partition_tests(test, field.transform, value_type, self._schema.find_type(field_id))
                if not tests:
                    continue
                if (spec_id, position) not in self._of_partitions:
                    values = [self._files[number].partition[position] for number in numbers]
                    self._of_partitions[spec_id, position] = _partitions(values, result, field.transform)
                statistics = self._of_partitions[spec_id, position]
                by_partition = np.logical_or.reduce([_possible(projected, statistics) for projected in tests])
                if isinstance(field.transform, IdentityTransform):
                    # All rows have this value, whatever the file holds.
                    possible[numbers] = by_partition
                    break
                possible[numbers] &= by_partition
        return possible

    def _column(self, field_id: int, value_type: ValueType, *, only_counts: bool) -> FieldStatistics:
        files = self._files
        rows, nulls, nans = (
            np.array([(counts or {}).get(field_id, -1) for counts in every], np.int64)
            for every in (
                [file.value_counts for file in files],
                [file.null_value_counts for file in files],
                [file.nan_value_counts for file in files],
            )
        )
        is_counted = (rows >= 0) & (nulls >= 0)
        if field_id in self._nested:
            # ORC's own counts know nothing of the rows where the struct itself is NULL.
            is_counted &= np.array([file.file_format == FileFormat.PARQUET for file in files], np.bool_)
        least, is_low = _bounds([(file.lower_bounds or {}).get(field_id) for file in files], value_type)
        greatest, is_high = _bounds([(file.upper_bounds or {}).get(field_id) for file in files], value_type)
        known = is_low & is_high
        if isinstance(least, np.ndarray) and isinstance(greatest, np.ndarray) and value_type.is_floating:
            # Bounds leave NaN out, which is greater than all numbers.
            has_only_nans = is_counted & (nans == rows - nulls)
            known = (known & (least != NAN_KEY)) | has_only_nans
            least, greatest = np.where(has_only_nans, NAN_KEY, least), np.where(nans == 0, greatest, NAN_KEY)
        known = is_counted if only_counts else known | (is_counted & (rows == nulls))
        rows, nulls = np.where(is_counted, rows, 2), np.where(is_counted, nulls, 1)
        return FieldStatistics(value_type, known, rows, nulls, rows - nulls, least, greatest, None)


def _possible(test: LeafTest, statistics: FieldStatistics) -> Flags:
    return judge_by_zone_map(test, statistics, np.arange(len(statistics.known))).possible


def _partitions(values: Sequence[Any], result: ValueType, transform: Transform[Any, Any]) -> FieldStatistics:
    key_of_value = {value: None if value is None else _partition_key(value, result, transform) for value in set(values)}
    keys = _key_array([key_of_value[value] for value in values], result)
    nulls = np.array([value is None for value in values], np.int64)
    # `add_files` of PyIceberg makes NULL of a file without statistics, and its transforms of years that they lack.
    knows_null = isinstance(transform, IdentityTransform)
    known = np.array([knows_null if value is None else key_of_value[value] is not None for value in values], np.bool_)
    return FieldStatistics(result, known, np.ones(len(values), np.int64), nulls, 1 - nulls, keys, keys, None)


def _partition_key(value: object, result: ValueType, transform: Transform[Any, Any]) -> Key | None:
    """The key of a partition value; None where it cannot be trusted."""
    if isinstance(value, date) and isinstance(transform, DayTransform):
        value = value.toordinal() - _EPOCH
    try:
        key = key_of(value, result)
    except UnsupportedError:
        return None
    is_number = isinstance(key, int) or result.is_decimal
    # Java's numbers overflow where the least ones are truncated.
    if isinstance(transform, TruncateTransform) and is_number and unscaled_of(key) % transform.width:
        return None
    return None if isinstance(key, bytes) and _is_replaced(key, result) else key


def _bounds(stored: Sequence[bytes | None], value_type: ValueType) -> tuple[KeyArray, Flags]:
    if value_type.domain == "bytes" or value_type.is_decimal or value_type.name == "boolean":
        found = [None if bound is None else _bound_key(bound, value_type) for bound in stored]
        return _key_array(found, value_type), np.array([key is not None for key in found], np.bool_)
    keys, known = np.zeros(len(stored), np.int64), np.zeros(len(stored), np.bool_)
    lengths = np.array([0 if bound is None else len(bound) for bound in stored])
    for form in _FORMS.get(value_type.name, ("<i8",)):
        at = np.flatnonzero(lengths == np.dtype(form).itemsize)
        numbers = np.frombuffer(b"".join(stored[place] or b"" for place in at.tolist()), form)
        keys[at] = float_keys(numbers.astype(np.float64)) if value_type.is_floating else numbers
        known[at] = True
    return keys, known


def _bound_key(stored: bytes, value_type: ValueType) -> Key | None:
    if value_type.name == "boolean":
        return int(stored != b"\0")
    if value_type.is_decimal:
        unscaled = int.from_bytes(stored, "big", signed=True)
        return unscaled if value_type.domain == "int64" else wide_decimal_key(unscaled)
    # Java's writers took the least and greatest uuid by signed halves.
    return None if value_type.name == "uuid" or _is_replaced(stored, value_type) else stored


def _is_replaced(text: bytes, value_type: ValueType) -> bool:
    return value_type.name == "string" and any(character in text for character in _REPLACED)


def _key_array(keys: Sequence[Any], value_type: ValueType) -> KeyArray:
    if value_type.domain == "int64":
        return np.array([0 if key is None else key for key in keys], np.int64)
    return pa.array([b"" if key is None else key for key in keys], pa.large_binary())
