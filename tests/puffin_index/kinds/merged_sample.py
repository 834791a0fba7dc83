"""Segments of random columns, merged, with the answers that the row groups themselves give."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from pyroaring import BitMap

from puffin_index.keys.asked import AskedTest
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import LeafTest
from puffin_index.kinds.base import (
    DROPPED,
    MergePart,
    OpenIndex,
    Payload,
    StoredPayload,
)
from puffin_index.kinds.kind import IndexKind
from puffin_index.kinds.postings.build import build_postings
from puffin_index.kinds.registry import KINDS
from puffin_index.storage.ranged import Blob, run
from tests.counting_reader import CountingReader
from tests.puffin_index.kinds.columns import VALUES, Sample, rows_of, samples
from tests.puffin_index.kinds.counting import blob_of

BLOCK_ROWS = 65_536
POSTINGS_OPTIONS = {"layout": "postings"}


@dataclass(frozen=True)
class Group:
    """A row group, and where it begins in the row space of its segment."""

    sample: Sample
    base: int

    @property
    def span(self) -> tuple[int, int]:
        return self.base, len(self.sample.values)

    @property
    def every_row(self) -> BitMap:
        return BitMap(range(self.base, self.base + len(self.sample.values)))


@dataclass(frozen=True)
class Piece:
    """A payload and the row groups that it covers."""

    payload: Payload
    groups: tuple[Group, ...]

    def stored(self, blob: Blob) -> StoredPayload:
        spans = np.array([group.span for group in self.groups], np.int64)
        value_type = self.groups[0].sample.value_type
        return StoredPayload(blob, self.payload.blob_type, self.payload.layout, value_type, spans)

    def source(self, new_bases: Sequence[int], data: bytes | None = None) -> MergePart:
        """The payload, to be merged; with other bytes than its own."""
        blob, _ = blob_of(self.payload.data if data is None else data)
        return MergePart(self.stored(blob), np.array(new_bases, np.int64))

    def opened(self, data: bytes | None = None) -> tuple[OpenIndex, CountingReader]:
        """The index, unread, and the file's reader."""
        blob, reader = blob_of(self.payload.data if data is None else data)
        return kind_of(self.payload.blob_type).open(self.stored(blob)), reader

    def rows(self, test: LeafTest, data: bytes | None = None) -> BitMap:
        index, _ = self.opened(data)
        look_up = run(index.prepare(AskedTest(test)))
        least, most = look_up.bounds
        found = run(look_up.rows(None)).rows
        assert least <= len(found) <= most
        is_alone = len(self.groups) == 1 and self.payload.blob_type in kind_of(self.payload.blob_type).blob_types
        return _moved(found, self.groups[0].base) if is_alone else found


def kind_of(blob_type: str) -> IndexKind:
    return next(kind for kind in KINDS.values() if blob_type in kind.blob_types | kind.merged_types)


def merge(parts: Sequence[MergePart], options: Mapping[str, str] | None = None) -> Iterator[Payload]:
    return kind_of(parts[0].payload.blob_type).merge(parts, options or {})


def _moved(rows: BitMap, base: int) -> BitMap:
    return BitMap([row + base for row in rows])


def expected_rows(groups: Sequence[Group], test: LeafTest) -> BitMap:
    """The rows of the row space that satisfy a test, each looked at."""
    return BitMap.union(BitMap(), *(_moved(rows_of(group.sample, test), group.base) for group in groups))


def placed(of_groups: Sequence[Sample], first_base: int = 0) -> tuple[Group, ...]:
    groups: list[Group] = []
    base = first_base
    for sample in of_groups:
        groups.append(Group(sample, base))
        base += max(-(-len(sample.values) // BLOCK_ROWS), 1) * BLOCK_ROWS
    return tuple(groups)


def segment(kind: str, options: Mapping[str, str], groups: Sequence[Group]) -> list[Piece]:
    """The payloads of a segment as a build writes them."""
    if options == POSTINGS_OPTIONS:
        return [Piece(build_postings([(g.base, SortedColumn(g.sample.column)) for g in groups]), tuple(groups))]
    return [Piece(KINDS[kind].build(SortedColumn(group.sample.column), options), (group,)) for group in groups]


def built_by(kind: str, of_groups: Sequence[Sample], options: Mapping[str, str] | None = None) -> list[Piece]:
    """The payloads of a segment as its builder gives them."""
    builder, groups = KINDS[kind].builder(options or {}), placed(of_groups)
    found = [one for group in groups for one in builder.add(SortedColumn(group.sample.column), group.base)]
    return covered([*found, *builder.finish()], groups)


def merged(
    segments: Sequence[Sequence[Piece]], dropped: frozenset[int] = frozenset(), options: Mapping[str, str] | None = None
) -> list[Piece]:
    """One segment of several, without some of their row groups, which are numbered through all of them."""
    pieces = [piece for one in segments for piece in one]
    groups = [group for piece in pieces for group in piece.groups]
    kept = [group for place, group in enumerate(groups) if place not in dropped]
    new_groups = iter(placed([group.sample for group in kept]))
    placed_groups = [None if place in dropped else next(new_groups) for place in range(len(groups))]
    new_bases = iter([DROPPED if group is None else group.base for group in placed_groups])
    sources = [piece.source([next(new_bases) for _ in piece.groups]) for piece in pieces]
    return covered(merge(sources, options), [group for group in placed_groups if group is not None])


def covered(found: Iterable[Payload], groups: Sequence[Group]) -> list[Piece]:
    """The merged payloads with the row groups that they cover: all of them, in order."""
    pieces: list[Piece] = []
    first = 0
    for one in found:
        pieces.append(Piece(one, tuple(groups[first : first + one.row_groups])))
        first += one.row_groups
    assert first == len(groups)
    return pieces


@st.composite
def row_group_lists(draw: st.DrawFn, type_names: Sequence[str] = tuple(VALUES)) -> list[Sample]:
    """A few row groups of one type."""
    return draw(st.lists(samples([draw(st.sampled_from(type_names))]), min_size=1, max_size=5))
