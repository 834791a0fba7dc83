"""Postings find the rows that an oracle finds, by the reads that they announce, and never by damaged bytes."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from threading import Event, Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from pyroaring import BitMap

from puffin_index.errors import BuildError, CorruptFileError, UnsupportedError
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.values import key_of
from puffin_index.kinds.base import Payload, StoredPayload
from puffin_index.kinds.bitmap.kind import PAIMON_BITMAP
from puffin_index.kinds.postings.blocks import Sizes
from puffin_index.kinds.postings.build import POSTINGS
from puffin_index.kinds.postings.look_up import Postings
from puffin_index.kinds.postings.merge import merge_postings
from puffin_index.kinds.registry import KINDS
from puffin_index.storage.ranged import Blob, run
from tests.conftest import amount, some
from tests.counting_reader import CountingReader
from tests.puffin_index.kinds.columns import Sample, keys_of
from tests.puffin_index.kinds.counting import BEFORE
from tests.puffin_index.kinds.merged_sample import BLOCK_ROWS, Group, Piece, expected_rows, placed
from tests.puffin_index.kinds.postings.postings_sample import (
    DOCUMENTED,
    LONG,
    MAXIMUM,
    MINIMUM,
    SMALL,
    SMALL_SIZES,
    STRING,
    TINY,
    built,
    cases,
    group,
    known_keys,
    opened,
    resealed,
    small_tests,
)


def check_law(groups: Sequence[Group], tests: Sequence[LeafTest], sizes: Sizes) -> None:
    piece = built(groups, sizes)
    every = BitMap.union(BitMap(), *(one.every_row for one in groups))
    for test in tests:
        postings, reader = opened(piece)
        prepared = run(postings.prepare(AskedTest(test)))
        least, most = prepared.bounds
        blocks_end = len(BEFORE) + int(piece.payload.layout[5])
        assert all(offset >= blocks_end for offset, _ in reader.reads), "a block was read"
        cost = prepared.cost
        reader.taken()
        expected = expected_rows(groups, test)
        assert run(prepared.rows(None)).rows == expected
        assert reader.taken() == cost
        assert least <= len(expected) <= most
        assert postings.evaluate(test).rows == expected
        for candidates in (BitMap(), every[::3], every[len(every) // 2 :], every[:1]):
            assert postings.evaluate(test, candidates).rows == expected & candidates


@given(cases(), st.sampled_from([TINY, Sizes()]))
@settings(max_examples=amount(20, 1500), deadline=None)
def test_rows_are_found_as_an_oracle_finds_them(case: tuple[list[list[Group]], list[LeafTest]], sizes: Sizes) -> None:
    (groups,), tests = case
    keys = known_keys(groups)
    tests = [NullTest(True), NullTest(False), *tests, *(SetTest((key,)) for key in keys)]
    for key in keys:
        tests += [RangeTest(key, None), RangeTest(None, key, high_inclusive=False)]
    check_law(groups, tests, sizes)


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 40, 3000]), st.sampled_from([1, 8, 90]))
@settings(max_examples=amount(5, 125), deadline=None)
def test_many_blocks_and_sections_are_found_as_an_oracle_finds_them(seed: int, distinct: int, run_limit: int) -> None:
    """More blocks than are read at once, more sections than are decoded at once, runs longer than 64 rows."""
    chance = random.Random(seed)
    values: list[int | None] = []
    while len(values) < 4000:
        value = None if chance.random() < 0.1 else chance.randrange(distinct) * 10**6
        values += [value] * chance.randint(1, run_limit)
    groups = [group(0, values[:1500]), group(BLOCK_ROWS, []), group(2 * BLOCK_ROWS, values[1500:])]
    keys = sorted(chance.randrange(distinct) * 10**6 + chance.choice([0, 0, 1]) for _ in range(20))
    tests: list[LeafTest] = [SetTest(tuple(sorted(set(keys)))), SetTest((keys[0],)), SetTest((keys[0],), negated=True)]
    tests += [RangeTest(keys[3], keys[16]), RangeTest(keys[3], keys[16], negated=True), RangeTest(None, None)]
    check_law(groups, tests, TINY)


@given(cases(5))
@settings(max_examples=amount(20, 1500), deadline=None)
def test_blocks_of_several_segments_are_searched_together(case: tuple[list[list[Group]], list[LeafTest]]) -> None:
    """The same operations search them all, and give what each blob gives alone."""
    segments, tests = case
    pieces = [built(groups) for groups in segments]
    for test in [*tests[:1], *(SetTest((key,)) for key in known_keys([one for groups in segments for one in groups]))]:
        asked, expected = [], []
        for piece in pieces:
            blocks = run(opened(piece)[0].prepare(AskedTest(test))).blocks
            if blocks is not None:
                asked.append(run(blocks()))
                expected.append(expected_rows(piece.groups, test))
        if asked:
            assert asked[0].rows_of_all(asked) == expected


def test_a_bad_block_among_those_of_several_segments_is_an_error() -> None:
    """Its checksum is good, so that only parsing tells."""
    asked: list[Any] = []
    for number in range(3):
        postings, _ = opened(built([group(0, range(100 * number, 100 * number + 50))], Sizes()))
        blocks = run(postings.prepare(AskedTest(RangeTest(None, 10**6)))).blocks
        assert blocks is not None
        asked.append(run(blocks()))
    bad = replace(asked[1].stored, views=[memoryview(bytes(len(view))) for view in asked[1].stored.views])
    with pytest.raises(CorruptFileError):
        asked[0].rows_of_all([asked[0], replace(asked[1], stored=bad), asked[2]])


LAST_BASE = 2**32 - BLOCK_ROWS
CORNERS: dict[str, tuple[list[Group], list[LeafTest]]] = {
    "a run over several blocks of 65,536 rows and row groups": (
        [group(0, [7] * 100 + [8] + [7] * (2 * BLOCK_ROWS - 101)), group(2 * BLOCK_ROWS, [7] * 5)],
        [SetTest((7,)), SetTest((7, 8))],
    ),
    "the last row of the row space": (
        [group(LAST_BASE, [row % 5 for row in range(BLOCK_ROWS)])],
        [*(SetTest((key,)) for key in range(5)), SetTest((0,), negated=True), NullTest(False)],
    ),
    # Row and key do not fit into 64 bits together: keys that differ in their lowest bits only are sorted again.
    "keys that differ in bits that the sort leaves out": (
        [group(0, [MAXIMUM, *(MINIMUM + 3 - row % 4 for row in range(500)), MAXIMUM - 1])],
        [*(SetTest((MINIMUM + k,)) for k in range(4)), RangeTest(0, MAXIMUM - 1)],
    ),
}


@pytest.mark.parametrize("name", CORNERS)
def test_corners_are_found_as_an_oracle_finds_them(name: str) -> None:
    check_law(*CORNERS[name], Sizes())


Million = tuple[Piece, np.ndarray[tuple[int], np.dtype[np.int64]]]


@pytest.fixture(scope="module")
def million() -> Million:
    """1 M distinct values in 4 row groups."""
    values = np.random.default_rng(3).permutation(1_000_000) * 64 + 5
    samples = [Sample(LONG, own.tolist(), [], column_of(pa.array(own), LONG)) for own in values.reshape(4, -1)]
    return built([Group(sample, 4 * BLOCK_ROWS * at) for at, sample in enumerate(samples)], Sizes()), values


def row_of(place: int) -> int:
    return place // 250_000 * 4 * BLOCK_ROWS + place % 250_000


def bounds(postings: Postings, test: LeafTest) -> tuple[int, int]:
    return run(postings.prepare(AskedTest(test))).bounds


def check_reads(piece: Piece, key: Key, row: int) -> Postings:
    postings, reader = opened(piece)
    assert postings.evaluate(SetTest((key,))).rows == BitMap([row])
    reads, length = reader.taken()
    assert reads <= 3
    assert length <= 64 * 1024
    assert postings.evaluate(SetTest((key,))).rows == BitMap([row])
    assert reader.taken()[0] == 1, "the directory is kept"
    return postings


def test_a_look_up_among_a_million_keys_takes_3_reads_of_64_kib(million: Million) -> None:
    piece, values = million
    assert len(piece.payload.data) < 3.6 * 1_000_000
    for place in (0, 1, 77_777, 999_999):
        postings = check_reads(piece, int(values[place]), row_of(place))
        assert not postings.evaluate(SetTest((int(values[place]) + 1,))).rows


def test_a_look_up_among_a_million_strings_takes_3_reads_of_64_kib() -> None:
    numbers = np.random.default_rng(4).permutation(1_000_000)
    column = column_of(pa.array(numbers).cast(pa.string()), STRING)
    piece = built([Group(Sample(STRING, numbers.tolist(), [], column), 0)], Sizes())
    check_reads(piece, str(numbers[123]).encode(), 123)


def test_unique_keys_are_known_to_have_at_most_one_row(million: Million) -> None:
    postings, _ = opened(million[0])
    assert bounds(postings, SetTest((int(million[1][5]),))) == (0, 1)
    least, most = bounds(postings, RangeTest(64 * 100_000, 64 * 500_000))
    assert least <= 400_000 <= most <= least + 2 * 4096


def test_a_wide_range_is_read_from_its_lesser_side(million: Million) -> None:
    piece, values = million
    postings, reader = opened(piece)
    rows = postings.evaluate(RangeTest(64 * 10_000, None)).rows
    assert len(rows) == 990_000
    assert reader.taken()[1] < 200_000
    assert {row_of(int(place)) for place in np.flatnonzero(values < 64 * 10_000)}.isdisjoint(rows)


def test_a_key_of_many_rows_is_counted_by_the_directory() -> None:
    postings, _ = opened(built([group(0, [1, 2, 3] * 5000 + [4])], Sizes()))
    assert bounds(postings, SetTest((2,))) == (5000, 5000)
    assert bounds(postings, SetTest((2, 3), negated=True)) == (5001, 5001)


@pytest.mark.parametrize("layout", ["bitmaps", "postings", None])
def test_postings_are_built_unless_bitmaps_are_asked_for(layout: str | None) -> None:
    column = SortedColumn(group(0, [1, 2, 1]).sample.column)
    builder = KINDS["bitmap"].builder({"layout": layout} if layout else {})
    found = [one.blob_type for one in (*builder.add(column, 0), *builder.finish())]
    assert found == [PAIMON_BITMAP if layout == "bitmaps" else POSTINGS]


def _are_sets(piece: Piece) -> list[bool]:
    directory = opened(piece)[0].directory
    run(directory.load())
    return [bool(is_set) for is_set in directory.table.are_sets[:-1]]


@pytest.mark.parametrize(("row_count", "are_sets"), [(20 * 2048, False), (20 * 2048 + 1, True)])
def test_keys_of_many_rows_are_row_sets(row_count: int, are_sets: bool) -> None:
    piece = built([group(0, [row * 7919 % 20 for row in range(row_count)])], Sizes())
    assert _are_sets(piece) == [are_sets] * 20
    postings, _ = opened(piece)
    for test in (SetTest((3, 4, 99)), SetTest((3,), True), RangeTest(5, 18), RangeTest(5, None, True, True, True)):
        assert postings.evaluate(test).rows == expected_rows(piece.groups, test)
    assert keys_of(run(postings.keys_of(None))) == piece.groups[0].sample.keys


@pytest.mark.parametrize("of", [int, str])
def test_a_dense_key_is_a_row_set_among_runs_of_rare_keys(of: type) -> None:
    chooser = random.Random(3)
    values = [of(50 if chooser.random() < 0.5 else row * 31 % 1000) for row in range(2 * BLOCK_ROWS)]
    groups = [group(0, values), group(3 * BLOCK_ROWS, [None, *values[:300]])]
    piece = built(groups, Sizes())
    assert sum(_are_sets(piece)) == 1
    assert len(_are_sets(piece)) > 10
    postings, _ = opened(piece)
    every = keys_of(run(postings.keys_of(None)))
    dense = key_of(of(50), piece.groups[0].sample.value_type)
    above = key_of(of(60), piece.groups[0].sample.value_type)
    tests = [SetTest((dense,)), SetTest((dense, above), True), RangeTest(dense, above), RangeTest(None, dense)]
    for test in (*tests, RangeTest(dense, None, False), NullTest(True)):
        assert postings.evaluate(test).rows == expected_rows(piece.groups, test)
        within = run(postings.within(AskedTest(test))) if isinstance(test, SetTest) else None
        if within is not None:
            rows, kept = run(within.read_once())
            assert rows == expected_rows(piece.groups, test)
            assert keys_of(run(kept.keys_of(rows))) == [every[at] for at in _places(piece, rows)]


def _places(piece: Piece, rows: BitMap) -> list[int]:
    """The places of rows among the rows of all row groups."""
    every = BitMap.union(BitMap(), *(one.every_row for one in piece.groups))
    return [every.rank(row) - 1 for row in rows]


@pytest.mark.parametrize("sizes", [SMALL_SIZES, Sizes()], ids=["pages", "root"])
@pytest.mark.parametrize("name", SMALL)
def test_bytes_that_are_wrong_under_good_checksums_do_no_harm(name: str, sizes: Sizes) -> None:
    """Whatever is decoded, it is refused or a set of the segment's own rows, and no length is trusted."""
    piece = built(SMALL[name], sizes)
    tests = small_tests(piece.groups)
    everything = BitMap.union(BitMap(), *(one.every_row for one in piece.groups))
    unharmed = resealed(piece, bytearray(piece.payload.data)).payload
    assert (unharmed.data, unharmed.layout.tolist()) == (piece.payload.data, piece.payload.layout.tolist())
    chance = random.Random(1)
    refused = {"rows": 0, "keys": 0}
    positions = some(range(len(piece.payload.data)), 150)
    for position in positions:
        data = bytearray(piece.payload.data)
        data[position] = chance.choice([0, 255, data[position] ^ 1, data[position] ^ 128])
        damaged = resealed(piece, data)
        try:
            postings, _ = opened(damaged)
            for test in chance.sample(tests, 4):
                assert run(run(postings.prepare(AskedTest(test))).rows(None)).rows <= everything
        except DOCUMENTED:
            refused["rows"] += 1
        try:
            assert run(opened(damaged)[0].keys_of(None)).row_count == len(everything)
        except DOCUMENTED:
            refused["keys"] += 1
    assert min(refused.values()) > 0.2 * len(positions)


