"""Aggregates between Spark's JVM and the planner: the question of a request, and the answer (docs/hook-protocol.md)."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import UUIDType

from planner.aggregates.partial import SUM, group_name
from planner.aggregates.question import AskedColumn, Question
from planner.condition.spark.nodes import Column
from planner.condition.spark.read import found_column, text_of
from planner.query import QueryAnswer
from planner.spark.requests.wire import WantedAggregates, serialize_dropped, serialized_keys
from puffin_index.errors import UnsupportedError
from puffin_index.keys.columns import KeyArray
from puffin_index.keys.value_types import MAXIMUM_DECIMAL_PRECISION, ValueType, wide_decimal_keys
from puffin_index.roaring import row_set_of
from puffin_index.storage.binary import write_int32_be, write_int64_be

_INT64: Final = pa.decimal256(19, 0)
_LONG: Final = ValueType("long")
_DECIMAL: Final = ValueType(f"decimal({MAXIMUM_DECIMAL_PRECISION},0)")
_LONGS: Final = (-(2**63), 2**63 - 1)
EXACT_DOUBLES: Final = 2**53
_ANY_MAGNITUDE: Final = 10**MAXIMUM_DECIMAL_PRECISION
_NO_KEY: Final = b"\0" * 16


def question_of(wanted: WantedAggregates, schema: Schema) -> Question | None:
    """Return the question of a request; None if no index could answer."""
    try:
        columns = tuple(_asked(one.column, schema, one.sum, one.least, one.greatest) for one in wanted.columns)
        groups = tuple(_asked(column, schema) for column in wanted.groups)
    except UnsupportedError:
        return None
    question = Question((), columns, groups, wanted.added_doubles, wanted.text)
    return None if question.needs_data else question


def _asked(node: Column, schema: Schema, *needs: bool) -> AskedColumn:
    """Look up a column that is asked for, also for its sum, its least and its greatest value if these are needed."""
    found = found_column(node, schema)
    # Spark has text where the index has the bytes of UUIDs.
    if found is None or found.value_type is None or isinstance(found.type, UUIDType):
        raise UnsupportedError(f"no index has the values of {text_of(node)}")
    is_number = found.value_type.name in ("int", "long") or found.value_type.is_decimal
    if any(needs[:1]) and not is_number:
        raise UnsupportedError(f"no index adds up {text_of(node)}")
    return AskedColumn(found.column, text_of(node), found.type, found.value_type, *needs)


def serialize_answer(answer: QueryAnswer, wanted: WantedAggregates, note: str, milliseconds: int) -> bytes | None:
    """Serialise an answer; None without one, or if a sum could overflow or be rounded on the way: Spark adds up then.

    The note goes into the job's description; Spark's expressions of columns may be evaluated for some milliseconds.
    """
    if answer.aggregates is None:
        return None
    partial = answer.aggregates.partial
    groups, question = partial.groups.combine_chunks(), partial.question
    numbers = np.delete(answer.scan.numbers, answer.aggregates.unread)
    row_groups = row_set_of(numbers, answer.scan.view.row_group_count)
    dropped = serialize_dropped(row_groups, note, few_rows=answer.few.rows, first=b"G")
    parts = [dropped, write_int32_be(milliseconds), write_int32_be(len(groups))]
    for number, group in enumerate(question.groups):
        parts += _values(groups[group_name(number)], group.value_type)
    parts.append(_longs(groups["rows"]))
    for number, asked in enumerate(question.columns):
        parts.append(_longs(groups[f"values {number}"]))
        if asked.needs_sum:
            most = EXACT_DOUBLES if wanted.columns[number].double else _ANY_MAGNITUDE
            sums = _sums(groups[f"positive {number}"], groups[f"negative {number}"], asked.value_type, most)
            if sums is None:
                return None
            parts += sums
        for end in asked.ends:
            parts += _values(groups[f"{end} {number}"], asked.value_type)
    return b"".join(parts)


def _longs(numbers: pa.ChunkedArray) -> bytes:
    return bytes(numbers.to_numpy().astype(">i8").tobytes())


def _values(keys: pa.ChunkedArray, value_type: ValueType) -> tuple[bytes, ...]:
    valid = np.asarray(pc.is_valid(keys).to_numpy(), np.uint8).tobytes()
    return valid, *serialized_keys(_without_nulls(keys), value_type)


def _without_nulls(keys: pa.ChunkedArray) -> KeyArray:
    one = keys.combine_chunks()
    array = pa.concat_arrays(one.chunks) if isinstance(one, pa.ChunkedArray) else one
    if pa.types.is_integer(array.type):
        return np.asarray(pc.fill_null(array, 0).to_numpy(), np.int64)
    return pc.fill_null(array, pa.scalar(_NO_KEY, pa.large_binary()))


def _sums(
    positive: pa.ChunkedArray, negative: pa.ChunkedArray, value_type: ValueType, most_magnitude: int
) -> tuple[bytes, ...] | None:
    """Serialise sums. Each order of adding up must fit the type that Spark adds up in."""
    if value_type.is_decimal:
        most = 10 ** min(MAXIMUM_DECIMAL_PRECISION, value_type.decimal_precision + 10) - 1
        least = -most
    else:
        least, most = _LONGS
    if not len(positive):
        return *serialized_keys(np.zeros(0, np.int64), _LONG), write_int64_be(0)
    # Spark may join groups, such as those of a function of the column.
    gains, losses = int(pc.sum(positive).as_py()), int(pc.sum(negative).as_py())
    magnitude = gains - losses
    if gains > most or losses < least or magnitude > most_magnitude:
        return None
    sums = pc.add(positive, negative)
    ends = pc.min_max(sums).as_py()
    if _LONGS[0] <= ends["min"] and ends["max"] <= _LONGS[1]:
        listed = serialized_keys(sums.cast(SUM).cast(_INT64).cast(pa.int64()).to_numpy(), _LONG)
    else:
        wide = pa.concat_arrays(sums.cast(SUM).cast(pa.decimal128(MAXIMUM_DECIMAL_PRECISION, 0)).chunks)
        listed = serialized_keys(wide_decimal_keys(wide), _DECIMAL)
    return *listed, write_int64_be(min(magnitude, _LONGS[1]))
