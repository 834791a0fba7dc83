"""Scans of files with page indexes give the rows of a whole read, from few pages."""

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, note, settings, strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType

import planner
from planner.arrow.arrow_scan import READ_LIMITS
from planner.arrow.plan import plan_scan
from planner.arrow.row_group_columns import DataRead
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.data_table import list_data_files
from tests.conftest import amount, built
from tests.deletes_sample import commit_positional_deletes
from tests.planner.ten_rows import build_index

ROWS = 12_000
GROUP_ROWS = 6_000
PAGE_ROWS = 200

ELEMENT = pa.struct([("a", pa.int64()), ("b", pa.string())])
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("k", pa.int32()),
        ("t", pa.string()),
        ("d", pa.float64()),
        ("s", pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ("l", pa.list_(pa.int64())),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("e", pa.list_(ELEMENT)),
        ("x", pa.map_(pa.string(), ELEMENT)),
    ]
)


def rows_of(count: int, seed: int) -> list[dict[str, Any]]:
    random = Random(seed)

    def some(value: Any) -> Any:
        return None if random.random() < 0.1 else value

    return [
        {
            "n": n,
            "k": some(random.randrange(max(2, count // 4))),
            "t": some(random.choice("abc") + str(random.randrange(9))),
            "d": some(random.random()),
            "s": some({"a": some(n * 2), "b": some(str(n))}),
            "l": some([some(n + i) for i in range(n % 3)]),
            "m": some([(f"k{i}", some(i)) for i in range(n % 4)]),
            "e": some([some({"a": some(n), "b": some("x" * (n % 5))}) for _ in range(n % 3)]),
            "x": some([("k", some({"a": some(n), "b": some("y")}))][: n % 2]),
        }
        for n in range(count)
    ]


def paged_table(
    directory: Path, rows: list[dict[str, Any]], group_rows: int, *, write_page_index: bool = True, **writing: Any
) -> TableIndex:
    """A table of one file, with page indexes unless told otherwise, and an index of `k`."""
    catalog = SqlCatalog("local", uri=f"sqlite:///{directory / 'catalog.db'}", warehouse=directory.as_uri())
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", SCHEMA)
    path = directory / "f.parquet"
    pq.write_table(
        pa.Table.from_pylist(rows, SCHEMA),
        path,
        row_group_size=group_rows,
        write_page_index=write_page_index,
        **writing,
    )
    table.add_files([path.as_uri()])
    return built(catalog, "ns.t", bsi=["k"])


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return rows_of(ROWS, 1)


@pytest.fixture
def index(tmp_path: Path, rows: list[dict[str, Any]]) -> TableIndex:
    writing = {"max_rows_per_page": PAGE_ROWS, "write_batch_size": PAGE_ROWS, "use_dictionary": ["t"]}
    return paged_table(tmp_path, rows, GROUP_ROWS, **writing)


def test_a_needle_takes_a_page_of_each_column(index: TableIndex, rows: list[dict[str, Any]]) -> None:
    wanted = next(row for row in rows if row["k"] is not None)
    expected = [row for row in rows if row["k"] == wanted["k"]]
    read = DataRead()

    assert planner.scan(index, f"k = {wanted['k']}", data_read=read).read_all().to_pylist() == expected
    assert 0 < read.pages_read <= len(expected) * 14
    assert read.pages >= GROUP_ROWS // PAGE_ROWS * 14
    assert read.bytes_read < 0.3 * read.bytes
    assert read.chunks == 0


def test_columns_of_the_residual_come_first_others_for_rows_left(index: TableIndex, rows: list[dict[str, Any]]) -> None:
    read, none = DataRead(), DataRead()
    known = [row for row in rows if row["k"] == 7]
    expected = [row for row in known if row["n"] == known[0]["n"]]

    assert planner.scan(index, f"k = 7 AND n = {known[0]['n']}", data_read=read).read_all().to_pylist() == expected
    assert planner.scan(index, "k = 7 AND n = -1", data_read=none).read_all().num_rows == 0

    assert none.pages_read <= len(known)
    assert read.pages_read <= len(known) + 14


def test_most_rows_are_read_by_whole_column_chunks(index: TableIndex, rows: list[dict[str, Any]]) -> None:
    read = DataRead()
    found = planner.scan(index, "k > 100", ["n"], data_read=read).read_all()
    assert found.column("n").to_pylist() == [row["n"] for row in rows if row["k"] is not None and row["k"] > 100]
    assert (read.pages_read, read.bytes) == (0, read.bytes_read)


def test_a_file_without_page_indexes_is_read_as_before(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    index = paged_table(tmp_path, rows, GROUP_ROWS, write_page_index=False)
    read = DataRead()
    assert planner.scan(index, "k = 7", data_read=read).read_all().to_pylist() == [r for r in rows if r["k"] == 7]
    assert read.pages_read == 0
    assert read.chunks > 0


def test_damaged_pages_are_seen(
    index: TableIndex, rows: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(list_data_files(index.data_table)[0].path.removeprefix("file://"))
    data = bytearray(path.read_bytes())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    # Offset indexes lie right before the footer.
    data[footer - 12_000 : footer] = bytes(12_000)
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        assert planner.scan(index, "k = 7").read_all().to_pylist() == [row for row in rows if row["k"] == 7]
    assert "f.parquet" in caplog.text
    assert "read whole" in caplog.text


def test_evolved_columns_are_read_by_pages_as_they_are_whole(index: TableIndex, rows: list[dict[str, Any]]) -> None:
    table = index.data_table
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("t", "text")
        update.delete_column("d")
        update.update_column("k", LongType())
        update.add_column("size", LongType())
    read = DataRead()
    found = planner.scan(index, "k = 7 AND size IS NULL", ["text", "k", "size"], data_read=read).read_all()
    assert found.to_pylist() == [{"text": row["t"], "k": 7, "size": None} for row in rows if row["k"] == 7]
    assert read.pages_read > 0


LARGE_ROWS = 240_000


def large_table(folder: Path, *, write_page_index: bool) -> TableIndex:
    """One row group of twelve pages: each value of `k` has one row, in no order, and each of `c` a quarter of them."""
    catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    catalog.create_namespace("ns")
    keys = np.random.default_rng(2).permutation(LARGE_ROWS)
    data = pa.table({"k": keys, "c": keys % 4, "t": np.char.mod("text of %d", keys)})
    # Pages end where a batch does.
    writing = {"use_dictionary": False, "write_batch_size": 1_000, "write_page_index": write_page_index}
    return build_index(catalog, data, LARGE_ROWS, IndexDefinition.of(bitmap=["k", "c"]), **writing)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> TableIndex:
    return large_table(tmp_path_factory.mktemp("large"), write_page_index=True)


@pytest.mark.parametrize("keys", [[7], [7, 70, 70_000]])
def test_an_index_is_read_for_the_pages_that_a_scan_leaves_out(large: TableIndex, keys: list[int]) -> None:
    scanned, read = planner.dataset(large).scanner(filter=pc.field("k").isin(keys)), DataRead()
    rows = planner.scan(large, f"k IN ({', '.join(map(str, keys))})", data_read=read).read_all()
    for one, found in ((read, rows), (scanned.data_read, scanned.to_table())):
        assert sorted(found["k"].to_pylist()) == keys
        assert (one.pages_read, one.chunks) == (3 * len(keys), 0)
        assert one.bytes_read < one.bytes / 3
    assert 0 < scanned.plan.index_bytes_read < 10_000
    assert scanned.plan.by_pages is not None
    assert scanned.plan.by_pages.pages_read == len(keys)


@pytest.mark.parametrize("where", ["c = 1", "c = 1 OR k = 7", "k < 100000", "k < 1000", "t LIKE '%7'"])
def test_no_index_is_read_where_most_pages_hold_a_match(large: TableIndex, where: str) -> None:
    read = DataRead()
    rows = planner.scan(large, where, data_read=read).read_all()
    assert len(rows) == planner.count(large, where).rows > 12
    assert read.bytes_read == read.bytes
    # Directories have been read by now.
    assert plan_scan(large, where, limits=READ_LIMITS).plan.index_bytes_read == 0


def test_no_index_is_read_for_pages_that_cannot_be_read_alone(tmp_path: Path) -> None:
    index = large_table(tmp_path, write_page_index=False)
    for where in ("k = 7", "k IN (7, 70, 70000)"):
        planner.scan(index, where).read_all()
        # Directories have been read by now.
        plan = plan_scan(index, where, limits=READ_LIMITS).plan
        assert (plan.index_bytes_read, plan.by_pages) == (0, None)


def test_keys_are_located_by_an_index_whatever_it_saves(large: TableIndex) -> None:
    read = DataRead()
    found = planner.locate(large, {"k": [7, 70], "c": [3, 2]}, data_read=read)
    assert found.select(["k", "c"]).to_pylist() == [{"k": 7, "c": 3}, {"k": 70, "c": 2}]
    assert read.bytes == 0


WHERES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "k = 3": lambda row: row["k"] == 3,
    "k IN (1, 5, 9)": lambda row: row["k"] in (1, 5, 9),
    "k BETWEEN 4 AND 6": lambda row: row["k"] is not None and 4 <= row["k"] <= 6,
    "k IS NULL": lambda row: row["k"] is None,
    "k = 2 AND t LIKE 'a%'": lambda row: row["k"] == 2 and (row["t"] or "").startswith("a"),
    "k < 5 AND d < 0.5": lambda row: None not in (row["k"], row["d"]) and row["k"] < 5 and row["d"] < 0.5,
    "k = 1 AND s.a > 100": lambda row: (
        row["k"] == 1 and (row["s"] or {}).get("a", 0) is not None and (row["s"] or {}).get("a", 0) > 100
    ),
    "t = 'b3'": lambda row: row["t"] == "b3",
}


WRITING = st.fixed_dictionaries(
    {
        "max_rows_per_page": st.integers(1, 40),
        "write_batch_size": st.integers(1, 40),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "compression": st.sampled_from(["zstd", "snappy", "none"]),
        "use_dictionary": st.sampled_from([True, False, ["t"]]),
    }
)


@settings(max_examples=amount(4, 125), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32),
    row_count=st.integers(1, 600),
    group_rows=st.integers(50, 600),
    writing=WRITING,
    deleted=st.just(set()) | st.sets(st.integers(0, 599)),
    columns=st.none() | st.lists(st.sampled_from(SCHEMA.names), min_size=1, unique=True),
)
def test_scans_of_paged_files_agree_with_the_rows(
    seed: int, row_count: int, group_rows: int, writing: dict[str, Any], deleted: set[int], columns: list[str] | None
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        rows = rows_of(row_count, seed)
        index = paged_table(Path(directory), rows, group_rows, **writing)
        if deleted := {number for number in deleted if number < row_count}:
            commit_positional_deletes(index.data_table, {list_data_files(index.data_table)[0].path: deleted})
        live = [row for number, row in enumerate(rows) if number not in deleted]
        chosen = columns or SCHEMA.names
        for where, matches in WHERES.items():
            note(where)
            expected = [{name: row[name] for name in chosen} for row in live if matches(row)]
            assert planner.scan(index, where, columns).read_all().to_pylist() == expected
            assert planner.count(index, where).rows == len(expected)
        index.catalog.close()
