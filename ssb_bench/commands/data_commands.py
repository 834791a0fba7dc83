"""The commands that make data, table and index: generate, load, build."""

from __future__ import annotations

import click

from ssb_bench.commands.demo import make_dataset
from ssb_bench.commands.options import (
    POSITIVE,
    SparkSize,
    index_options,
    layout_options,
    make_console,
    row_group_option,
    spark_options,
)
from ssb_bench.data.dataset import require_dataset
from ssb_bench.data.layout import Layout
from ssb_bench.data.progress import build_bar, step_bar
from ssb_bench.spark_runs.bloom_table import make_bloom_table
from ssb_bench.spark_runs.indexing import IndexColumns, build_index, define_index
from ssb_bench.spark_runs.load import load


@click.command("generate")
@layout_options
@click.option("--keep-tpch", is_flag=True, help="Keep the TPC-H files that the tables are made of.")
@click.option("--threads", type=POSITIVE, default=2, show_default=True)
@click.option("--memory-limit", default="2GB", show_default=True, help="DuckDB's memory; beyond it, it uses the disk.")
def generate_command(layout: Layout, keep_tpch: bool, threads: int, memory_limit: str) -> None:
    """Make the five SSB tables as Parquet files."""
    console = make_console()
    make_dataset(layout, console, keep_tpch=keep_tpch, threads=threads, memory_limit=memory_limit)
    dataset = require_dataset(layout)
    for table, rows in dataset.rows.items():
        console.print(f"{table}: {rows:,} rows")
    console.print(f"{dataset.data_bytes / 1e6:.0f} MB in {layout.ssb}", soft_wrap=True)


@click.command("load")
@layout_options
@spark_options
@row_group_option
@click.option("--bloom-filters", is_flag=True, help="Also write lineorder with Parquet bloom filters, for `systems`.")
def load_command(layout: Layout, size: SparkSize, row_group_rows: int, bloom_filters: bool) -> None:
    """Write the SSB tables into Iceberg through Spark, and prove that all rows arrived."""
    console = make_console()
    require_dataset(layout)
    with size.session(layout, console) as spark:
        with step_bar(console, "load") as move:
            loaded = load(spark, layout, row_group_rows=row_group_rows, on_step=move)
        if bloom_filters:
            with console.status("writing bloom filters"):
                make_bloom_table(spark, layout)
    console.print(
        f"lineorder: {loaded.rows:,} rows, {loaded.row_groups} row groups of {loaded.smallest_row_group_rows:,} to "
        f"{loaded.largest_row_group_rows:,} rows, {loaded.data_files} files, {loaded.data_bytes / 1e6:.0f} MB, "
        f"written in {loaded.write_seconds:.1f} s"
    )


@click.command("build")
@layout_options
@spark_options
@index_options
def build_command(layout: Layout, size: SparkSize, columns: IndexColumns) -> None:
    """Define the index of lineorder and build what is missing of it."""
    console = make_console()
    index = define_index(layout, columns)
    with size.session(layout, console) as spark, build_bar(console) as move:
        report = build_index(spark, layout, index, move)
    console.print(
        f"{report.row_groups} row groups indexed in {report.seconds:.1f} s, {report.index_bytes / 1e6:.1f} MB"
        if report.rows
        else "nothing to build"
    )
