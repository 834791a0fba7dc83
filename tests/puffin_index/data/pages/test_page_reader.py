"""Rows read by pages are the rows of a whole read; what does not fit together is refused."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_index.data.file_fields import identify_fields
from puffin_index.data.page_index import HeldRows
from puffin_index.data.page_reader import PageReader, can_assemble, read_ranges
from puffin_index.data.parquet import open_parquet_file
from puffin_index.errors import CorruptFileError
from puffin_index.storage.arrays import Ints
from puffin_index.storage.ranged import GAP_BYTES, BytesReader
from tests.conftest import amount
from tests.counting_reader import CountingReader
from tests.parquet_footer_edit import (
    Struct,
    columns as chunks_of,
    edit_footer,
    metadata,
    row_groups as row_groups_of,
    struct_bytes,
)
from tests.puffin_index.data.pages.random_files import TYPES, FileCase, file_cases

ROWS = 1_000
PAGE_ROWS = 50


def read_by_pages(path: Path, row_group: int, rows: Ints) -> tuple[pa.Table, int, int]:
    """The rows by pages, how many pages were read, and how many there are."""
    with open_parquet_file(PyArrowFileIO(), str(path)) as opened:
        fields = identify_fields(opened.parquet.schema_arrow, "PARQUET", None)
        assert fields is not None
        reader = PageReader.of(opened.parquet, opened.file, row_group)
        chunks = reader.chunks(range(len(opened.parquet.schema)))
        indexes = reader.offset_indexes(chunks)
        leaves = reader.pages(chunks, indexes, rows)
        usable = [field for field in fields.fields if leaves.keys() >= set(field.leaves)]
        table = reader.read(usable, leaves) if usable else pa.table({"": pa.nulls(len(rows))}).select([])
        return table, sum(len(own.held.pages) for own in leaves.values()), sum(i.page_count for i in indexes.values())


def whole(path: Path, row_group: int, rows: Ints) -> pa.Table:
    return pq.ParquetFile(path).read_row_group(row_group).take(pa.array(rows))


def random_rows(random: Random, row_count: int) -> Ints:
    """Some rows, at least one: alone, in runs, the first, the last, or all."""
    begin = random.randrange(row_count)
    kinds = [
        random.sample(range(row_count), random.randint(1, min(row_count, 5))),
        range(begin, min(row_count, begin + random.randint(1, 100))),
        [0],
        [row_count - 1],
        range(row_count),
    ]
    return np.unique(np.array(random.choice(kinds), np.int64))


def row_groups_in_file(case: FileCase) -> Iterator[tuple[Path, int, int]]:
    """Write a file; give each row group with its number of rows, as long as the next one is not asked for."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "f.parquet"
        case.write(path)
        file = pq.ParquetFile(path)
        for row_group in range(file.num_row_groups):
            row_count = file.metadata.row_group(row_group).num_rows
            # PyArrow does not read all that it wrote: an empty page, where a dictionary grows too large, ends its read.
            with suppress(pa.ArrowInvalid):
                if file.read_row_group(row_group).num_rows == row_count:
                    yield path, row_group, row_count


@settings(max_examples=amount(30, 750), deadline=None)
@given(case=file_cases(), seed=st.integers(0, 2**32))
def test_pages_give_the_rows_of_a_whole_read(case: FileCase, seed: int) -> None:
    random = Random(seed)
    for path, row_group, row_count in row_groups_in_file(case):
        rows = random_rows(random, row_count)
        table, _, _ = read_by_pages(path, row_group, rows)
        table.validate(full=True)
        expected = whole(path, row_group, rows).select(table.column_names)
        assert table.schema.equals(expected.schema)
        assert table.equals(expected) or table.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("name", sorted(TYPES))
def test_every_type_can_be_read_by_pages(name: str) -> None:
    assert can_assemble(TYPES[name]), name


def test_types_that_cannot_be_put_together_are_named() -> None:
    pair = pa.list_(pa.struct([("a", pa.int64()), ("b", pa.int64())]), 2)
    assert not can_assemble(pair)
    assert not can_assemble(pa.struct([("pair", pair)]))


def write(path: Path, *, repeated: bool = False, version: str = "1.0") -> Path:
    numbers = np.arange(ROWS)
    values = pa.array([[i] * (i % 3) for i in range(ROWS)]) if repeated else pa.array(numbers)
    table = pa.table({"c": values, "s": pa.array(numbers % 10).cast(pa.string())})
    pq.write_table(
        table, path, write_page_index=True, max_rows_per_page=PAGE_ROWS, write_batch_size=10, data_page_version=version
    )
    return path


