"""What is merged answers as what it was made of, whatever that was, and whatever is left out."""

from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings, strategies as st
from pyroaring import BitMap

from puffin_index.errors import BuildError, CorruptFileError, UnsupportedError
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import value_type_named
from puffin_index.keys.values import key_of
from puffin_index.kinds.base import DROPPED, MergePart
from puffin_index.kinds.bsi.kind import SlicesBuilder
from puffin_index.kinds.bsi.own_slices import BSI, fits_slices, is_small
from puffin_index.kinds.held_keys import HoldsKeys
from puffin_index.kinds.kind import Answer
from puffin_index.kinds.postings.look_up import Postings
from puffin_index.kinds.registry import KINDS
from puffin_index.storage.ranged import run
from tests.conftest import amount
from tests.puffin_index.kinds.columns import Sample, leaf_tests, sample_of
from tests.puffin_index.kinds.merged_sample import (
    BLOCK_ROWS,
    POSTINGS_OPTIONS,
    Group,
    Piece,
    built_by,
    covered,
    expected_rows,
    merge,
    merged,
    placed,
    row_group_lists,
    segment,
)
from tests.puffin_index.kinds.test_bad_bytes import flips

EXACT_BUILDS: list[tuple[str, dict[str, str]]] = [
    ("bitmap", {}),
    ("bitmap", {"index-block-size": "64"}),
    ("bitmap", POSTINGS_OPTIONS),
    ("bsi", {}),
    ("bsi", {"compression": "none"}),
]
FILTER_BUILDS: list[tuple[str, dict[str, str]]] = [("bloom", {}), ("bloom", {"items": "3000"})]
BUILDS = [*EXACT_BUILDS, *FILTER_BUILDS]
LONG = value_type_named("long")


def _is_right(kind: str, piece: Piece, test: LeafTest) -> bool:
    """Whether a payload gives the rows that match, or more if its kind gives an upper bound."""
    found, expected = piece.rows(test), expected_rows(piece.groups, test)
    return found >= expected if KINDS[kind].answers(test) < Answer.EXACT else found == expected


def _merged_pieces(
    kind: str, options: dict[str, str], of_groups: list[Sample], data: st.DataObject
) -> tuple[list[Piece], set[int]]:
    """Two segments of row groups, one perhaps merged before, become one without some of them; and which those are."""
    cut = data.draw(st.integers(0, len(of_groups)))
    segments = [segment(kind, options, placed(some)) for some in (of_groups[:cut], of_groups[cut:]) if some]
    if data.draw(st.booleans()):
        segments[0] = merged(segments[:1])
    dropped = data.draw(st.sets(st.integers(0, len(of_groups) - 1), max_size=len(of_groups) - 1))
    return merged(segments, frozenset(dropped)), dropped


@pytest.mark.parametrize(("kind", "options"), BUILDS)
@settings(max_examples=amount(6, 150), deadline=None)
@given(st.data())
def test_merged_indexes_answer_as_every_row_looked_at(kind: str, options: dict[str, str], data: st.DataObject) -> None:
    of_groups = data.draw(row_group_lists())
    pieces, _ = _merged_pieces(kind, options, of_groups, data)
    for _ in range(4):
        test = data.draw(leaf_tests(data.draw(st.sampled_from(of_groups))))
        for piece in pieces:
            assert _is_right(kind, piece, test)
            index, _reader = piece.opened()
            if len(piece.groups) > 1:
                chosen = data.draw(st.lists(st.sampled_from(piece.groups), max_size=2))
                # Rows of other payloads are among the candidates, too.
                candidates = BitMap.union(BitMap([3, 2**32 - 1]), *(group.every_row for group in chosen))
                found = index.evaluate(test, candidates)
                expected = expected_rows(piece.groups, test) & candidates
                assert found.rows == expected if found.exact else found.rows >= expected


