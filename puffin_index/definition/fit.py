"""Whether the kinds of a definition suit their columns, as far as types and options tell."""

from __future__ import annotations

from collections.abc import Sequence

from puffin_index.definition.index_definition import ResolvedColumn
from puffin_index.kinds.registry import kind_named


def fit_warnings(columns: Sequence[ResolvedColumn]) -> list[str]:
    """Say where a kind is a bad fit for its column, one sentence each, in the order of the columns.

    Nothing is read: the number of distinct values is guessed from the type alone.
    """
    return [
        f"column {column.name!r}: {sentence}"
        for column in columns
        for kind, options in column.kinds.items()
        for sentence in kind_named(kind).misfits(column.value_type, options)
    ]
