"""Deletion vectors and positional delete files: what is written is read, and bad bytes are told apart."""

import contextlib
import io
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st
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

WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {"PARQUET": pq.write_table, "ORC": orc.write_table}

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
    def written(name: str) -> BytesReader:
        stream = io.BytesIO()
        writer = PuffinWriter(stream, created_by="a test")
        writer.add("other", b"x")
        for path, some in (("a", {1, 2}), ("b", {70_000})):
            writer.add("deletion-vector-v1", deletion_vector(some), properties={name: path})
        writer.finish()
        return BytesReader.of(stream.getvalue())

    assert read_deletion_vectors(written("referenced-data-file")) == {"a": BitMap([1, 2]), "b": BitMap([70_000])}
    with pytest.raises(CorruptFileError, match="referenced-data-file"):
        read_deletion_vectors(written("another name"))


def write(path: Path, paths: list[str | None], rows: list[int | None], file_format: str = "PARQUET") -> str:
    table = pa.table({"file_path": pa.array(paths, pa.string()), "pos": pa.array(rows, pa.int64())})
    WRITERS[file_format](table, path)
    return path.as_uri()


@pytest.mark.parametrize("file_format", WRITERS)
def test_positional_deletes_of_several_files_in_any_order(tmp_path: Path, file_format: str) -> None:
    location = write(tmp_path / "d", ["b", "a", "b", "a", "a"], [5, 9, 1, 3, 3], file_format)
    empty = write(tmp_path / "e", [], [], file_format)

    found = read_positional_deletes(PyArrowFileIO(), location, file_format)
    assert found == {"b": BitMap([1, 5]), "a": BitMap([3, 9])}
    assert read_positional_deletes(PyArrowFileIO(), empty, file_format) == {}
    files = [DeleteFile(location, 1, 5, file_format), DeleteFile(empty, 1, 0, file_format)]
    assert deleted_positions(PyArrowFileIO(), "a", files) == BitMap([3, 9])


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


@pytest.mark.parametrize("file_format", WRITERS)
def test_files_that_are_none_or_missing_are_refused(tmp_path: Path, file_format: str) -> None:
    (tmp_path / "x").write_bytes(b"of no format at all")
    WRITERS[file_format](pa.table({"other": [1]}), tmp_path / "y")

    for name in ("x", "y"):
        with pytest.raises(CorruptFileError):
            read_positional_deletes(PyArrowFileIO(), (tmp_path / name).as_uri(), file_format)
    with pytest.raises(NotFoundError):
        read_positional_deletes(PyArrowFileIO(), (tmp_path / "z").as_uri(), file_format)


def test_files_of_another_format_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="AVRO"):
        deleted_positions(PyArrowFileIO(), "a", [DeleteFile("x.avro", 1, 1, "AVRO")])
