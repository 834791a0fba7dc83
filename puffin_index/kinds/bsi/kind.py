"""The kind `bsi`: comparisons of numbers by bit slices, and of everything else by the slices of dictionary codes.

| option | values | meaning |
| --- | --- | --- |
| `compression` | `auto` (default), `none` | `auto` compresses slices, and merges those of small row groups, where it pays; `none` leaves the slices of each row group plain, slices of numbers in Paimon's format |
"""  # noqa: E501

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from puffin_index.errors import DefinitionError
from puffin_index.keys.columns import Column, SortedColumn, join_columns
from puffin_index.keys.leaf import LeafTest
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import MergePart, OpenIndex, Payload, StoredPayload, as_it_was, merge_no_larger
from puffin_index.kinds.bsi.own_slices import BSI, PAIMON_BSI, MergedSlices, build_slices, is_small, open_slices
from puffin_index.kinds.kind import Answer, IndexKind, KindBuilder, Options
from puffin_index.storage.ranged import run

MERGED_ROWS = 131_072
"""The most rows of all row groups of a payload (a single row group may have more); planning reads a payload at once."""

_MERGED_BYTES = 64 * 1024 * 1024


@dataclass
class SlicesBuilder(KindBuilder):
    """Builds bit slices, one payload a row group, and one of neighbouring small row groups."""

    _columns: list[Column] = field(default_factory=list)

    def add(self, column: SortedColumn, base: int) -> Sequence[Payload]:
        """Take the next row group; return the payloads that are now complete."""
        if is_small(column.column.row_count):
            return self.gather(column.column)
        return [*self.finish(), *super().add(column, base)]

    def gather(self, column: Column) -> Sequence[Payload]:
        """Take a small row group; return the payload of the earlier ones if the new one would exceed a limit."""
        together = [*self._columns, column]
        row_count, nbytes = sum(one.row_count for one in together), sum(one.keys.nbytes for one in together)
        complete = self.finish() if row_count > MERGED_ROWS or nbytes > _MERGED_BYTES else []
        self._columns.append(column)
        return complete

    def finish(self) -> Sequence[Payload]:
        """Return the payload of the gathered row groups, if any."""
        columns, self._columns = self._columns, []
        if not columns:
            return []
        row_counts = [column.row_count for column in columns]
        return [build_slices(SortedColumn(join_columns(columns)), row_counts, may_compress=True)]


_COMPRESSIONS = ("auto", "none")


class BitSlicedKind(IndexKind):
    """Bit slices of keys that are fitting numbers; bit slices of dictionary codes for all other keys."""

    name = "bsi"
    blob_types = frozenset({PAIMON_BSI, BSI})
    merged_types = frozenset({BSI})
    option_names = frozenset({"compression"})
    bytes_per_row = 3
    holds_keys = True
    paimon_name = "bsi"
    paimon_types = frozenset({PAIMON_BSI})

    def check(self, value_type: ValueType, options: Options) -> None:
        """Raise `DefinitionError` if an option or its value is unknown."""
        super().check(value_type, options)
        asked = options.get("compression", "auto")
        if asked not in _COMPRESSIONS:
            raise DefinitionError(
                f"bsi option compression={asked} of a {value_type.name} column is not one of {', '.join(_COMPRESSIONS)}"
            )

    def misfits(self, value_type: ValueType, options: Options) -> Iterator[str]:
        """Name the types that queries hardly ever compare."""
        del options
        if value_type.name == "boolean":
            yield "bsi is for comparisons, and a boolean has only two values; use bitmap"
        if value_type.name.startswith(("uuid", "binary", "fixed")):
            yield (
                f"bsi is for comparisons, which few ask of a {value_type.name} column; for = and IN use bitmap or bloom"
            )

    def build(self, column: SortedColumn, options: Options) -> Payload:
        """Build the payload of one row group."""
        self.check(column.column.value_type, options)
        return build_slices(column, [column.column.row_count], may_compress=_may_merge(options))

    def builder(self, options: Options) -> KindBuilder:
        """Return a builder that merges small row groups, unless they must stay in Paimon's format."""
        return SlicesBuilder(self, options) if _may_merge(options) else KindBuilder(self, options)

    def open(self, payload: StoredPayload) -> OpenIndex:
        """Open a payload."""
        return open_slices(payload) if len(payload.spans) == 1 else MergedSlices(payload)

    def answers(self, test: LeafTest) -> Answer:
        """Answer every test exactly."""
        del test
        return Answer.EXACT

    def merge(self, parts: Sequence[MergePart], options: Options) -> Iterator[Payload]:
        """Merge small row groups as a build does; copy the others, or write them as a build does."""
        may_merge = _may_merge(options)

        def are_small(part: MergePart) -> bool:
            return len(part.payload.spans) > 1 or (may_merge and is_small(part.payload.row_count))

        for small, some in groupby(self.kept_parts(parts), are_small):
            if small:
                yield from merge_no_larger(list(some), self._together)
                continue
            for part in some:
                if part.payload.blob_type == BSI or not may_merge:
                    yield as_it_was(part)
                else:
                    yield self.build(SortedColumn(run(open_slices(part.payload).keys_of(None))), options)

    def _together(self, parts: Sequence[MergePart]) -> list[Payload]:
        if len(parts) == 1 and parts[0].payload.blob_type == BSI and parts[0].is_kept.all():
            return [as_it_was(parts[0])]
        builder, found = SlicesBuilder(self, {}), list[Payload]()
        for part in parts:
            payload = part.payload
            several = len(payload.spans) > 1
            columns = MergedSlices(payload).columns() if several else [run(open_slices(payload).keys_of(None))]
            for place in np.flatnonzero(part.is_kept).tolist():
                found += builder.gather(columns[place])
        return [*found, *builder.finish()]


def _may_merge(options: Options) -> bool:
    """Return whether slices of small row groups may be merged; otherwise all slices stay in Paimon's format."""
    return options.get("compression", "auto") == "auto"
