"""Arrow's expressions, read as conditions with Arrow's meaning.

Arrow compares floats as IEEE 754 does: NaN equals nothing and is neither less nor greater than a number. In the order
of keys NaN is the greatest, so a test of numbers above a bound ends before NaN. Where Arrow would convert a column, or
round the literal, the part is unknown, and Arrow's own filter has to follow.
"""

import ctypes
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal as TypingLiteral, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as arrow_types
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, IcebergType, NestedField, StructType

from planner.condition.columns import FoundColumn, column_of_field
from planner.condition.comparisons import as_condition, call as not_evaluated, nan_test, null_test, prefix_test
from planner.condition.literals import Literal, text_literal
from planner.condition.places import Operator, Pair, nan_tests, range_tests, set_tests
from planner.condition.tree.nodes import NO_ROW, UNKNOWN, Predicate, flattened, is_exact, joined
from planner.condition.truth import ALWAYS_FALSE, ALWAYS_NULL, ALWAYS_TRUE, Truth, join, unknown
from puffin_index.errors import UnsupportedError
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import RangeTest, SetTest
from puffin_index.keys.value_types import NAN_KEY, ValueType

_log = logging.getLogger(__name__)

Comparison: TypeAlias = Operator | TypingLiteral["=", "<>"]

_COMPARISONS: Final[dict[str, tuple[Comparison, Comparison]]] = {
    "equal": ("=", "="),
    "not_equal": ("<>", "<>"),
    "less": ("<", ">"),
    "less_equal": ("<=", ">="),
    "greater": (">", "<"),
    "greater_equal": (">=", "<="),
}
"""Comparisons, and what they become when their sides are exchanged."""

_NANOSECONDS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_NULL_MATCHES, _NULL_IS_SKIPPED = 0, 1
"""How `is_in` takes NULL: as a value like others, or as one that is in no list. It is then never NULL itself."""

_Operand: TypeAlias = FoundColumn | Truth | pa.Scalar


@dataclass(frozen=True, slots=True)
class ReadExpression:
    """An expression as text, a condition that holds at least where it does, and names of columns (None: not known)."""

    predicate: Predicate
    text: str
    columns: frozenset[str] | None

    @property
    def exact(self) -> bool:
        """Whether the condition is true for exactly the rows for which the expression is."""
        return is_exact(self.predicate)


@dataclass(slots=True)
class _Call:
    function: str
    operands: list[_Operand] = field(default_factory=list)
    options: pa.StructScalar | None = None


def read_expression(expression: pc.Expression, schema: Schema) -> ReadExpression:
    """Read an expression of Arrow's on rows of a schema. What is not understood is unknown."""
    text, names = str(expression), set[str]()
    try:
        instructions, values = _serialized(expression)
        value = _evaluated(iter(instructions), values, schema, names)
    except (pa.ArrowException, ValueError, LookupError, StopIteration) as error:
        _log.debug("expression not understood, all its rows are kept: %s (%s)", text, error)
        return ReadExpression(unknown(text).yes, text, None)
    return ReadExpression(flattened(_truth(value, text).yes), text, frozenset(names))


_INT32 = ctypes.sizeof(ctypes.c_int32)

