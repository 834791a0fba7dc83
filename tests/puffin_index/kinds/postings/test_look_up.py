import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Thread
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from puffin_index.errors import BuildError, CorruptFileError, UnsupportedError
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.asked import AskedTest
from puffin_index.keys.columns import Column, SortedColumn
from puffin_index.keys.leaf import Key, LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import ValueType, value_type_named
from puffin_index.kinds.base import Payload
from puffin_index.kinds.postings.blocks import Sizes
from puffin_index.kinds.postings.build import POSTINGS, PlacedColumn, build_postings
from puffin_index.kinds.postings.keys import rows_of_asked
from puffin_index.kinds.postings.look_up import Postings
from puffin_index.kinds.registry import KINDS
from puffin_index.storage.parts import checksum32
from puffin_index.storage.ranged import Blob
from tests.conftest import amount
from tests.counting_reader import CountingReader

GOLDEN = Path(__file__).parents[3] / "golden"
LONG, STRING = value_type_named("long"), value_type_named("string")
MINIMUM, MAXIMUM = -(2**63), 2**63 - 1
BLOCK_ROWS = 65_536
TINY = Sizes(block_runs=3, key_content_bytes=40, root_bytes=150, page_bytes=120, rows_at_once=7)
SMALL_SIZES = Sizes(block_runs=8, key_content_bytes=60, root_bytes=130, page_bytes=100, rows_at_once=20)
DOCUMENTED = (CorruptFileError, UnsupportedError)

Value: TypeAlias = int | str | None
RowGroup: TypeAlias = tuple[int, Sequence[Value]]  # base and values


def column(values: Sequence[Value], value_type: ValueType) -> Column:
    return column_of(pa.array(values, pa.string() if value_type.name == "string" else pa.int64()), value_type)


def built(row_groups: Sequence[RowGroup], value_type: ValueType, sizes: Sizes = TINY) -> Payload:
    return build_postings(
        [PlacedColumn(base, SortedColumn(column(values, value_type))) for base, values in row_groups], sizes
    )


def spans_of(row_groups: Sequence[RowGroup]) -> list[tuple[int, int]]:
    return [(base, len(values)) for base, values in row_groups]


def opened(
    payload: Payload, spans: Sequence[tuple[int, int]], value_type: ValueType
) -> tuple[Postings, CountingReader]:
    reader = CountingReader(payload.data)
    return Postings(Blob(reader, 0, reader.size), payload.layout, value_type, spans), reader


def key_of(value: int | str) -> Key:
    return value.encode() if isinstance(value, str) else value


def set_test(keys: Iterable[Key], negated: bool = False) -> SetTest:
    found = set(keys)
    texts = tuple(sorted(key for key in found if isinstance(key, bytes)))
    return SetTest(texts or tuple(sorted(key for key in found if isinstance(key, int))), negated)


def is_less(one: Key, other: Key) -> bool:
    if isinstance(one, bytes) and isinstance(other, bytes):
        return one < other
    assert isinstance(one, int)
    assert isinstance(other, int)
    return one < other


def satisfies(value: Value, test: LeafTest) -> bool:
    """The oracle, for one row."""
    if isinstance(test, NullTest):
        return (value is None) == test.is_null
    if value is None:
        return False
    key = key_of(value)
    if isinstance(test, SetTest):
        return (key in test.keys) != test.negated
    above = test.low is None or is_less(test.low, key) or (key == test.low and test.low_inclusive)
    below = test.high is None or is_less(key, test.high) or (key == test.high and test.high_inclusive)
    return (above and below) != test.negated


def expected_rows(row_groups: Sequence[RowGroup], test: LeafTest) -> BitMap:
    return BitMap(
        base + row for base, values in row_groups for row, value in enumerate(values) if satisfies(value, test)
    )


INTS = st.one_of(
    st.integers(-3, 12),
    st.sampled_from([MINIMUM, MINIMUM + 1, -1, MAXIMUM - 1, MAXIMUM]),
    st.integers(MINIMUM, MAXIMUM),
)
TEXTS = st.one_of(
    st.sampled_from(
        ["", "a", "aa", "ab", "abc", "abcd" * 20, "abcd" * 20 + "e", "b" * 300, "b" * 299 + "c", "é", "\0"]
    ),
    st.text(max_size=4),
)


