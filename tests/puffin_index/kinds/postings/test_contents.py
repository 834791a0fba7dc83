"""Contents find the rows that an oracle finds, also after a merge, and never by damaged bytes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from pyroaring import BitMap

from puffin_index.errors import BuildError, CorruptFileError, UnsupportedError
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.contents import ContentColumn, SortedContents, gather_contents
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import value_type_named
from puffin_index.keys.values import key_of
from puffin_index.kinds.base import DROPPED, MergePart, Payload, StoredPayload
from puffin_index.kinds.bitmap.kind import BitmapKind
from puffin_index.kinds.postings.blocks import Sizes
from puffin_index.kinds.postings.contents import ContentsIndex, build_contents, merge_contents
from puffin_index.kinds.postings.pages import Child, append_directory
from puffin_index.storage.arrays import Ints
from puffin_index.storage.ranged import run
from tests.conftest import amount
from tests.puffin_index.kinds import columns
from tests.puffin_index.kinds.columns import ARROW_TYPES, VALUES, arrow_of, holds
from tests.puffin_index.kinds.counting import BEFORE, blob_of
from tests.puffin_index.kinds.merged_sample import BLOCK_ROWS
from tests.puffin_index.kinds.postings.postings_sample import TINY

Lists = list[list[Any] | None]
"""What each row of a row group contains; None for NULL."""


@dataclass(frozen=True)
class Contained:
    """A payload of row groups, whose bases are multiples of 65,536."""

    type_name: str
    groups: tuple[Lists, ...]
    payload: Payload

    @classmethod
    def built(cls, type_name: str, groups: Sequence[Lists], sizes: Sizes = TINY) -> "Contained":
        built = [SortedContents(column_of_lists(type_name, lists)) for lists in groups]
        placed = [*zip(bases_of(groups), built, strict=True)]
        return cls(type_name, tuple(groups), build_contents(placed, sizes))

    def stored(self, data: bytes | None = None, layout: Ints | None = None) -> StoredPayload:
        payload, value_type = self.payload, value_type_named(self.type_name)
        spans = np.array([(base, len(own)) for base, own in zip(bases_of(self.groups), self.groups, strict=True)])
        blob, _ = blob_of(payload.data if data is None else data)
        return StoredPayload(blob, payload.blob_type, payload.layout if layout is None else layout, value_type, spans)

    @property
    def keys(self) -> list[Any]:
        value_type = value_type_named(self.type_name)
        every = (one for lists in self.groups for row in lists for one in row or () if one is not None)
        return sorted({key_of(one, value_type) for one in every})

    def expected(self, test: LeafTest) -> BitMap:
        value_type = value_type_named(self.type_name)
        found = BitMap()
        for base, lists in zip(bases_of(self.groups), self.groups, strict=True):
            for row, values in enumerate(lists):
                keys = None if values is None else [None if v is None else key_of(v, value_type) for v in values]
                if satisfies(test, keys):
                    found.add(base + row)
        return found


def satisfies(test: LeafTest, keys: list[Any] | None) -> bool:
    """Whether a row with these keys, None for NULL, satisfies a test of contents."""
    if isinstance(test, NullTest):
        return test.is_null is (keys is None)
    if keys is None:
        return False
    if test.negated:
        return None not in keys and all(holds(test, key) for key in keys)
    return any(holds(test, key) for key in keys)


def bases_of(groups: Sequence[Lists]) -> list[int]:
    return (np.arange(len(groups)) * BLOCK_ROWS).tolist()


def column_of_lists(type_name: str, lists: Lists) -> ContentColumn:
    flat = arrow_of([value for values in lists for value in values or ()], type_name)
    lengths = [0 if values is None else len(values) for values in lists]
    offsets = pa.array(np.cumsum([0, *lengths]), pa.int32())
    array = pa.ListArray.from_arrays(offsets, flat, mask=pa.array([values is None for values in lists], pa.bool_()))
    batches = [array[:2], array[2:]]
    return gather_contents(batches, "elements", value_type_named(type_name), len(lists))


@st.composite
def cases(draw: st.DrawFn) -> Contained:
    type_name = draw(st.sampled_from([*ARROW_TYPES]))
    pool = st.sampled_from(draw(st.lists(VALUES[type_name], min_size=1, max_size=8)))
    values = st.lists(pool | st.none() if draw(st.booleans()) else pool, max_size=4)
    rows = st.lists(st.none() | values | values, max_size=20)
    groups = draw(st.lists(rows, min_size=1, max_size=3))
    if draw(st.booleans()):
        groups[0] = groups[0] * 40
    return Contained.built(type_name, groups, draw(st.sampled_from((TINY, Sizes()))))


def check(case: Contained, test: LeafTest) -> None:
    index, expected = ContentsIndex(case.stored()), case.expected(test)
    prepared = run(index.prepare(AskedTest(test)))
    assert prepared.bounds[0] <= len(expected) <= prepared.bounds[1]
    assert run(prepared.rows(None)).rows == expected
    for candidates in (BitMap(), BitMap(range(0, 3 * BLOCK_ROWS, 3))):
        assert index.evaluate(test, candidates).rows == expected & candidates
    if prepared.blocks is not None:
        read = run(prepared.blocks())
        assert read.rows_of_all([read, read]) == [expected, expected]


def drawn_tests(data: st.DataObject, case: Contained) -> list[LeafTest]:
    value_type = value_type_named(case.type_name)
    other = VALUES[case.type_name].map(lambda value: key_of(value, value_type))
    keys = st.sampled_from(case.keys) | other if case.keys else other
    return [
        NullTest(True),
        RangeTest(None, None, negated=True),
        *(SetTest((key,)) for key in case.keys),
        *data.draw(st.lists(columns.tests_of(keys), max_size=3)),
    ]


@settings(max_examples=amount(40, 3000), deadline=None)
@given(cases(), st.data())
def test_rows_that_contain_a_key_are_found_as_an_oracle_finds_them(case: Contained, data: st.DataObject) -> None:
    for test in drawn_tests(data, case):
        check(case, test)


@settings(max_examples=amount(30, 2000), deadline=None)
@given(st.lists(cases(), min_size=1, max_size=3), st.data())
def test_merged_contents_are_those_of_the_kept_row_groups(every: list[Contained], data: st.DataObject) -> None:
    segments = [one for one in every if one.type_name == every[0].type_name]
    kept: list[Lists] = []
    parts: list[MergePart] = []
    for one in segments:
        new_bases = []
        for lists in one.groups:
            is_kept = data.draw(st.booleans())
            new_bases.append(len(kept) * BLOCK_ROWS if is_kept else DROPPED)
            kept += [lists] if is_kept else []
        parts.append(MergePart(one.stored(), np.array(new_bases)))
    parts = [part for part in parts if part.is_kept.any()]
    if parts:
        sizes = data.draw(st.sampled_from((TINY, Sizes())))
        merged = Contained(segments[0].type_name, tuple(kept), merge_contents(parts, sizes, rows_at_once=7))
        for test in drawn_tests(data, merged):
            check(merged, test)


@settings(max_examples=amount(30, 1000), deadline=None)
@given(cases(), st.data())
def test_a_proof_tells_other_contents(case: Contained, data: st.DataObject) -> None:
    kind, stored = BitmapKind(), case.stored()
    prove = kind.proof(kind.open(stored), stored.spans[:, 1])
    for place, lists in enumerate(case.groups):
        assert [*prove(place, SortedContents(column_of_lists(case.type_name, lists)))] == []
        changed = data.draw(st.permutations(lists))
        is_same = [_as_set(one) for one in changed] == [_as_set(one) for one in lists]
        found = [*prove(place, SortedContents(column_of_lists(case.type_name, list(changed))))]
        assert (found == []) is is_same


def _as_set(values: list[Any] | None) -> object:
    return None if values is None else (len(values) > 0, {str(value) for value in values})


SAMPLES = {
    "frequent": Contained.built("long", [[[0, 1]] * 40, [[1]] * 3]),
    "long": Contained.built("long", [[[5, 5, -3], None, [], [None, 7], [1 << 40], [9] * 3] * 3, [[9], [None], []]]),
    "string": Contained.built("string", [[["b", ""], ["b", None], [], None, ["a" * 20, "ccc"]] + [["d"]] * 5]),
    "nothing": Contained.built("long", [[None, [], [None]], []]),
}


def answers(case: Contained, stored: StoredPayload) -> Iterator[tuple[LeafTest, BitMap]]:
    """The tests that are answered; the others raise a documented error."""
    keys = case.keys or [4]
    tests: list[LeafTest] = [NullTest(True), SetTest((keys[0],)), SetTest((keys[-1],), negated=True)]
    for test in [*tests, RangeTest(keys[0], keys[len(keys) // 2]), RangeTest(None, None, negated=True)]:
        try:
            yield test, ContentsIndex(stored).evaluate(test).rows
        except (CorruptFileError, UnsupportedError) as error:
            if "s3://bucket/segment.puffin" not in str(error):
                raise AssertionError("an error that does not name the file") from error


@pytest.mark.parametrize("name", SAMPLES)
def test_a_flipped_bit_or_a_cut_end_never_gives_wrong_rows(name: str) -> None:
    case = SAMPLES[name]
    whole = bytes(case.payload.data)
    assert len([*answers(case, case.stored())]) == 5
    changed = [whole[:length] for length in range(len(whole))]
    for position in range(len(whole)):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << position % 8
        changed.append(bytes(flipped))
    for data in changed:
        for test, rows in answers(case, case.stored(data)):
            assert rows == case.expected(test)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_wrong_layout_never_fails_in_another_way(name: str) -> None:
    """A directory has a checksum of its own; a layout that passes it and is nonsense still must not crash."""
    case = SAMPLES[name]
    layout, every = case.payload.layout, BitMap(range(2 * BLOCK_ROWS))
    for position in range(len(layout)):
        for number in (-(2**63), -1, 0, 1, 3, 2**31, 2**40, 2**63 - 1):
            changed = layout.copy()
            changed[position] = number
            for _, rows in answers(case, case.stored(layout=changed)):
                assert rows <= every
    for length in range(len(layout)):
        with pytest.raises(CorruptFileError):
            ContentsIndex(case.stored(layout=layout[:length]))


def test_more_pairs_than_a_directory_counts_are_refused() -> None:
    """A row group of 2**31 rows may contain two keys in each, and a third key in one of them."""
    blocks = [Child(10 * n, row_count, 1, 0, n, True, True) for n, row_count in enumerate([2**31, 2**31, 1])]
    append_directory(bytearray(30), blocks[:2], False, Sizes())
    with pytest.raises(BuildError, match=str(2**32 + 1)):
        append_directory(bytearray(30), blocks, False, Sizes())


def test_row_sets_of_keys_that_all_rows_have_are_decoded() -> None:
    case = SAMPLES["frequent"]
    index = ContentsIndex(case.stored())
    assert sum(len(part.numbers) for part in index.key_rows()) == 83
    assert index.directory.table.are_sets[:-1].all()


def test_a_needle_reads_its_block_alone() -> None:
    """Of 40,000 pairs, one key takes the root, one page and one block."""
    lists: Lists = [[row % 20_000, 20_000 + row] for row in range(20_000)]
    case = Contained.built("long", [lists], Sizes())
    blob, reader = blob_of(case.payload.data)
    stored = case.stored()
    index = ContentsIndex(StoredPayload(blob, stored.blob_type, stored.layout, stored.value_type, stored.spans))
    assert index.evaluate(SetTest((777,))).rows == BitMap([777])
    assert len(reader.reads) <= 3
    assert all(offset >= len(BEFORE) for offset, _ in reader.reads)
    assert sum(length for _, length in reader.reads) < 16_000 < len(case.payload.data)


def test_a_proof_knows_keys_apart_before_and_after_one_of_half_of_the_rows() -> None:
    """The rows of the key in the middle are a set, so that the blocks around it are decoded apart."""
    before, rows = 250, 40_000
    has_keys = np.random.default_rng(0).random(rows) < 0.5
    lists: Lists = [[row % before, before, before + 1 + row % 20] if has_keys[row] else [] for row in range(rows)]
    index = ContentsIndex(Contained.built("int", [lists], Sizes()).stored())
    assert [len(part.keys) for part in index.key_rows()] == [before, 1, 20]
    proof = BitmapKind().proof(index, np.array([rows]))
    assert not list(proof(0, SortedContents(column_of_lists("int", lists))))
    lists[1] = [before + 30]
    assert list(proof(0, SortedContents(column_of_lists("int", lists)))) == [
        "rows that contain other keys than in the data"
    ]


@settings(max_examples=amount(30, 2000), deadline=None)
@given(st.data())
def test_words_are_found_in_their_blocks_before_and_after_a_merge(data: st.DataObject) -> None:
    """Texts of few words, in blocks of 2, 4 or 16 rows."""
    block_rows = data.draw(st.sampled_from((2, 4, 16)))
    texts = st.lists(st.none() | st.text(st.sampled_from("ab1 é."), max_size=6), max_size=40)
    groups = data.draw(st.lists(texts, min_size=1, max_size=4))
    built = [SortedContents(_words_of(group, block_rows)) for group in groups]
    pieces = [build_contents([(0, own)], TINY) for own in built]
    bases = np.arange(len(groups)) * BLOCK_ROWS
    parts = [
        MergePart(_stored_words(piece, [(0, len(group))]), bases[at : at + 1])
        for at, (piece, group) in enumerate(zip(pieces, groups, strict=True))
    ]
    merged = merge_contents(parts, TINY, rows_at_once=5)
    stored = _stored_words(merged, [*zip(bases.tolist(), map(len, groups), strict=True)])
    index, kind = ContentsIndex(stored), BitmapKind()
    every = sorted({word for group in groups for text in group for word in _WORD.findall((text or "").encode())})
    for test in [*(SetTest((word,)) for word in every), SetTest(tuple(every[::2])), RangeTest(b"a", b"b")]:
        due = BitMap()
        for base, group in zip(bases.tolist(), groups, strict=True):
            for first in range(0, len(group), block_rows):
                block = group[first : first + block_rows]
                words = {word for text in block for word in _WORD.findall((text or "").encode())}
                if any(holds(test, word) for word in words):
                    due |= BitMap(range(base + first, base + first + len(block)))
        prepared = run(index.prepare(AskedTest(test)))
        assert index.evaluate(test).rows == due
        assert prepared.bounds[0] <= len(due) <= prepared.bounds[1]
    placed = zip(bases.tolist(), groups, strict=True)
    nulls = [base + row for base, group in placed for row, text in enumerate(group) if text is None]
    assert index.evaluate(NullTest(True)).rows == BitMap(nulls)
    prove = kind.proof(kind.open(stored), stored.spans[:, 1])
    smaller = [SortedContents(_words_of(group, 2)) for group in groups]
    for own_groups in (built, smaller):
        assert [found for place, own in enumerate(own_groups) for found in prove(place, own)] == []
    assert pa.array(run(index.keys(10_000))).to_pylist() == every


_WORD = re.compile(rb"[0-9A-Za-z\x80-\xff]+")


def _words_of(texts: list[str | None], block_rows: int) -> ContentColumn:
    array = pa.array(texts, pa.string())
    return gather_contents([array[:7], array[7:]], "words", value_type_named("string"), len(texts), block_rows)


def _stored_words(payload: Payload, spans: list[tuple[int, int]]) -> StoredPayload:
    blob, _ = blob_of(payload.data)
    return StoredPayload(blob, payload.blob_type, payload.layout, value_type_named("string"), np.array(spans))
