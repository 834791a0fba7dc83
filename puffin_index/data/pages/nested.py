"""Nested columns put together from leaves that were read one by one: pages of two leaves begin at different rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from puffin_index.data.file_fields import leaf_count


def can_assemble(arrow_type: pa.DataType) -> bool:
    """Whether a column of this type can be put together from its leaves. One leaf is the column already."""
    if leaf_count(arrow_type) == 1:
        return True
    if not _is_nested(arrow_type):
        return False
    return all(can_assemble(child.type) for child in _children(arrow_type))


def assemble(arrow_type: pa.DataType, leaves: Sequence[pa.Array]) -> pa.Array:
    """Put a column together.

    Args:
        arrow_type: Its type, for which `can_assemble` holds.
        leaves: For each leaf the column as Arrow reads that leaf alone; a map is a list of structs of one field.

    Raises:
        ValueError: If the leaves do not agree on NULLs or lengths of lists.
    """
    first = leaves[0]
    if len(leaves) == 1:
        return first
    nulls = first.is_null()
    if any(not leaf.is_null().equals(nulls) for leaf in leaves[1:]):
        raise ValueError("the leaves of a column disagree where the column is NULL")
    mask = nulls if first.null_count else None
    if pa.types.is_struct(arrow_type):
        children = _assemble_children(arrow_type, [leaf.field(0) for leaf in leaves])
        return pa.StructArray.from_arrays(children, fields=list(arrow_type), mask=mask)
    lengths = pc.fill_null(pc.list_value_length(first), 0)
    if any(not pc.fill_null(pc.list_value_length(leaf), 0).equals(lengths) for leaf in leaves[1:]):
        raise ValueError("the leaves of a column disagree on the lengths of lists")
    offsets = np.concatenate(([0], np.cumsum(lengths.to_numpy(zero_copy_only=False))))
    inner = [leaf.flatten() for leaf in leaves]
    if pa.types.is_map(arrow_type):
        keys, items = _assemble_children(arrow_type, [entries.field(0) for entries in inner])
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=arrow_type, mask=mask)
    values = assemble(arrow_type.value_type, inner)
    if pa.types.is_large_list(arrow_type):
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values, type=arrow_type, mask=mask)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=arrow_type, mask=mask)


def _assemble_children(arrow_type: pa.DataType, leaves: Sequence[pa.Array]) -> list[pa.Array]:
    """The fields of a struct, or key and value of a map, each from its own leaves."""
    types = [child.type for child in _children(arrow_type)]
    ends = list(accumulate(map(leaf_count, types)))
    return [assemble(one, leaves[begin:end]) for one, begin, end in zip(types, [0, *ends[:-1]], ends, strict=True)]


def _is_nested(arrow_type: pa.DataType) -> bool:
    kinds = (pa.types.is_struct, pa.types.is_list, pa.types.is_large_list, pa.types.is_map)
    return any(is_kind(arrow_type) for is_kind in kinds)


def _children(arrow_type: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(arrow_type):
        return [arrow_type.key_field, arrow_type.item_field]
    return [arrow_type.field(number) for number in range(arrow_type.num_fields)]
