"""The SSB tables: the paper's sizes, keys, dictionaries and cents, always the same, resumed where it stopped."""

import hashlib
import itertools
import shutil
from pathlib import Path

import duckdb
import pytest

from ssb_bench.data import dataset
from ssb_bench.data.dataset import generate, lineorder_files, read_dataset, require_dataset
from ssb_bench.data.layout import SSB_TABLES, BenchError, Layout

LINEORDER_ROWS = 60_175
"""TPC-H's lineitem at scale factor 0.01."""


def value(connection: duckdb.DuckDBPyConnection, sql: str) -> object:
    row = connection.execute(sql).fetchone()
    assert row is not None
    return row[0]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT count(*) FROM lineorder", LINEORDER_ROWS),
        ("SELECT count(*) FROM customer", 300),
        ("SELECT count(*) FROM supplier", 20),
        ("SELECT count(*) FROM part", 2000),
        ('SELECT count(*) FROM "date"', 2556),
        ('SELECT min(d_datekey) FROM "date"', 19920101),
        ('SELECT max(d_datekey) FROM "date"', 19981230),
        # The table ends a day before the end of 1998.
        ('SELECT count(*) FROM "date" WHERE d_lastdayinmonthfl = 1', 7 * 12 - 1),
        ("SELECT count(DISTINCT c_region) FROM customer", 5),
        ("SELECT count(DISTINCT c_nation) FROM customer", 25),
        ("SELECT count(DISTINCT (c_nation, c_region)) FROM customer", 25),
        ("SELECT count(DISTINCT right(c_city, 1)) FROM customer", 10),
        # Cities are nine characters of the nation and a digit.
        (r"SELECT count(*) FROM customer WHERE c_city NOT SIMILAR TO rpad(c_nation[:9], 9, ' ') || '\d'", 0),
        (r"SELECT count(*) FROM supplier WHERE s_city NOT SIMILAR TO rpad(s_nation[:9], 9, ' ') || '\d'", 0),
        ("SELECT list(DISTINCT p_mfgr ORDER BY p_mfgr) FROM part", [f"MFGR#{m}" for m in range(1, 6)]),
        (
            "SELECT list(DISTINCT p_category ORDER BY p_category) FROM part",
            [f"MFGR#{m}{c}" for m in range(1, 6) for c in range(1, 6)],
        ),
        (r"SELECT count(*) FROM part WHERE p_brand1 NOT SIMILAR TO p_category || '(0[1-9]|[1-3]\d|40)'", 0),
        ("SELECT count(*) FROM part WHERE NOT starts_with(p_category, p_mfgr)", 0),
        # 2,000 parts should show most of the 1,000 brands.
        ("SELECT count(DISTINCT p_brand1) > 800 FROM part", True),
        ("SELECT max(length(p_name)) <= 22 FROM part", True),
        # Colour and name are words of the name in TPC-H.
        (
            "SELECT count(*) FROM part JOIN tpch_part USING (p_partkey) "
            "WHERE NOT starts_with(tpch_part.p_name, p_color || ' ' || part.p_name || ' ')",
            0,
        ),
        # Only the order key is wider than 32 bits.
        (
            "SELECT map_from_entries(list(DISTINCT (column_type, column_name = 'lo_orderkey'))) "
            "FROM (DESCRIBE lineorder)",
            {"BIGINT": True, "INTEGER": False, "VARCHAR": False},
        ),
        # 17 pieces for 24,710.35 at 4 % off: a piece is 1,453.55, of which six tenths are 872.13.
        (
            "SELECT [lo_quantity, lo_extendedprice, lo_discount, lo_revenue, lo_supplycost] FROM lineorder "
            "WHERE lo_orderkey = 1 AND lo_linenumber = 1",
            [17, 2_471_035, 4, 2_372_193, 87_213],
        ),
    ],
)
def test_rows_and_values_are_what_the_paper_says(ssb: duckdb.DuckDBPyConnection, sql: str, expected: object) -> None:
    assert value(ssb, sql) == expected


@pytest.mark.parametrize(
    ("scale_factor", "rows"),
    [(1, 200_000), (1.9, 200_000), (2, 400_000), (4, 600_000), (10, 800_000), (100, 1_400_000), (0.5, 100_000)],
)
def test_part_grows_with_the_logarithm_of_the_scale(scale_factor: float, rows: int) -> None:
    assert dataset.part_rows(scale_factor) == rows


@pytest.mark.parametrize(
    ("table", "count"), [("lineorder", 17), ("customer", 8), ("supplier", 7), ("part", 9), ("date", 17)]
)
def test_each_table_has_the_columns_of_the_paper(ssb: duckdb.DuckDBPyConnection, table: str, count: int) -> None:
    names = [row[0] for row in ssb.execute(f'SELECT column_name FROM (DESCRIBE "{table}")').fetchall()]

    prefix = "lo" if table == "lineorder" else table[0]
    assert len(names) == count
    assert all(str(name).startswith(f"{prefix}_") for name in names)


def test_every_foreign_key_finds_one_row(ssb: duckdb.DuckDBPyConnection) -> None:
    sql = """SELECT count(*) FROM lineorder
        JOIN customer ON lo_custkey = c_custkey JOIN supplier ON lo_suppkey = s_suppkey
        JOIN part ON lo_partkey = p_partkey
        JOIN "date" ordered ON lo_orderdate = ordered.d_datekey JOIN "date" due ON lo_commitdate = due.d_datekey"""

    assert value(ssb, sql) == LINEORDER_ROWS
    for key, table in (
        ("c_custkey", "customer"),
        ("s_suppkey", "supplier"),
        ("p_partkey", "part"),
        ("d_datekey", "date"),
    ):
        assert value(ssb, f'SELECT count(*) - count(DISTINCT {key}) FROM "{table}"') == 0


