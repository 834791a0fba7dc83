"""Make the SSB tables as Parquet files: TPC-H by `tpchgen-cli`, reshaped by DuckDB by the rules of the SSB paper.

SSB (O'Neil, O'Neil, Chen, Revilak: Star Schema Benchmark, revision 3) is TPC-H reshaped: `lineorder` is lineitem joined
with orders, prices are whole cents, `partsupp` is gone, customer and supplier are smaller, part grows with log2 of the
scale factor, and `date` is a table. TPC-H keys are folded onto the smaller tables by modulo. Where the generator draws
a random number that TPC-H does not have, the MD5 of the key stands for it, so a scale factor gives one set of rows.
Keys, dates (yyyymmdd) and cents are INTEGER, but for the order key (BIGINT: its keys are sparse and outgrow 32 bits).

Each file of SSB, and the folder of TPC-H, is written under another name and renamed when it is whole, so a run that
was stopped goes on where it was. `dataset.json` is written last and says that everything is there.
"""

import logging
import math
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Final

import duckdb
import pyarrow.parquet as pq

from ssb_bench.data.layout import SSB_TABLES, BenchError, Layout, read_record, write_record

RULES_VERSION: Final = 2
"""Raised when a rule of the tables changes, so that older files are made anew."""

FEWEST_FILES: Final = 8
_THREADS: Final = 2
PARQUET_ROW_GROUP_ROWS: Final = 122_880
_log = logging.getLogger(__name__)

DATE_DAYS: Final = 2556
# TPC-H rounds its small tables down to whole rows; a floor of one keeps every foreign key valid at tiny scales.
_CUSTOMERS_PER_SCALE: Final = 30_000
_SUPPLIERS_PER_SCALE: Final = 2_000
_PARTS_BASE: Final = 200_000


def part_rows(scale_factor: float) -> int:
    """Count the parts: 200,000 * floor(1 + log2 SF), and in proportion below scale 1, where the rule has no value."""
    if scale_factor >= 1:
        return _PARTS_BASE * math.floor(1 + math.log2(scale_factor))
    return max(1, int(_PARTS_BASE * scale_factor))


def dimension_rows(scale_factor: float) -> dict[str, int]:
    """Count the rows of each table but lineorder."""
    customers, suppliers = (max(1, int(each * scale_factor)) for each in (_CUSTOMERS_PER_SCALE, _SUPPLIERS_PER_SCALE))
    return {"customer": customers, "supplier": suppliers, "part": part_rows(scale_factor), "date": DATE_DAYS}


def table_sql(table: str, scale_factor: float, **sources: object) -> str:
    """Give the query of a table; `sources` are the paths that its file names."""
    rows = {f"{name}s": count for name, count in dimension_rows(scale_factor).items()} | {"days": DATE_DAYS}
    text = files("ssb_bench.data").joinpath("sql", f"{table}.sql").read_text(encoding="utf-8")
    return Template(text).substitute(rows, **sources)


@dataclass(frozen=True, slots=True)
class Dataset:
    """What `generate` made, and `RULES_VERSION` of the program that made it."""

    scale_factor: float
    rules_version: int
    rows: dict[str, int]
    data_bytes: int


def lineorder_files(layout: Layout) -> list[Path]:
    """Name the files of lineorder: each has at most about 6 million rows, and there are 8 at least."""
    count = max(FEWEST_FILES, math.ceil(layout.scale_factor))
    return [layout.ssb / "lineorder" / f"lineorder-{number:05d}.parquet" for number in range(count)]


def generate(layout: Layout, *, keep_tpch: bool = False) -> Dataset:
    """Make what is missing of the SSB tables, and delete TPC-H files once used unless they are to be kept."""
    finished = read_dataset(layout)
    if finished is not None:
        return finished
    if layout.dataset_json.exists():
        shutil.rmtree(layout.ssb)  # made by other rules
    _make(layout)
    rows = {table: sum(map(_rows, layout.files(table))) for table in SSB_TABLES}
    data_bytes = sum(file.stat().st_size for table in SSB_TABLES for file in layout.files(table))
    dataset = Dataset(layout.scale_factor, RULES_VERSION, rows, data_bytes)
    write_record(layout.dataset_json, dataset)
    if not keep_tpch:
        shutil.rmtree(layout.tpch, ignore_errors=True)
    return dataset