@settings(max_examples=amount(6, 150), deadline=None)
@given(row_group_lists())
def test_merged_filters_drop_what_the_filters_dropped(of_groups: list[Sample]) -> None:
    pieces = segment("bloom", {}, placed(of_groups))
    (one,) = merged([pieces])
    keys = sorted({key for sample in of_groups for key in sample.keys if key is not None})
    absent = [key + 1 if isinstance(key, int) and key < 2**63 - 1 else key for key in keys]
    for key in (*keys[:5], *absent[:5]):
        test = SetTest((key,))
        unmerged = [bool(piece.rows(test)) for piece in pieces]
        found = one.rows(test)
        assert [bool(found & group.every_row) for group in one.groups] == [
            found and bool(group.sample.values) for found, group in zip(unmerged, one.groups, strict=True)
        ]


LONGS = [sample_of([1, None, 2, 2] * (place + 1), "long") for place in range(4)]


@settings(max_examples=amount(12, 300), deadline=None)
@given(st.data())
def test_merged_bit_slices_are_those_that_a_build_makes(data: st.DataObject) -> None:
    of_groups = data.draw(row_group_lists())
    pieces, dropped = _merged_pieces("bsi", {}, of_groups, data)
    kept = [sample for place, sample in enumerate(of_groups) if place not in dropped]
    small, anew = SlicesBuilder(KINDS["bsi"], {}), []
    for sample in kept:
        if is_small(len(sample.values)):
            anew += small.gather(sample.column)
        else:
            anew += [*small.finish(), KINDS["bsi"].build(SortedColumn(sample.column), {})]
    anew += small.finish()
    if len(pieces) > len(anew):  # they take fewer bytes apart
        assert sum(len(one.payload.data) for one in pieces) < sum(len(one.data) for one in anew)
        return
    for one, other in zip(pieces, anew, strict=True):
        assert len(one.groups) == other.row_groups
        assert one.payload.blob_type == other.blob_type
        assert bytes(one.payload.data) == bytes(other.data)
        assert one.payload.layout.tolist() == other.layout.tolist()


def test_bit_slices_of_large_row_groups_stay_alone_and_those_not_to_be_compressed_stay_as_they_are() -> None:
    large = sample_of([*range(50_000)], "long")
    groups = placed([LONGS[0], LONGS[1], large, LONGS[2]])
    before = segment("bsi", {"compression": "none"}, groups)
    sources = [piece.source([piece.groups[0].base]) for piece in before]
    for options, sizes in (({}, [2, 1, 1]), ({"compression": "none"}, [1, 1, 1, 1])):
        pieces = covered(merge(sources, options), groups)
        assert [len(piece.groups) for piece in pieces] == sizes
        assert {piece.payload.blob_type for piece in pieces} == {"paimon-bsi-v1" if options else BSI}
        assert not options or [one.payload.data for one in pieces] == [one.payload.data for one in before]
        for piece in pieces:
            assert piece.rows(SetTest((2,))) == expected_rows(piece.groups, SetTest((2,)))


def _length(pieces: Sequence[Piece]) -> int:
    return sum(len(piece.payload.data) for piece in pieces)


