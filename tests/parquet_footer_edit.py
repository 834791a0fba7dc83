"""Parquet files with footers as other writers make them: the footer of a real file, changed field by field."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

_TAIL_BYTES = 8
"""Length of the footer, and magic."""

Struct = dict[int, tuple[int, Any]]
"""Type and value of each field, by field id; a list is a pair of the type of its elements and the elements."""


def edit_footer(path: Path, change: Callable[[Struct], None]) -> None:
    """Change the footer of a Parquet file in place; the pages stay where they are."""
    data = path.read_bytes()
    begin = len(data) - _TAIL_BYTES - int.from_bytes(data[-_TAIL_BYTES:-4], "little")
    footer, _ = _read_struct(data, begin)
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


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def _read_struct(data: bytes, at: int) -> tuple[Struct, int]:
    fields: Struct = {}
    number = 0
    while data[at]:
        # Parquet has few fields a struct, so that all ids are told by their distance.
        number, kind = number + (data[at] >> 4), data[at] & 15
        value, at = _read_value(data, at + 1, kind)
        fields[number] = (kind, value)
    return fields, at + 1


def _read_value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (1, 2):
        return None, at
    if kind == 3:
        return data[at], at + 1
    if kind in (4, 5, 6):
        value, at = _read_varint(data, at)
        return value >> 1 ^ -(value & 1), at
    if kind == 8:
        length, at = _read_varint(data, at)
        return data[at : at + length], at + length
    if kind == 12:
        return _read_struct(data, at)
    assert kind == 9, kind
    length, inner = data[at] >> 4, data[at] & 15
    at += 1
    if length == 15:
        length, at = _read_varint(data, at)
    values = []
    for _ in range(length):
        value, at = _read_value(data, at, 3 if inner in (1, 2) else inner)
        values.append(value)
    return (inner, values), at


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def struct_bytes(fields: Struct) -> bytes:
    out, before = b"", 0
    for number, (kind, value) in sorted(fields.items()):
        out += bytes([(number - before) << 4 | kind]) + _value_bytes(kind, value)
        before = number
    return out + b"\0"


def _value_bytes(kind: int, value: Any) -> bytes:
    if kind in (1, 2):
        return b""
    if kind == 3:
        return bytes([value])
    if kind in (4, 5, 6):
        return _varint(value << 1 if value >= 0 else (-value << 1) - 1)
    if kind == 8:
        return _varint(len(value)) + value
    if kind == 12:
        return struct_bytes(value)
    inner, values = value
    header = bytes([len(values) << 4 | inner]) if len(values) < 15 else bytes([0xF0 | inner]) + _varint(len(values))
    return header + b"".join(_value_bytes(3 if inner in (1, 2) else inner, one) for one in values)