def _stored(payload: Payload, reader: CountingReader, spans: Sequence[tuple[int, int]]) -> StoredPayload:
    every = np.array(spans, np.int64).reshape(-1, 2)
    return StoredPayload(Blob(reader, 0, reader.size), POSTINGS, payload.layout, LONG, every)


def test_postings_of_other_row_groups_or_another_domain_or_version_are_refused() -> None:
    piece = built(SMALL["long"])
    payload, ((first, first_count), (second, second_count)) = piece.payload, (one.span for one in piece.groups)
    for spans in (
        [],
        [(first, first_count - 1), (second, second_count)],
        [(first, first_count + 1), (second, second_count - 1)],
        [(first, first_count), (2 * BLOCK_ROWS, second_count)],
    ):
        with pytest.raises(CorruptFileError, match="other row groups"):
            Postings(_stored(payload, CountingReader(payload.data), spans))
    with pytest.raises(UnsupportedError, match="string"):
        replace(piece, groups=tuple(built(SMALL["string"]).groups)).opened()
    layout = payload.layout.copy()
    layout[0] = 2
    with pytest.raises(UnsupportedError, match="2"):
        replace(piece, payload=replace(payload, layout=layout)).opened()


def test_row_groups_that_do_not_make_a_segment_are_refused() -> None:
    with pytest.raises(BuildError, match="row space"):
        built([group(2**32 - 1, [1, 2])])