@st.composite
def segments(draw: st.DrawFn, values: st.SearchStrategy[Value]) -> list[RowGroup]:
    """Row groups with gaps between them; few distinct values, many of them in runs."""
    pool = draw(st.lists(values, min_size=1, max_size=12))
    stretch = st.tuples(st.one_of(st.none(), st.sampled_from(pool), st.sampled_from(pool)), st.integers(1, 6))
    row_groups: list[RowGroup] = []
    base = 0
    for stretches in draw(st.lists(st.lists(stretch, max_size=14), min_size=1, max_size=4)):
        base += BLOCK_ROWS * draw(st.integers(0 if not row_groups else 1, 3))
        group: list[Value] = []
        for value, count in stretches:
            group += [value] * count
        row_groups.append((base, group))
    return row_groups


def leaf_tests(keys: st.SearchStrategy[int] | st.SearchStrategy[bytes]) -> st.SearchStrategy[LeafTest]:
    bounds = st.none() | keys
    return st.one_of(
        st.builds(NullTest, st.booleans()),
        st.builds(set_test, st.lists(keys, max_size=5), st.booleans()),
        st.builds(RangeTest, bounds, bounds, st.booleans(), st.booleans(), negated=st.booleans()),
    )


def check_law(row_groups: Sequence[RowGroup], value_type: ValueType, tests: Sequence[LeafTest], sizes: Sizes) -> None:
    payload = built(row_groups, value_type, sizes)
    assert payload.blob_type == POSTINGS
    for test in tests:
        postings, reader = opened(payload, spans_of(row_groups), value_type)
        least, most = postings.count_bounds(test)
        blocks_end = int(payload.layout[5])
        assert all(offset >= blocks_end for offset, _ in reader.reads), "a block was read"
        cost = postings.cost(test)
        reader.taken()
        expected = expected_rows(row_groups, test)
        assert postings.rows(test) == expected
        assert reader.taken() == cost
        assert least <= len(expected) <= most
        assert postings.rows(test) == expected
        every = [base + row for base, values in row_groups for row in range(len(values))]
        for candidates in (BitMap(), BitMap(every[::3]), BitMap(every[len(every) // 2 :]), BitMap(every[:1])):
            assert postings.rows(test, candidates) == expected & candidates


@given(segments(INTS), st.lists(leaf_tests(INTS), max_size=6), st.sampled_from([TINY, Sizes()]))
@settings(max_examples=amount(30, 750), deadline=None)
def test_ints_are_found_as_an_oracle_finds_them(
    row_groups: list[RowGroup], tests: list[LeafTest], sizes: Sizes
) -> None:
    values = sorted({value for _, group in row_groups for value in group if isinstance(value, int)})
    of_values = [SetTest((value,)) for value in values] + [RangeTest(value, None) for value in values]
    check_law(row_groups, LONG, [NullTest(True), NullTest(False), *tests, *of_values], sizes)


@given(segments(TEXTS), st.lists(leaf_tests(TEXTS.map(str.encode)), max_size=6), st.sampled_from([TINY, Sizes()]))
@settings(max_examples=amount(30, 750), deadline=None)
def test_strings_are_found_as_an_oracle_finds_them(
    row_groups: list[RowGroup], tests: list[LeafTest], sizes: Sizes
) -> None:
    values = sorted({value.encode() for _, group in row_groups for value in group if isinstance(value, str)})
    of_values = [SetTest((value,)) for value in values] + [RangeTest(None, value, True, False) for value in values]
    check_law(row_groups, STRING, [NullTest(True), NullTest(False), *tests, *of_values], sizes)


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 40, 3000]), st.sampled_from([1, 8, 90]))
@settings(max_examples=amount(5, 125), deadline=None)
def test_many_blocks_and_sections_are_found_as_an_oracle_finds_them(seed: int, distinct: int, run_limit: int) -> None:
    """More blocks than are read at once, more sections than are decoded at once, runs longer than 64 rows."""
    chance = random.Random(seed)
    values: list[Value] = []
    while len(values) < 4000:
        value = None if chance.random() < 0.1 else chance.randrange(distinct) * 10**6
        values += [value] * chance.randint(1, run_limit)
    row_groups = [(0, values[:1500]), (BLOCK_ROWS, []), (2 * BLOCK_ROWS, values[1500:])]
    keys = sorted(chance.randrange(distinct) * 10**6 + chance.choice([0, 0, 1]) for _ in range(20))
    tests: list[LeafTest] = [set_test(keys), set_test(keys[:1]), set_test(keys[:1], negated=True)]
    tests += [RangeTest(keys[3], keys[16]), RangeTest(keys[3], keys[16], negated=True), RangeTest(None, None)]
    check_law(row_groups, LONG, tests, TINY)