_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _Schema(ctypes.Structure):
    """The first members of `struct ArrowSchema` of Arrow's C data interface."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def _serialized(expression: pc.Expression) -> tuple[list[tuple[str, str]], pa.RecordBatch]:
    """The instructions of an expression, each a kind and a value, and the batch of literals and options.

    They are in the form in which expressions are pickled, the only one that has all functions, options and types: a
    record batch in an IPC file, whose metadata is a list of `call`, `field_ref`, `nested_field_ref`, `literal`,
    `options` and `end`. Raises pa.ArrowException if Arrow has no such form, ValueError for another one.
    """
    _, arguments = expression.__reduce__()
    batch = pa.ipc.open_file(arguments[0]).get_batch(0)
    return list(_metadata(batch.schema)), batch


def _metadata(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """The metadata of a schema in their order. `Schema.metadata` is a dict, and kinds of instructions come often."""
    capsule = schema.__arrow_c_schema__()
    place = _Schema.from_address(_pointer_of(capsule, b"arrow_schema")).metadata
    if place is None:
        return

    def number() -> int:
        nonlocal place
        place += _INT32
        return ctypes.c_int32.from_address(place - _INT32).value

    def text() -> str:
        nonlocal place
        length = number()
        place += length
        return ctypes.string_at(place - length, length).decode()

    for _ in range(number()):
        yield text(), text()


def _evaluated(
    instructions: Iterator[tuple[str, str]], values: pa.RecordBatch, schema: Schema, names: set[str]
) -> _Operand:
    """What the instructions give, without recursion: engines write a list of values as OR within OR within OR."""
    calls = [_Call("")]
    for kind, content in instructions:
        operand: _Operand
        match kind:
            case "call":
                calls.append(_Call(content))
                continue
            case "options":
                calls[-1].options = values.column(int(content))[0]
                continue
            case "literal":
                operand = values.column(int(content))[0]
            case "field_ref":
                operand = _column([content], schema, names)
            case "nested_field_ref":
                operand = _column([next(instructions)[1] for _ in range(int(content))], schema, names)
            case "end":
                operand = _called(calls.pop())
            case _:
                raise ValueError(f"an instruction {kind!r}")
        calls[-1].operands.append(operand)
    ((value,),) = [call.operands for call in calls]
    return value


def _column(path: Sequence[str], schema: Schema, names: set[str]) -> FoundColumn | Truth:
    names.add(path[0])
    kind: IcebergType = schema.as_struct()
    found: NestedField | None = None
    for name in path:
        fields = kind.fields if isinstance(kind, StructType) else ()
        found = next((one for one in fields if one.name == name), None)
        if found is None:
            return unknown(".".join(path))
        kind = found.field_type
    return unknown("") if found is None else column_of_field(found, ".".join(path))


def _called(call: _Call) -> Truth:
    text = f"{call.function}(...)"
    match call.function, call.operands:
        case "and_kleene" | "or_kleene", [_, *_] as parts:
            return join([_truth(part, text) for part in parts], conjunctive=call.function == "and_kleene")
        case "invert", [part]:
            return ~_truth(part, text)
        case "if_else", [test, then, otherwise]:
            return _chosen(*(_truth(part, text) for part in (test, then, otherwise)))
        case "is_valid", [FoundColumn() as column]:
            return ~null_test(column, text)
        case "is_null", [FoundColumn() as column]:
            is_null = null_test(column, text)
            is_nan = call.options is not None and call.options["nan_is_null"].as_py() and _is_floating(column)
            return join([is_null, nan_test(column, text)], conjunctive=False) if is_nan else is_null
        case "is_nan", [FoundColumn() as column] if _is_floating(column):
            return column.truth(nan_tests, text)
        case "is_in", [FoundColumn() as column] if call.options is not None:
            return _is_in(column, call.options, text)
        case "starts_with", [FoundColumn() as column] if call.options is not None:
            pattern = text_literal(call.options["pattern"].as_py())
            return unknown(text) if call.options["ignore_case"].as_py() else prefix_test(column, pattern, text)
        case function, [FoundColumn() as column, pa.Scalar() as value] if function in _COMPARISONS:
            return _compared(column, _COMPARISONS[function][0], value)
        case function, [pa.Scalar() as value, FoundColumn() as column] if function in _COMPARISONS:
            return _compared(column, _COMPARISONS[function][1], value)
        case _:
            return unknown(text, not_evaluated(call.function).reason)


def _truth(value: _Operand, text: str) -> Truth:
    if not isinstance(value, pa.Scalar):
        return as_condition(value, text) or unknown(text)
    content = value.as_py()
    if content is None:
        return ALWAYS_NULL
    return unknown(text) if not isinstance(content, bool) else ALWAYS_TRUE if content else ALWAYS_FALSE


def _chosen(test: Truth, then: Truth, otherwise: Truth) -> Truth:
    """Make `if_else`, which is NULL where the test is."""

    def either(one: Predicate, other: Predicate) -> Predicate:
        return joined([joined([test.yes, one], is_and=True), joined([test.no, other], is_and=True)], is_and=False)

    return Truth(either(then.yes, otherwise.yes), either(then.no, otherwise.no), UNKNOWN)


def _is_floating(column: FoundColumn) -> bool:
    return column.value_type is not None and column.value_type.is_floating


def _compared(column: FoundColumn, operator: Comparison, value: pa.Scalar) -> Truth:
    if not value.is_valid:
        return ALWAYS_NULL
    if operator == "<>":
        return ~_compared(column, "=", value)
    # `pc.scalar` writes a value as Arrow does: Python has no day after the year 9999, and no text for such a scalar.
    text = f"{column.name} {operator} {pc.scalar(value)}"
    literal = None if column.value_type is None else _literal(value, column.value_type)
    if literal is None:
        return unknown(text, "Arrow converts one side first")

    def tests(value_type: ValueType) -> Pair | None:
        if value_type.is_floating and math.isnan(literal.value):
            return SetTest(()), SetTest((), negated=True)
        pair = set_tests([literal], value_type) if operator == "=" else range_tests(operator, literal, value_type)
        return _without_nan(pair) if pair is not None and value_type.is_floating else pair

    return column.truth(tests, text)


def _without_nan(pair: Pair) -> Pair:
    """A test of floats of which NaN satisfies only the opposite."""
    if not isinstance(pair[0], RangeTest) or pair[0].high is not None:
        return pair
    numbers = replace(pair[0], high=NAN_KEY, high_inclusive=False)
    return numbers, replace(numbers, negated=True)


def _literal(value: pa.Scalar, value_type: ValueType) -> Literal | None:
    """A literal that compares with a column as Arrow compares the value; None if Arrow would convert or round first."""
    literal, own = literal_of(value), value_type.name
    match literal:
        case Literal("long" | "decimal") if own in ("int", "long") or value_type.is_decimal:
            return literal
        case Literal("long", number) if value_type.is_floating:
            most = 2**24 if own == "float" else 2**53
            return Literal("double", float(number)) if abs(number) <= most else None
        case Literal("double") if value_type.is_floating:
            return literal
        case Literal("binary") if own.startswith("fixed"):
            return literal
        case Literal(kind) if kind == own:
            return literal
        case _:
            return None


def literal_of(value: pa.Scalar) -> Literal | None:
    """A value as a literal of its own type; None if there is none of that type, or it has nanoseconds."""
    kind = value.type
    if arrow_types.is_boolean(kind):
        return Literal("boolean", value.as_py())
    if arrow_types.is_integer(kind):
        return Literal("long", value.as_py())
    if arrow_types.is_decimal(kind):
        return Literal("decimal", value.as_py())
    if arrow_types.is_floating(kind):
        return Literal("double", value.as_py())
    if _is_text(kind):
        return Literal("string", value.as_buffer().to_pybytes())
    if _is_bytes(kind):
        return Literal("binary", value.as_buffer().to_pybytes())
    if arrow_types.is_date(kind):
        return Literal("date", value.cast(pa.date32()).value)
    if arrow_types.is_time(kind) or arrow_types.is_timestamp(kind):
        micros, rest = divmod(value.value * _NANOSECONDS[kind.unit], _NANOSECONDS["us"])
        zoned = "time" if arrow_types.is_time(kind) else "timestamp" if kind.tz is None else "timestamptz"
        return None if rest else Literal(zoned, micros)
    return None


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _is_bytes(kind: pa.DataType) -> bool:
    return kind in (pa.binary(), pa.large_binary()) or bool(arrow_types.is_fixed_size_binary(kind))


def _is_in(column: FoundColumn, options: pa.StructScalar, text: str) -> Truth:
    values, value_type = options["value_set"].values, column.value_type
    if options["null_matching_behavior"].as_py() not in (_NULL_MATCHES, _NULL_IS_SKIPPED) or value_type is None:
        return unknown(text)
    keys = _keys(values.drop_null(), column.type, value_type)
    if keys is None:
        return unknown(text, "Arrow converts the list first")
    truth = Truth(column.leaf(SetTest(keys)), column.leaf(SetTest(keys, negated=True)), column.is_null)
    if values.null_count and options["null_matching_behavior"].as_py() == _NULL_MATCHES:
        return Truth(joined([truth.yes, truth.null], is_and=False), truth.no, NO_ROW)
    return truth.or_false()


def _keys(
    values: pa.Array, column_type: IcebergType, value_type: ValueType
) -> tuple[int, ...] | tuple[bytes, ...] | None:
    """The keys of a list; None where they do not say which rows have one of the values."""
    kind, own = values.type, schema_to_pyarrow(column_type, include_field_ids=False)
    is_same = (
        kind == own
        or (arrow_types.is_integer(kind) and arrow_types.is_integer(own))
        or (_is_text(kind) and _is_text(own))
        or (_is_bytes(kind) and isinstance(column_type, BinaryType))
        or (arrow_types.is_decimal128(kind) and arrow_types.is_decimal128(own) and kind.scale == own.scale)
    )
    if is_same and arrow_types.is_floating(kind):
        # Arrow tells both zeros apart here, and keys do not.
        is_same = not pc.any(pc.equal(values, 0.0), min_count=0).as_py()
    if not is_same:
        return None
    try:
        return tuple(SortedColumn(column_of(values, value_type)).keys.tolist())
    except UnsupportedError:
        return None
