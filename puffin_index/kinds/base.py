"""Payloads and opened payloads: of one row group, or of several that compaction or a build merged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeAlias

import numpy as np
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError
from puffin_index.keys.asked_test import AskedTest
from puffin_index.keys.columns import KeyArray
from puffin_index.keys.leaf import LeafTest
from puffin_index.keys.value_types import ValueType
from puffin_index.storage.arrays import Flags, Ints
from puffin_index.storage.parts import Part
from puffin_index.storage.ranged import Blob


@dataclass(frozen=True, slots=True)
class Payload:
    """The bytes of one index, of one row group or several.

    Attributes:
        blob_type: The Puffin blob type.
        data: The payload.
        layout: Numbers (int64), stored in the directory, that let a reader find parts of the payload without parsing.
            Each kind defines their meaning.
    """

    blob_type: str
    data: bytes | bytearray | memoryview
    layout: Ints


@dataclass(frozen=True, slots=True)
class MergedPayload:
    """A payload of a segment, and the number of row groups that the payload covers.

    Attributes:
        payload: The payload.
        row_groups: The number of covered row groups, which follow the row groups of the previous payload.
    """

    payload: Payload
    row_groups: int


@dataclass(frozen=True, slots=True, eq=False)
class StoredPayload:
    """A payload in a segment, as the segment's directory describes the payload.

    Attributes:
        blob: The bytes of the payload.
        blob_type: The Puffin blob type.
        layout: The layout; empty for a blob that Paimon wrote.
        value_type: The type of the column.
        spans: Base and row count of each covered row group in the segment's row space, in order: shape (n, 2).
    """

    blob: Blob
    blob_type: str
    layout: Ints
    value_type: ValueType
    spans: Ints

    @classmethod
    def of_row_group(cls, blob: Blob, blob_type: str, layout: Ints, value_type: ValueType, row_count: int) -> Self:
        """Return the payload of one row group at the beginning of a row space."""
        return cls(blob, blob_type, layout, value_type, np.array([[0, row_count]], np.int64))

    @property
    def row_count(self) -> int:
        """The number of rows of the only row group.

        Raises:
            CorruptFileError: If the payload does not cover exactly one row group.
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
    """The answer to a predicate for one row group.

    Attributes:
        rows: Row numbers, from 0 in the row group; or rows of a segment's row space, where a caller moved the rows.
        exact: True if `rows` is the answer; False if `rows` only contains the answer (upper bound).
    """

    rows: BitMap
    exact: bool


class RowGroupIndex(Protocol):
    """An opened payload of one row group, which reads only the bytes that a test needs."""

    def evaluate(self, test: LeafTest, candidates: BitMap | None = None) -> RowSet:
        """Return the rows that satisfy `test`, numbered from 0.

        Args:
            test: In the key domain of the column's value type.
            candidates: The rows of interest, None for all. The answer is a subset of the candidates, and an
                implementation may stop reading as soon as no candidate is left.
        """

    def keys(self, most: int) -> KeyArray | None:
        """Return the distinct keys, ascending; None if the payload does not list its keys, or has more than `most`."""


class ReadBlocks(Protocol):
    """The blocks of a payload read for a test. The same array operations search the blocks of several payloads."""

    def rows_of_all(self, every: Sequence[Self]) -> list[BitMap]:
        """Return the rows of each of several payloads, this one among them.

        Raises:
            CorruptFileError: If one of the payloads is damaged; the error may name another of them.
        """


class PreparedLookUp(Protocol):
    """A test of one payload that covers several row groups."""

    def count_bounds(self) -> tuple[int, int]:
        """Return bounds on the number of rows that satisfy the test; read nothing but the directory."""

    def cost(self) -> tuple[int, int]:
        """Return the requests and bytes that `rows` takes."""

    def rows(self, candidates: BitMap | None = None) -> BitMap:
        """Return exactly the rows of the row space that satisfy the test; with candidates, only rows among these."""

    def parts(self, most_bytes: int) -> Sequence[Part]:
        """Return the parts of the blob that `read` takes, by ascending offset; read nothing but the directory."""

    def read(self, most_bytes: int) -> ReadBlocks | None:
        """Read the blocks of the test, to be searched along with those of other payloads.

        Returns:
            None if the blocks exceed `most_bytes`, or if the payload has no blocks to search this way.
        """


class MergedIndex(ABC):
    """An opened payload that covers several row groups and answers with rows of the segment's row space."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The approximate memory in bytes, including the read part of the directory."""

    @property
    def first_part(self) -> Part | None:
        """The part of the blob that each test reads first; None if memory has it, or each test reads another one."""
        return None

    @abstractmethod
    def prepare(self, test: AskedTest) -> PreparedLookUp:
        """Prepare a test; the result finds the keys of the test only once."""

    def rows(self, test: LeafTest, candidates: BitMap | None = None) -> BitMap:
        """Prepare a test and return its `PreparedLookUp.rows`."""
        return self.prepare(AskedTest(test)).rows(candidates)

    def count_bounds(self, test: LeafTest) -> tuple[int, int]:
        """Prepare a test and return its `PreparedLookUp.count_bounds`."""
        return self.prepare(AskedTest(test)).count_bounds()

    def cost(self, test: LeafTest) -> tuple[int, int]:
        """Prepare a test and return its `PreparedLookUp.cost`."""
        return self.prepare(AskedTest(test)).cost()

    @property
    def sizes(self) -> tuple[int, int] | None:
        """The numbers of non-NULL rows and of distinct keys; None if the directory does not tell."""
        return None

    def keys(self, most: int) -> KeyArray | None:
        """Return the distinct keys, ascending; None if the payload does not list its keys, or has more than `most`.

        Raises:
            CorruptFileError: If the list is damaged.
        """
        del most
        return None


class MergedFilter(ABC):
    """An opened payload that covers several row groups and tells which of them certainly have no match."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The approximate memory in bytes, including the read part of the directory."""

    @property
    def first_part(self) -> Part | None:
        """The part of the blob that each test reads first; None if memory has it, or each test reads another one."""
        return None

    @abstractmethod
    def read_directory(self) -> None:
        """Read and check the directory, which every look-up needs; later calls read nothing.

        Raises:
            CorruptFileError: If the directory is damaged.
        """

    @abstractmethod
    def cost(self, test: AskedTest) -> tuple[int, int]:
        """Return the requests and bytes that `possible` would take after the directory reads of this method."""

    @abstractmethod
    def possible(self, test: AskedTest) -> Flags:
        """Return, for each covered row group, whether one of its rows may satisfy the test.

        Raises:
            CorruptFileError: If the payload is damaged.
        """


OpenIndex: TypeAlias = RowGroupIndex | MergedIndex | MergedFilter
