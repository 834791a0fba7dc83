"""What an index kind is. A kind is a folder beside this module and a line in `puffin_index.kinds.registry`.

Nothing outside names a kind: segments, compaction, verification, exchange and the planner ask the kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import ClassVar, Protocol, TypeAlias

from puffin_index.errors import CorruptFileError, DefinitionError, UnsupportedError
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import LeafTest
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import MergedFilter, MergedIndex, MergedPayload, OpenIndex, Payload, StoredPayload
from puffin_index.kinds.merging import DEFAULT_LIMITS, MergeLimits, MergePart, as_it_was
from puffin_index.kinds.proof import Proof, proof_by_tests
from puffin_index.storage.arrays import Ints
from puffin_index.storage.binary import read_int32_be
from puffin_index.storage.ranged import Blob

Options: TypeAlias = Mapping[str, str]


class Answer(IntEnum):
    """How a kind answers a test."""

    NONE = 0
    UPPER_BOUND = 1
    """Some row groups certainly have no match; which rows of the others match is not told."""
    EXACT = 2


class KindBuilder(Protocol):
    """Builds the payloads of one column of one segment. Row groups come in the order of the segment."""

    def add(self, column: SortedColumn, base: int) -> Sequence[MergedPayload]:
        """Take the next row group.

        Args:
            column: Its keys. Builders share what is sorted of them.
            base: Where the row group begins in the segment's row space, a multiple of 65,536.

        Returns:
            The payloads that are complete by now.
        """

    def finish(self) -> Sequence[MergedPayload]:
        """Return the payloads that waited for more row groups."""


class IndexKind(ABC):
    """One kind of index. What is not abstract has a default that suits a kind of one payload a row group.

    Attributes:
        name: How users and directories call it.
        blob_types: The blob types of its payloads of one row group.
        merged_types: The blob types of its payloads of several row groups.
        option_names: The options that a definition may give it.
        bytes_per_row: About how many bytes a row takes; cuts builds into segments of the target size.
        is_found_by_key: Whether a test for keys reads only the part of a payload that has these keys. The planner asks
            such a kind before filters, and others after them.
        paimon_name: What Paimon calls the kind in its containers; None if Paimon has no such index.
        paimon_types: Those of the blob types that Paimon reads.
    """

    name: ClassVar[str]
    blob_types: ClassVar[frozenset[str]]
    merged_types: ClassVar[frozenset[str]] = frozenset()
    option_names: ClassVar[frozenset[str]] = frozenset()
    bytes_per_row: ClassVar[int]
    is_found_by_key: ClassVar[bool] = False
    paimon_name: ClassVar[str | None] = None
    paimon_types: ClassVar[frozenset[str]] = frozenset()

    def check(self, value_type: ValueType, options: Options) -> None:
        """Refuse what the kind cannot index, and options that it does not know or that do not suit the type.

        Raises:
            DefinitionError: Naming the kind, the type and the option.
        """
        for option in options:
            if option not in self.option_names:
                raise DefinitionError(f"kind {self.name} of a {value_type.name} column has no option {option!r}")

    def misfits(self, value_type: ValueType, options: Options) -> Iterator[str]:
        """Say, one sentence each, why the kind is a bad fit for a column that it can index."""
        del value_type, options
        return iter(())

    @abstractmethod
    def build(self, column: SortedColumn, options: Options) -> Payload:
        """Build the payload of one row group by itself."""

    def builder(self, options: Options) -> KindBuilder:
        """Return what builds the payloads of one column of one segment."""
        return OneByOne(self, options)

    @abstractmethod
    def open(self, payload: StoredPayload) -> OpenIndex:
        """Open a payload without reading it.

        Raises:
            UnsupportedError: If this release does not read the blob type, its version, or the value type.
            CorruptFileError: If the layout describes no such blob, or one of other row groups.
        """

    @abstractmethod
    def answers(self, test: LeafTest) -> Answer:
        """Say how payloads of the kind answer a test."""

    def rank(self, test: LeafTest) -> int:
        """Return which of several kinds with exact answers to ask first: the one with the lowest rank."""
        del test
        return 1

    def cost(self, test: LeafTest, lengths: Ints) -> Ints:
        """Return about how many bytes a test reads of payloads of one row group that are so long."""
        del test
        return lengths

    def merged_form(self, blob_type: str) -> str:
        """Return what payloads of a blob type become together; payloads of one segment have one form.

        Raises:
            UnsupportedError: If this release cannot merge them.
        """
        if blob_type not in self.blob_types | self.merged_types:
            raise UnsupportedError(f"kind {self.name} merges no blob {blob_type}")
        return self.name

    def form_of(self, part: MergePart) -> str:
        """Return what a part becomes with others; see `merged_form`.

        Raises:
            UnsupportedError: If this release cannot merge the part.
        """
        try:
            return self.merged_form(part.payload.blob_type)
        except UnsupportedError as error:
            raise UnsupportedError(f"{part.payload.blob.location}: {error}") from error

    def gains_by_merging(self, options: Options, blob_types: Sequence[str], row_counts: Sequence[int]) -> bool:
        """Whether the payloads of one segment would take less if they were merged.

        Args:
            options: What the definition says of the index.
            blob_types: For each row group the blob type of its payload.
            row_counts: For each row group its rows.
        """
        del options, blob_types, row_counts
        return False

    def merge(
        self, parts: Sequence[MergePart], options: Options, limits: MergeLimits = DEFAULT_LIMITS
    ) -> Iterator[MergedPayload]:
        """Merge the payloads of one column, or copy them.

        Made one after the other, each when it is asked for, so that no more than one (and what it is made of) is in
        memory. Together they cover the row groups that are kept, in order. A payload without a fit neighbour whose rows
        stay where they are comes back as it was, unchecked. All other parts are checked as they are read.

        Args:
            parts: The payloads, in the order of the new segment. The new bases of all row groups that are kept ascend
                through all parts. Parts may be of a type that their column was promoted from.
            options: What the definition says of the index.
            limits: How much to merge at a time.

        Raises:
            CorruptFileError: While iterating: if a part is not what was written. Its row groups need to be built anew.
            UnsupportedError: While iterating: if this release does not know the version of a part, or the keys of a
                part are of another domain than those of the column today. The segment of the part stays as it is.
            BuildError: While iterating: if the rows leave the row space of the new segment.
        """
        del options, limits
        for part in parts:
            self.form_of(part)
            if part.is_kept.all():
                yield as_it_was(part)

    def proof(self, opened: OpenIndex) -> Proof:
        """Return what checks an opened payload against the data, one row group after another."""
        if isinstance(opened, MergedIndex | MergedFilter):
            raise UnsupportedError(f"kind {self.name} cannot check what covers several row groups")
        return proof_by_tests(opened)

    def paimon_type(self, blob: Blob) -> str:
        """Return the blob type of a blob that Paimon wrote.

        Raises:
            UnsupportedError: If Paimon has no such index, or the version is not one that this release knows.
        """
        if len(self.paimon_types) != 1:
            raise UnsupportedError(f"{blob.location}: Paimon has no index of kind {self.name}")
        return next(iter(self.paimon_types))

    def paimon_row_count(self, blob: Blob) -> int:
        """Return the rows that a blob of Paimon's says it covers.

        Raises:
            UnsupportedError: If such blobs do not tell.
        """
        raise UnsupportedError(f"{blob.location}: kind {self.name} does not tell how many rows a blob covers")


class OneByOne:
    """Builds one payload a row group."""

    def __init__(self, kind: IndexKind, options: Options) -> None:
        self._kind = kind
        self._options = options

    def add(self, column: SortedColumn, base: int) -> Sequence[MergedPayload]:
        """Return the payload of the row group."""
        del base
        return [MergedPayload(self._kind.build(column, self._options), 1)]

    def finish(self) -> Sequence[MergedPayload]:
        """Nothing waits."""
        return []


def row_count_after_version(blob: Blob) -> int:
    """Return the row count of a blob of Paimon's that begins with a version of one byte and the row count."""
    rows = read_int32_be(blob.read(0, 5), 1, location=blob.location, base_offset=blob.offset)
    if rows < 0:
        raise CorruptFileError(f"a blob of {rows} rows", location=blob.location, offset=blob.offset + 1)
    return rows
