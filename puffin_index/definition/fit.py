"""Judge from types and options whether the kinds of a definition suit their columns."""

from __future__ import annotations

from collections.abc import Sequence

from puffin_index.definition.index_definition import ResolvedColumn
from puffin_index.kinds.registry import kind_named


def fit_warnings(columns: Sequence[ResolvedColumn]) -> list[str]:
    """Return one sentence for each kind that suits its column badly, in the order of the columns.

    No data are read: the type alone suggests the number of distinct values.
    """
    return [
        f"column {column.name!r}: {sentence}"
        for column in columns
        for kind, options in column.kinds.items()
        for sentence in kind_named(kind).misfits(column.value_type, options)
    ]
