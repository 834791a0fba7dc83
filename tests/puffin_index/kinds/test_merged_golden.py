"""Merged blobs and postings that are kept in files (`tests/golden/README.md`) are written again and read."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from puffin_index.keys.leaf import LeafTest, NullTest, SetTest
from puffin_index.kinds.base import Payload
from puffin_index.kinds.bloom.matrix import BLOOM_MATRIX
from puffin_index.kinds.bsi.own_slices import BSI
from puffin_index.kinds.postings.build import POSTINGS
from tests.puffin_index.kinds.columns import Sample, sample_of
from tests.puffin_index.kinds.merged_sample import BLOCK_ROWS, Piece, expected_rows, merged, placed, segment
from tests.puffin_index.kinds.postings.postings_sample import MAXIMUM, MINIMUM, built, group, known_keys

GOLDEN = Path(__file__).parents[2] / "golden"
KINDS_OF = {BLOOM_MATRIX: "bloom", BSI: "bsi"}
GOLDEN_SAMPLES: dict[str, list[Sample]] = {
    "long": [
        sample_of([5, 5, None, -7, 2**63 - 1, -(2**63)], "long"),
        sample_of([5] * 40 + [None, 6] + [number * 3 for number in range(30)], "long"),
        sample_of([8], "long"),
    ],
    "string": [sample_of(["größe", None, "", "größer", "größe"], "string"), sample_of(["größer", "snow ☃"], "string")],
    "date": [sample_of([19_000, None, -4, 19_000], "date"), sample_of([*range(19_000, 19_040), None], "date")],
}
POSTINGS_GROUPS = {
    "long": [
        group(0, [5, 5, None, -7, MAXIMUM, 5, MINIMUM]),
        group(BLOCK_ROWS, [5] * 40 + [None, 6]),
        group(3 * BLOCK_ROWS, [8]),
    ],
    "string": [
        group(0, ["größe", None, "", "größer", "größe"]),
        group(BLOCK_ROWS, ["größer"] * 3 + ["snow ☃"] * 2),
    ],
}
CASES = [
    (BLOOM_MATRIX, "long"),
    (BLOOM_MATRIX, "string"),
    (BSI, "date"),
    (BSI, "string"),
    (POSTINGS, "long"),
    (POSTINGS, "string"),
]


def golden_piece(blob_type: str, name: str) -> Piece:
    """What the golden file was made of, merged."""
    if blob_type == POSTINGS:
        return built(POSTINGS_GROUPS[name])
    kind = KINDS_OF[blob_type]
    return merged([segment(kind, {}, placed(GOLDEN_SAMPLES[name]))])[0]


def golden_path(blob_type: str, name: str) -> Path:
    """The golden file, with the suffix of its bytes."""
    return GOLDEN / f"{blob_type.removeprefix('puffin-index-').removesuffix('-v1').replace('-', '_')}_{name}.bin"


@pytest.mark.parametrize(("blob_type", "name"), CASES)
def test_the_golden_bytes_are_written_and_read(blob_type: str, name: str) -> None:
    path = golden_path(blob_type, name)
    data = path.read_bytes()
    layout = np.frombuffer(path.with_suffix(".layout").read_bytes(), "<i8").astype(np.int64)
    piece = golden_piece(blob_type, name)
    assert piece.payload.blob_type == blob_type
    # Another zstd may compress texts otherwise; what was written before must be read.
    if (blob_type, name) != (POSTINGS, "string"):
        assert bytes(piece.payload.data) == data
        assert piece.payload.layout.tolist() == layout.tolist()
    stored = replace(piece, payload=Payload(blob_type, data, layout))
    tests: list[LeafTest] = [NullTest(True), *(SetTest((key,)) for key in known_keys(piece.groups))]
    for test in tests:
        found, expected = stored.rows(test), expected_rows(piece.groups, test)
        assert found == expected or blob_type == BLOOM_MATRIX
        assert found >= expected
