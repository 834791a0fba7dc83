"""Segments go out as Paimon containers, and what Paimon wrote comes in as opened indexes."""

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_index.errors import CorruptFileError, NotFoundError, UnsupportedError
from puffin_index.formats.paimon_container import read_container
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import value_type_named
from puffin_index.kinds.registry import KINDS
from puffin_index.segments.exchange import ExportedContainer, import_blob, take_payloads, write_exported
from puffin_index.storage.ranged import Blob, BytesReader, RangedReader
from tests.puffin_index.kinds.columns import rows_of, sample_of
from tests.puffin_index.kinds.golden_columns import GOLDEN_KINDS, GOLDEN_TYPES, ROWS, golden_values
from tests.puffin_index.segments.segment_sample import FIELD_IDS, TYPES, SegmentSample, write_sample

GOLDEN = Path(__file__).parents[2] / "golden"
NAMES = {field_id: name for name, field_id in FIELD_IDS.items()}
INT = value_type_named("int")


@pytest.fixture
def sample(local_catalog: SqlCatalog, tmp_path: Path) -> SegmentSample:
    return write_sample(local_catalog, tmp_path)


def golden_blob(type_name: str, name: str) -> Blob:
    container = read_container(BytesReader.of((GOLDEN / f"paimon_{type_name}.bin").read_bytes(), "golden"))
    blob = container.indexes[name][GOLDEN_KINDS[name][0]]
    assert blob is not None
    return blob


def export_container(
    reader: RangedReader, sample: SegmentSample, row_group: int, names: dict[int, str]
) -> ExportedContainer:
    return write_exported([take_payloads(reader, sample.footer, row_group, names)])


def blob_of(data: bytes) -> Blob:
    return Blob(BytesReader.of(data), 0, len(data))


@pytest.mark.parametrize(
    ("type_name", "name"), [(type_name, name) for type_name, names in GOLDEN_TYPES.items() for name in names]
)
def test_blobs_that_paimon_wrote_answer_with_the_right_rows(type_name: str, name: str) -> None:
    column = sample_of(golden_values(type_name), type_name)
    kind = GOLDEN_KINDS[name][0]
    index = import_blob(golden_blob(type_name, name), kind, column.value_type, ROWS)
    known: list[Any] = sorted({key for key in column.keys if key is not None})
    for test in (NullTest(True), SetTest((known[0],)), SetTest((known[-1],), negated=True), RangeTest(None, known[1])):
        found = index.evaluate(test)
        assert found.rows == rows_of(column, test) if found.exact else found.rows >= rows_of(column, test)
        assert found.exact or kind == "bloom"


@pytest.mark.parametrize("row_group", range(4))
def test_an_exported_row_group_is_read_back(sample: SegmentSample, row_group: int) -> None:
    exported = export_container(sample.reader, sample, row_group, NAMES)
    container = read_container(BytesReader.of(exported.data))
    assert {column: set(indexes) for column, indexes in container.indexes.items()} == {
        "id": {"bsi", "bloom-filter"},
        "status": {"bitmap", "bloom-filter"},
        "day": {"bitmap", "bsi"},
        "price": {"bsi"},
    }
    kinds = {own.paimon_name: kind for kind, own in KINDS.items()}
    for name, indexes in container.indexes.items():
        column = sample_of(sample.values[name][row_group], TYPES[name])
        known: list[Any] = sorted({key for key in column.keys if key is not None})
        tests: list[LeafTest] = [NullTest(True), RangeTest(known[1], known[-2]), *(SetTest((k,)) for k in known[::20])]
        for index_name, blob in indexes.items():
            assert blob is not None
            index = import_blob(blob, kinds[index_name], column.value_type, len(column.values))
            for test in tests:
                found = index.evaluate(test)
                assert found.rows == rows_of(column, test) if found.exact else index_name == "bloom-filter"


def test_what_paimon_does_not_know_is_left_out_and_named(sample: SegmentSample) -> None:
    left_out = export_container(sample.reader, sample, 2, NAMES).left_out
    assert {(NAMES[place.field_id], place.kind, place.blob_type) for place in left_out} == {
        ("amount", "bitmap", "puffin-index-postings-v1"),
        ("amount", "bsi", "puffin-index-bsi-v1"),
        ("code", "bitmap", "paimon-bitmap-v2"),
        ("status", "bsi", "puffin-index-bsi-v1"),
    }
    with pytest.raises(UnsupportedError, match=r"of the row group: paimon-bitmap-v2 of binary$"):
        export_container(sample.reader, sample, 2, {FIELD_IDS["code"]: "code"})


def test_columns_are_exported_under_the_names_and_in_the_order_asked_for(sample: SegmentSample) -> None:
    exported = export_container(sample.reader, sample, 0, {FIELD_IDS["day"]: "m[k]", FIELD_IDS["id"]: "größe"})
    assert list(read_container(BytesReader.of(exported.data)).indexes) == ["m[k]", "größe"]
    assert exported.left_out == ()


@pytest.mark.parametrize(("row_group", "names"), [(4, NAMES), (-1, NAMES), (0, {99: "x"}), (0, {})])
def test_what_is_not_there_is_not_exported(sample: SegmentSample, row_group: int, names: dict[int, str]) -> None:
    with pytest.raises(NotFoundError, match="has no payload"):
        export_container(sample.reader, sample, row_group, names)


def test_two_columns_of_one_name_are_refused(sample: SegmentSample) -> None:
    with pytest.raises(ValueError, match="one name"):
        export_container(sample.reader, sample, 0, {FIELD_IDS["day"]: "a", FIELD_IDS["id"]: "a"})


def test_a_flipped_byte_in_a_payload_is_not_exported(sample: SegmentSample) -> None:
    blob = next(b for b in sample.footer.blobs if b.type == "paimon-bsi-v1")
    data = bytearray(sample.path.read_bytes())
    data[blob.offset + 20] ^= 4
    with pytest.raises(CorruptFileError, match="xxh64"):
        export_container(BytesReader.of(data), sample, int(blob.properties["row-group"]), {blob.fields[0]: "x"})


@pytest.mark.parametrize("name", ["bitmap-v1", "bitmap-v2", "bsi"])
def test_a_blob_of_other_rows_than_told_is_refused(name: str) -> None:
    with pytest.raises(CorruptFileError):
        # Bitmaps are parsed when they are opened, bit slices as well: without a layout both are read whole.
        import_blob(golden_blob("int", name), GOLDEN_KINDS[name][0], INT, ROWS + 1)


@pytest.mark.parametrize("kind", ["bitmap", "bsi"])
@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", CorruptFileError),
        (b"\1\0\0", CorruptFileError),
        (b"\1" + (-1).to_bytes(4, "big", signed=True) + bytes(9), CorruptFileError),
        (b"\1" + (1 << 28).to_bytes(4, "big") + bytes(9), CorruptFileError),
        (b"\3" + bytes(13), UnsupportedError),
    ],
)
def test_blobs_of_nonsense_are_refused(kind: str, data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        import_blob(blob_of(data), kind, INT, ROWS)
