"""Byte ranges hold the point of one row group each, and points are those of parquet-java."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st
from pyarrow import orc

from puffin_index.data.orc_footer import read_footer
from puffin_index.data.parquet import row_group_places
from puffin_index.data.row_groups import READ_WHOLE, range_starts
from tests.parquet_footer_edit import Struct, columns, edit_footer, metadata, row_groups

SIZE = 1_000
GROUPS = 20
_LONG = 6


@given(st.lists(st.tuples(st.integers(-5, SIZE + 5), st.integers(-5, SIZE + 5)), max_size=12))
def test_a_range_holds_the_point_of_its_row_group_alone(row_groups: list[tuple[int, int]]) -> None:
    offsets, points = [offset for offset, _ in row_groups], [point for _, point in row_groups]

    starts = range_starts(offsets, points, SIZE)

    if len(set(points)) < len(points) or any(not 0 <= point < SIZE for point in points):
        assert starts == (READ_WHOLE,) * len(points)
        return
    for at, start in enumerate(starts):
        end = min([other for other in starts if other > start], default=SIZE)
        assert [point for point in points if start <= point < end] == [points[at]]
        assert start in (offsets[at], points[at])


def test_neighbouring_row_groups_begin_where_the_footer_says() -> None:
    assert range_starts([4, 100, 300], [50, 200, 400], 600) == (4, 100, 300)
    assert range_starts([300, 4, 100], [400, 50, 200], 600) == (300, 4, 100)
    assert range_starts([], [], 600) == ()


def write(path: Path, change: Callable[[Struct], None] = lambda _: None) -> pq.FileMetaData:
    table = pa.table({f"c{at}": pa.array(range(at, at + 2_000)) for at in range(20)}).append_column(
        "s", pa.array([None if at % 3 else {"b": at % 2 == 0, "t": str(at)} for at in range(2_000)])
    )
    sorting = [pq.SortingColumn(0)]
    pq.write_table(table, path, row_group_size=2_000 // GROUPS, sorting_columns=sorting, write_page_index=True)
    edit_footer(path, change)
    return pq.ParquetFile(path).metadata


def test_places_are_those_that_pyarrow_tells(tmp_path: Path) -> None:
    footer = write(tmp_path / "data.parquet")

    places = row_group_places(footer)

    assert places is not None
    assert len(places[0]) == GROUPS
    for group, (offset, midpoint) in enumerate(zip(*places, strict=True)):
        own = footer.row_group(group)
        chunks = [own.column(at) for at in range(own.num_columns)]
        assert offset == min(chunks[0].data_page_offset, chunks[0].dictionary_page_offset)
        assert midpoint == offset + sum(chunk.total_compressed_size for chunk in chunks) // 2


def without_sizes(footer: Struct) -> None:
    for group in row_groups(footer):
        group.pop(6)


def with_sizes_of_100(footer: Struct) -> None:
    for group in row_groups(footer):
        group[6] = (_LONG, 100)


def with_a_dictionary_at_0(footer: Struct) -> None:
    metadata(columns(row_groups(footer)[3])[0])[11] = (_LONG, 0)


def with_a_negative_size(footer: Struct) -> None:
    row_groups(footer)[3][6] = (_LONG, -100)


def test_what_a_footer_leaves_out_or_states_wrongly_is_taken_as_parquet_java_takes_it(tmp_path: Path) -> None:
    honest = row_group_places(write(tmp_path / "honest.parquet"))
    assert honest is not None

    assert row_group_places(write(tmp_path / "a.parquet", without_sizes)) == honest
    wrong = row_group_places(write(tmp_path / "b.parquet", with_sizes_of_100))
    assert wrong is not None
    assert [midpoint - offset for offset, midpoint in zip(*wrong, strict=True)] == [50] * GROUPS
    at_0 = row_group_places(write(tmp_path / "c.parquet", with_a_dictionary_at_0))
    assert at_0 is not None
    assert at_0[0][3] == 0
    assert at_0[1][3] == honest[1][3] - honest[0][3]
    assert row_group_places(write(tmp_path / "d.parquet", with_a_negative_size)) is None


def test_a_file_without_row_groups_has_no_places(tmp_path: Path) -> None:
    pq.ParquetWriter(tmp_path / "empty.parquet", pa.schema([("a", pa.int64())])).close()

    assert row_group_places(pq.ParquetFile(tmp_path / "empty.parquet").metadata) == ([], [])


@pytest.mark.parametrize("compression", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize(("rows", "columns"), [(1_000, 1), (150_000, 1), (1_000, 300), (1_000, 4_000)])
def test_stripes_of_an_orc_file_are_found(tmp_path: Path, compression: str, rows: int, columns: int) -> None:
    """Of many columns the footer is compressed, of very many in several chunks."""
    table = pa.table(
        {"a": list(range(rows)), "s": [str(at * 7_919 % 100_003) for at in range(rows)]}
        | {f"column number {at}": pa.nulls(rows, pa.int8()) for at in range(columns)}
    )
    path = tmp_path / "data.orc"
    orc.write_table(table, path, compression=compression, stripe_size=65_536, batch_size=1_024)
    with path.open("rb") as stream:
        opened = orc.ORCFile(stream)
        found, row_counts, _ = read_footer(opened)

        rows = [opened.read_stripe(at, columns=["a"]).num_rows for at in range(opened.nstripes)]
        assert row_counts == tuple(rows)
    offsets = list(found)
    assert offsets[0] == len(b"ORC")
    assert offsets == sorted(set(offsets))
    assert offsets[-1] < path.stat().st_size
