"""`puffin-index inspect` tells what is in a segment, in any other Puffin file and in a Paimon container."""

import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from planner.commands.main import main
from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.formats.puffin import PuffinWriter, read_footer
from puffin_index.segments.directory import DIRECTORY_BLOB, ROW_GROUPS_BLOB, STATISTICS_BLOB
from puffin_index.segments.inspection import read_payload_places, summarize_directories
from puffin_index.storage.ranged import BytesReader
from tests.puffin_index.segments.segment_sample import BLOB_TYPES, DEFINITION, FIELD_IDS, SegmentSample

GOLDEN = Path(__file__).parents[2] / "golden"
ROW_GROUPS = 4


def inspect(path: Path, *options: str) -> str:
    result = CliRunner().invoke(main, ["inspect", str(path), *options], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_directory_of_a_segment_is_summarized(sample: SegmentSample) -> None:
    summaries = summarize_directories(sample.reader, sample.footer)
    expected = {(FIELD_IDS[column.name], kind) for column in DEFINITION.columns for kind in column.kinds}
    expected |= {(FIELD_IDS[column.name], "statistics") for column in DEFINITION.columns}
    assert {(one.field_id, one.kind) for one in summaries} == expected
    assert {one.row_groups for one in summaries} == {ROW_GROUPS}
    payloads = [blob for blob in sample.footer.blobs if "row-group" in blob.properties]
    for one in summaries:
        own = [b for b in payloads if (b.fields, b.properties["kind"]) == ((one.field_id,), one.kind)]
        assert one.payloads == len(own)
        assert one.payload_bytes == sum(blob.length for blob in own)
        assert set(one.blob_types) == {blob.type for blob in own}
        assert all(blob.properties["value-type"] == one.value_type for blob in own)


def test_payload_places_are_those_of_the_footer(sample: SegmentSample) -> None:
    places = list(read_payload_places(sample.reader, sample.footer))
    own = {(b.type, b.offset, b.length) for b in sample.footer.blobs if "row-group" in b.properties}
    assert {(p.blob_type, p.offset, p.length) for p in places} == own
    assert {p.row_groups for p in places if p.blob_type == "puffin-index-postings-v1"} == {ROW_GROUPS}
    assert {blob.type for blob in sample.footer.blobs} == BLOB_TYPES


def test_inspect_prints_the_directories_of_a_segment(sample: SegmentSample) -> None:
    document = json.loads(inspect(sample.path, "--json"))
    assert (document["format"], document["size"]) == ("puffin", sample.reader.size)
    assert len(document["blobs"]) == len(sample.footer.blobs)
    assert {d["kind"] for d in document["directories"]} == {"statistics", "bitmap", "bsi", "bloom"}
    printed = inspect(sample.path)
    for text in (*BLOB_TYPES, "directories", "decimal(9,2)"):
        assert text in printed


def test_inspect_of_a_puffin_file_of_others_lists_blobs_only() -> None:
    document = json.loads(inspect(GOLDEN / "puffin_java_uncompressed.bin", "--json"))
    assert document["blobs"]
    assert document["directories"] == []
    assert "directories" not in inspect(GOLDEN / "puffin_java_uncompressed.bin")


def test_inspect_lists_the_indexes_of_a_paimon_container() -> None:
    path = GOLDEN / "container_paimon.bin"
    document = json.loads(inspect(path, "--json"))
    assert (document["format"], document["size"], document["head_size"]) == ("paimon-container", 434, 172)
    assert document["indexes"][:2] == [
        {"column": "id", "index": "bitmap", "offset": 172, "length": 3},
        {"column": "id", "index": "bsi", "offset": 175, "length": 0},
    ]
    assert document["indexes"][3]["offset"] is None
    printed = inspect(path)
    assert "m[ключ]" in printed
    assert "bloom-filter" in printed


@pytest.mark.parametrize(
    "data", [None, b"", b"PFA", b"neither of both, but long enough", b"\0\5\x4e\x4e\xd0\x1a\x35\xae"]
)
def test_inspect_of_anything_else_is_one_sentence_that_names_the_file(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "file"
    if data is not None:
        path.write_bytes(data)
    result = CliRunner().invoke(main, ["inspect", str(path)])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert str(path) in result.stderr.replace("\n", "")
    assert ("file not found" in result.stderr) == (data is None)
    assert "Traceback" not in result.output


def test_a_flipped_byte_in_a_directory_is_refused(sample: SegmentSample) -> None:
    for blob in sample.footer.blobs:
        if blob.type in (DIRECTORY_BLOB, STATISTICS_BLOB):
            data = bytearray(sample.path.read_bytes())
            data[blob.offset + blob.length // 2] ^= 1
            with pytest.raises(CorruptFileError):
                summarize_directories(BytesReader.of(data), sample.footer)
            sample.path.write_bytes(data)
            result = CliRunner().invoke(main, ["inspect", str(sample.path)])
            assert (result.exit_code, "paimon-bsi-v1" in result.stdout) == (1, True), "the blobs are shown all the same"
            assert result.stderr.startswith("error: ")
            data[blob.offset + blob.length // 2] ^= 1
            sample.path.write_bytes(data)


_GOOD = {
    "first_row_group": pa.array([0], pa.int32()),
    "row_groups": pa.array([1], pa.int32()),
    "offset": pa.array([4], pa.int64()),
    "length": pa.array([9], pa.int64()),
    "blob_type": pa.array(["paimon-bsi-v1"]),
}
_METADATA = {"version": "1", "kind": "bsi", "value-type": "int"}


@pytest.mark.parametrize(
    ("columns", "metadata", "fields", "error"),
    [
        (_GOOD | {"length": pa.array(["9"])}, _METADATA, [1], CorruptFileError),
        (_GOOD | {"length": pa.array([-9])}, _METADATA, [1], CorruptFileError),
        (_GOOD | {"blob_type": pa.array([1])}, _METADATA, [1], CorruptFileError),
        (_GOOD | {"blob_type": pa.array([None], pa.string())}, _METADATA, [1], CorruptFileError),
        (_GOOD, {"version": "1"}, [1], CorruptFileError),
        (_GOOD, _METADATA | {"version": "2"}, [1], UnsupportedError),
        (_GOOD, _METADATA, [], CorruptFileError),
    ],
)
def test_directories_with_a_good_checksum_but_other_content_are_refused(
    columns: dict[str, pa.Array], metadata: dict[str, str], fields: list[int], error: type[Exception]
) -> None:
    batch = pa.record_batch(columns).replace_schema_metadata(metadata)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    file = io.BytesIO()
    writer = PuffinWriter(file, created_by="test")
    writer.add(DIRECTORY_BLOB, sink.getvalue(), fields)
    writer.add(ROW_GROUPS_BLOB, b"")
    writer.finish()
    reader = BytesReader.of(file.getvalue())
    footer = read_footer(reader)
    with pytest.raises(error):
        summarize_directories(reader, footer)
    with pytest.raises(error):
        list(read_payload_places(reader, footer))
