"""Parquet files with footers as other writers make them: the footer of a real file, changed field by field."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from puffin_index.data import thrift_compact as thrift

_TAIL_BYTES = 8
"""Length of the footer, and magic."""

Struct = dict[int, tuple[int, Any]]
"""Type and value of each field, by field id.

A list is a pair of the type of its elements and the elements; integers are numbers, all other values bytes.
"""


def edit_footer(path: Path, change: Callable[[Struct], None]) -> None:
    """Change the footer of a Parquet file in place; the pages stay where they are."""
    data = path.read_bytes()
    begin = len(data) - _TAIL_BYTES - int.from_bytes(data[-_TAIL_BYTES:-4], "little")
    footer = _read_struct(thrift.CompactReader(data, begin))
    change(footer)
    written = struct_bytes(footer)
    path.write_bytes(data[:begin] + written + len(written).to_bytes(4, "little") + b"PAR1")


def row_groups(footer: Struct) -> list[Struct]:
    groups: list[Struct] = footer[4][1][1]
    return groups


def columns(row_group: Struct) -> list[Struct]:
    chunks: list[Struct] = row_group[1][1][1]
    return chunks


def metadata(column: Struct) -> Struct:
    own: Struct = column[3][1]
    return own


def first_byte(row_group: Struct) -> int:
    """Where the first column of a row group begins, if it has no dictionary."""
    return int(metadata(columns(row_group)[0])[9][1])


def _read_struct(reader: thrift.CompactReader) -> Struct:
    return {number: (kind, _read_value(reader, kind)) for number, kind in reader.fields()}


def _read_value(reader: thrift.CompactReader, kind: int) -> Any:
    if kind in thrift.INTEGERS:
        return reader.integer()
    if kind == thrift.STRUCT:
        return _read_struct(reader)
    if kind != thrift.LIST:
        return reader.raw(kind)
    length, inner = reader.list_header()
    return inner, [_read_value(reader, _in_list(inner)) for _ in range(length)]


def struct_bytes(fields: Struct) -> bytes:
    return thrift.struct_bytes({number: (kind, _value_bytes(kind, value)) for number, (kind, value) in fields.items()})


def _value_bytes(kind: int, value: Any) -> bytes:
    if kind in thrift.INTEGERS:
        return thrift.integer_bytes(value)
    if kind == thrift.STRUCT:
        return struct_bytes(value)
    if kind == thrift.LIST:
        return thrift.list_bytes(value[0], [_value_bytes(_in_list(value[0]), one) for one in value[1]])
    return bytes(value)


def _in_list(kind: int) -> int:
    """A boolean takes a byte in a list, but none in a struct, where the type holds its value."""
    return thrift.BYTE if kind in (thrift.TRUE, thrift.FALSE) else kind