def check_together(segments_of: Sequence[Sequence[RowGroup]], value_type: ValueType, test: LeafTest) -> None:
    """Blocks of several blobs, searched by the same operations, give what each blob gives alone."""
    asked, expected = [], []
    for row_groups in segments_of:
        postings, _ = opened(built(row_groups, value_type), spans_of(row_groups), value_type)
        blocks = postings.prepare(AskedTest(test)).read(2**20)
        if blocks is not None:
            asked.append(blocks)
            expected.append(expected_rows(row_groups, test))
        assert postings.rows(test) == expected_rows(row_groups, test)
    if asked:
        assert rows_of_asked(asked) == expected


@given(st.lists(segments(INTS), min_size=1, max_size=5), leaf_tests(INTS))
@settings(max_examples=amount(40, 1000), deadline=None)
def test_ints_of_several_segments_are_found_together(segments_of: list[list[RowGroup]], test: LeafTest) -> None:
    check_together(segments_of, LONG, test)
    for value in sorted({v for row_groups in segments_of for _, group in row_groups for v in group if v is not None}):
        check_together(segments_of, LONG, SetTest((value,)))


@given(st.lists(segments(TEXTS), min_size=1, max_size=5), leaf_tests(TEXTS.map(str.encode)))
@settings(max_examples=amount(20, 500), deadline=None)
def test_strings_of_several_segments_are_found_together(segments_of: list[list[RowGroup]], test: LeafTest) -> None:
    check_together(segments_of, STRING, test)


def test_a_bad_block_among_those_of_several_segments_is_an_error() -> None:
    """Its checksum is good, so that only parsing tells."""
    asked = []
    for number in range(3):
        row_groups = [(0, list(range(100 * number, 100 * number + 50)))]
        postings, _ = opened(built(row_groups, LONG, Sizes()), spans_of(row_groups), LONG)
        blocks = postings.prepare(AskedTest(RangeTest(None, 10**6))).read(2**20)
        assert blocks is not None
        asked.append(blocks)
    bad = replace(asked[1].stored, views=[memoryview(bytes(len(view))) for view in asked[1].stored.views])
    with pytest.raises(CorruptFileError):
        rows_of_asked([asked[0], replace(asked[1], stored=bad), asked[2]])


def test_decimals_of_38_digits_are_found() -> None:
    wide = value_type_named("decimal(38,2)")
    values = column_of(pa.array([None, 10, -10, 10**30, -(10**30), 10], pa.decimal128(38, 2)), wide)
    payload = build_postings([PlacedColumn(0, SortedColumn(values))])
    postings, _ = opened(payload, [(0, 6)], wide)
    key = values.bytes_keys[1].as_py()
    assert postings.rows(SetTest((key,))) == BitMap([1, 5])
    assert postings.rows(RangeTest(None, key, high_inclusive=False)) == BitMap([2, 4])


def test_floats_are_found_with_nan_as_the_greatest_and_one_zero() -> None:
    double = value_type_named("double")
    values = column_of(pa.array([0.0, -0.0, float("nan"), None, -1.5, float("inf")]), double)
    payload = build_postings([PlacedColumn(0, SortedColumn(values))])
    postings, _ = opened(payload, [(0, 6)], double)
    zero, nan = int(values.int_keys[0]), int(values.int_keys[2])
    assert postings.rows(SetTest((zero,))) == BitMap([0, 1])
    assert postings.rows(RangeTest(zero, None, low_inclusive=False)) == BitMap([2, 5])
    assert postings.rows(SetTest((nan,))) == BitMap([2])


