"""The indexes of a row group go out as a container that Paimon reads; what cannot is named or refused."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from conformance.make_kit import FOLDER
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.data_table import list_data_files
from puffin_index.errors import CorruptFileError, NotFoundError, UnsupportedError
from puffin_index.formats.paimon_container import read_container
from puffin_index.formats.puffin import read_blob
from puffin_index.jobs.export import ExportedContainer, fill_container
from puffin_index.keys.map_key import Contents
from puffin_index.kinds.registry import KINDS
from puffin_index.storage.ranged import BytesReader, RangedReader
from tests.conftest import create_table
from tests.puffin_index.segments.segment_sample import FIELD_IDS, SegmentSample
from tests.shell import Shell

NAMES = {field_id: name for name, field_id in FIELD_IDS.items()}


def _container(reader: RangedReader, row_group: int, names: dict[int, str]) -> ExportedContainer:
    return fill_container([(reader, row_group, names)])


@pytest.mark.parametrize("row_group", range(4))
def test_a_container_has_the_payloads_of_its_row_group(sample: SegmentSample, row_group: int) -> None:
    container = read_container(BytesReader.of(_container(sample.reader, row_group, NAMES).data))
    assert {column: set(indexes) for column, indexes in container.indexes.items()} == {
        "id": {"bsi", "bloom-filter"},
        "status": {"bitmap", "bloom-filter"},
        "day": {"bitmap", "bsi"},
        "price": {"bsi"},
    }
    kinds = {own.paimon_name: kind for kind, own in KINDS.items()}
    stored = {
        (NAMES[blob.fields[0]], blob.properties["kind"]): bytes(read_blob(sample.reader, blob))
        for blob in sample.footer.blobs
        if blob.properties.get("row-group") == str(row_group)
    }
    for name, indexes in container.indexes.items():
        for index_name, blob in indexes.items():
            assert blob is not None
            assert blob.read_all() == stored[name, kinds[index_name]]


def test_what_paimon_does_not_know_is_left_out_and_named(sample: SegmentSample) -> None:
    left_out = _container(sample.reader, 2, NAMES).left_out
    assert {(NAMES[place.field_id], place.kind, place.blob_type) for place in left_out} == {
        ("amount", "bitmap", "puffin-index-postings-v1"),
        ("amount", "bsi", "puffin-index-bsi-v1"),
        ("code", "bitmap", "paimon-bitmap-v2"),
        ("status", "bsi", "puffin-index-bsi-v1"),
    }
    with pytest.raises(UnsupportedError, match=r"of the row group: paimon-bitmap-v2 of binary$"):
        _container(sample.reader, 2, {FIELD_IDS["code"]: "code"})


def test_filters_of_what_rows_contain_are_left_out() -> None:
    """Paimon would not ask for them, or take them for those of another column."""
    segment = BytesReader.of((FOLDER / "segments" / "built.puffin").read_bytes())
    exported = fill_container([(segment, 0, {1: "flag", Contents(19, "keys"): "tags#c#keys"})])
    assert exported.indexes == {"flag": ("bloom-filter",)}
    kinds = {place.kind for place in exported.left_out if place.field_id == 19}
    assert kinds == {"bitmap#c#keys", "bloom#c#keys"}


def test_columns_are_exported_under_the_names_and_in_the_order_asked_for(sample: SegmentSample) -> None:
    exported = _container(sample.reader, 0, {FIELD_IDS["day"]: "m[k]", FIELD_IDS["id"]: "größe"})
    assert list(read_container(BytesReader.of(exported.data)).indexes) == ["m[k]", "größe"]
    assert exported.left_out == ()


@pytest.mark.parametrize(("row_group", "names"), [(4, NAMES), (-1, NAMES), (0, {99: "x"}), (0, {})])
def test_what_is_not_there_is_not_exported(sample: SegmentSample, row_group: int, names: dict[int, str]) -> None:
    with pytest.raises(NotFoundError, match="has no payload"):
        _container(sample.reader, row_group, names)


def test_two_columns_of_one_name_are_refused(sample: SegmentSample) -> None:
    with pytest.raises(ValueError, match="one name"):
        _container(sample.reader, 0, {FIELD_IDS["day"]: "a", FIELD_IDS["id"]: "a"})


def test_a_flipped_byte_in_a_payload_is_not_exported(sample: SegmentSample) -> None:
    blob = next(b for b in sample.footer.blobs if b.type == "paimon-bsi-v1")
    data = bytearray(sample.path.read_bytes())
    data[blob.offset + 20] ^= 4
    with pytest.raises(CorruptFileError, match="xxh64"):
        _container(BytesReader.of(data), int(blob.properties["row-group"]), {blob.fields[0]: "x"})


def test_the_command_writes_a_container_or_says_why_not(local_catalog: SqlCatalog, tmp_path: Path) -> None:
    numbers = [row * 7919 % 991 for row in range(3_000)]
    states = [None if number % 13 == 5 else f"state {number % 7}" for number in numbers]
    data = pa.table({"n": pa.array(numbers, pa.int32()), "state": pa.array(states)})
    definition = IndexDefinition.of(
        bitmap=["state", "n"],
        bsi=["n"],
        bloom=["state"],
        options={"n.compression": "none", "n.layout": "postings", "state.layout": "bitmaps"},
    )
    table = create_table(local_catalog, "t", data, 1_000)
    (path,) = [file.path for file in list_data_files(table)]
    index = TableIndex.create(local_catalog, "ns.t", definition)
    output = tmp_path / "x.index"
    shell, target = Shell(tmp_path), ("--output", str(output))
    nothing = shell("export", "--data-file", path, *target)
    index.build(workers=1)
    for result, sentence in (
        (nothing, f"the index has nothing of {path}"),
        (shell("export", "--data-file", "nowhere.parquet", *target), "table ns.t has no data file nowhere.parquet"),
        (shell("export", "--data-file", path, *target), f"{path} has 3 row groups: say which one"),
        (shell("export", "--data-file", path, "--row-group", "3", *target), f"{path} has no row group 3: it has 3"),
    ):
        assert (result.exit_code, sentence in result.stderr.replace("\n", " ")) == (1, True), result.stderr
        assert "Traceback" not in result.output
    result = shell("export", "--data-file", Path(path).name, "--row-group", "1", *target)
    assert result.exit_code == 0, result.output
    assert "state: bitmap, bloom-filter" in result.stdout
    assert "n: bsi" in result.stdout
    assert "left out: bitmap of field 1: Paimon cannot read puffin-index-postings-v1" in result.stderr
    exported = index.export_indexes(path, 1)
    assert output.read_bytes() == exported.data
    assert exported.describe().title.startswith("container, ")
    again = shell("export", "--data-file", path, "--row-group", "1", *target)
    assert (again.exit_code, "exists already" in again.stderr) == (1, True)