def test_every_line_of_tpch_is_there_with_its_prices_in_cents(ssb: duckdb.DuckDBPyConnection) -> None:
    """Decimal arithmetic on the TPC-H columns gives the cents of lineorder, line by line."""
    matching = value(
        ssb,
        """
        SELECT count(*) FROM lineorder
        JOIN tpch_lineitem ON l_orderkey = lo_orderkey AND l_linenumber = lo_linenumber
        JOIN tpch_orders ON o_orderkey = lo_orderkey
        WHERE lo_extendedprice / 100 = l_extendedprice
          AND lo_ordtotalprice / 100 = o_totalprice
          AND lo_quantity = l_quantity AND lo_discount / 100 = l_discount AND lo_tax / 100 = l_tax
          AND lo_revenue = floor(l_extendedprice * (100 - l_discount * 100))
          AND lo_supplycost = floor(0.6 * l_extendedprice * 100 / l_quantity)
          AND lo_orderdate = CAST(strftime(o_orderdate, '%Y%m%d') AS INTEGER)
          AND lo_commitdate = CAST(strftime(l_commitdate, '%Y%m%d') AS INTEGER)
          AND (lo_custkey - o_custkey) % 300 = 0
          AND (lo_suppkey - l_suppkey) % 20 = 0
          AND lo_partkey = l_partkey
          AND lo_shipmode = l_shipmode AND lo_orderpriority = o_orderpriority""",
    )

    assert matching == LINEORDER_ROWS
    assert value(ssb, "SELECT count(*) FROM tpch_lineitem") == LINEORDER_ROWS


def test_a_day_has_its_calendar_values(ssb: duckdb.DuckDBPyConnection) -> None:
    """Christmas eve of 1994 was a Saturday, day 358 of its year."""
    day = ssb.execute('FROM "date" WHERE d_datekey = 19941224').fetchone()

    assert day == (
        *(19941224, "December 24, 1994", "Saturday", "December", 1994, 199412, "Dec1994"),
        *(7, 24, 358, 12, 52, "Christmas", 1, 0, 1, 0),
    )


def test_lineorder_has_several_files_in_key_order(layout: Layout, ssb: duckdb.DuckDBPyConnection) -> None:
    files = layout.files("lineorder")
    bounds = "SELECT min(lo_orderkey), max(lo_orderkey) FROM"
    ranges = [ssb.execute(f"{bounds} '{file}'").fetchall()[0] for file in files]

    assert len(files) == 8
    assert all(before[1] < after[0] for before, after in itertools.pairwise(ranges))


@pytest.mark.parametrize(("scale_factor", "files"), [(0.01, 8), (1, 8), (9.5, 10), (10, 10)])
def test_large_scales_have_more_files(tmp_path: Path, scale_factor: float, files: int) -> None:
    assert len(set(lineorder_files(Layout.of(tmp_path, scale_factor)))) == files


def digests(layout: Layout) -> dict[str, str]:
    files = [file for table in SSB_TABLES for file in layout.files(table)]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_making_it_again_gives_the_same_bytes(layout: Layout, tmp_path: Path) -> None:
    again = Layout.of(tmp_path, layout.scale_factor)
    generate(again)

    assert digests(again) == digests(layout)
    assert not again.tpch.exists(), "the TPC-H files are deleted unless they are to be kept"


def test_a_stopped_run_goes_on_where_it_was(layout: Layout, tmp_path: Path) -> None:
    """Files that are there are not made again, those that are missing are, and half a file counts as none."""
    stopped = Layout.of(tmp_path, layout.scale_factor)
    shutil.copytree(layout.root, stopped.root)
    stopped.dataset_json.unlink()
    lost = stopped.files("lineorder")[3]
    lost.rename(lost.with_name(lost.name + ".tmp"))
    before = {file.name: file.stat().st_mtime_ns for file in stopped.files("lineorder")}
    generate(stopped, keep_tpch=True)

    after = {file.name: file.stat().st_mtime_ns for file in stopped.files("lineorder")}
    assert {name: time for name, time in after.items() if name in before} == before
    assert digests(stopped) == digests(layout)


def test_a_finished_data_set_is_left_alone(layout: Layout) -> None:
    files = [file for table in SSB_TABLES for file in layout.files(table)]
    before = [file.stat().st_mtime_ns for file in files]

    assert generate(layout, keep_tpch=True) == read_dataset(layout)
    assert [file.stat().st_mtime_ns for file in files] == before


def test_a_lost_row_is_noticed(layout: Layout, tmp_path: Path) -> None:
    broken = Layout.of(tmp_path, layout.scale_factor)
    shutil.copytree(layout.root, broken.root)
    broken.dataset_json.unlink()
    broken.files("lineorder")[0].unlink()
    orders = broken.tpch / "orders.parquet"
    duckdb.execute(f"COPY (FROM '{orders}' WHERE o_orderkey <> 1) TO '{orders}.less' (FORMAT parquet)")
    Path(f"{orders}.less").replace(orders)

    with pytest.raises(BenchError, match="rows where"):
        generate(broken, keep_tpch=True)


@pytest.mark.parametrize("scale_factor", [0.0, -1.0, float("nan"), float("inf"), 0.0009, 1001.0])
def test_an_impossible_scale_factor_is_refused(tmp_path: Path, scale_factor: float) -> None:
    with pytest.raises(BenchError, match="scale factor"):
        Layout.of(tmp_path, scale_factor)


def test_missing_data_names_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"ssb-bench generate --sf 2 --data"):
        require_dataset(Layout.of(tmp_path, 2))
