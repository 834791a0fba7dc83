"""Blobs that Paimon wrote (`tests/golden/README.md`) give the right rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from puffin_index.formats.paimon_container import read_container
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.kinds.base import StoredPayload
from puffin_index.kinds.registry import KINDS
from puffin_index.storage.ranged import BytesReader
from tests.puffin_index.kinds.columns import rows_of, sample_of
from tests.puffin_index.kinds.golden_columns import GOLDEN_KINDS, GOLDEN_TYPES, golden_values

GOLDEN = Path(__file__).parents[2] / "golden"
BLOB_TYPES = {
    "bitmap-v1": "paimon-bitmap-v1",
    "bitmap-v2": "paimon-bitmap-v2",
    "bsi": "paimon-bsi-v1",
    "bloom": "paimon-bloom-v1",
}


@pytest.mark.parametrize(
    ("type_name", "name"), [(type_name, name) for type_name, names in GOLDEN_TYPES.items() for name in names]
)
def test_blobs_of_paimon_give_the_right_rows(type_name: str, name: str) -> None:
    sample = sample_of(golden_values(type_name), type_name)
    kind, options = GOLDEN_KINDS[name]
    data = (GOLDEN / f"paimon_{type_name}.bin").read_bytes()
    blob = read_container(BytesReader.of(data, "golden")).indexes[name][kind]
    assert blob is not None
    index = KINDS[kind].open(
        StoredPayload.of_row_group(blob, BLOB_TYPES[name], np.empty(0, np.int64), sample.value_type, len(sample.values))
    )
    known: list[Any] = sorted({key for key in sample.keys if key is not None})
    tests: list[LeafTest] = [NullTest(True), *(SetTest((key,)) for key in known)]
    tests += [RangeTest(known[1], known[-2], negated=negated) for negated in (False, True) if len(known) > 2]
    for test in tests:
        found = index.evaluate(test)
        assert found.rows == rows_of(sample, test) or (kind == "bloom" and found.rows >= rows_of(sample, test))
    if kind == "bloom":
        assert bytes(KINDS[kind].build(SortedColumn(sample.column), options).data) == bytes(blob.read_all())
        absent: Any = known[-1] + 1 if isinstance(known[-1], int) else known[-1] + b"?"
        assert index.evaluate(SetTest((absent,))).exact
