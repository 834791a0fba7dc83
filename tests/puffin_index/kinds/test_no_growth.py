"""What is merged takes no more bytes than what it was made of, of any kind, layout and column."""

from collections.abc import Sequence
from io import BytesIO

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.value_types import value_type_named
from puffin_index.segments.segment import SegmentWriter
from tests.conftest import amount
from tests.puffin_index.kinds.columns import Sample
from tests.puffin_index.kinds.merged_sample import Piece, built_by, merged

BUILDS = [
    ("bitmap", {}),
    ("bitmap", {"layout": "bitmaps"}),
    ("bsi", {}),
    ("bsi", {"compression": "none"}),
    ("bloom", {}),
    ("bloom", {"items": "30000"}),
]
SIZES = (1, 3, 60, 1_000, 5_000, 20_000, 70_000)
CARDINALITIES = (1, 2, 3, 7, 25, 200, 5_000, 2**40)


@st.composite
def columns(draw: st.DrawFn, type_name: str) -> Sample:
    """A row group whose keys are skewed or not, sorted, in runs, periodic or at random, from a place of the domain."""
    rows, keys = draw(st.sampled_from(SIZES)), draw(st.sampled_from(CARDINALITIES))
    chooser = np.random.default_rng(draw(st.integers(0, 1000)))
    numbers = chooser.integers(0, keys, rows)
    match draw(st.sampled_from(("random", "skewed", "sorted", "runs", "periodic"))):
        case "skewed":
            numbers = (keys * chooser.random(rows) ** draw(st.sampled_from((2, 20)))).astype(np.int64)
        case "sorted":
            numbers.sort()
        case "runs":
            numbers = np.repeat(numbers, draw(st.sampled_from((3, 50))))[:rows]
        case "periodic":
            numbers = np.arange(rows) % keys
    numbers += draw(st.sampled_from((0, 0, -5, 10**6, 2**45)))
    null = chooser.random(rows) < draw(st.sampled_from((0, 0, 0.01, 0.5, 1)))
    values = pa.array(numbers, mask=null)
    if type_name == "string":
        values = pa.array([f"key {number}" for number in numbers.tolist()], pa.string(), mask=null)
    value_type = value_type_named(type_name)
    return Sample(value_type, [None] * rows, [], column_of(values, value_type))


def size_of(pieces: Sequence[Piece]) -> int:
    """The bytes that payloads take in a segment, with what its directory and footer say of them."""
    return _segment_bytes(pieces) - _segment_bytes(())


def _segment_bytes(pieces: Sequence[Piece]) -> int:
    file = BytesIO()
    writer = SegmentWriter(file)
    writer.add_index((1, "kind"), value_type_named("long"), [piece.payload for piece in pieces])
    writer.finish("memory", ())
    return len(file.getvalue())


@pytest.mark.parametrize("type_name", ["long", "string"])
@pytest.mark.parametrize(("kind", "options"), BUILDS)
@settings(max_examples=amount(6, 300), deadline=None)
@given(data=st.data())
def test_no_index_grows_by_a_merge(kind: str, options: dict[str, str], type_name: str, data: st.DataObject) -> None:
    of_segments = data.draw(st.lists(st.lists(columns(type_name), min_size=1, max_size=4), min_size=2, max_size=4))
    before = [built_by(kind, of_groups, options) for of_groups in of_segments]

    after = merged(before, options=options)

    assert size_of(after) <= sum(map(size_of, before))
    assert size_of(merged([after], options=options)) <= size_of(after)
