"""Blobs that Paimon wrote (`tests/golden/README.md`) give the right rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.formats.paimon_container import read_container
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import ValueType, value_type_named
from puffin_index.kinds.base import OpenIndex, StoredPayload
from puffin_index.kinds.registry import KINDS
from puffin_index.storage.ranged import Blob, BytesReader
from tests.puffin_index.kinds.columns import rows_of, sample_of
from tests.puffin_index.kinds.golden_columns import GOLDEN_KINDS, GOLDEN_TYPES, ROWS, golden_values

GOLDEN = Path(__file__).parents[2] / "golden"
BLOB_TYPES = {
    "bitmap-v1": "paimon-bitmap-v1",
    "bitmap-v2": "paimon-bitmap-v2",
    "bsi": "paimon-bsi-v1",
    "bloom": "paimon-bloom-v1",
}


def _blob(type_name: str, name: str) -> Blob:
    data = (GOLDEN / f"paimon_{type_name}.bin").read_bytes()
    blob = read_container(BytesReader.of(data, "golden")).indexes[name][GOLDEN_KINDS[name][0]]
    assert blob is not None
    return blob


def _open(name: str, blob: Blob, value_type: ValueType, rows: int) -> OpenIndex:
    payload = StoredPayload.of_row_group(blob, BLOB_TYPES[name], np.empty(0, np.int64), value_type, rows)
    return KINDS[GOLDEN_KINDS[name][0]].open(payload)


@pytest.mark.parametrize(
    ("type_name", "name"), [(type_name, name) for type_name, names in GOLDEN_TYPES.items() for name in names]
)
def test_blobs_of_paimon_give_the_right_rows(type_name: str, name: str) -> None:
    sample = sample_of(golden_values(type_name), type_name)
    kind, options = GOLDEN_KINDS[name]
    blob = _blob(type_name, name)
    index = _open(name, blob, sample.value_type, len(sample.values))
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


@pytest.mark.parametrize("name", ["bitmap-v1", "bitmap-v2", "bsi"])
def test_a_blob_of_other_rows_than_told_is_refused(name: str) -> None:
    blob = _blob("int", name)
    with pytest.raises(CorruptFileError):
        _open(name, blob, value_type_named("int"), ROWS + 1)


@pytest.mark.parametrize("name", ["bitmap-v2", "bsi"])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\1\0\0",
        b"\1" + (-1).to_bytes(4, "big", signed=True) + bytes(9),
        b"\1" + (1 << 28).to_bytes(4, "big") + bytes(9),
        b"\3" + bytes(13),
    ],
)
def test_blobs_of_nonsense_are_refused(name: str, data: bytes) -> None:
    with pytest.raises((CorruptFileError, UnsupportedError)):
        _open(name, Blob(BytesReader.of(data), 0, len(data)), value_type_named("int"), ROWS)
