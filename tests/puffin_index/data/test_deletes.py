"""Deletion vectors and positional delete files: what is written is read, and bad bytes are told apart."""

import contextlib
import io
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import orc
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyroaring import BitMap

from puffin_index.data.deletes import (
    DeleteFile,
    deleted_positions,
    parse_deletion_vector,
    read_deletion_vectors,
    read_positional_deletes,
)
from puffin_index.errors import CorruptFileError, NotFoundError, UnsupportedError
from puffin_index.formats.puffin import PuffinWriter
from puffin_index.storage.ranged import BytesReader
from tests.deletes_sample import deletion_vector

positions = st.sets(st.one_of(st.integers(0, 200_000), st.integers(0, 2**32 - 1)), max_size=200)


@given(positions)
def test_a_deletion_vector_is_read_as_it_was_written(some: set[int]) -> None:
    assert parse_deletion_vector(deletion_vector(some)) == BitMap(some)


@given(st.data())
def test_a_deletion_vector_with_a_flipped_bit_or_cut_short_is_corrupt(data: st.DataObject) -> None:
    whole = deletion_vector(data.draw(positions))
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    flipped = bytearray(whole)
    flipped[bit // 8] ^= 1 << bit % 8

    for damaged in (flipped, whole[: data.draw(st.integers(0, len(whole) - 1))], whole + b"\0"):
        with pytest.raises(CorruptFileError):
            parse_deletion_vector(damaged)


@given(st.binary(max_size=60))
def test_any_bytes_under_a_right_frame_are_a_vector_or_an_error_of_ours(body: bytes) -> None:
    framed = bytes.fromhex("D1D33964") + body
    blob = len(framed).to_bytes(4, "big") + framed + zlib.crc32(framed).to_bytes(4, "big")
    with contextlib.suppress(CorruptFileError, UnsupportedError):
        assert isinstance(parse_deletion_vector(blob), BitMap)


def test_positions_beyond_32_bits_are_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="2\\^32"):
        parse_deletion_vector(deletion_vector({1, 2**32}))


def test_a_puffin_file_gives_the_vectors_of_all_its_data_files() -> None:
    stream = io.BytesIO()
    writer = PuffinWriter(stream, created_by="a test")
    writer.add("other", b"x")
    for path, some in (("a", {1, 2}), ("b", {70_000})):
        writer.add("deletion-vector-v1", deletion_vector(some), properties={"referenced-data-file": path})
    writer.finish()

    assert read_deletion_vectors(BytesReader.of(stream.getvalue())) == {"a": BitMap([1, 2]), "b": BitMap([70_000])}


def test_a_vector_that_names_no_data_file_is_corrupt() -> None:
    stream = io.BytesIO()
    writer = PuffinWriter(stream, created_by="a test")
    writer.add("deletion-vector-v1", deletion_vector({1}))
    writer.finish()

    with pytest.raises(CorruptFileError, match="referenced-data-file"):
        read_deletion_vectors(BytesReader.of(stream.getvalue()))


def write(path: Path, paths: list[str | None], rows: list[int | None]) -> str:
    pq.write_table(pa.table({"file_path": pa.array(paths, pa.string()), "pos": pa.array(rows, pa.int64())}), path)
    return path.as_uri()


def test_positional_deletes_of_several_files_in_any_order(tmp_path: Path) -> None:
    location = write(tmp_path / "d.parquet", ["b", "a", "b", "a", "a"], [5, 9, 1, 3, 3])
    empty = write(tmp_path / "e.parquet", [], [])

    assert read_positional_deletes(PyArrowFileIO(), location) == {"b": BitMap([1, 5]), "a": BitMap([3, 9])}
    assert read_positional_deletes(PyArrowFileIO(), empty) == {}
    files = [DeleteFile(location, 1, 5, "PARQUET"), DeleteFile(empty, 1, 0, "PARQUET")]
    assert deleted_positions(PyArrowFileIO(), "a", files) == BitMap([3, 9])


def test_positional_deletes_in_orc(tmp_path: Path) -> None:
    location = (tmp_path / "d.orc").as_uri()
    listed = {"file_path": pa.array(["b", "a", "b"], pa.string()), "pos": pa.array([5, 9, 1], pa.int64())}
    orc.write_table(pa.table(listed), tmp_path / "d.orc")
    orc.write_table(pa.table({"other": [1]}), tmp_path / "y.orc")
    (tmp_path / "x.orc").write_bytes(b"no orc at all")

    assert read_positional_deletes(PyArrowFileIO(), location, "ORC") == {"b": BitMap([1, 5]), "a": BitMap([9])}
    assert deleted_positions(PyArrowFileIO(), "b", [DeleteFile(location, 1, 3, "ORC")]) == BitMap([1, 5])
    for name in ("x", "y"):
        with pytest.raises(CorruptFileError):
            read_positional_deletes(PyArrowFileIO(), (tmp_path / f"{name}.orc").as_uri(), "ORC")
    with pytest.raises(NotFoundError):
        read_positional_deletes(PyArrowFileIO(), (tmp_path / "z.orc").as_uri(), "ORC")


@pytest.mark.parametrize(
    ("paths", "rows", "error"),
    [
        (["a"], [-1], CorruptFileError),
        (["a"], [2**32], UnsupportedError),
        ([None], [1], CorruptFileError),
        (["a"], [None], CorruptFileError),
    ],
)
def test_positions_that_cannot_be_are_refused(
    tmp_path: Path, paths: list[str | None], rows: list[int | None], error: type[Exception]
) -> None:
    with pytest.raises(error):
        read_positional_deletes(PyArrowFileIO(), write(tmp_path / "d.parquet", paths, rows))


def test_files_that_are_none_or_missing_or_of_another_format_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"no parquet at all")
    pq.write_table(pa.table({"other": [1]}), tmp_path / "y.parquet")

    for name in ("x", "y"):
        with pytest.raises(CorruptFileError):
            read_positional_deletes(PyArrowFileIO(), (tmp_path / f"{name}.parquet").as_uri())
    with pytest.raises(NotFoundError):
        read_positional_deletes(PyArrowFileIO(), (tmp_path / "z.parquet").as_uri())
    with pytest.raises(UnsupportedError, match="AVRO"):
        deleted_positions(PyArrowFileIO(), "a", [DeleteFile("x.avro", 1, 1, "AVRO")])
