"""Keys that rows must have, such as those of the other side of a join, as Arrow and other libraries hold them."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyiceberg.schema import Schema

from planner.condition.arrow.read import literal_of
from planner.condition.columns import FoundColumn, find_column
from planner.condition.comparisons import nan_test
from planner.condition.implied import Implied
from planner.condition.tree.nodes import NO_ROW, Predicate, joined
from planner.condition.tree.simplify import among_keys
from planner.condition.truth import unknown
from puffin_index.errors import PuffinIndexError, UnsupportedError
from puffin_index.keys.arrow_keys import column_of, key_array
from puffin_index.keys.columns import Column as KeyColumn
from puffin_index.keys.value_types import ValueType

Keys: TypeAlias = Mapping[str, Any]
"""Values by column name: Arrow arrays, numpy arrays or lists."""

_WITHOUT_VIEWS: Final = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""Arrow's functions do not take views of strings yet."""


class KeysError(PuffinIndexError, ValueError):
    """Say that keys are of no column, no lists of values, or lists of different lengths."""


def with_keys(condition: Predicate, keys: Keys, schema: Schema) -> tuple[Predicate, list[Implied]]:
    """A condition that also says which keys are wanted, and what they imply."""
    columns = {name: find_column(schema, name) for name in keys}
    arrays = {name: arrow_array(name, values) for name, values in keys.items()}
    tests = [_one_of(columns[name], array) for name, array in arrays.items()]
    implied = [Implied("keys", f"{name} in {len(array)} keys") for name, array in arrays.items()]
    return joined([condition, *tests], is_and=True), implied


def _one_of(found: FoundColumn, array: pa.Array | pa.ChunkedArray) -> Predicate:
    """The condition that a column has one of some values. NULL equals nothing, and NaN equals NaN, as in a join."""
    if found.value_type is not None:
        with suppress(UnsupportedError):
            return among_keys(found.column, keys_of_kind(array, found.value_type), len(array))
    members = array.drop_null()
    text = f"{found.name} IN ({len(members)} keys)"
    literals = [literal_of(value) for value in members]
    known = [one for one in literals if one is not None]
    if len(known) < len(literals):
        return unknown(text).yes
    numbers = [one for one in known if one.value == one.value]
    test = found.compared("IN", numbers, text).yes if numbers else NO_ROW
    return test if len(numbers) == len(members) else joined([test, nan_test(found, text).yes], is_and=False)


def arrow_array(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    """The keys of a column in Arrow, without dictionary coding and views, or raise KeysError if they are no list."""
    if isinstance(values, str | bytes):
        raise KeysError(f"keys of {name}: {values!r} is one value, and not a list of values")
    try:
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    except (TypeError, OverflowError, pa.ArrowException) as error:
        raise KeysError(f"keys of {name}: {error}") from error
    coded = array.type
    plain = coded.value_type if pa.types.is_dictionary(coded) else coded
    plain = _WITHOUT_VIEWS.get(plain, plain)
    return array if plain == coded else array.cast(plain)


def keys_of_kind(array: pa.Array | pa.ChunkedArray, value_type: ValueType) -> KeyColumn:
    """The keys of values for a column of a type, or raise UnsupportedError if the values are of another kind."""
    found, name = array.type, value_type.name
    # A data file may store text as bytes and an instant without a zone; of keys, the types say what is meant.
    is_other = (pa.types.is_timestamp(found) and (found.tz is not None) != name.startswith("timestamptz")) or (
        name == "string" and "binary" in str(found)
    )
    if is_other:
        raise UnsupportedError(f"a {name} column cannot hold Arrow {found} values")
    if pa.types.is_decimal(found) and value_type.is_decimal:
        try:
            array = array.cast(pa.decimal128(value_type.decimal_precision, value_type.decimal_scale))
        except pa.ArrowInvalid as error:
            raise UnsupportedError(f"a {name} column cannot hold a key: {error}") from error
    return column_of(array, value_type)


def arrays_of(keys: Keys) -> dict[str, pa.Array]:
    """Return the values of keys as Arrow arrays of one length, of one or more columns; raise KeysError otherwise."""
    arrays = {name: arrow_array(name, values) for name, values in keys.items()}
    if len({len(array) for array in arrays.values()}) != 1:
        lengths = ", ".join(f"{name} has {len(array)}" for name, array in arrays.items())
        raise KeysError(f"keys are values of one or more columns, equally many of each: {lengths or 'no column'}")
    return arrays


def asked_keys(name: str, values: pa.Array, value_type: ValueType) -> pa.Array:
    """Return values that are looked for in a column as keys; raise UnsupportedError if they are of another kind."""
    try:
        return key_array(keys_of_kind(values, value_type))
    except UnsupportedError as error:
        raise UnsupportedError(f"keys of {name}: {error}") from error
