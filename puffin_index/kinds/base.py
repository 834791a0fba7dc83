"""What an index kind is: build a payload from a column, open it lazily, answer a leaf test with a row set.

A kind works on one row group: rows are numbered from 0 in it. Placing the answer in a segment's row space is the
caller's work (`puffin_index.segments.segment`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pyroaring import BitMap

from puffin_index.keys.leaf import LeafTest
from puffin_index.keys.values import Column, ValueType
from puffin_index.storage.arrays import Ints
from puffin_index.storage.ranged import Blob


@dataclass(frozen=True, slots=True)
class Payload:
    """The bytes of one index, of one row group or several.

    Attributes:
        blob_type: The Puffin blob type.
        data: The payload.
        layout: Numbers a reader needs to find its way without parsing (int64): kept in the directory, their meaning is
            the kind's own.
    """

    blob_type: str
    data: bytes | bytearray | memoryview
    layout: Ints


@dataclass(frozen=True, slots=True)
class MergedPayload:
    """A payload of a segment, and what it covers.

    Attributes:
        payload: The payload.
        row_groups: How many row groups it covers: the next ones of the segment, the first one after those of the
            payload before.
    """

    payload: Payload
    row_groups: int


@dataclass(frozen=True, slots=True)
class RowSet:
    """What evaluating a predicate gives for a row group.

    Attributes:
        rows: Row numbers, from 0 in the row group (or in a segment's row space, where the caller moved them there).
        exact: True if `rows` is the answer; False if it only contains the answer (upper bound).
    """

    rows: BitMap
    exact: bool


class BlobIndex(Protocol):
    """An opened index of one row group. Reads only the bytes that a test needs."""

    def evaluate(self, test: LeafTest, candidates: BitMap | None = None) -> RowSet:
        """Return the rows that satisfy `test`.

        Args:
            test: In the key domain of the column's value type.
            candidates: If given, only these rows are of interest: the answer is a subset of them, and an
                implementation may stop reading as soon as none is left.
        """


class IndexKind(Protocol):
    """One kind of index: `bitmap`, `bsi` or `bloom`."""

    name: str
    blob_types: frozenset[str]
    option_names: frozenset[str]

    def check(self, value_type: ValueType, options: Mapping[str, str]) -> None:
        """Raise `DefinitionError` if this kind cannot index such a column or does not know an option, naming both."""

    def build(self, column: Column, options: Mapping[str, str]) -> Payload:
        """Build the payload of one row group."""

    def open(self, blob: Blob, blob_type: str, layout: Ints, value_type: ValueType, row_count: int) -> BlobIndex:
        """Open a payload without reading it.

        Raises:
            UnsupportedError: If the blob type or value type is not one that this kind reads.
        """
