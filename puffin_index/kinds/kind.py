"""The interface of an index kind. A kind is a folder beside this module and a line in `puffin_index.kinds.registry`.

No code outside names a kind: segments, compaction, verification, export and the planner ask the kind. Proofs check an
opened payload against the data, row group by row group: a payload that holds keys is decoded and compared key by key.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import starmap
from typing import ClassVar, TypeAlias

import numpy as np
import pyarrow as pa

from puffin_index.errors import DefinitionError, UnsupportedError
from puffin_index.keys.arrow_keys import key_array
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import LeafTest
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.base import MergePart, OpenIndex, Payload, StoredPayload, as_it_was
from puffin_index.kinds.held_keys import HoldsKeys
from puffin_index.storage.arrays import Ints
from puffin_index.storage.ranged import run

Proof: TypeAlias = Callable[[int, SortedColumn], Iterator[str]]
"""Yields the differences at a place of an opened payload, a sentence each; raises CorruptFileError if it is damaged."""


def proof_by_keys(index: HoldsKeys, row_counts: Ints) -> Proof:
    """Return a proof that compares the keys of all rows, decoded once, and the listed keys of a single row group."""
    every, ends = run(index.keys_of(None)), np.cumsum(row_counts)
    decoded = list(starmap(every.part, zip((ends - row_counts).tolist(), ends.tolist(), strict=True)))

    def prove(place: int, column: SortedColumn) -> Iterator[str]:
        stored, own = decoded[place], column.column
        if not np.array_equal(own.is_valid, stored.is_valid):
            differing = np.count_nonzero(own.is_valid != stored.is_valid)
            yield f"{differing} rows are NULL in the data or in the index, not in both"
        elif not key_array(stored).equals(key_array(own)):
            yield "rows of other keys than the data has"
        if len(row_counts) == 1 and isinstance(index, OpenIndex):
            listed = run(index.keys(sys.maxsize))
            if listed is not None and not pa.array(listed).equals(pa.array(column.keys)):
                yield "a list of other keys than the data has"

    return prove


Options: TypeAlias = Mapping[str, str]


class Answer(IntEnum):
    """How a kind answers a test."""

    NONE = 0
    UPPER_BOUND = 1
    """The kind tells which row groups certainly have no match, but not which rows of the others match."""
    EXACT = 2


@dataclass
class KindBuilder:
    """Builds the payloads of one column of one segment: one payload per row group unless a subclass gathers several."""

    kind: "IndexKind"
    options: Options

    def add(self, column: SortedColumn, base: int) -> Sequence[Payload]:
        """Take the keys of the next row group, at a base of the row space; return the payloads that are now complete.

        All builders of the column share the sorted forms of the keys. Bases are multiples of 65,536.
        """
        del base
        return [self.kind.build(column, self.options)]

    def finish(self) -> Sequence[Payload]:
        """Return the payloads that waited for more row groups."""
        return []


class IndexKind(ABC):
    """One kind of index. The defaults of methods suit a kind with one payload per row group.

    Attributes:
        blob_types: The blob types of payloads of one row group; `merged_types` are those of several.
        bytes_per_row: The approximate bytes of one row; builds use the number to reach the target size of segments.
        is_found_by_key: Whether a test for keys reads only the part of a payload that has these keys. The planner asks
            a kind with this property before filters, and other kinds after filters.
        holds_keys: Whether opened payloads are `puffin_index.kinds.held_keys.HoldsKeys`.
        paimon_name: The name of the kind in Paimon's containers; None if Paimon has no such index.
    """

    name: ClassVar[str]
    blob_types: ClassVar[frozenset[str]]
    merged_types: ClassVar[frozenset[str]] = frozenset()
    option_names: ClassVar[frozenset[str]] = frozenset()
    bytes_per_row: ClassVar[int]
    is_found_by_key: ClassVar[bool] = False
    holds_keys: ClassVar[bool] = False
    paimon_name: ClassVar[str | None] = None
    paimon_types: ClassVar[frozenset[str]] = frozenset()

    def check(self, value_type: ValueType, options: Options) -> None:
        """Check that the kind can index a type with some options, or raise DefinitionError, which names all three."""
        for option in options:
            if option not in self.option_names:
                raise DefinitionError(f"kind {self.name} of a {value_type.name} column has no option {option!r}")

    def takes_contents(self, options: Options) -> bool:
        """Return whether rows may have several keys, or none, with some options (`keys.contents.SortedContents`)."""
        del options
        return False

    def misfits(self, value_type: ValueType, options: Options) -> Iterator[str]:
        """Yield sentences on why the kind suits an indexable column badly."""
        del value_type, options
        return iter(())

    @abstractmethod
    def build(self, column: SortedColumn, options: Options) -> Payload:
        """Build the payload of a single row group."""

    def builder(self, options: Options) -> KindBuilder:
        """Return a builder for one column of one segment."""
        return KindBuilder(self, options)

    @abstractmethod
    def open(self, payload: StoredPayload) -> OpenIndex:
        """Open a payload without reading it, or raise UnsupportedError, or CorruptFileError for another layout."""

    @abstractmethod
    def answers(self, test: LeafTest) -> Answer:
        """Return how payloads of the kind answer a test."""

    def rank(self, test: LeafTest) -> int:
        """Return the rank of the kind for a test; of kinds with exact answers, the lowest rank is asked first."""
        del test
        return 1

    def cost(self, test: LeafTest, lengths: Ints) -> Ints:
        """Estimate the bytes that a test reads from payloads of one row group, given the length of each payload."""
        del test
        return lengths

    @property
    def every_type(self) -> frozenset[str]:
        """The blob types of all payloads."""
        return self.blob_types | self.merged_types

    def kept_parts(self, parts: Sequence[MergePart]) -> list[MergePart]:
        """Return the parts that the new segment keeps something of, or raise UnsupportedError for an unknown type."""
        kept = [part for part in parts if part.is_kept.any()]
        for payload in (part.payload for part in kept):
            if payload.blob_type not in self.every_type:
                raise UnsupportedError(f"{payload.blob.location}: kind {self.name} merges no blob {payload.blob_type}")
        return kept

    def merge(self, parts: Sequence[MergePart], options: Options) -> Iterator[Payload]:
        """Merge or copy the payloads of one column, whose new bases ascend; each is made on demand to bound memory.

        The payloads cover all kept row groups, in order. A payload is copied unchecked if its rows keep their places
        and no neighbour can be merged with it; others are checked. A part may be of the type before a promotion.

        Raises, while iterating, CorruptFileError for a damaged part, whose row groups must be built anew;
        UnsupportedError for an unknown version, or keys of another domain than the column's, where the part's segment
        stays unchanged; BuildError if the rows exceed the row space.
        """
        del options
        yield from map(as_it_was, self.kept_parts(parts))

    def proof(self, opened: OpenIndex, row_counts: Ints) -> Proof:
        """Return a proof that checks a payload of row groups with these row counts against the data, one by one."""
        if not isinstance(opened, HoldsKeys):
            raise UnsupportedError(f"kind {self.name} cannot check its payloads")
        return proof_by_keys(opened, row_counts)

    def paimon_reads(self, blob_type: str, value_type: ValueType) -> bool:
        """Return whether Paimon reads blobs of a type for a column of a type."""
        del value_type
        return blob_type in self.paimon_types