def test_a_run_over_several_blocks_of_65536_rows_and_row_groups_is_found() -> None:
    full = np.full(2 * BLOCK_ROWS, 7)
    full[100] = 8
    columns = [
        PlacedColumn(0, SortedColumn(column_of(pa.array(full), LONG))),
        PlacedColumn(2 * BLOCK_ROWS, SortedColumn(column([7] * 5, LONG))),
    ]
    payload = build_postings(columns)
    postings, _ = opened(payload, [(0, 2 * BLOCK_ROWS), (2 * BLOCK_ROWS, 5)], LONG)
    everything = BitMap(range(2 * BLOCK_ROWS + 5))
    assert postings.rows(SetTest((7,))) == everything - BitMap([100])
    assert postings.rows(SetTest((7, 8))) == everything
    assert len(payload.data) < 250


def test_the_last_row_of_the_row_space_is_found() -> None:
    base = 2**32 - BLOCK_ROWS
    values = np.arange(BLOCK_ROWS) % 5
    payload = build_postings([PlacedColumn(base, SortedColumn(column_of(pa.array(values), LONG)))])
    postings, _ = opened(payload, [(base, BLOCK_ROWS)], LONG)
    for key in range(5):
        expected = BitMap((np.flatnonzero(values == key) + base).tolist())
        assert postings.rows(SetTest((key,))) == expected
        assert postings.rows(SetTest((key,), negated=True)).isdisjoint(expected)
    assert postings.rows(SetTest((0,))).max() == 2**32 - 1
    assert postings.rows(NullTest(False)) == BitMap(range(base, 2**32))


def test_keys_that_differ_in_bits_that_the_sort_leaves_out_are_in_order() -> None:
    """Row and key do not fit into 64 bits together: keys that differ in their lowest bits only are sorted again."""
    values: list[Value] = [MAXIMUM, *(MINIMUM + 3 - row % 4 for row in range(500)), MAXIMUM - 1]
    row_groups: list[RowGroup] = [(0, values)]
    check_law(row_groups, LONG, [SetTest((MINIMUM + k,)) for k in range(4)] + [RangeTest(0, MAXIMUM - 1)], Sizes())


@pytest.mark.parametrize("value_type", [LONG, STRING])
@pytest.mark.parametrize("values", [[], [None, None, None]])
def test_row_groups_without_values_have_no_rows(value_type: ValueType, values: list[Value]) -> None:
    key: Key = b"a" if value_type is STRING else 1
    tests: list[LeafTest] = [NullTest(True), NullTest(False), set_test([key]), set_test([key], negated=True)]
    tests += [RangeTest(None, None), RangeTest(key, None, negated=True), SetTest(()), SetTest((), negated=True)]
    check_law([(0, values), (BLOCK_ROWS, [])], value_type, tests, Sizes())


def test_equal_input_gives_equal_bytes() -> None:
    row_groups: list[RowGroup] = [(0, ["b", None, "a", "a"]), (BLOCK_ROWS, ["c"] * 9)]
    assert built(row_groups, STRING).data == built(row_groups, STRING).data


GOLDEN_ROW_GROUPS: dict[str, tuple[ValueType, list[RowGroup]]] = {
    "long": (
        LONG,
        [(0, [5, 5, None, -7, MAXIMUM, 5, MINIMUM]), (BLOCK_ROWS, [5] * 40 + [None, 6]), (3 * BLOCK_ROWS, [8])],
    ),
    "string": (STRING, [(0, ["größe", None, "", "größer", "größe"]), (BLOCK_ROWS, ["größer"] * 3 + ["snow ☃"] * 2)]),
}


@pytest.mark.parametrize("name", GOLDEN_ROW_GROUPS)
def test_the_golden_bytes_are_written_and_read(name: str) -> None:
    value_type, row_groups = GOLDEN_ROW_GROUPS[name]
    payload = built(row_groups, value_type)
    golden = (GOLDEN / f"postings_{name}.bin").read_bytes()
    layout = np.frombuffer((GOLDEN / f"postings_{name}.layout").read_bytes(), "<i8")
    # Another zstd may compress otherwise; what was written before must be read.
    if name == "long":
        assert bytes(payload.data) == golden
        assert payload.layout.tolist() == layout.tolist()
    stored = Payload(POSTINGS, golden, layout.astype(np.int64))
    postings, _ = opened(stored, spans_of(row_groups), value_type)
    for value in {value for _, values in row_groups for value in values}:
        test: LeafTest = NullTest(True) if value is None else set_test([key_of(value)])
        assert postings.rows(test) == expected_rows(row_groups, test)


