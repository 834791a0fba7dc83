"""Iceberg's own Puffin classes as the referee: each side reads what the other has written."""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pyspark.errors import UnsupportedOperationException
from pyspark.sql import SparkSession

from puffin_index.formats.puffin import BlobMetadata, PuffinFile, PuffinWriter, read_blob, read_footer
from puffin_index.storage.ranged import BytesReader

pytestmark = pytest.mark.spark

GOLDEN = Path(__file__).parents[2] / "golden"

# What py4j hands out has no types.
Jvm: TypeAlias = Any

_Blob: TypeAlias = tuple[BlobMetadata, bytes]


@pytest.fixture
def jvm(spark: SparkSession) -> Jvm:
    view = spark.sparkContext._jvm
    assert view is not None
    return view


def _java_read(jvm: Jvm, path: Path, footer_size: int | None = None) -> tuple[dict[str, str], list[_Blob]]:
    """What Iceberg's reader says of a file: its properties and blobs."""
    builder = jvm.org.apache.iceberg.puffin.Puffin.read(jvm.org.apache.iceberg.Files.localInput(str(path)))
    if footer_size is not None:
        builder = builder.withFileSize(path.stat().st_size).withFooterSize(footer_size)
    reader = builder.build()
    try:
        metadata = reader.fileMetadata()
        pairs = list(
            jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists.newArrayList(
                reader.readAll(metadata.blobs()).iterator()
            )
        )
        to_bytes = jvm.org.apache.iceberg.util.ByteBuffers.toByteArray
        contents = [bytes(to_bytes(pair.second())) for pair in pairs]
        return dict(metadata.properties()), list(zip(map(_python_metadata, metadata.blobs()), contents, strict=True))
    finally:
        reader.close()


def _python_metadata(blob: Jvm) -> BlobMetadata:
    return BlobMetadata(
        type=blob.type(),
        fields=tuple(blob.inputFields()),
        snapshot_id=blob.snapshotId(),
        sequence_number=blob.sequenceNumber(),
        offset=blob.offset(),
        length=blob.length(),
        compression_codec=blob.compressionCodec(),
        properties=dict(blob.properties()),
    )


def _java_write(jvm: Jvm, path: Path, blobs: Sequence[_Blob], properties: dict[str, str]) -> bytes:
    """Let Java write blobs of this metadata and content; it finds offsets and lengths itself."""
    puffin = jvm.org.apache.iceberg.puffin
    builder = puffin.Puffin.write(jvm.org.apache.iceberg.Files.localOutput(str(path)))
    for name, text in properties.items():
        builder = builder.set(name, text)
    writer = builder.build()
    for blob, content in blobs:
        blob_properties = jvm.java.util.LinkedHashMap()
        for name, text in blob.properties.items():
            blob_properties.put(name, text)
        writer.write(
            puffin.Blob(
                blob.type,
                list(blob.fields),
                blob.snapshot_id,
                blob.sequence_number,
                jvm.java.nio.ByteBuffer.wrap(content),
                puffin.PuffinCompressionCodec.forName(blob.compression_codec),
                blob_properties,
            )
        )
    writer.close()
    return path.read_bytes()


def _read(data: bytes) -> tuple[PuffinFile, list[_Blob]]:
    reader = BytesReader.of(data)
    file = read_footer(reader)
    return file, [(blob, bytes(read_blob(reader, blob))) for blob in file.blobs]


def _write_many_kinds(path: Path) -> int:
    stream = io.BytesIO()
    writer = PuffinWriter(stream, created_by="puffin-index tests", properties={"title": "雪 😀", "empty": ""})
    writer.add("plain-v1", bytes(range(256)) * 300, (1,), properties={"rows": "10"})
    writer.add("empty-v1", b"", snapshot_id=2**63 - 1, sequence_number=2**63 - 1)
    writer.add("ünïcode-😀", "größer".encode(), (3,), properties={"naïve": '"quoted" \\ \n\t\x1f\x7f 😀', "b": "{}"})
    summary = writer.finish()
    path.write_bytes(stream.getvalue())
    return summary.footer_size


@pytest.mark.parametrize("sizes_known", [False, True])
def test_java_lists_and_reads_everything_in_our_file(jvm: Jvm, tmp_path: Path, sizes_known: bool) -> None:
    footer_size = _write_many_kinds(tmp_path / "ours.puffin")
    ours, blobs = _read((tmp_path / "ours.puffin").read_bytes())
    found = _java_read(jvm, tmp_path / "ours.puffin", footer_size if sizes_known else None)
    assert found == (ours.properties, blobs)
    assert [len(content) for _, content in blobs] == [76_800, 0, 8]


def test_java_reads_our_golden_files(jvm: Jvm) -> None:
    for name in ("puffin_written.bin", "puffin_written_zstd.bin"):
        ours, blobs = _read((GOLDEN / name).read_bytes())
        assert _java_read(jvm, GOLDEN / name) == (ours.properties, blobs)


@pytest.mark.parametrize("name", ["puffin_written.bin", "puffin_java_uncompressed.bin", "puffin_java_zstd.bin"])
def test_java_writes_golden_files_byte_for_byte(jvm: Jvm, tmp_path: Path, name: str) -> None:
    """Given the same metadata, checksums included, the two writers are one."""
    golden = (GOLDEN / name).read_bytes()
    file, blobs = _read(golden)
    assert _java_write(jvm, tmp_path / "java.puffin", blobs, dict(file.properties)) == golden


def test_we_read_a_large_file_that_java_wrote(jvm: Jvm, tmp_path: Path) -> None:
    """Its footer is longer than the tail that is read first."""
    blobs = [
        (
            BlobMetadata(f"type-{number}", (number,), number, -number, 0, 0, codec, {"n": "x" * 100}),
            bytes([number]) * 1000,
        )
        for number in range(100)
        for codec in (None, "zstd")
    ]
    file, found = _read(_java_write(jvm, tmp_path / "java.puffin", blobs, {"created-by": "Java"}))
    assert file.footer_size > 16 * 1024
    assert [(replace(blob, offset=0, length=0), content) for blob, content in found] == blobs


def test_java_cannot_write_a_compressed_footer(jvm: Jvm, tmp_path: Path) -> None:
    """So refusing LZ4 footers costs no compatibility with Iceberg."""
    output = jvm.org.apache.iceberg.Files.localOutput(str(tmp_path / "lz4.puffin"))
    writer = jvm.org.apache.iceberg.puffin.Puffin.write(output).compressFooter().build()
    with pytest.raises(UnsupportedOperationException, match="Unsupported codec: LZ4"):
        writer.finish()
