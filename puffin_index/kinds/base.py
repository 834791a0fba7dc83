"""Payloads and opened payloads, of one row group or of several that were merged; and how payloads are merged."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol, Self, TypeAlias

import numpy as np
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.columns import KeyArray
from puffin_index.keys.leaf import LeafTest
from puffin_index.keys.value_types import ValueType
from puffin_index.storage.arrays import Flags, Ints, cut_in_order
from puffin_index.storage.ranged import Blob, Reading, at_once, run


@dataclass(frozen=True, slots=True)
class Payload:
    """The bytes of one index, numbers from which its kind finds parts of them without parsing, and its row groups.

    A payload of a segment covers so many row groups from where the payload before ended.
    """

    blob_type: str
    data: bytes | bytearray | memoryview
    layout: Ints
    row_groups: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class StoredPayload:
    """A payload as its segment's directory describes it; the layout is empty for a blob that Paimon wrote.

    `spans` has base and row count of each covered row group in the segment's row space: shape (n, 2).
    """

    blob: Blob
    blob_type: str
    layout: Ints
    value_type: ValueType
    spans: Ints

    @property
    def row_count(self) -> int:
        """The number of rows of the only row group, or CorruptFileError if there is not exactly one."""
        if len(self.spans) != 1:
            raise CorruptFileError(
                f"a blob {self.blob_type} of {len(self.spans)} row groups",
                location=self.blob.location,
                offset=self.blob.offset,
            )
        return int(self.spans[0, 1])


@dataclass(frozen=True, slots=True)
class RowSet:
    """The answer for one row group, exact or an upper bound, in its own row numbers or those of the row space."""

    rows: BitMap
    exact: bool


RowsOf: TypeAlias = Callable[[BitMap | None], Reading[RowSet]]
"""Reads the rows that satisfy a test, among candidates if some are given."""


class ReadBlocks(Protocol):
    """The blocks of a payload read for a test. The same array operations search the blocks of several payloads."""

    def rows_of_all(self, every: Sequence[Self]) -> list[BitMap]:
        """Return the rows of several payloads, this one among them, or raise CorruptFileError, perhaps of another."""


@dataclass(frozen=True, slots=True, eq=False)
class LookUp:
    """A test of an opened payload, before its rows are read.

    `bounds` are the least and the greatest number of rows, `cost` the requests and bytes, at most, that `rows` takes.
    `blocks` reads the test's blocks, to be searched along with those of other payloads; None if they do not suffice.
    """

    bounds: tuple[int, int]
    cost: tuple[int, int]
    rows: RowsOf
    blocks: Callable[[], Reading[ReadBlocks]] | None = None


class OpenIndex(ABC):
    """An opened payload of one row group or several, whose rows are numbered as its spans say."""

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes, including the read part of the directory."""
        return 0

    @property
    def sizes(self) -> tuple[int, int] | None:
        """The numbers of non-NULL rows and of distinct keys; None if the directory does not tell."""
        return None

    def keys(self, most: int) -> Reading[KeyArray | None]:
        """Return the distinct keys, ascending; None if the payload does not list its keys, or has more than `most`."""
        del most
        return at_once(None)

    @abstractmethod
    def prepare(self, asked: AskedTest) -> Reading[LookUp]:
        """Prepare a test, and read what that takes of the directory."""

    def evaluate(self, test: LeafTest, candidates: BitMap | None = None) -> RowSet:
        """Prepare a test and read its rows, without anything else at the same time."""
        return run(run(self.prepare(AskedTest(test))).rows(candidates))


DROPPED = -1
"""The new base of a row group that the new segment leaves out."""


@dataclass(frozen=True, slots=True, eq=False)
class MergePart:
    """A payload to merge, typed as today, and the new base of each row group, a multiple of 65,536 or `DROPPED`."""

    payload: StoredPayload
    new_bases: Ints

    @property
    def is_kept(self) -> Flags:
        """Flags of the row groups that the new segment keeps."""
        return self.new_bases >= 0

    @property
    def new_spans(self) -> Ints:
        """Base and row count, in the new segment, of each kept row group: shape (n, 2)."""
        return np.stack((self.new_bases, self.payload.spans[:, 1]), axis=1)[self.is_kept]


MERGED_BYTES = 128 * 1024 * 1024
"""The most bytes of filters to merge into one payload; memory holds a few times as much."""


def as_it_was(part: MergePart) -> Payload:
    """Copy a payload unchecked: the reader compares the blob's `xxh64` in the footer of the segment."""
    payload = part.payload
    return Payload(payload.blob_type, payload.blob.read_all(), payload.layout, len(part.new_bases))


_BLOB_BYTES = 96
"""What footer and directory say of a blob, besides its layout, takes about so many bytes."""


def merge_no_larger(parts: Sequence[MergePart], merge: Callable[[Sequence[MergePart]], list[Payload]]) -> list[Payload]:
    """Merge parts together, or in halves if the bytes of all together exceed those of the parts.

    Keys that lie in runs in one part and at random in another may take fewer bytes apart.
    """
    found = merge(parts)
    sizes = [len(one.data) + one.layout.nbytes + _BLOB_BYTES for one in found]
    apart = [part.payload.blob.length + part.payload.layout.nbytes + _BLOB_BYTES for part in parts]
    if len(parts) == 1 or sum(sizes) <= sum(apart):
        return found
    del found
    middle = len(parts) // 2
    return [*merge_no_larger(parts[:middle], merge), *merge_no_larger(parts[middle:], merge)]


def runs_of(
    parts: Sequence[MergePart],
    form_of: Callable[[MergePart], Hashable],
    most: int,
    size_of: Callable[[MergePart], int] = lambda part: part.payload.blob.length,
) -> Iterator[list[MergePart]]:
    """Yield runs of neighbouring parts of one form, up to some bytes or another size; a single part may have more."""
    for _, of_form in groupby(parts, form_of):
        yield from cut_in_order(of_form, lambda part: (size_of(part),), (most,))