@pytest.fixture(scope="module")
def million() -> tuple[Payload, list[tuple[int, int]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """1 M distinct values in 4 row groups."""
    values = np.random.default_rng(3).permutation(1_000_000) * 64 + 5
    spans = [(4 * BLOCK_ROWS * ordinal, 250_000) for ordinal in range(4)]
    groups = values.reshape(4, -1)
    columns = [
        PlacedColumn(base, SortedColumn(column_of(pa.array(group), LONG)))
        for (base, _), group in zip(spans, groups, strict=True)
    ]
    return build_postings(columns), spans, values


def row_of(place: int) -> int:
    return place // 250_000 * 4 * BLOCK_ROWS + place % 250_000


def test_a_look_up_among_a_million_keys_takes_3_reads_of_64_kib(
    million: tuple[Payload, list[tuple[int, int]], np.ndarray[tuple[int], np.dtype[np.int64]]],
) -> None:
    payload, spans, values = million
    assert len(payload.data) < 3.6 * 1_000_000
    for place in (0, 1, 77_777, 999_999):
        postings, reader = opened(payload, spans, LONG)
        assert postings.rows(SetTest((int(values[place]),))) == BitMap([row_of(place)])
        reads, length = reader.taken()
        assert reads <= 3
        assert length <= 64 * 1024
        assert postings.rows(SetTest((int(values[place]) + 1,))) == BitMap()
        assert reader.taken()[0] == 1, "the directory is kept"


def test_a_look_up_among_a_million_strings_takes_3_reads_of_64_kib() -> None:
    keys = np.random.default_rng(4).permutation(1_000_000)
    texts = pa.array(keys).cast(pa.string())
    payload = build_postings([PlacedColumn(0, SortedColumn(column_of(texts, STRING)))])
    postings, reader = opened(payload, [(0, 1_000_000)], STRING)
    assert postings.rows(SetTest((str(keys[123]).encode(),))) == BitMap([123])
    reads, length = reader.taken()
    assert reads <= 3
    assert length <= 64 * 1024


def test_unique_keys_are_known_to_have_at_most_one_row(
    million: tuple[Payload, list[tuple[int, int]], np.ndarray[tuple[int], np.dtype[np.int64]]],
) -> None:
    payload, spans, values = million
    postings, _ = opened(payload, spans, LONG)
    assert postings.count_bounds(SetTest((int(values[5]),))) == (0, 1)
    least, most = postings.count_bounds(RangeTest(64 * 100_000, 64 * 500_000))
    assert least <= 400_000 <= most <= least + 2 * 4096


def test_a_wide_range_is_read_from_its_lesser_side(
    million: tuple[Payload, list[tuple[int, int]], np.ndarray[tuple[int], np.dtype[np.int64]]],
) -> None:
    payload, spans, values = million
    postings, reader = opened(payload, spans, LONG)
    rows = postings.rows(RangeTest(64 * 10_000, None))
    assert len(rows) == 990_000
    assert reader.taken()[1] < 200_000
    assert {row_of(int(place)) for place in np.flatnonzero(values < 64 * 10_000)}.isdisjoint(rows)


def test_a_key_of_many_rows_is_counted_by_the_directory() -> None:
    row_groups: list[RowGroup] = [(0, [1, 2, 3] * 5000 + [4])]
    postings, _ = opened(built(row_groups, LONG, Sizes()), spans_of(row_groups), LONG)
    assert postings.count_bounds(SetTest((2,))) == (5000, 5000)
    assert postings.count_bounds(SetTest((2, 3), negated=True)) == (5001, 5001)


def test_postings_are_built_for_keys_of_few_rows() -> None:
    for row_count, pays in ((4096, True), (4097, False), (0, True)):
        builder = KINDS["bitmap"].builder({})
        builder.add(SortedColumn(column([row % 2 for row in range(row_count)], LONG)), 0)
        assert [one.payload.blob_type for one in builder.finish()] == [POSTINGS] * pays


SMALL: list[tuple[ValueType, list[RowGroup]]] = [
    (LONG, [(0, [k % 7 for k in range(14)] + [None] * 3), (BLOCK_ROWS, [3] * 9 + [k % 2 for k in range(9)])]),
    (STRING, [(0, [f"key {k % 7}" for k in range(14)] + [None]), (BLOCK_ROWS, ["key 3"] * 9 + ["long" * 30])]),
]


def small_tests(row_groups: Sequence[RowGroup]) -> list[LeafTest]:
    """Tests that together read every byte: one for each key, and others."""
    keys = list(dict.fromkeys(key_of(v) for _, values in row_groups for v in values if v is not None))
    tests: list[LeafTest] = [set_test([key]) for key in keys]
    return [*tests, RangeTest(keys[2], keys[5]), RangeTest(keys[2], keys[4], negated=True), NullTest(True)]


def survives(payload: Payload, row_groups: Sequence[RowGroup], value_type: ValueType) -> int:
    """Check that each test is answered rightly or refused; return how many are refused."""
    refused = 0
    tests = small_tests(row_groups)
    try:
        postings, _ = opened(payload, spans_of(row_groups), value_type)
    except DOCUMENTED:
        return len(tests)
    for test in tests:
        try:
            expected = expected_rows(row_groups, test)
            assert postings.rows(test) == expected
            least, most = postings.count_bounds(test)
            assert least <= len(expected) <= most
        except DOCUMENTED:
            refused += 1
    return refused


@pytest.mark.parametrize(("value_type", "row_groups"), SMALL, ids=["long", "string"])
def test_a_flipped_bit_is_refused_wherever_it_is(value_type: ValueType, row_groups: list[RowGroup]) -> None:
    payload = built(row_groups, value_type, SMALL_SIZES)
    assert survives(payload, row_groups, value_type) == 0
    for position in range(0, len(payload.data), amount(3, 1)):
        data = bytearray(payload.data)
        data[position] ^= 1 << position % 8
        assert survives(Payload(POSTINGS, data, payload.layout), row_groups, value_type) > 0, position


def resealed(data: bytearray, layout: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Payload:
    """The blob with every checksum made good again, as someone who wishes harm would."""
    _, _, _, _, _, nulls_from, _, pages_from, root_from, _ = layout.tolist()
    page_starts = [root_from]
    for start in page_starts:  # the root's children are added while it is looked at
        count, level = int.from_bytes(data[start + 4 : start + 8], "little"), data[start + 2]
        begin = int.from_bytes(data[start + 24 : start + 32], "little")
        for child in range(min(count, 100)):
            at = start + 32 + 8 * child
            end = int.from_bytes(data[at : at + 8], "little")
            if level and start == root_from and begin < end <= root_from:
                page_starts.append(begin)
            begin = end
    for start in reversed(page_starts):
        count = int.from_bytes(data[start + 4 : start + 8], "little")
        begin = int.from_bytes(data[start + 24 : start + 32], "little")
        for child in range(min(count, 100)):
            at = start + 32 + 8 * child
            end = int.from_bytes(data[at : at + 8], "little")
            seal = start + 32 + 16 * count + 4 * child
            if begin <= end and seal + 4 <= len(data):
                data[seal : seal + 4] = checksum32(bytes(data[begin:end])).to_bytes(4, "little")
            begin = end
    good = layout.copy()
    good[6], good[9] = checksum32(bytes(data[nulls_from:pages_from])), checksum32(bytes(data[root_from:]))
    return Payload(POSTINGS, data, good)


@pytest.mark.parametrize("sizes", [SMALL_SIZES, Sizes()], ids=["pages", "root"])
@pytest.mark.parametrize(("value_type", "row_groups"), SMALL, ids=["long", "string"])
def test_bytes_that_are_wrong_under_good_checksums_do_no_harm(
    value_type: ValueType, row_groups: list[RowGroup], sizes: Sizes
) -> None:
    """Whatever is decoded, it is refused or a set of the segment's own rows, and no length is trusted."""
    payload = built(row_groups, value_type, sizes)
    tests = small_tests(row_groups)
    everything = BitMap(base + row for base, values in row_groups for row in range(len(values)))
    unharmed = resealed(bytearray(payload.data), payload.layout)
    assert (unharmed.data, unharmed.layout.tolist()) == (payload.data, payload.layout.tolist())
    chance = random.Random(1)
    refused = 0
    positions = range(0, len(payload.data), amount(3, 1))
    for position in positions:
        data = bytearray(payload.data)
        data[position] = chance.choice([0, 255, data[position] ^ 1, data[position] ^ 128])
        try:
            postings, _ = opened(resealed(data, payload.layout), spans_of(row_groups), value_type)
            for test in chance.sample(tests, 4):
                postings.count_bounds(test)
                postings.cost(test)
                assert postings.rows(test) <= everything
        except DOCUMENTED:
            refused += 1
    assert refused > 0.2 * len(positions)


@pytest.mark.parametrize(("value_type", "row_groups"), SMALL, ids=["long", "string"])
def test_a_blob_cut_short_is_refused(value_type: ValueType, row_groups: list[RowGroup]) -> None:
    payload = built(row_groups, value_type)
    for length in range(len(payload.data)):
        cut = Payload(POSTINGS, bytes(payload.data)[:length], payload.layout)
        # IS NULL is answered from its own part, which may still be whole.
        assert survives(cut, row_groups, value_type) >= len(small_tests(row_groups)) - 1


@pytest.mark.parametrize(("value_type", "row_groups"), SMALL, ids=["long", "string"])
def test_a_wrong_layout_is_refused_or_does_no_harm(value_type: ValueType, row_groups: list[RowGroup]) -> None:
    payload = built(row_groups, value_type)
    for place in range(len(payload.layout)):
        for number in (-1, 0, 1, 2, int(payload.layout[place]) + 1, int(payload.layout[place]) - 1, 2**40, MAXIMUM):
            layout = payload.layout.copy()
            layout[place] = number
            survives(Payload(POSTINGS, payload.data, layout), row_groups, value_type)
    for length in range(len(payload.layout)):
        cut = Payload(POSTINGS, payload.data, payload.layout[:length])
        assert survives(cut, row_groups, value_type) == len(small_tests(row_groups))


@pytest.mark.parametrize(("value_type", "row_groups"), SMALL, ids=["long", "string"])
def test_postings_of_other_row_groups_are_refused(value_type: ValueType, row_groups: list[RowGroup]) -> None:
    payload = built(row_groups, value_type)
    (first, first_count), (second, second_count) = spans_of(row_groups)
    same_count = [(first, first_count + 1), (second, second_count - 1)]
    moved = [(first, first_count), (2 * BLOCK_ROWS, second_count)]
    for spans in ([(first, first_count)], [(first, first_count - 1), (second, second_count)], same_count, moved, []):
        with pytest.raises(CorruptFileError, match="other row groups"):
            opened(payload, spans, value_type)


def test_postings_of_another_domain_or_version_are_refused() -> None:
    value_type, row_groups = SMALL[0]
    payload = built(row_groups, value_type)
    with pytest.raises(UnsupportedError, match="string"):
        opened(payload, spans_of(row_groups), STRING)
    layout = payload.layout.copy()
    layout[0] = 2
    with pytest.raises(UnsupportedError, match="2"):
        opened(Payload(POSTINGS, payload.data, layout), spans_of(row_groups), value_type)


def test_row_groups_that_do_not_make_a_segment_are_refused() -> None:
    with pytest.raises(BuildError):
        build_postings([])
    with pytest.raises(BuildError, match="types"):
        build_postings(
            [
                PlacedColumn(0, SortedColumn(column([1], LONG))),
                PlacedColumn(BLOCK_ROWS, SortedColumn(column(["a"], STRING))),
            ]
        )
    with pytest.raises(BuildError, match="base"):
        build_postings(
            [
                PlacedColumn(BLOCK_ROWS, SortedColumn(column([1], LONG))),
                PlacedColumn(0, SortedColumn(column([1], LONG))),
            ]
        )
    with pytest.raises(BuildError, match="row space"):
        build_postings([PlacedColumn(2**32 - 1, SortedColumn(column([1, 2], LONG)))])


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
    row_groups: list[RowGroup] = [(0, [*range(40), None]), (BLOCK_ROWS, list(range(20, 60)))]
    payload, test = built(row_groups, LONG), set_test((5, 30, 59), negated)
    reader = StoppedReader(payload.data)
    postings = Postings(Blob(reader, 0, reader.size), payload.layout, LONG, spans_of(row_groups))
    answers: list[BitMap] = []
    late = Thread(target=lambda: answers.append(postings.rows(test)))
    late.start()
    reader.is_stopped.wait()
    answers.append(postings.rows(test))
    reader.go_on.set()
    late.join()

    assert answers == [expected_rows(row_groups, test)] * 2
    assert postings.rows(test) == answers[0]
    least, most = postings.count_bounds(test)
    assert least <= len(answers[0]) <= most
