"""DuckDB, Polars, DataFusion and pandas read datasets: right answers, and filters that reach the planner."""

import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType, StringType

import planner
from puffin_index import TableIndex
from puffin_index.data.data_table import list_data_files
from puffin_index.errors import NotFoundError, UnsupportedError
from puffin_index.storage.caches import clear_caches
from tests.conftest import built, create_table, temporary_catalog
from tests.deletes_sample import commit_equality_deletes, commit_positional_deletes

ROWS = 4_000
GROUP_ROWS = 500


def every_type(first: int = 0) -> pa.Table:
    def column(value: Callable[[int], Any], kind: pa.DataType) -> pa.Array:
        return pa.array([None if n % 11 == 5 else value(n) for n in range(first, first + ROWS)], kind)

    return pa.table(
        {
            "id": pa.array(range(first, first + ROWS), pa.int64()),
            "k": column(lambda n: n // 40, pa.int32()),
            "d": column(lambda n: float("nan") if n % 7 == 0 else n / 4 - 100, pa.float64()),
            "s": column(lambda n: f"näme {n // 100}", pa.string()),
            "dec": column(lambda n: Decimal(n // 20) / 100, pa.decimal128(38, 2)),
            "dt": column(lambda n: date(2024, 1, 1) + timedelta(days=n // 50), pa.date32()),
            "ts": column(lambda n: datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=n), pa.timestamp("us", "UTC")),
            "bo": column(lambda n: n < 100, pa.bool_()),
            "b": column(lambda n: b"\xff%d" % (n // 80), pa.binary()),
            "st": column(lambda n: {"x": n // 60}, pa.struct([("x", pa.int32())])),
        }
    )


def make(catalog: SqlCatalog) -> TableIndex:
    """`ns.t` of 16 row groups in two files, without bounds in manifests, all columns but `id` and `d` indexed."""
    create_table(catalog, "t", every_type(), GROUP_ROWS).append(every_type(ROWS))
    names = ("k", "s", "dec", "dt", "ts", "bo", "b", "st.x")
    return built(catalog, "ns.t", bitmap=names)


@pytest.fixture(scope="module")
def index() -> Iterator[TableIndex]:
    with temporary_catalog() as catalog:
        made = make(catalog)
        # By their NULLs alone, all row groups seem to match. That they do not is known once the index was read.
        assert planner.count(made, "s IS NULL AND k IS NOT NULL").rows == 0
        yield made


@pytest.fixture
def changing(local_catalog: SqlCatalog) -> TableIndex:
    return make(local_catalog)


class Watched:
    """A dataset whose scans are remembered."""

    def __init__(self, index: TableIndex, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dataset = planner.dataset(index)
        self.scans: list[Any] = []
        make = planner.IndexedDataset.scanner

        def scanner(*arguments: Any, **options: Any) -> Any:
            self.scans.append(make(*arguments, **options))
            return self.scans[-1]

        monkeypatch.setattr(planner.IndexedDataset, "scanner", scanner)

    @property
    def kept(self) -> int:
        return int(self.scans[-1].plan.kept)


@pytest.fixture
def watched(index: TableIndex, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(index, monkeypatch)


CONDITIONS = {
    "k = 17": 2,
    "k IN (1, 2, 3)": 1,
    "k = 1 OR k = 150": 2,
    "k NOT IN (1, 2)": 16,
    "k IS NULL AND s = 'näme 3'": 0,
    "s BETWEEN 'näme 3' AND 'näme 32'": 3,
    "dec >= 3.97": 2,
    "dt = DATE '2024-02-01'": 1,
    "ts < TIMESTAMPTZ '2024-01-03 12:00:00+02'": 1,
    "bo": 16,
    "NOT bo AND k < 10": 1,
    "b = '\\xFF3'::BLOB": 1,
    "st.x = 9": 2,
    "st.x = 9 AND d > 1": 2,
    "d = 3.5": 16,
    "k = 5 AND id % 2 = 1": 1,
    "k > 1000": 0,
}


@pytest.mark.parametrize("where", CONDITIONS)
def test_duckdb_gives_its_own_answers_from_fewer_row_groups(index: TableIndex, watched: Watched, where: str) -> None:
    plain = duckdb.connect()
    plain.execute("SET TimeZone = 'UTC'")
    files = [file.path.removeprefix("file://") for file in list_data_files(index.data_table)]
    plain.from_parquet(files).create_view("plain")
    plain.register("indexed", watched.dataset)

    for what in ("count(*), sum(id), min(s)", "id, k, s, dec, dt, bo, b, st"):
        of_files, of_index = (
            plain.sql(f"SELECT {what} FROM {name} WHERE {where} ORDER BY ALL").fetchall()
            for name in ("plain", "indexed")
        )
        assert of_index == of_files
    assert watched.kept <= CONDITIONS[where] or "d" in where.split()[0]


def test_duckdb_finds_a_dataset_by_the_name_of_its_variable(index: TableIndex) -> None:
    orders = planner.dataset(index)

    assert orders.count_rows() == 2 * ROWS
    assert duckdb.sql("SELECT count(*) FROM orders WHERE k = 17 OR k = 150").fetchall() == [(73,)]
    assert duckdb.sql("SELECT o.id FROM orders o JOIN orders p USING (id) WHERE p.k = 17 LIMIT 5").fetchall()


POLARS = {
    "equal": (pl.col("k") == 17, 2),
    "list": (pl.col("k").is_in([1, 2, 3]), 1),
    "text": (pl.col("s") == "näme 3", 1),
    "null": (pl.col("s").is_null() & (pl.col("id") < 10), 16),
    "date": (pl.col("dt") == date(2024, 2, 1), 1),
    "instant": (pl.col("ts") < datetime(2024, 1, 3, tzinfo=UTC), 1),
    "flag": (pl.col("bo"), 1),
    "not": (~pl.col("bo") & (pl.col("k") < 10), 1),
    "between": (pl.col("k").is_between(3, 5), 1),
    "nan": (pl.col("d").is_nan() & (pl.col("k") == 3), 1),
    "greater": (pl.col("d") > 890.0, 16),
}


@pytest.mark.parametrize("name", POLARS)
def test_polars_gives_its_own_answers_from_fewer_row_groups(index: TableIndex, watched: Watched, name: str) -> None:
    predicate, most = POLARS[name]
    # Polars takes NaN for the greatest number, but not where it hands a filter to Arrow.
    plain = ds.InMemoryDataset(index.data_table.scan().to_arrow())

    of_index, of_rows = (
        pl.scan_pyarrow_dataset(source).filter(predicate).select("id", "k", "s", "dt").collect().sort("id")
        for source in (watched.dataset, plain)
    )

    assert of_index.equals(of_rows, null_equal=True)
    assert watched.kept <= most


@pytest.mark.parametrize(
    ("where", "most"),
    {
        "k = 17": 2,
        "k IN (1, 2, 3, 4, 5, 6)": 1,
        "s IS NULL AND k IS NOT NULL": 0,
        "dec > 3.97 OR dt = DATE '2024-02-01'": 3,
        "ts < TIMESTAMP '2024-01-03T12:00:00Z'": 1,
        "NOT bo AND k < 10": 1,
        "d > 3.5 AND k < 10": 1,
    }.items(),
)
def test_datafusion_has_its_answers_from_fewer_rows(index: TableIndex, watched: Watched, where: str, most: int) -> None:
    context = datafusion.SessionContext()
    context.register_dataset("indexed", watched.dataset)
    context.register_dataset("plain", ds.InMemoryDataset(index.data_table.scan().to_arrow()))

    of_index, of_rows = (
        context.sql(f"SELECT id, k, s FROM {name} WHERE {where} ORDER BY id").to_pydict()
        for name in ("indexed", "plain")
    )

    assert of_index == of_rows
    assert watched.kept <= most
    assert context.sql("SELECT count(*) AS n FROM indexed").to_pydict() == {"n": [2 * ROWS]}


def test_arrow_tests_what_the_planner_cannot(index: TableIndex) -> None:
    exact = planner.dataset(index).scanner(columns=["id"], filter=pc.field("k") == 17)
    tested = planner.dataset(index).scanner(columns=["id"], filter=(pc.field("k") == 17) & (pc.field("d") + 1 > 0))

    assert exact.to_table().num_rows == 37
    assert exact.plan.kept == 1
    assert exact.data_read.chunks == 2
    assert 0 < tested.to_table().num_rows < 37
    assert tested.data_read.chunks == 3
    assert [str(unused) for unused in tested.plan.unused]


def test_deletes_and_schema_changes_are_seen_and_a_dataset_stays_as_it_is(changing: TableIndex) -> None:
    before = planner.dataset(changing)
    oldest = list_data_files(changing.data_table)[-1].path
    commit_positional_deletes(changing.data_table, {oldest: range(0, ROWS, 2)})
    changing.data_table.update_schema().update_column("k", LongType()).commit()
    with changing.data_table.update_schema() as update:
        update.rename_column("k", "number")
        update.add_column("fresh", StringType())
    after = planner.dataset(changing)

    assert before.count_rows(pc.field("k") < 300) - after.count_rows(pc.field("number") < 300) == 1_818
    assert before.to_table(filter=pc.field("k") == 17).num_rows == 37
    assert after.to_table(filter=pc.field("number") == 17, columns=["fresh"])["fresh"].null_count == 18
    assert after.head(3, filter=pc.field("fresh").is_null() & (pc.field("number") == 0))["id"].to_pylist() == [1, 3, 7]
    first = changing.data_table.snapshots()[0].snapshot_id
    assert planner.dataset(changing, first).count_rows() == ROWS
    with pytest.raises(NotFoundError, match="has no snapshot 7"):
        planner.dataset(changing, 7)


def test_batches_columns_and_filters_are_as_arrow_has_them(index: TableIndex) -> None:
    source = planner.dataset(index)
    few = source.filter(pc.field("k") < 10)

    assert isinstance(source, ds.Dataset)
    assert max(batch.num_rows for batch in source.to_batches(batch_size=90)) == 90
    assert few.count_rows(pc.field("id") > 20) == few.to_table(filter=pc.field("id") > 20).num_rows == 345
    doubled = source.scanner(columns={"twice": pc.field("k") * 2, "one": pc.scalar(1)}, filter=pc.field("id") == 80)
    assert doubled.projected_schema.names == ["twice", "one"]
    assert doubled.to_table().to_pylist() == doubled.to_reader().read_all().to_pylist() == [{"twice": 4, "one": 1}]
    assert source.to_table(columns=[]).num_rows == 2 * ROWS
    assert doubled.take([0]).num_rows == 1
    with pytest.raises(pa.ArrowInvalid, match="No match for FieldRef"):
        source.scanner(filter=pc.field("nothing") == 1)
    with pytest.raises(pa.ArrowNotImplementedError, match="no kernel matching"):
        source.scanner(filter=pc.field("k") == "text")
    with pytest.raises(pa.ArrowInvalid, match="BatchSize must be greater than 0"):
        source.to_table(batch_size=-1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'fitler'"):
        source.to_table(fitler=pc.field("k") == 1)
    with pytest.raises(TypeError, match="Cannot convert str"):
        source.to_table(filter="k = 1")
    assert source.to_table(batch_readahead=2, fragment_readahead=1, use_threads=False).num_rows == 2 * ROWS


@pytest.mark.parametrize("digits", [9, 10, 18, 19])
def test_a_list_of_decimals_may_have_more_digits_than_the_column(local_catalog: SqlCatalog, digits: int) -> None:
    column = pa.decimal128(digits, 2)
    values = pa.array([Decimal("5.00"), Decimal("1.00"), Decimal("-7.25"), None], column)
    rows = pa.table({"d": values})
    create_table(local_catalog, "t", rows, 2)
    source = planner.dataset(built(local_catalog, "ns.t", bitmap=["d"]))

    # 64 bits hold the same of the first of these and of 5.00.
    for asked in (["184467440737095521.16"], ["184467440737095521.16", "1.00"], ["-184467440737095523.41"]):
        condition = pc.field("d").isin(pa.array(map(Decimal, asked)))
        for test in (condition, ~condition):
            assert source.to_table(filter=test) == rows.filter(test)
            assert source.count_rows(test) == rows.filter(test).num_rows


def test_a_dataset_is_its_only_fragment(index: TableIndex) -> None:
    (fragment,) = planner.dataset(index).filter(pc.field("k") == 2).get_fragments()

    assert fragment.physical_schema.names == index.data_table.schema().as_arrow().names
    assert fragment.count_rows() == fragment.to_table(fragment.schema, columns=["id"]).num_rows == 36
    assert fragment.head(5, filter=pc.field("id") > 100).num_rows == 5
    assert sum(batch.num_rows for batch in fragment.to_batches(columns=["k"])) == 36


def test_whatever_arrow_would_do_with_an_object_of_its_own_is_refused(index: TableIndex) -> None:
    source = planner.dataset(index)
    for own, of_arrow in ((planner.IndexedDataset, ds.Dataset), (type(source.scanner()), ds.Scanner)):
        names = {name for name in dir(of_arrow) if not name.startswith("__") and not name.startswith("from_")}
        assert names <= set(vars(own)), names - set(vars(own))
    for name in ("join", "sort_by", "replace_schema", "take"):
        with pytest.raises(UnsupportedError, match="to_table"):
            getattr(source, name)("id")
    rows = pa.table({"id": [1]})
    for read in (
        lambda: pickle.dumps(source),
        lambda: ds.Scanner.from_dataset(source).to_table(),
        lambda: ds.UnionDataset(source.schema, [source]).count_rows(),
        lambda: acero.Declaration("scan", acero.ScanNodeOptions(source)).to_table(),
        lambda: rows.join(source, "id"),
    ):
        with pytest.raises(UnsupportedError, match="ask an engine"):
            read()


def test_arrow_may_have_one_thread_for_input(changing: TableIndex, tmp_path: Path) -> None:
    """The thread that asks for rows is that one, and reading waits for no other."""
    table = changing.data_table
    for file in list_data_files(table):
        commit_positional_deletes(table, {file.path: range(0, ROWS, 3)})
    commit_equality_deletes(table, pa.table({"k": pa.array([5], pa.int32())}))
    source = planner.dataset(changing)
    some, asked = (pc.field("k") < 90) & (pc.field("id") > 500), "k < 90 AND id > 500"
    expected = sorted(source.to_table()["id"].to_pylist()), sorted(source.to_table(filter=some)["id"].to_pylist())
    threads = pa.io_thread_count()
    pa.set_io_thread_count(1)
    try:
        for number, (rows, ids) in enumerate(
            [
                (source, expected[0]),
                (source.scanner(filter=some), expected[1]),
                (source.scanner(columns={"id": pc.field("id") + pc.scalar(0)}, filter=some), expected[1]),
                (planner.scan(changing), expected[0]),
                (planner.scan(changing, asked, ["id"]), expected[1]),
            ]
        ):
            clear_caches()
            ds.write_dataset(rows, tmp_path / str(number), format="parquet")
            written = pq.read_table(tmp_path / str(number), use_threads=False, pre_buffer=False)
            assert sorted(written["id"].to_pylist()) == ids
    finally:
        pa.set_io_thread_count(threads)


def test_threads_share_a_dataset(index: TableIndex, tmp_path: Path) -> None:
    source = planner.dataset(index)
    plain = source.to_table()

    def read(number: int) -> list[bool]:
        asked = (pc.field("k") == 5 * number) | (pc.field("s") == f"näme {number}")
        scan, ids = source.scanner(filter=asked), set(plain.filter(asked)["id"].to_pylist())
        ds.write_dataset(scan, tmp_path / str(number), format="parquet", max_rows_per_file=50, max_rows_per_group=20)
        with duckdb.connect() as connection:
            of_duckdb = {key for (key,) in connection.sql("SELECT id FROM scan").fetchall()}
        return [
            set(ds.dataset(tmp_path / str(number)).to_table()["id"].to_pylist()) == ids,
            set(pl.DataFrame(scan)["id"]) == set(pa.table(scan)["id"].to_pylist()) == ids,
            of_duckdb == ids,
        ]

    with ThreadPoolExecutor(8) as pool:
        assert all(map(all, pool.map(read, range(24))))


def test_a_chain_of_thousands_of_values_is_read_without_recursion(index: TableIndex) -> None:
    def read() -> tuple[int, int]:
        condition = pc.field("k") == 0
        for key in range(2_000):
            condition |= pc.field("k") == key * 1000
        scan = planner.dataset(index).scanner(columns=["id"], filter=condition)
        return scan.plan.kept, scan.to_table().num_rows

    # Arrow itself recurses. A JVM in this process leaves the main thread a megabyte.
    before = threading.stack_size(64 << 20)
    try:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(read).result() == (1, 36)
    finally:
        threading.stack_size(before)


def test_a_field_by_its_position_is_tested_by_arrow_alone(index: TableIndex) -> None:
    scan = planner.dataset(index).scanner(columns=["id"], filter=pc.field(0) == 17)

    assert scan.to_table().to_pydict() == {"id": [17]}
    assert scan.plan.kept == 16
