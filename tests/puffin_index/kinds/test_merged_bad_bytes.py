"""Flipped bits and cut ends in merged blobs and their layouts: a documented error or the right rows."""

from dataclasses import replace

import numpy as np
import pytest

from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.kinds.postings.build import POSTINGS
from tests.puffin_index.kinds.columns import sample_of
from tests.puffin_index.kinds.merged_sample import Piece, expected_rows, merged, placed, segment
from tests.puffin_index.kinds.postings.postings_sample import SMALL_SIZES, built
from tests.puffin_index.kinds.test_bad_bytes import flips

LONGS = [sample_of([5, None, 5, 9, 9, 9, -3], "long"), sample_of([9, 5, 7], "long"), sample_of([None, 1 << 40], "long")]
STRINGS = [sample_of(["b", None, "b", "", "a" * 9], "string"), sample_of(["b", "ccc"], "string")]
PIECES = {
    f"{kind} of {name}": (kind, merged([segment(kind, {}, placed(some))])[0])
    for kind in ("bitmap", "bloom", "bsi")
    for name, some in (("long", LONGS), ("string", STRINGS))
} | {
    f"postings of {name}": ("bitmap", built(placed(some), SMALL_SIZES))
    for name, some in (("long", LONGS), ("string", STRINGS))
}
LONG_TESTS: tuple[LeafTest, ...] = (
    NullTest(True),
    SetTest((5,)),
    SetTest((9,), True),
    RangeTest(5, 8),
    RangeTest(6, None),
)
TEXT_TESTS: tuple[LeafTest, ...] = (NullTest(False), SetTest((b"b",)), SetTest((b"",), True), RangeTest(b"a", b"c"))
DOCUMENTED = (CorruptFileError, UnsupportedError)


def _check(kind: str, piece: Piece, data: bytes | None = None) -> int:
    """How many answers there were; none of them is wrong."""
    answers = 0
    tests = LONG_TESTS if piece.groups[0].sample.value_type.name == "long" else TEXT_TESTS
    for test in tests:
        try:
            found = piece.rows(test, data)
        except DOCUMENTED as error:
            if "s3://bucket/segment.puffin" not in str(error):
                raise AssertionError("an error that does not name the file") from error
            continue
        expected = expected_rows(piece.groups, test)
        assert found >= expected
        assert found == expected or kind == "bloom"
        answers += 1
    return answers


@pytest.mark.parametrize("name", PIECES)
def test_a_flipped_bit_never_gives_wrong_rows(name: str) -> None:
    kind, piece = PIECES[name]
    whole = bytes(piece.payload.data)
    assert _check(kind, piece) == len(LONG_TESTS if "long" in name else TEXT_TESTS)
    assert sum(_check(kind, piece, data) for data in flips(whole)) < 2 * len(whole) * len(LONG_TESTS)


@pytest.mark.parametrize("name", PIECES)
def test_a_cut_blob_never_gives_wrong_rows(name: str) -> None:
    kind, piece = PIECES[name]
    whole = bytes(piece.payload.data)
    for length in range(len(whole)):
        _check(kind, piece, whole[:length])


@pytest.mark.parametrize("name", PIECES)
def test_a_wrong_layout_never_fails_in_another_way(name: str) -> None:
    """A directory has a checksum of its own; a layout that passes it and is nonsense still must not crash."""
    piece = PIECES[name][1]
    for place in range(len(piece.payload.layout)):
        for number in (-1, 0, 1, 5, 2**31, 2**62, int(piece.payload.layout[place]) + 1):
            layout = piece.payload.layout.copy()
            layout[place] = number
            changed = replace(piece, payload=replace(piece.payload, layout=layout))
            for test in LONG_TESTS if "long" in name else TEXT_TESTS:
                try:
                    changed.rows(test)
                except DOCUMENTED:
                    continue
    short = replace(piece, payload=replace(piece.payload, layout=np.array([1, 0], np.int64)))
    with pytest.raises(CorruptFileError):
        short.opened()


@pytest.mark.parametrize("name", PIECES)
def test_a_blob_of_other_row_groups_is_refused(name: str) -> None:
    _, piece = PIECES[name]
    with pytest.raises(CorruptFileError, match="row groups"):
        replace(piece, groups=piece.groups[:-1]).opened()


@pytest.mark.parametrize("name", ["bitmap of long", "bitmap of string"])
def test_merged_bitmaps_are_not_taken_for_postings(name: str) -> None:
    """They have the same layout, and one kind: a reader that does not look at the blob type must not be misled."""
    _, piece = PIECES[name]
    postings = replace(piece, payload=replace(piece.payload, blob_type=POSTINGS))
    with pytest.raises(UnsupportedError, match="form"):
        postings.opened()
