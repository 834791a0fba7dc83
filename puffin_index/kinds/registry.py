"""The index kinds: what each builds for a row group, and how it answers tests."""

from __future__ import annotations

from collections.abc import Mapping

from puffin_index.errors import DefinitionError
from puffin_index.keys.columns import Column
from puffin_index.kinds.base import IndexKind, Payload
from puffin_index.kinds.bitmap.kind import BitmapKind
from puffin_index.kinds.bloom.kind import BloomKind
from puffin_index.kinds.bsi.kind import BitSlicedKind
from puffin_index.kinds.statistics import ColumnStatistics, statistics_of

__all__ = ["KINDS", "ColumnStatistics", "build_payloads", "statistics_of"]

KINDS: dict[str, IndexKind] = {kind.name: kind for kind in (BitmapKind(), BitSlicedKind(), BloomKind())}


def build_payloads(
    column: Column, kinds: Mapping[str, Mapping[str, str]]
) -> tuple[ColumnStatistics, dict[str, Payload]]:
    """Build everything that one column of one row group needs, sorting it once.

    Args:
        column: The column.
        kinds: The options of each kind to build.

    Raises:
        DefinitionError: If a kind or option is not known.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise DefinitionError(f"unknown index kind {kind!r}; known: {', '.join(KINDS)}")
    # In the order of KINDS: bitmaps need keys and rows sorted together, and leave the sorted keys to the others.
    payloads = {name: kind.build(column, kinds[name]) for name, kind in KINDS.items() if name in kinds}
    return statistics_of(column), payloads