def read_dataset(layout: Layout) -> Dataset | None:
    """Read what a finished `generate` left, or None if there is nothing complete made by the present rules."""
    dataset = read_record(layout.dataset_json, Dataset)
    return dataset if dataset is not None and dataset.rules_version == RULES_VERSION else None


def require_dataset(layout: Layout) -> Dataset:
    """Read what `generate` left, or raise BenchError if there is nothing complete."""
    dataset = read_dataset(layout)
    if dataset is None:
        raise BenchError(
            f"no SSB data of scale factor {layout.scale_factor:g} in {layout.root.parent}: "
            f"run `ssb-bench generate --sf {layout.scale_factor:g} --data {layout.root.parent}` first"
        )
    return dataset


def open_duckdb(layout: Layout) -> duckdb.DuckDBPyConnection:
    """Open an in-memory DuckDB that spills under the layout, with a view for each SSB table that has files."""
    spill = str(layout.root / "duckdb_spill")
    connection = duckdb.connect(config={"threads": _THREADS, "memory_limit": "2GB", "temp_directory": spill})
    connection.execute("SET enable_progress_bar = false")
    for table in SSB_TABLES:
        if layout.files(table):
            connection.execute(f"CREATE VIEW \"{table}\" AS FROM read_parquet('{layout.ssb / table}/*.parquet')")
    return connection


def _make(layout: Layout) -> None:
    """Make the TPC-H files, and each missing file of them."""
    targets = lineorder_files(layout)
    if not layout.tpch.exists():
        unfinished = layout.tpch.with_suffix(".tmp")
        unfinished.mkdir(parents=True, exist_ok=True)
        _run_tpchgen(layout, unfinished, "nation,region,customer,supplier,part,orders")
        _run_tpchgen(layout, unfinished, "lineitem", "--parts", str(len(targets)))
        unfinished.rename(layout.tpch)
    with open_duckdb(layout) as connection:
        for table, count in dimension_rows(layout.scale_factor).items():
            sql = table_sql(table, layout.scale_factor, tpch=layout.tpch)
            _copy(connection, sql, layout.ssb / table / f"{table}.parquet", count)
        for number, target in enumerate(targets, 1):
            lineitem, orders = layout.tpch / "lineitem" / f"lineitem.{number}.parquet", layout.tpch / "orders.parquet"
            sql = table_sql("lineorder", layout.scale_factor, lineitem=lineitem, orders=orders)
            _copy(connection, sql, target, _rows(lineitem))


def _copy(connection: duckdb.DuckDBPyConnection, sql: str, target: Path, rows_due: int) -> None:
    """Write a query's rows to a Parquet file that is there completely or not at all; leave one that is there alone."""
    if target.exists():
        return
    _log.info("making %s", target.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(target.name + ".tmp")
    connection.execute(
        f"COPY ({sql}) TO '{unfinished}' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {PARQUET_ROW_GROUP_ROWS})"
    )
    if _rows(unfinished) != rows_due:
        raise BenchError(f"{target.name} would have {_rows(unfinished):,} rows where {rows_due:,} are due")
    os.replace(unfinished, target)


def _run_tpchgen(layout: Layout, folder: Path, tables: str, *extra: str) -> None:
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    program = shutil.which("tpchgen-cli", path=places)
    if program is None:
        raise BenchError("tpchgen-cli is not installed: install the `bench` extra of this package")
    command = [program, "parquet", "--scale-factor", f"{layout.scale_factor:g}", "--output-dir", str(folder)]
    command += ["--tables", tables, "--num-threads", str(_THREADS), "--overwrite", "--quiet", *extra]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        message = (finished.stderr or finished.stdout).strip().splitlines() or ["no message"]
        raise BenchError(f"tpchgen-cli ended with {finished.returncode}: {message[-1]}")


def _rows(file: Path) -> int:
    return int(pq.read_metadata(file).num_rows)