@dataclass
class StoppedReader(CountingReader):
    """A reader whose first read comes back late: after the other thread is done, unless that waits for it."""

    is_stopped: Event = field(default_factory=Event)
    go_on: Event = field(default_factory=Event)

    def read(self, offset: int, length: int) -> memoryview:
        if not self.is_stopped.is_set():
            self.is_stopped.set()
            self.go_on.wait(timeout=0.3)
        return super().read(offset, length)


@pytest.mark.parametrize("negated", [False, True])
def test_threads_that_open_postings_together_do_not_forget_what_the_other_has_read(negated: bool) -> None:
    piece, test = built([group(0, [*range(40), None]), group(BLOCK_ROWS, range(20, 60))]), SetTest((5, 30, 59), negated)
    reader = StoppedReader(piece.payload.data)
    postings = Postings(_stored(piece.payload, reader, [one.span for one in piece.groups]))
    answers: list[BitMap] = []
    late = Thread(target=lambda: answers.append(postings.evaluate(test).rows))
    late.start()
    reader.is_stopped.wait()
    answers.append(postings.evaluate(test).rows)
    reader.go_on.set()
    late.join()

    assert answers == [expected_rows(piece.groups, test)] * 2
    assert postings.evaluate(test).rows == answers[0]
    least, most = bounds(postings, test)
    assert least <= len(answers[0]) <= most


