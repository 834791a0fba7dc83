"""Flipped bits and cut ends in blobs and layouts: a documented error or the right rows, and nothing else."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from unittest.mock import ANY, patch

import pytest
from hypothesis import given, settings, strategies as st
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.kinds.held_keys import HoldsKeys
from puffin_index.kinds.postings.build import POSTINGS
from puffin_index.storage.arrays import Ints
from puffin_index.storage.ranged import run
from tests.conftest import amount
from tests.puffin_index.kinds.columns import sample_of, samples
from tests.puffin_index.kinds.merged_sample import Group, Piece, expected_rows, merged, placed, segment
from tests.puffin_index.kinds.postings.postings_sample import SMALL_SIZES, built

GROUPS = {
    "long": placed(
        [
            sample_of([5, -3, None, 5, 1 << 40, None, 7, 7, -3, 0] + [9] * 5, "long"),
            sample_of([9, 5, 7], "long"),
            sample_of([None, 1 << 40], "long"),
        ]
    ),
    "string": placed(
        [sample_of(["b", "", None, "b", "a" * 20, None, "ccc"] + ["d"] * 5, "string"), sample_of(["b", "e"], "string")]
    ),
    "double": placed(
        [
            sample_of([1.5, -2.5, None, float("nan"), 1.5, 0.0] + [8.25] * 5, "double"),
            sample_of([float("nan"), 0.0], "double"),
        ]
    ),
    "one value": placed([sample_of([7] * 9, "long"), sample_of([], "long")]),
}
ALONE = [
    ("bitmap", {}),
    ("bitmap", {"index-block-size": "64"}),
    ("bsi", {}),
    ("bsi", {"compression": "none"}),
    ("bloom", {}),
]
ONE_ROW_GROUP = {
    f"{kind} {number} of {name}": segment(kind, options, groups[:1])[0]
    for name, groups in GROUPS.items()
    for number, (kind, options) in enumerate(ALONE)
}
MERGED = {
    f"merged {kind} of {name}": merged([segment(kind, {}, groups)])[0]
    for name, groups in GROUPS.items()
    for kind in ("bitmap", "bsi", "bloom")
} | {f"postings of {name}": built(list(groups), SMALL_SIZES) for name, groups in GROUPS.items()}
PIECES = ONE_ROW_GROUP | MERGED


def flips(data: bytes) -> Iterator[bytes]:
    """The bytes with one bit of each changed; nightly also with its highest."""
    for position in range(len(data)):
        for bit in (position % 8, 7)[: amount(1, 2)]:
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            yield bytes(changed)


def asked(groups: Sequence[Group]) -> list[LeafTest]:
    """Tests about keys that are there."""
    known = sorted({key for group in groups for key in group.sample.keys if key is not None})
    middle = known[len(known) // 2]
    return [
        NullTest(True),
        SetTest((middle,)),
        SetTest((known[-1],), negated=True),
        RangeTest(known[0], middle, low_inclusive=False),
        RangeTest(middle, None, negated=True),
    ]


def answers(piece: Piece, data: bytes | None = None) -> Iterator[tuple[LeafTest, BitMap]]:
    """The tests that are answered, with their answers; the others, and decoding, raise a documented error."""
    for test in asked(piece.groups):
        try:
            yield test, piece.rows(test, data)
            index, _ = piece.opened(data)
            if isinstance(index, HoldsKeys):
                assert run(index.keys_of(None)).row_count == sum(len(group.sample.values) for group in piece.groups)
        except (CorruptFileError, UnsupportedError) as error:
            if "s3://bucket/segment.puffin" not in str(error):
                raise AssertionError("an error that does not name the file") from error


def with_layout(piece: Piece, layout: Ints) -> Piece:
    return replace(piece, payload=replace(piece.payload, layout=layout))


def are_right(piece: Piece, test: LeafTest, rows: BitMap) -> bool:
    expected = expected_rows(piece.groups, test)
    return rows >= expected if "bloom" in piece.payload.blob_type else rows == expected


@pytest.mark.parametrize("name", PIECES)
def test_a_flipped_bit_or_a_cut_end_never_gives_wrong_rows(name: str) -> None:
    piece = PIECES[name]
    whole = bytes(piece.payload.data)
    assert len([are_right(piece, *answer) for answer in answers(piece)]) == len(asked(piece.groups))
    for data in [*flips(whole), *(whole[:length] for length in range(len(whole)))]:
        assert all(are_right(piece, *answer) for answer in answers(piece, data))


@pytest.mark.parametrize("name", ONE_ROW_GROUP)
def test_a_flipped_bit_under_a_checksum_that_fits_never_fails_in_another_way(name: str) -> None:
    """A wrong writer makes checksums of wrong bytes: no checksum tells, but nothing is read beyond the end."""
    piece = ONE_ROW_GROUP[name]
    (group,) = piece.groups
    with (
        patch("puffin_index.storage.parts.checksum32", lambda _: ANY),
        patch("puffin_index.storage.parts.write_uint32_be", lambda _: ANY),
    ):
        for data in flips(bytes(piece.payload.data)):
            for _, rows in answers(piece, data):
                assert rows <= group.every_row


@pytest.mark.parametrize("name", PIECES)
def test_a_wrong_layout_never_fails_in_another_way(name: str) -> None:
    """A directory has a checksum of its own; a layout that passes it and is nonsense still must not crash."""
    piece = PIECES[name]
    layout = piece.payload.layout
    every = BitMap.union(BitMap(), *(group.every_row for group in piece.groups))
    # Layouts of postings have seals of the blob.
    is_sealed = piece.payload.blob_type == POSTINGS
    for position in range(len(layout)):
        for number in (-(2**63), -1, 0, 1, 3, 2**31, 2**40, 2**63 - 1, int(layout[position]) + (1 << 32)):
            changed = layout.copy()
            changed[position] = max(-(2**63), min(number, 2**63 - 1))
            for test, rows in answers(with_layout(piece, changed)):
                assert are_right(piece, test, rows) if is_sealed else rows <= every
    for length in range(len(layout)):
        with pytest.raises(CorruptFileError):
            with_layout(piece, layout[:length]).opened()


@pytest.mark.parametrize("name", MERGED)
def test_a_blob_of_other_row_groups_is_refused(name: str) -> None:
    piece = MERGED[name]
    with pytest.raises(CorruptFileError, match=r"row groups.*segment\.puffin|segment\.puffin.*row groups"):
        replace(piece, groups=piece.groups[:-1]).opened()


@settings(max_examples=amount(20, 500), deadline=None)
@given(st.data())
def test_damage_anywhere_in_a_random_blob_never_gives_wrong_rows(data: st.DataObject) -> None:
    sample = data.draw(samples().filter(lambda sample: any(key is not None for key in sample.keys)))
    (piece,) = segment(data.draw(st.sampled_from(("bitmap", "bsi"))), {}, placed([sample]))
    changed = bytearray(piece.payload.data)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    assert all(are_right(piece, *answer) for answer in answers(piece, bytes(changed)))
