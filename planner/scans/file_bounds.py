"""What manifests say of data files: partition values, and the bounds and counts of columns. No index is needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, Transform, TruncateTransform

from planner.clock import Clock
from planner.predicate.nodes import Predicate
from planner.predicate.partition_test import partition_tests, partition_type
from planner.predicate.tree import PredicateTree
from planner.prune.zone_map import JoinedVerdicts, Verdicts, judge_by_zone_map
from planner.view.directories import FieldStatistics
from puffin_index.errors import UnsupportedError
from puffin_index.keys.leaf import Key, LeafTest, NullTest
from puffin_index.keys.map_key import MapKey
from puffin_index.keys.value_types import ValueType, value_type_named
from puffin_index.keys.values import key_of, unscaled_of, wide_decimal_key
from puffin_index.storage.arrays import Flags

_EPOCH: Final = date(1970, 1, 1).toordinal()
_DOUBLE: Final = value_type_named("double")
_NAN: Final = key_of(math.nan, _DOUBLE)
_INT_BYTES: Final = {"int": (4,), "date": (4,), "long": (4, 8)}
_FLOATS: Final = {4: "<f4", 8: "<f8"}
_REPLACED: Final = (b"\xef\xbf\xbd", b"\xef\xbf\xbe")
"""What writers put into a bound or a partition value for bytes that are no text; with 1 added, in an upper bound."""


def may_match(table: Table, schema: Schema, files: Sequence[DataFile], predicate: Predicate, clock: Clock) -> Flags:
    """Say which data files may have a row that satisfies a predicate, as far as manifests tell.

    Args:
        table: The table of the files.
        schema: The schema that the predicate is bound to.
        files: Entries of manifests.
        predicate: What to look for.
        clock: Says when the time is over; leaves that are untested by then are taken to match.
    """
    tree = PredicateTree(predicate)
    verdicts = JoinedVerdicts(tree, len(files))
    manifests = _Manifests(table, schema, files)
    for number, leaf in enumerate(tree.leaves):
        if clock.is_over:
            break
        if not isinstance(leaf.field_id, MapKey):
            possible = manifests.may_match(leaf.field_id, leaf.test, value_type_named(leaf.value_type))
            verdicts.put(number, Verdicts(possible, np.zeros(len(files), np.bool_)))
    return verdicts.root.possible


class _Known(NamedTuple):
    """What is known of a column in one file. Without bounds, there are no values, or only the counts matter."""

    rows: int
    nulls: int
    bounds: tuple[Key, Key] | None = None


class _Manifests:
    def __init__(self, table: Table, schema: Schema, files: Sequence[DataFile]) -> None:
        self._schema, self._files, self._specs = schema, files, table.specs()
        self._nested = schema.field_ids - {field.field_id for field in schema.fields}
        self._statistics: dict[tuple[int, bool], FieldStatistics] = {}
        self._of_spec: dict[int, list[int]] = {}
        for number, file in enumerate(files):
            self._of_spec.setdefault(file.spec_id, []).append(number)

    def may_match(self, field_id: int, test: LeafTest, value_type: ValueType) -> Flags:
        is_null_test = isinstance(test, NullTest)
        if (field_id, is_null_test) not in self._statistics:
            known = [
                self._counts(file, field_id) if is_null_test else self._values(file, field_id, value_type)
                for file in self._files
            ]
            self._statistics[field_id, is_null_test] = _statistics(known, value_type)
        possible = _possible(test, self._statistics[field_id, is_null_test])
        for spec_id, numbers in self._of_spec.items():
            for position, field in enumerate(self._specs[spec_id].fields if spec_id in self._specs else ()):
                result = partition_type(field.transform, value_type) if field.source_id == field_id else None
                if result is None:
                    continue
                values = [self._files[number].partition[position] for number in numbers]
                known = [_partition_value(value, result, field.transform) for value in values]
                statistics = _statistics(known, result)
                tests = partition_tests(test, field.transform, value_type, self._schema.find_type(field_id))
                possible[numbers] &= np.logical_or.reduce([_possible(projected, statistics) for projected in tests])
        return possible

    def _counts(self, file: DataFile, field_id: int) -> _Known | None:
        rows, nulls = (file.value_counts or {}).get(field_id), (file.null_value_counts or {}).get(field_id)
        if rows is None or nulls is None:
            return None
        # ORC's own counts know nothing of the rows where the struct itself is NULL.
        return None if field_id in self._nested and file.file_format != FileFormat.PARQUET else _Known(rows, nulls)

    def _values(self, file: DataFile, field_id: int, value_type: ValueType) -> _Known | None:
        counts = self._counts(file, field_id)
        if counts is not None and counts.rows == counts.nulls:
            return counts
        low, high = ((bounds or {}).get(field_id) for bounds in (file.lower_bounds, file.upper_bounds))
        nans = (file.nan_value_counts or {}).get(field_id)
        keys = None if low is None or high is None else (_bound_key(low, value_type), _bound_key(high, value_type))
        if value_type.is_floating and counts is not None and nans == counts.rows - counts.nulls:
            keys = (_NAN, _NAN)
        if keys is None or keys[0] is None or keys[1] is None or (keys[0] == _NAN and nans is None):
            return None
        # Bounds leave NaN out, which is greater than all numbers.
        least, greatest = keys[0], _NAN if value_type.is_floating and nans != 0 else keys[1]
        return _Known(2, 1, (least, greatest)) if counts is None else _Known(*counts[:2], (least, greatest))


def _possible(test: LeafTest, statistics: FieldStatistics) -> Flags:
    return judge_by_zone_map(test, statistics, np.arange(len(statistics.known))).possible


def _statistics(known: Sequence[_Known | None], value_type: ValueType) -> FieldStatistics:
    """What is known of each file, in the form of zone maps."""
    rows, nulls = (np.array([0 if file is None else file[part] for file in known], np.int64) for part in range(2))
    lowest: Key = 0 if value_type.domain == "int64" else b""
    ends = [(lowest, lowest) if file is None or file.bounds is None else file.bounds for file in known]
    least, greatest = (
        np.array([end[side] for end in ends], np.int64)
        if value_type.domain == "int64"
        else pa.array([end[side] for end in ends], pa.large_binary())
        for side in range(2)
    )
    is_known = np.array([file is not None for file in known], np.bool_)
    return FieldStatistics(value_type, is_known, rows, nulls, rows - nulls, least, greatest, None)


def _partition_value(value: object, result: ValueType, transform: Transform[Any, Any]) -> _Known | None:
    if value is None:
        return _Known(1, 1)
    if isinstance(value, date) and isinstance(transform, DayTransform):
        value = value.toordinal() - _EPOCH
    try:
        key = key_of(value, result)
    except UnsupportedError:
        return None
    is_text = isinstance(key, bytes) and not result.is_decimal
    # Java's numbers overflow where the least ones are truncated.
    if isinstance(transform, TruncateTransform) and not is_text and unscaled_of(key) % transform.width:
        return None
    return None if isinstance(key, bytes) and _is_replaced(key, result) else _Known(1, 0, (key, key))


def _bound_key(stored: bytes, value_type: ValueType) -> Key | None:
    """The key of a bound; None where the bound cannot be trusted."""
    match value_type.name:
        case "boolean":
            return int(stored != b"\0")
        case "float" | "double":
            form = _FLOATS.get(len(stored))
            return None if form is None else key_of(float(np.frombuffer(stored, form)[0]), _DOUBLE)
        case "string" | "binary":
            return None if _is_replaced(stored, value_type) else stored
        case "uuid":
            return None  # Java's writers took the least and greatest by signed halves
        case _ if value_type.is_decimal:
            unscaled = int.from_bytes(stored, "big", signed=True)
            return unscaled if value_type.domain == "int64" else wide_decimal_key(unscaled)
        case _ if value_type.domain == "bytes":
            return stored
        case name:
            return int.from_bytes(stored, "little", signed=True) if len(stored) in _INT_BYTES.get(name, (8,)) else None


def _is_replaced(text: bytes, value_type: ValueType) -> bool:
    return value_type.name == "string" and any(character in text for character in _REPLACED)
