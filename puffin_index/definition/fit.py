"""Judge from types, options and sizes whether the kinds of a definition suit their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from puffin_index.definition.index_definition import ResolvedColumn
from puffin_index.kinds.registry import kind_named


def fit_warnings(columns: Sequence[ResolvedColumn], bytes_per_row: Mapping[int, float] | None = None) -> list[str]:
    """Return one sentence for each kind that suits its column badly, in the order of the columns.

    No data are read: type and size of a column suggest the number of distinct values.

    Args:
        columns: The columns.
        bytes_per_row: The sizes of columns in the data files by field id, in bytes a row, as far as known.
    """
    sizes = bytes_per_row or {}
    return [
        f"column {column.name!r}: {sentence}"
        for column in columns
        for kind, options in column.kinds.items()
        for sentence in kind_named(kind).misfits(column.value_type, options, sizes.get(column.field_id))
    ]
