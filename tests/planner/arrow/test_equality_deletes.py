"""Equality deletes without Spark: what the index proves, what is read, and what is refused."""

from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import planner
from planner.arrow.aggregate import aggregate_with_plan
from puffin_index import TableIndex
from puffin_index.errors import UnsupportedError
from puffin_index.storage.caches import clear_caches
from tests.conftest import built, create_table
from tests.deletes_sample import commit_equality_deletes

ROWS = 1_000


@pytest.fixture
def index(local_catalog: SqlCatalog) -> TableIndex:
    """`ns.t` with 10 row groups in a file, all columns indexed."""
    numbers = range(ROWS)
    rows = {"a": [n * 7 % ROWS for n in numbers], "b": [n % 200 for n in numbers], "c": [n % 3 for n in numbers]}
    create_table(local_catalog, "t", pa.table(rows), 100)
    return built(local_catalog, "ns.t", bitmap=["a", "b", "c"])


def counted(index: TableIndex, where: str | None = None) -> tuple[int, int]:
    """The rows, and how many row groups were read for them."""
    found = planner.count(index, where)
    assert len(planner.scan(index, where).read_all()) == found.rows
    return found.rows, found.row_groups_read


def test_few_combinations_are_known_and_many_only_where_no_row_is_deleted(index: TableIndex) -> None:
    # Of 100 values of `b` with 100 of `a`, which the first row group has; no other row group has both.
    rows = {"a": [n * 7 % ROWS for n in range(100)], "b": list(range(100))}
    commit_equality_deletes(index.data_table, pa.table({name: values[:60] for name, values in rows.items()}))
    assert counted(index) == (ROWS - 60, 0)
    commit_equality_deletes(index.data_table, pa.table(rows))
    assert counted(index) == (ROWS - 100, 1)
    assert counted(index, "a = 7 AND c = 1") == (0, 1)


def test_very_many_keys_are_a_range_for_the_index(index: TableIndex) -> None:
    commit_equality_deletes(index.data_table, pa.table({"a": [1, 3, 5]}))
    with patch("planner.snapshot.equality_deletes.MOST_KEYS", 2):
        # Other row groups have no value of the range.
        assert counted(index, "a < 400") == (397, 5)
        assert counted(index, "a > 6") == (ROWS - 7, 0)


def test_a_delete_file_is_read_once(index: TableIndex) -> None:
    commit_equality_deletes(index.data_table, pa.table({"a": [1, 3, 5]}))
    reads = [planner.plan(index, "a = 3").funnel[-1] for _ in range(2)]
    assert [stage.dropped for stage in reads] == [1, 1]
    assert reads[1].reads == reads[0].reads - 1


def test_a_damaged_delete_file_keeps_its_row_groups_and_fails_a_scan(index: TableIndex) -> None:
    location = commit_equality_deletes(index.data_table, pa.table({"a": [1, 3, 5]}))
    Path(location.removeprefix("file://")).write_bytes(b"PAR1")
    clear_caches()

    plan = planner.plan(index, "a = 3")

    assert (plan.kept, len(plan.warnings)) == (1, 1)
    with pytest.raises(ValueError, match="Parquet"):
        planner.scan(index, "a = 3").read_all()


@pytest.mark.parametrize(
    ("column", "values", "refusal"),
    [
        ("a", pa.array([1], pa.timestamp("ms")), "make other long values"),
        ("b", pa.array([1], pa.int64()), r"no columns of the field ids \[1\]"),
    ],
)
def test_files_read_otherwise_are_refused(index: TableIndex, column: str, values: pa.Array, refusal: str) -> None:
    location = commit_equality_deletes(index.data_table, pa.table({"a": [1]}))
    field_id = index.data_table.schema().find_field(column).field_id
    field = pa.field(column, values.type, metadata={"PARQUET:field_id": str(field_id)})
    pq.write_table(pa.table([values], schema=pa.schema([field])), location.removeprefix("file://"))
    clear_caches()

    for read in (lambda: planner.scan(index, "c = 1").read_all(), lambda: planner.count(index, "c = 1")):
        with pytest.raises(UnsupportedError, match=rf"equality delete file {location}: .*{refusal}"):
            read()


def test_groups_are_of_the_rows_that_are_left(index: TableIndex) -> None:
    commit_equality_deletes(index.data_table, pa.table({"c": [0]}))
    commit_equality_deletes(index.data_table, pa.table({"b": list(range(10, 200)), "c": [1] * 190}))

    found = aggregate_with_plan(index, "a < 700", "count(*), sum(b)", "c")

    left = [(n % 200, n % 3) for n in range(ROWS) if n * 7 % ROWS < 700 and n % 3 and not (n % 3 == 1 and n % 200 > 9)]
    expected = {c: (sum(own == c for _, own in left), sum(b for b, own in left if own == c)) for c in (1, 2)}
    assert {row["c"]: (row["count(*)"], row["sum(b)"]) for row in found.table.to_pylist()} == expected
    assert found.row_groups_read == 0