def _merged(segments: list[list[Group]], new_bases: list[int], rows_at_once: int) -> Payload:
    bases = iter(new_bases)
    parts = [built(groups).source([next(bases) for _ in groups]) for groups in segments]
    return merge_postings(parts, TINY, rows_at_once)


@settings(max_examples=amount(16, 400), deadline=None)
@given(cases(4), st.sampled_from([1, 5, 30]), st.data())
def test_merged_postings_are_what_a_build_writes(
    case: tuple[list[list[Group]], list[LeafTest]], rows_at_once: int, data: st.DataObject
) -> None:
    segments, tests = case
    every = placed([group.sample for groups in segments for group in groups])
    kept = data.draw(st.lists(st.sampled_from([True, True, False]), min_size=len(every), max_size=len(every)))
    kept[data.draw(st.integers(0, len(every) - 1))] = True
    new_bases = [one.base if is_kept else -1 for one, is_kept in zip(every, kept, strict=True)]
    groups = [one for one in every if one.base in new_bases]

    piece = Piece(_merged(segments, new_bases, rows_at_once), tuple(groups))
    for test in tests:
        assert piece.rows(test) == expected_rows(groups, test)
    whole, at_once = built(groups).payload, _merged(segments, new_bases, 10**9)
    assert bytes(at_once.data) == bytes(whole.data)
    assert np.array_equal(at_once.layout, whole.layout)
