"""What crosses between Spark's JVM and the planner for a scan: requests, and answers (docs/hook-protocol.md).

Only the answers `D`, `O` and `G` take row groups out of a scan. Every other answer keeps all row groups, and so does
an answer that breaks the format.
"""

import logging
import zlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Base64Bytes, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pyroaring import BitMap

from planner.condition.as_sql import quoted
from planner.condition.spark import nodes
from planner.view.column_values import ColumnValues, KeyRange
from planner.view.index_view import IndexView
from puffin_index.keys.columns import KeyArray
from puffin_index.keys.sorted_keys import bytes_of_keys
from puffin_index.keys.value_types import ValueType, floats_of_keys
from puffin_index.kinds.base import RowSet
from puffin_index.storage.binary import write_float64_be, write_int32_be, write_int64_be, write_uint16_be

_log = logging.getLogger(__name__)

KEEP_ALL = b""
"""The answer that leaves a scan as it is."""

_NOTE_CHARACTERS = 1_000
_START_BYTES = 8


def _known_or_unknown(node: object, read: ValidatorFunctionWrapHandler) -> nodes.ConditionNode:
    try:
        condition: nodes.ConditionNode = read(node)
    except ValidationError as error:
        _log.warning("condition not understood, all its rows are kept: %s", error)
        return nodes.Unknown(node="unknown", name="unreadable")
    return condition


_Conditions: TypeAlias = tuple[Annotated[nodes.ConditionNode, WrapValidator(_known_or_unknown)], ...]


class RuntimeKeys(nodes.Message):
    """What is known of a column once the query runs; a row for which it does not hold is not needed.

    Attributes:
        type: The column's type in Spark, by Iceberg's name.
        operator: `=` for keys of the other side of a join; any other compares with the value of a scalar subquery.
        keys: What Spark sends as contents of literals; texts of a long list as bytes.
    """

    field: int
    name: str
    type: str
    operator: Literal["=", "<", "<=", ">", ">="]
    keys: Annotated[tuple[bool | int | str | bytes, ...], nodes.PACKED]
    source: Literal["join", "subquery", "join or subquery", "merge", "update", "delete"]

    def __str__(self) -> str:
        if self.operator == "=" and len(self.keys) != 1:
            return f"{self.name} in {len(self.keys)} keys"
        value = nodes.content_of(self.type, self.keys[0]) if self.keys else "NULL"
        text = quoted(value.decode(errors="replace")) if isinstance(value, bytes) else str(value)
        return f"{self.name} {self.operator} {text}"


class WantedOrder(nodes.Message):
    """The first column of an ORDER BY, by ID, name (for reports) and Spark's type (by Iceberg's name)."""

    field: int
    name: str
    type: str
    descending: bool
    nulls_first: bool

    def __str__(self) -> str:
        nulls = "first" if self.nulls_first else "last"
        return f"order by {self.name} {'desc' if self.descending else 'asc'} nulls {nulls}"


class Wanted(nodes.Message):
    """How many rows (with those that OFFSET skips) of the whole filter a query wants, in what order; None: any.

    `deleted` is a roaring bitmap of row groups of the view that may have deleted rows.
    """

    rows: int
    order: WantedOrder | None
    deleted: Base64Bytes

    def __str__(self) -> str:
        return f"{'any rows' if self.order is None else self.order} limit {self.rows}"


class AggregatedColumn(nodes.Message):
    """What a query wants of one column, for each group: the rows that are not NULL, and more.

    `double` says that Spark adds up in a double, which is exact up to 2^53 only.
    """

    column: nodes.Column
    sum: bool
    double: bool
    least: bool
    greatest: bool


class FileDeletes(nodes.Message):
    """Positional delete files and deletion vectors of one data file, and numbers of equality delete files.

    Each has location, size in bytes, listed rows and format.
    """

    first: int
    files: tuple[tuple[str, int, int, str], ...]
    equality: tuple[int, ...]


class EqualityFile(nodes.Message):
    """An equality delete file, and its columns by field id and Iceberg type, None if the table has lost the column."""

    file: tuple[str, int, int, str]
    columns: tuple[tuple[int, str | None], ...]


class WantedAggregates(nodes.Message):
    """What a query wants of all rows that satisfy the whole filter above the scan.

    `added_doubles` are places of groups that are added up as doubles; a declined answer was of no use.
    """

    columns: tuple[AggregatedColumn, ...]
    groups: tuple[nodes.Column, ...]
    added_doubles: tuple[int, ...]
    deletes: tuple[FileDeletes, ...]
    equality_deletes: tuple[EqualityFile, ...]
    text: str
    declined: bool


