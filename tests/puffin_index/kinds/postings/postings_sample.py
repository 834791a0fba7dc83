"""Random segments of postings, with tests of their keys; blocks and pages are so small that there are many."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import value_type_named
from puffin_index.keys.values import key_of
from puffin_index.kinds.base import Payload
from puffin_index.kinds.postings.blocks import Sizes
from puffin_index.kinds.postings.build import POSTINGS, build_postings
from puffin_index.kinds.postings.look_up import Postings
from puffin_index.storage.parts import checksum32
from tests.counting_reader import CountingReader
from tests.puffin_index.kinds.columns import VALUES, sample_of, tests_of
from tests.puffin_index.kinds.merged_sample import BLOCK_ROWS, Group, Piece

LONG, STRING = value_type_named("long"), value_type_named("string")
MINIMUM, MAXIMUM = -(2**63), 2**63 - 1
TINY = Sizes(block_runs=3, section_runs=3, key_content_bytes=40, root_bytes=150, page_bytes=120, rows_at_once=7)
SMALL_SIZES = Sizes(block_runs=8, section_runs=8, key_content_bytes=60, root_bytes=130, page_bytes=100, rows_at_once=20)
DOCUMENTED = (CorruptFileError, UnsupportedError)

POOLS: dict[str, st.SearchStrategy[Any]] = {
    "long": st.one_of(
        st.integers(-3, 12),
        st.sampled_from([MINIMUM, MINIMUM + 1, -1, MAXIMUM - 1, MAXIMUM]),
        st.integers(MINIMUM, MAXIMUM),
    ),
    "string": st.one_of(
        st.sampled_from(
            ["", "a", "aa", "ab", "abc", "abcd" * 20, "abcd" * 20 + "e", "b" * 300, "b" * 299 + "c", "é", "\0"]
        ),
        st.text(max_size=4),
    ),
    "double": VALUES["double"],
    "decimal(38,10)": VALUES["decimal(38,10)"],
}


def group(base: int, values: Sequence[Any]) -> Group:
    return Group(sample_of(values, "string" if any(isinstance(value, str) for value in values) else "long"), base)


def built(groups: Sequence[Group], sizes: Sizes = TINY) -> Piece:
    columns = [(one.base, SortedColumn(one.sample.column)) for one in groups]
    return Piece(build_postings(columns, sizes), tuple(groups))


def opened(piece: Piece) -> tuple[Postings, CountingReader]:
    """Postings, unread, and the file's reader."""
    postings, reader = piece.opened()
    assert isinstance(postings, Postings)
    return postings, reader


def keys_in(groups: Sequence[Group]) -> list[Key | None]:
    return [key for one in groups for key in one.sample.keys]


def known_keys(groups: Sequence[Group]) -> list[Any]:
    keys: list[Any] = [key for key in keys_in(groups) if key is not None]
    return sorted(set(keys))


@st.composite
def cases(draw: st.DrawFn, most_segments: int = 1) -> tuple[list[list[Group]], list[LeafTest]]:
    """Segments of one type, and tests of their keys and of others.

    Row groups have gaps between them, and few distinct values, many of them in runs.
    """
    name = draw(st.sampled_from(sorted(POOLS)))
    segments: list[list[Group]] = []
    for _ in range(draw(st.integers(1, most_segments))):
        pool = draw(st.lists(POOLS[name], min_size=1, max_size=12))
        stretch = st.tuples(st.one_of(st.none(), st.sampled_from(pool), st.sampled_from(pool)), st.integers(1, 6))
        groups: list[Group] = []
        base = 0
        for stretches in draw(st.lists(st.lists(stretch, max_size=14), min_size=1, max_size=4)):
            base += BLOCK_ROWS * draw(st.integers(1 if groups else 0, 3))
            groups.append(Group(sample_of([value for value, count in stretches for _ in range(count)], name), base))
        segments.append(groups)
    keys = POOLS[name].map(lambda value: key_of(value, value_type_named(name)))
    return segments, draw(st.lists(tests_of(keys), max_size=6))


SMALL = {
    "long": [group(0, [*range(7), *range(7), *[None] * 3]), group(BLOCK_ROWS, [*[3] * 9, *[0, 1] * 4, 0])],
    "string": [
        group(0, [f"key {k % 7}" for k in range(14)] + [None]),
        group(BLOCK_ROWS, ["key 3"] * 9 + ["long" * 30]),
    ],
}


def small_tests(groups: Sequence[Group]) -> list[LeafTest]:
    """Tests that together read every byte: one for each key, and others."""
    keys = list(dict.fromkeys(key for key in keys_in(groups) if key is not None))
    tests: list[LeafTest] = [SetTest((key,)) for key in keys]
    return [*tests, RangeTest(keys[2], keys[5]), RangeTest(keys[2], keys[4], negated=True), NullTest(True)]


def resealed(piece: Piece, data: bytearray) -> Piece:
    """Other bytes with every checksum made good again, as someone who wishes harm would."""
    layout = piece.payload.layout
    _, _, _, _, _, nulls_from, _, pages_from, root_from, _ = layout.tolist()
    page_starts = [root_from]
    for start in page_starts:  # the root's children are added while it is looked at
        level = data[start + 2]
        for begin, end, _ in _children(data, start):
            if level and start == root_from and begin < end <= root_from:
                page_starts.append(begin)
    for start in reversed(page_starts):
        for begin, end, seal in _children(data, start):
            if begin <= end and seal + 4 <= len(data):
                data[seal : seal + 4] = checksum32(bytes(data[begin:end])).to_bytes(4, "little")
    good = layout.copy()
    good[6], good[9] = checksum32(bytes(data[nulls_from:pages_from])), checksum32(bytes(data[root_from:]))
    return replace(piece, payload=Payload(POSTINGS, data, good))


def _children(data: bytearray, start: int) -> list[tuple[int, int, int]]:
    """Start and end of each child of a page, and where its checksum lies."""
    count = int.from_bytes(data[start + 4 : start + 8], "little")
    places = range(start + 24, start + 32 + 8 * min(count, 100), 8)
    bounds = [int.from_bytes(data[at : at + 8], "little") for at in places]
    return list(zip(bounds, bounds[1:], range(start + 32 + 16 * count, len(data), 4), strict=False))