FAR = [sample_of([base, base + 1] * 500, "long") for base in (0, 10**12, 10**15)]
IN_RUNS = [
    sample_of([n // 400 for n in range(80_000)], "long"),
    sample_of([n * 7919 % 200 for n in range(80_000)], "long"),
]


@pytest.mark.parametrize(("kind", "of_groups"), [("bsi", FAR), ("bitmap", IN_RUNS)])
def test_what_would_grow_together_stays_apart(kind: str, of_groups: list[Sample]) -> None:
    before = [piece for sample in of_groups for piece in built_by(kind, [sample])]
    pieces = merged([[piece] for piece in before])
    assert len(pieces) == len(of_groups)
    assert _length(pieces) <= _length(before)
    for piece in pieces:
        test = SetTest((piece.groups[0].sample.keys[3],))
        assert piece.rows(test) == expected_rows(piece.groups, test)


@pytest.mark.parametrize("name", ["long", "string"])
def test_bit_slices_of_numbers_and_of_codes_become_one(name: str) -> None:
    """Numbers beside a dictionary, as of a row group that has the least of all numbers."""
    values: list[list[object]] = (
        [[5, None, 7], [-(2**63), 7], [7, 7]] if name == "long" else [["a"], ["b", None], ["a"]]
    )
    groups = placed([sample_of(some, name) for some in values])
    (piece,) = merged([segment("bsi", {}, groups[:2]), merged([segment("bsi", {}, groups[2:])])])
    for key in {key for group in groups for key in group.sample.keys if key is not None}:
        test = SetTest((key,))
        assert piece.rows(test) == expected_rows(groups, test)


@pytest.mark.parametrize(("kind", "options"), [("bitmap", POSTINGS_OPTIONS), ("bsi", {}), ("bloom", {})])
def test_a_payload_that_has_no_neighbour_comes_back_as_it_was(kind: str, options: dict[str, str]) -> None:
    (piece,) = segment(kind, options, placed(LONGS[:1]))
    (same,) = merged([[piece]])
    assert bytes(same.payload.data) == bytes(piece.payload.data)
    assert same.payload.layout.tolist() == piece.payload.layout.tolist()
    assert same.payload.blob_type == piece.payload.blob_type


@pytest.mark.parametrize(("type_name", "value"), [("long", 7), ("string", "7"), ("double", 7.0)])
@pytest.mark.parametrize(("kind", "options"), BUILDS)
def test_row_groups_without_values_merge(kind: str, options: dict[str, str], type_name: str, value: object) -> None:
    key = key_of(value, value_type_named(type_name))
    test = SetTest((key,))
    for lists in ([[], []], [[None], [None, None]], [[], [value], [], [None], []], [[value, None], []]):
        groups = placed([sample_of(values, type_name) for values in lists])
        for piece in merged([merged([segment(kind, options, groups)]), segment(kind, options, groups)]):
            for asked in (test, NullTest(True), NullTest(False), SetTest((), True)):
                assert _is_right(kind, piece, asked)


def test_no_row_group_that_is_kept_gives_no_payload() -> None:
    sources = [piece.source([DROPPED]) for piece in segment("bitmap", {}, placed(LONGS))]
    assert list(merge(sources)) == []


def test_so_many_bytes_of_filters_are_merged_at_a_time_and_no_more() -> None:
    groups = placed(LONGS * 3)
    sources = [piece.source([piece.groups[0].base]) for piece in segment("bloom", {}, groups)]
    limit = 4 * max(source.payload.blob.length for source in sources)
    with patch("puffin_index.kinds.bloom.kind.MERGED_BYTES", limit):
        pieces = covered(merge(sources), groups)
    assert 2 < len(pieces) < len(groups)
    for test in (SetTest((1,)), SetTest((3,))):
        rows = [piece.rows(test) & group.every_row for piece in pieces for group in piece.groups]
        assert [bool(some) for some in rows] == [bool(expected_rows([group], test)) for group in groups]


def _promoted(part: MergePart, type_name: str) -> MergePart:
    """A part of a column that has another type by now."""
    return replace(part, payload=replace(part.payload, value_type=value_type_named(type_name)))


@pytest.mark.parametrize(("old", "new"), [("int", "long"), ("float", "double")])
@pytest.mark.parametrize(("kind", "options"), [("bitmap", {}), ("bitmap", POSTINGS_OPTIONS), ("bsi", {})])
def test_payloads_from_before_and_after_a_promotion_merge(
    kind: str, old: str, new: str, options: dict[str, str]
) -> None:
    values = [[1, 2, 2, None], [2, 2, 1, -3]] if old == "int" else [[1.5, 2.0, 2.0, None], [2.0, 2.0, 1.5, -0.5]]
    before = segment(kind, options, placed([sample_of(values[0], old)]))
    after = segment(kind, options, placed([sample_of(values[1], new)]))
    sources = [before[0].source([0]), after[0].source([BLOCK_ROWS])]
    found = merge([_promoted(source, new) for source in sources])
    (piece,) = covered(found, placed([sample_of(some, new) for some in values]))
    for key in piece.groups[1].sample.keys:
        assert isinstance(key, int)
        assert piece.rows(SetTest((key,))) == expected_rows(piece.groups, SetTest((key,)))


@pytest.mark.parametrize(("old", "new", "key"), [("int", "long", 7), ("float", "double", 4609434218613702656)])
def test_filters_from_before_a_promotion_are_merged_among_themselves(old: str, new: str, key: int) -> None:
    value = 7 if old == "int" else 1.5
    before = segment("bloom", {}, placed([sample_of([value, value + 1], old)] * 2))
    after = segment("bloom", {}, placed([sample_of([value], new)] * 2))
    sources = [piece.source([place * BLOCK_ROWS]) for place, piece in enumerate((*before, *after))]
    found = merge([_promoted(source, new) for source in sources])
    pieces = covered(found, placed([sample_of([value], new)] * 4))
    assert [len(piece.groups) for piece in pieces] == [2, 2]
    assert all(piece.rows(SetTest((key,))) >= expected_rows(piece.groups, SetTest((key,))) for piece in pieces)


@pytest.mark.parametrize("kind", KINDS)
def test_blobs_that_nobody_knows_are_refused_by_name(kind: str) -> None:
    part = segment(kind, {}, placed(LONGS))[0].source([0])
    unknown = replace(part, payload=replace(part.payload, blob_type="puffin-index-new-v9"))
    with pytest.raises(UnsupportedError, match=r"segment\.puffin.*new-v9"):
        list(KINDS[kind].merge([unknown], {}))
    with pytest.raises(UnsupportedError, match=r"segment\.puffin.*new-v9"):
        KINDS[kind].open(unknown.payload)


@pytest.mark.parametrize("options", [{}, POSTINGS_OPTIONS])
def test_rows_beyond_the_row_space_are_refused(options: dict[str, str]) -> None:
    pieces = segment("bitmap", options, placed(LONGS[:1])) * 2
    sources = [piece.source([base]) for piece, base in zip(pieces, (0, 2**32), strict=True)]
    with pytest.raises(BuildError, match="row space"):
        list(merge(sources))


@pytest.mark.parametrize("options", [{}, POSTINGS_OPTIONS])
def test_the_last_rows_of_the_row_space_are_merged_and_found(options: dict[str, str]) -> None:
    last = 2**32 - BLOCK_ROWS
    groups = [Group(LONGS[0], 0), Group(LONGS[1], last)]
    sources = [
        piece.source([group.base]) for group in groups for piece in segment("bitmap", options, placed([group.sample]))
    ]
    (piece,) = covered(merge(sources), groups)
    index, _ = piece.opened()
    assert isinstance(index, Postings)
    assert index.evaluate(SetTest((1,))).rows == BitMap([0, last, last + 4])


@pytest.mark.parametrize(("kind", "options"), BUILDS)
def test_a_flipped_bit_in_what_is_merged_is_an_error_or_changes_no_answer(kind: str, options: dict[str, str]) -> None:
    groups = placed([sample_of([1, None, 2, 2, 5], "long"), sample_of([2, 7, 7, None], "long")])
    small = {"items": "30"} if "items" in options else options
    first, second = (segment(kind, small, placed([group.sample])) for group in groups)
    pieces = [*first, *second]
    for data in flips(bytes(pieces[0].payload.data)):
        sources = [pieces[0].source([0], data), pieces[1].source([BLOCK_ROWS])]
        try:
            (one,) = covered(merge(sources), groups)
        except (CorruptFileError, UnsupportedError) as error:
            if "s3://bucket/segment.puffin" not in str(error):
                raise AssertionError("an error that does not name the file") from error
            continue
        for test in (SetTest((2,)), NullTest(True), RangeTest(2, None)):
            assert _is_right(kind, one, test)


@pytest.mark.parametrize(("kind", "options"), BUILDS)
@settings(max_examples=amount(8, 150), deadline=None)
@given(st.data())
def test_a_payload_lists_every_key_once_or_none(kind: str, options: dict[str, str], data: st.DataObject) -> None:
    of_groups = data.draw(row_group_lists())
    before = segment(kind, options, placed(of_groups))
    for piece in (*before, *_merged_pieces(kind, options, of_groups, data)[0]):
        index, _ = piece.opened()
        if not isinstance(index, HoldsKeys):
            continue
        expected = sorted({key for group in piece.groups for key in group.sample.keys if key is not None})

        listed = run(index.keys(len(expected)))

        if listed is not None:
            assert listed.tolist() == expected if expected else len(listed) == 0
        # Bit slices of numbers have no list of them.
        assert listed is not None or all(fits_slices(group.sample.column) for group in piece.groups)
        assert not expected or run(index.keys(len(expected) - 1)) is None
