"""Make the SSB tables as Parquet files: TPC-H by `tpchgen-cli`, part by part, reshaped by DuckDB in bounded memory.

Each file is written under another name and renamed when it is whole, so a run that was stopped goes on where it was.
`dataset.json` is written last and says that everything is there.
"""

import logging
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
import pyarrow.parquet as pq

from ssb_bench.data import tables
from ssb_bench.data.layout import SSB_TABLES, BenchError, Layout, read_if_there, write_record

RULES_VERSION: Final = 2
"""Raised when a rule of `tables` changes, so that older files are made anew."""

FEWEST_FILES: Final = 8
_THREADS: Final = 2
PARQUET_ROW_GROUP_ROWS: Final = 122_880
_WHOLE_SOURCES: Final = ("nation", "region", "customer", "supplier", "part", "orders")


_log = logging.getLogger(__name__)


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
    """Make what is missing of the SSB tables, and delete TPC-H files once used unless they are to be kept.

    Raises BenchError if the TPC-H generator is missing or fails, or if rows are missing at the end.
    """
    finished = read_dataset(layout)
    if finished is None and layout.dataset_json.exists():
        shutil.rmtree(layout.ssb)  # made by other rules
    if finished is None:
        _make(layout, keep_tpch)
        finished = _finish(layout)
        if not keep_tpch:
            shutil.rmtree(layout.tpch, ignore_errors=True)
    return finished


def read_dataset(layout: Layout) -> Dataset | None:
    """Read what a finished `generate` left, or None if there is nothing complete made by the present rules."""
    dataset = read_if_there(layout.dataset_json, Dataset)
    return dataset if dataset is not None and dataset.rules_version == RULES_VERSION else None


def require_dataset(layout: Layout) -> Dataset:
    """Read what `generate` left, or raise BenchError if there is nothing complete."""
    dataset = read_dataset(layout)
    if dataset is None:
        raise BenchError(
            f"no SSB data of scale factor {layout.scale_factor:g} in {layout.data}: "
            f"run `ssb-bench generate --sf {layout.scale_factor:g} --data {layout.data}` first"
        )
    return dataset


def open_duckdb(layout: Layout) -> duckdb.DuckDBPyConnection:
    """Open an in-memory DuckDB that spills under the layout, with a view for each SSB table that has files."""
    spill = layout.root / "duckdb_spill"
    connection = duckdb.connect()
    connection.execute(f"SET threads = {_THREADS}; SET memory_limit = '2GB'")
    connection.execute(f"SET temp_directory = '{spill}'; SET enable_progress_bar = false")
    for table in SSB_TABLES:
        if any((layout.ssb / table).glob("*.parquet")):
            connection.execute(
                f"CREATE VIEW \"{table}\" AS SELECT * FROM read_parquet('{layout.ssb / table}/*.parquet')"
            )
    return connection


def _make(layout: Layout, keep_tpch: bool) -> None:
    """Make each missing file."""
    files = lineorder_files(layout)
    with open_duckdb(layout) as connection:
        _log.info("making customer, supplier, part, date")
        _make_dimensions(connection, layout)
        for number, target in enumerate(files):
            if not target.exists():
                _log.info("making file %d of %d of lineorder", number + 1, len(files))
                _make_lineorder(connection, layout, number, target, keep_tpch)


def _make_dimensions(connection: duckdb.DuckDBPyConnection, layout: Layout) -> None:
    whole = [source for source in _WHOLE_SOURCES if not (layout.tpch / f"{source}.parquet").exists()]
    if whole:
        _run_tpchgen(layout, whole)
    for table in tables.dimension_rows(layout.scale_factor):
        target = layout.ssb / table / f"{table}.parquet"
        if not target.exists():
            _copy(connection, tables.table_sql(table, layout.scale_factor, tpch=layout.tpch), target)


def _make_lineorder(
    connection: duckdb.DuckDBPyConnection, layout: Layout, number: int, target: Path, keep_tpch: bool
) -> None:
    """Make one file of lineorder of one part of TPC-H's lineitem, and count that no row was lost."""
    part, parts = number + 1, len(lineorder_files(layout))
    lineitem, orders = layout.tpch / "lineitem" / f"lineitem.{part}.parquet", layout.tpch / "orders.parquet"
    if not lineitem.exists():
        _run_tpchgen(layout, ["lineitem"], "--parts", str(parts), "--part", str(part))
    sql = tables.table_sql("lineorder", layout.scale_factor, lineitem=lineitem, orders=orders)
    _copy(connection, sql, target, _rows(lineitem))
    if not keep_tpch:
        lineitem.unlink()


def _copy(connection: duckdb.DuckDBPyConnection, sql: str, target: Path, rows_due: int | None = None) -> None:
    """Write a query's rows to a Parquet file that is there completely or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(target.name + ".tmp")
    connection.execute(
        f"COPY ({sql}) TO '{unfinished}' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {PARQUET_ROW_GROUP_ROWS})"
    )
    if rows_due is not None and _rows(unfinished) != rows_due:
        raise BenchError(f"{target.name} would have {_rows(unfinished):,} rows where {rows_due:,} are due")
    os.replace(unfinished, target)


def _run_tpchgen(layout: Layout, sources: Sequence[str], *extra: str) -> None:
    layout.tpch.mkdir(parents=True, exist_ok=True)
    command = [
        *(str(_tpchgen()), "parquet", "--scale-factor", f"{layout.scale_factor:g}", "--output-dir", str(layout.tpch)),
        *("--tables", ",".join(sources), "--num-threads", str(_THREADS), "--overwrite", "--quiet", *extra),
    ]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        message = (finished.stderr or finished.stdout).strip().splitlines() or ["no message"]
        raise BenchError(f"tpchgen-cli ended with {finished.returncode}: {message[-1]}")


def _tpchgen() -> Path:
    beside = Path(sys.executable).with_name("tpchgen-cli")
    found = beside if beside.exists() else shutil.which("tpchgen-cli")
    if found is None:
        raise BenchError("tpchgen-cli is not installed: install the `bench` extra of this package")
    return Path(found)


def _finish(layout: Layout) -> Dataset:
    """Count what is there, refuse a table of the wrong size, and write `dataset.json`."""
    rows = {table: sum(_rows(file) for file in layout.files(table)) for table in SSB_TABLES}
    for table, count in tables.dimension_rows(layout.scale_factor).items():
        if rows[table] != count:
            raise BenchError(f"SSB table {table} has {rows[table]:,} rows where {count:,} are due")
    data_bytes = sum(file.stat().st_size for table in SSB_TABLES for file in layout.files(table))
    dataset = Dataset(layout.scale_factor, RULES_VERSION, rows, data_bytes)
    write_record(layout.dataset_json, dataset)
    return dataset


def _rows(file: Path) -> int:
    return int(pq.read_metadata(file).num_rows)