def test_only_the_pages_of_the_rows_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "f.parquet")
    table, read, pages = read_by_pages(path, 0, np.array([60, 99, 700]))
    assert (read, pages) == (4, 40)
    assert table.to_pylist() == [{"c": 60, "s": "0"}, {"c": 99, "s": "9"}, {"c": 700, "s": "0"}]


def replace_offset_index(path: Path, change: Callable[[list[list[int]]], None], column: int = 0) -> None:
    """Write a changed offset index of a column before the footer."""
    with open_parquet_file(PyArrowFileIO(), str(path)) as opened:
        reader = PageReader.of(opened.parquet, opened.file, 0)
        index = reader.offset_indexes(reader.chunks([column]))[column]
    pages = np.stack((index.offsets, index.sizes, index.first_rows[:-1]), axis=1).tolist()
    change(pages)
    locations = [{1: (6, offset), 2: (5, size), 3: (6, first)} for offset, size, first in pages]
    written = struct_bytes({1: (9, (12, locations))})
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    changed = path.with_name("changed-" + path.name)
    changed.write_bytes(data[:footer] + written + data[footer:])

    def point(fields: Struct) -> None:
        chunk = chunks_of(row_groups_of(fields)[0])[column]
        chunk[4], chunk[5] = (6, footer), (5, len(written))

    edit_footer(changed, point)
    changed.replace(path.with_name("hostile.parquet"))


def _set(page: int, part: int, value: int) -> Callable[[list[list[int]]], None]:
    def change(pages: list[list[int]]) -> None:
        pages[page][part] = value

    return change


def _add(page: int, part: int, value: int) -> Callable[[list[list[int]]], None]:
    def change(pages: list[list[int]]) -> None:
        pages[page][part] += value

    return change


def _swap(pages: list[list[int]]) -> None:
    pages[1][0], pages[2][0] = pages[2][0], pages[1][0]


def _same_page_twice(pages: list[list[int]]) -> None:
    pages[2][0], pages[2][1] = pages[1][0], pages[1][1]


def _drop_a_page(pages: list[list[int]]) -> None:
    del pages[1]


HOSTILE = {
    "offset before the chunk": _set(1, 0, 0),
    "offset negative": _set(1, 0, -5),
    "offset behind the file": _set(1, 0, 1 << 40),
    "offset of 63 bits": _set(1, 0, (1 << 63) - 1),
    "offset beyond 64 bits": _set(1, 0, 1 << 70),
    "offset within a page": _add(1, 0, 3),
    "size too large": _add(1, 1, 1),
    "size too small": _add(1, 1, -1),
    "size zero": _set(1, 1, 0),
    "size negative": _set(1, 1, -7),
    "size of 31 bits": _set(1, 1, (1 << 31) - 1),
    "first row not zero": _set(0, 2, 1),
    "rows do not ascend": _set(2, 2, 10),
    "rows beyond the row group": _set(19, 2, ROWS + 1),
    "a row too many in a page": _add(2, 2, 1),
    "a row too few in a page": _add(2, 2, -1),
    "pages swapped": _swap,
    "a page twice": _same_page_twice,
    "a page is missing": _drop_a_page,
    "no page": list.clear,
}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("damage", sorted(HOSTILE))
def test_hostile_offset_indexes_are_refused(tmp_path: Path, damage: str, repeated: bool, version: str) -> None:
    path = write(tmp_path / "f.parquet", repeated=repeated, version=version)
    replace_offset_index(path, HOSTILE[damage])
    # The rows of page 1, and of that page alone, so that no other page makes up for its damage.
    with pytest.raises(CorruptFileError, match=r"hostile\.parquet"):
        read_by_pages(tmp_path / "hostile.parquet", 0, np.arange(PAGE_ROWS, PAGE_ROWS + 5))


def test_an_offset_index_with_a_page_of_no_row_is_of_no_use(tmp_path: Path) -> None:
    replace_offset_index(write(tmp_path / "f.parquet"), _set(2, 2, PAGE_ROWS))
    table, _, _ = read_by_pages(tmp_path / "hostile.parquet", 0, np.arange(3))
    assert table.column_names == ["s"]


