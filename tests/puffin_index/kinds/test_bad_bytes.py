"""Flipped bits and cut ends in blobs and layouts: a documented error or the right rows, and nothing else."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.kinds.base import Payload, StoredPayload
from puffin_index.kinds.registry import KINDS
from puffin_index.roaring.read import deserialize
from puffin_index.roaring.union import StoredSets
from tests.conftest import amount
from tests.puffin_index.kinds.columns import Sample, rows_of, sample_of, samples
from tests.puffin_index.kinds.counting import blob_of

SAMPLES = {
    "long": sample_of([5, -3, None, 5, 1 << 40, None, 7, 7, -3, 0] + [9] * 5, "long"),
    "string": sample_of(["b", "", None, "b", "a" * 20, None, "ccc", "b"] + ["d"] * 5, "string"),
    "double": sample_of([1.5, -2.5, None, float("nan"), 1.5, 0.0] + [8.25] * 5, "double"),
}
BUILDS = [("bitmap", {}), ("bitmap", {"index-block-size": "64"}), ("bsi", {})]


def _tests(sample: Sample) -> list[LeafTest]:
    known = sorted({key for key in sample.keys if key is not None})
    middle = known[len(known) // 2]
    # Keys of one sample are all ints or all bytes.
    return [
        NullTest(True),
        SetTest((middle,)),  # type: ignore[arg-type]  # one key, so it is a tuple of one type
        SetTest((known[-1],), negated=True),  # type: ignore[arg-type]  # as above
        RangeTest(known[0], middle, low_inclusive=False),
        RangeTest(middle, None, negated=True),
    ]


def flips(data: bytes) -> Iterator[bytes]:
    """The bytes with one bit of each changed, and with its highest."""
    for position in range(len(data)):
        for bit in (position % 7, 7):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            yield bytes(changed)


def _answers(
    kind: str, payload: Payload, data: bytes, layout: np.ndarray[tuple[int], np.dtype[np.int64]], sample: Sample
) -> Iterator[tuple[LeafTest, BitMap]]:
    """The tests that are answered, with their answers; the others raise a documented error."""
    for test in _tests(sample):
        blob, _ = blob_of(data)
        try:
            index = KINDS[kind].open(
                StoredPayload.of_row_group(blob, payload.blob_type, layout, sample.value_type, len(sample.values))
            )
            yield test, index.evaluate(test).rows
        except (CorruptFileError, UnsupportedError) as error:
            if "s3://bucket/segment.puffin" not in str(error):
                raise AssertionError("an error that does not name the file") from error


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize(("kind", "options"), BUILDS)
def test_a_flipped_bit_never_gives_wrong_rows(kind: str, options: dict[str, str], sample: Sample) -> None:
    payload = KINDS[kind].build(SortedColumn(sample.column), options)
    for data in flips(bytes(payload.data)):
        for test, rows in _answers(kind, payload, data, payload.layout, sample):
            assert rows == rows_of(sample, test)


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_a_flipped_bit_never_makes_a_bloom_filter_miss_a_row(sample: Sample) -> None:
    payload = KINDS["bloom"].build(SortedColumn(sample.column), {})
    for data in flips(bytes(payload.data)):
        for test, rows in _answers("bloom", payload, data, payload.layout, sample):
            assert rows >= rows_of(sample, test)


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize(("kind", "options"), [*BUILDS, ("bloom", {})])
def test_a_cut_blob_is_an_error_or_gives_the_right_rows(kind: str, options: dict[str, str], sample: Sample) -> None:
    payload = KINDS[kind].build(SortedColumn(sample.column), options)
    for length in range(len(payload.data)):
        for test, rows in _answers(kind, payload, bytes(payload.data)[:length], payload.layout, sample):
            assert rows == rows_of(sample, test) or kind == "bloom"
            assert rows >= rows_of(sample, test)


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize(("kind", "options"), [*BUILDS, ("bloom", {})])
def test_a_wrong_layout_never_fails_in_another_way(kind: str, options: dict[str, str], sample: Sample) -> None:
    """A directory has a checksum of its own; a layout that passes it and is nonsense still must not crash."""
    payload = KINDS[kind].build(SortedColumn(sample.column), options)
    for position in range(len(payload.layout)):
        for number in (-(2**63), -1, 0, 1, 3, 2**31, 2**40, 2**63 - 1, int(payload.layout[position]) + (1 << 32)):
            layout = payload.layout.copy()
            layout[position] = max(-(2**63), min(number, 2**63 - 1))
            for _, rows in _answers(kind, payload, bytes(payload.data), layout, sample):
                assert not rows or rows.max() < len(sample.values)
    for length in range(len(payload.layout)):
        for _, rows in _answers(kind, payload, bytes(payload.data), payload.layout[:length], sample):
            assert not rows or rows.max() < len(sample.values)


@settings(max_examples=amount(20, 500), deadline=None)
@given(st.data())
def test_damage_anywhere_in_a_random_blob_never_gives_wrong_rows(data: st.DataObject) -> None:
    sample = data.draw(samples().filter(lambda sample: any(key is not None for key in sample.keys)))
    kind = data.draw(st.sampled_from(("bitmap", "bsi")))
    payload = KINDS[kind].build(SortedColumn(sample.column), {})
    changed = bytearray(payload.data)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    for test, rows in _answers(kind, payload, bytes(changed), payload.layout, sample):
        assert rows == rows_of(sample, test)


ROW_SETS = [
    BitMap([7]),
    BitMap(range(0, 500, 7)),
    BitMap([1, 70_000, 140_000, 210_000, 280_000]),
    BitMap([*range(20), *range(65_536, 65_600), *range(131_072, 131_090)]),
    BitMap([*range(20), *range(65_536, 65_600), *range(131_072, 131_090), *range(200_000, 200_100)]),
    BitMap(range(0, 20_000, 3)),
]


@pytest.mark.parametrize("rows", ROW_SETS, ids=lambda rows: f"{len(rows)} rows")
def test_a_row_set_with_a_flipped_bit_or_cut_end_is_an_error_or_has_possible_rows(rows: BitMap) -> None:
    rows.run_optimize()
    whole = rows.serialize()
    starts = range(0, len(whole), 1 + len(whole) // 300)
    damaged = [whole[:length] for length in starts]
    damaged += [whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :] for at in starts for bit in (0, 4, 7)]
    for data in damaged:
        try:
            found = deserialize(data, rows.max() + 1)
        except CorruptFileError:
            continue
        assert not found or found.max() <= rows.max()
        assert len(found) == len(list(found))


@pytest.mark.parametrize("rows", ROW_SETS, ids=lambda rows: f"{len(rows)} rows")
def test_the_union_of_many_row_sets_withstands_a_flipped_bit_in_one(rows: BitMap) -> None:
    rows.run_optimize()
    whole = rows.serialize()
    many = [BitMap([300_000 + row]).serialize() for row in range(40)]
    limit = 300_040
    for at in range(0, len(whole), 1 + len(whole) // 300):
        changed = whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :]
        try:
            found = StoredSets.of([changed, *many]).union(limit)
        except CorruptFileError:
            continue
        assert found.max() < limit


def test_rows_beyond_the_row_group_are_corrupt() -> None:
    data = BitMap([1, 9]).serialize()
    assert deserialize(data, 10) == BitMap([1, 9])
    with pytest.raises(CorruptFileError, match="row 9 in a row group of 9 rows"):
        deserialize(data, 9)


def test_runs_that_unfold_to_more_rows_than_there_are_are_refused_before_they_unfold() -> None:
    """A few bytes may claim 65,536 rows each: 60,000 such sets would be 4 billion rows."""
    run = BitMap(range(65_536))
    run.run_optimize()
    sets = [run.serialize()] * 60_000
    with pytest.raises(CorruptFileError, match="more than 100000 rows"):
        StoredSets.of(sets).union(100_000)
