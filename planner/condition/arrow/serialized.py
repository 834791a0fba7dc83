"""Arrow's expressions in the form in which they are pickled, the only one that has all functions, options and types.

It is a record batch in an IPC file. Literals and options of functions are its columns, and the metadata of its schema
is a list of instructions: `call`, `field_ref`, `nested_field_ref`, `literal`, `options`, `end`. (Substrait's form has
no function with options and no conversion that checks; an expression with one of these has no such form at all.)
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

_INT32 = ctypes.sizeof(ctypes.c_int32)

_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _Schema(ctypes.Structure):
    """The first members of `struct ArrowSchema` of Arrow's C data interface."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def serialized(expression: pc.Expression) -> tuple[list[tuple[str, str]], pa.RecordBatch]:
    """The instructions of an expression, each a kind and a value, and the batch of literals and options.

    Raises pa.ArrowException if Arrow has no such form, as for a field by its position; ValueError for another form.
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
