"""Payloads, and opened ones: of one row group, or of several that compaction or a build put together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeAlias

import numpy as np
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError
from puffin_index.keys.asked_test import AskedTest
from puffin_index.keys.leaf import LeafTest
from puffin_index.keys.value_types import ValueType
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.ranged import Blob


@dataclass(frozen=True, slots=True)
class Payload:
    """The bytes of one index, of one row group or several.

    Attributes:
        blob_type: The Puffin blob type.
        data: The payload.
        layout: Numbers a reader needs to find its way without parsing (int64). The directory keeps them; their meaning
            is the kind's own.
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


@dataclass(frozen=True, slots=True, eq=False)
class StoredPayload:
    """A payload in a segment, and what the segment's directory says of it.

    Attributes:
        blob: Its bytes.
        blob_type: Its blob type.
        layout: Its layout; empty for a blob that Paimon wrote.
        value_type: The type of the column.
        spans: For each row group that it covers, in order, base and row count in the segment's row space: shape (n, 2).
    """

    blob: Blob
    blob_type: str
    layout: Ints
    value_type: ValueType
    spans: Ints

    @classmethod
    def of_row_group(cls, blob: Blob, blob_type: str, layout: Ints, value_type: ValueType, row_count: int) -> Self:
        """The payload of one row group that lies at the beginning of a row space."""
        return cls(blob, blob_type, layout, value_type, np.array([[0, row_count]], np.int64))

    @property
    def row_count(self) -> int:
        """The rows of the only row group.

        Raises:
            CorruptFileError: If the payload covers none or several.
        """
        if len(self.spans) != 1:
            raise CorruptFileError(
                f"a blob {self.blob_type} of {len(self.spans)} row groups",
                location=self.blob.location,
                offset=self.blob.offset,
            )
        return int(self.spans[0, 1])


@dataclass(frozen=True, slots=True)
class RowSet:
    """What evaluating a predicate gives for a row group.

    Attributes:
        rows: Row numbers, from 0 in the row group (or in a segment's row space, where the caller moved them there).
        exact: True if `rows` is the answer; False if it only contains the answer (upper bound).
    """

    rows: BitMap
    exact: bool


class RowGroupIndex(Protocol):
    """An opened payload of one row group. Reads only the bytes that a test needs."""

    def evaluate(self, test: LeafTest, candidates: BitMap | None = None) -> RowSet:
        """Return the rows that satisfy `test`, numbered from 0.

        Args:
            test: In the key domain of the column's value type.
            candidates: If given, only these rows are of interest: the answer is a subset of them, and an
                implementation may stop reading as soon as none is left.
        """


class ReadBlocks(Protocol):
    """What was read of a payload for a test. Several of one kind are searched by the same array operations."""

    def rows_of_all(self, every: Sequence[Self]) -> list[BitMap]:
        """Return the rows of each, this one among them.

        Raises:
            CorruptFileError: If what was read is not what was written; the error may name another of them.
        """


class PreparedLookUp(Protocol):
    """A test of one payload that covers several row groups."""

    def count_bounds(self) -> tuple[int, int]:
        """Return the least and the greatest number of rows that may satisfy the test; reads the directory at most."""

    def cost(self) -> tuple[int, int]:
        """Return the requests and bytes that `rows` takes."""

    def rows(self, candidates: BitMap | None = None) -> BitMap:
        """Return exactly the rows of the row space that satisfy the test, among the candidates if any are given."""

    def read(self, most_bytes: int) -> ReadBlocks | None:
        """Read what is to be searched with what other payloads give; None if there is no such thing or too much."""


class MergedIndex(ABC):
    """An opened payload that covers several row groups and answers with rows of the segment's row space."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """About the memory that it takes, in bytes, with what was read of its directory."""

    @abstractmethod
    def prepare(self, test: AskedTest) -> PreparedLookUp:
        """Return what knows all that is to be known of a test."""

    def rows(self, test: LeafTest, candidates: BitMap | None = None) -> BitMap:
        """Return what `PreparedLookUp.rows` of a test does."""
        return self.prepare(AskedTest(test)).rows(candidates)

    def count_bounds(self, test: LeafTest) -> tuple[int, int]:
        """Return what `PreparedLookUp.count_bounds` of a test does."""
        return self.prepare(AskedTest(test)).count_bounds()

    def cost(self, test: LeafTest) -> tuple[int, int]:
        """Return what `PreparedLookUp.cost` of a test does."""
        return self.prepare(AskedTest(test)).cost()


class MergedFilter(ABC):
    """An opened payload that covers several row groups and tells which of them certainly have no match."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """About the memory that it takes, in bytes, with what was read of its directory."""

    @abstractmethod
    def read_directory(self) -> None:
        """Read and check what finding anything in the payload needs; later calls read nothing.

        Raises:
            CorruptFileError: If the bytes are not what was written.
        """

    @abstractmethod
    def cost(self, test: AskedTest) -> tuple[int, int]:
        """Return the requests and bytes that `possible` would take, besides what this reads of the directory itself."""

    @abstractmethod
    def possible(self, test: AskedTest) -> Flags:
        """Return for each row group that the payload covers whether a row of it may satisfy the test.

        Raises:
            CorruptFileError: If what is read is not what was written.
        """


OpenIndex: TypeAlias = RowGroupIndex | MergedIndex | MergedFilter