@settings(max_examples=amount(20, 500), deadline=None)
@given(data=st.data())
def test_flipped_bytes_of_an_offset_index_never_give_other_rows(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = write(Path(directory) / "f.parquet", repeated=data.draw(st.booleans()), version="2.0")
        expected_rows = random_rows(Random(data.draw(st.integers(0, 99))), ROWS)
        expected = whole(path, 0, expected_rows)
        with open_parquet_file(PyArrowFileIO(), str(path)) as opened:
            place = PageReader.of(opened.parquet, opened.file, 0).chunks([0])[0].offset_index
        assert place is not None
        content = bytearray(path.read_bytes())
        at = place[0] + data.draw(st.integers(0, place[1] - 1))
        content[at] ^= 1 << data.draw(st.integers(0, 7))
        changed = path.with_name("flipped.parquet")
        changed.write_bytes(content)
        try:
            table, _, _ = read_by_pages(changed, 0, expected_rows)
        except CorruptFileError:
            return
        # A page that is not read may begin elsewhere; the bounds of those that are read are proven by their headers.
        assert table.equals(expected.select(table.column_names))


@pytest.mark.parametrize("field", [7, 9, 11])
@pytest.mark.parametrize("value", [-1, 1 << 40, (1 << 63) - 1])
def test_column_chunks_outside_of_the_file_are_left_out(tmp_path: Path, field: int, value: int) -> None:
    path = write(tmp_path / "f.parquet")

    def change(footer: Struct) -> None:
        metadata(chunks_of(row_groups_of(footer)[0])[1])[field] = (6, value)

    edit_footer(path, change)
    with open_parquet_file(PyArrowFileIO(), str(path)) as opened:
        chunks = PageReader.of(opened.parquet, opened.file, 0).chunks([0, 1])
    assert 0 in chunks
    # The first of both pages is the beginning, and the offset index says where data pages are.
    assert (1 in chunks) == (field != 7 and value > 0)


def test_encrypted_columns_and_columns_of_other_files_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "f.parquet")

    def change(footer: Struct) -> None:
        chunks_of(row_groups_of(footer)[0])[0][1] = (8, b"\x0dother.parquet")

    edit_footer(path, change)
    with open_parquet_file(PyArrowFileIO(), str(path)) as opened:
        assert PageReader.of(opened.parquet, opened.file, 0).chunks([0, 1]).keys() == {1}


@given(
    firsts=st.sets(st.integers(1, 99), max_size=20),
    rows=st.sets(st.integers(0, 99), min_size=1),
    is_repeated=st.booleans(),
)
def test_the_pages_of_rows(firsts: set[int], rows: set[int], is_repeated: bool) -> None:
    bounds = [0, *sorted(firsts), 100]
    places = np.arange(len(bounds) - 1)
    wanted = rows | {min(row + 1, 99) for row in rows} if is_repeated else rows
    expected = [page for page in places.tolist() if any(bounds[page] <= row < bounds[page + 1] for row in wanted)]
    held = HeldRows.of(np.array(bounds), np.array(sorted(rows)), is_repeated=is_repeated)
    assert held.pages.tolist() == expected
    read = [row for page in expected for row in range(bounds[page], bounds[page + 1])]
    assert [read[position] for position in held.positions.tolist()] == sorted(rows)
    assert held.row_counts.tolist() == [bounds[page + 1] - bounds[page] for page in expected]


FILE_BYTES = 20 * GAP_BYTES
FILE = np.random.default_rng(1).integers(0, 256, FILE_BYTES, np.uint8).tobytes()


@given(st.lists(st.tuples(st.integers(0, FILE_BYTES), st.integers(0, 40_000)), max_size=20))
def test_each_range_gets_its_bytes(ranges: list[tuple[int, int]]) -> None:
    inside = [(start, min(length, FILE_BYTES - start)) for start, length in ranges]
    places = np.array(inside, np.int64).reshape(-1, 2)
    found = read_ranges(BytesReader.of(FILE), places[:, 0], places[:, 1])
    assert [bytes(one) for one in found] == [FILE[start : start + length] for start, length in inside]


def test_near_ranges_share_a_request() -> None:
    reader = CountingReader(FILE)
    read_ranges(reader, np.array([5 * GAP_BYTES, 0, 100, 100 + GAP_BYTES]), np.array([10, 50, 7, 9]))
    assert (reader.requests, reader.bytes_read) == (2, 10 + 100 + GAP_BYTES + 9)


@pytest.mark.parametrize(
    ("start", "size"), [(-1, 5), (FILE_BYTES, 1), (1 << 62, 1 << 62), ((1 << 63) - 1, 100), (5, -2)]
)
def test_ranges_outside_of_the_file_are_refused(start: int, size: int) -> None:
    with pytest.raises(CorruptFileError):
        read_ranges(BytesReader.of(FILE), np.array([start]), np.array([size]))