class Request(nodes.Message):
    """What `IndexPlanner.java` says of a scan; docs/hook-protocol.md describes each field."""

    table: str
    uuid: str
    snapshot: int | None
    filters: _Conditions
    conditions: _Conditions
    runtime_fields: dict[int, int | None]
    runtime_keys: tuple[RuntimeKeys, ...]
    wanted: Wanted | None
    aggregates: WantedAggregates | None
    sql: str | None
    columns: str
    name_mapping: str | None
    catalog: dict[str, str]
    settings: dict[str, str]
    session: str
    thread: int
    version: str
    unindexed: int
    unindexed_files: int

    @property
    def functions(self) -> tuple[nodes.Function, ...]:
        """The functions among the conditions."""
        found: list[nodes.Function] = []
        pending: list[nodes.ConditionNode] = list(self.conditions)
        while pending:
            match pending.pop():
                case nodes.Junction(parts=parts):
                    pending.extend(parts)
                case nodes.Negation(part=part):
                    pending.append(part)
                case nodes.Function() as function:
                    found.append(function)
                case _:
                    pass
        return tuple(sorted(found, key=lambda function: function.number))

    @property
    def asks_for_rows(self) -> bool:
        """Whether the request says anything of the rows that the query needs."""
        return bool(self.filters or self.conditions or self.runtime_keys or self.wanted)


def serialize_absence(seconds: float) -> bytes:
    """Serialise the answer for a table without an index, which holds for some seconds."""
    return b"A" + write_float64_be(seconds)


def serialize_view(view: IndexView) -> bytes:
    """Serialise the answer that hands over a view's numbering of row groups."""
    parts = [_short(view.version), write_int32_be(len(view.paths))]
    numbers = zip(
        view.paths,
        view.constants,
        view.file_sizes.tolist(),
        view.record_counts.tolist(),
        view.row_group_counts.tolist(),
        strict=True,
    )
    starts = view.range_starts.astype(">i8").tobytes()
    at = 0
    for path, constants, size, records, row_groups in numbers:
        encoded, fixed = path.encode(), constants.encode()
        parts += (
            write_int32_be(len(encoded)) + encoded,
            write_int32_be(len(fixed)) + fixed,
            write_int64_be(size),
            write_int64_be(records),
            write_int32_be(row_groups),
            starts[at : at + _START_BYTES * row_groups],
        )
        at += _START_BYTES * row_groups
    return b"V" + zlib.compress(b"".join(parts), 1)


ValueList: TypeAlias = tuple[ColumnValues | KeyRange, ValueType]
"""A list of values or a range of keys, and the type of the values."""


def serialize_values(lists: Sequence[ValueList], functions: Sequence[tuple[int, int]], milliseconds: int) -> bytes:
    """Serialise the answer that has functions evaluated, each by its number and the place of its list."""
    parts = [b"F", write_int32_be(milliseconds), write_uint16_be(len(lists))]
    for values, value_type in lists:
        parts += (_short(values.fingerprint), *_serialized_list(values, value_type))
    parts.append(write_uint16_be(len(functions)))
    parts += (write_uint16_be(number) + write_uint16_be(place) for number, place in functions)
    return b"".join(parts)


def _serialized_list(values: ColumnValues | KeyRange, value_type: ValueType) -> tuple[bytes, ...]:
    if isinstance(values, KeyRange):
        return b"I", write_int64_be(values.low), write_int64_be(values.high)
    listed = values.listed
    if isinstance(listed, KeyRange) and not value_type.is_floating:
        return b"R", write_int32_be(len(values)), write_int64_be(listed.low)
    return serialized_keys(values.keys, value_type)


def serialized_keys(keys: KeyArray, value_type: ValueType) -> tuple[bytes, ...]:
    """Serialise keys as a list of values of the form `N` or `B`."""
    count = write_int32_be(len(keys))
    if isinstance(keys, np.ndarray):
        numbers = floats_of_keys(keys).view(np.int64) if value_type.is_floating else keys
        return b"N", count, numbers.astype(">i8").tobytes()
    content, offsets = bytes_of_keys(keys)
    if value_type.is_decimal:
        # A key has the sign bit flipped, so that keys are in the order of the numbers.
        content = content.reshape(-1, 16) ^ np.array([0x80] + [0] * 15, np.uint8)
    return b"B", count, np.diff(offsets).astype(">i4").tobytes(), content.tobytes()


def serialize_dropped(
    dropped: BitMap,
    note: str = "",
    runtime_fields: Sequence[int] = (),
    few_rows: Mapping[int, RowSet] = MappingProxyType({}),
    *,
    first: bytes = b"D",
) -> bytes:
    """Serialise the answer that drops row groups of the request's view; all others are read.

    `note` goes into the job's description; `runtime_fields` are the columns whose keys the planner wants to know. Of
    the row groups in `few_rows`, only these rows need be read. The first byte is `O` if all data files go that the view
    does not list, and `G` if answers of aggregates follow.
    """
    parts = [first, serialized_note(note), write_uint16_be(len(runtime_fields)), *map(write_int32_be, runtime_fields)]
    parts += [dropped.serialize(), write_int32_be(len(few_rows))]
    for row_group, found in few_rows.items():
        rows = found.rows.serialize()
        parts += (write_int32_be(row_group), write_int32_be(len(rows)), rows)
    return b"".join(parts)


def serialized_note(note: str) -> bytes:
    """Serialise the beginning of a note: a query may have thousands of aggregates."""
    return _short(note[:_NOTE_CHARACTERS])


def _short(text: str) -> bytes:
    encoded = text.encode()
    return write_uint16_be(len(encoded)) + encoded
