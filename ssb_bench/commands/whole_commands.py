"""The commands that go the whole way: demo, all."""

from __future__ import annotations

import sys

import click

from ssb_bench.commands.all_steps import arguments_for, plan_steps, render_times, run_steps
from ssb_bench.commands.demo import make_dataset, show
from ssb_bench.commands.options import (
    SparkSize,
    index_options,
    layout_options,
    make_console,
    repeat_option,
    row_group_option,
    spark_options,
)
from ssb_bench.data.layout import Layout
from ssb_bench.results.step_times import read_times, times_path
from ssb_bench.spark_runs.indexing import IndexColumns
from ssb_bench.spark_runs.java import require_java


@click.command("demo")
@layout_options
@spark_options
@row_group_option
@repeat_option
@index_options
@click.option("--anew", is_flag=True, help="Load the table and build its index even if they are there.")
def demo_command(
    layout: Layout, size: SparkSize, row_group_rows: int, repeats: int, columns: IndexColumns, anew: bool
) -> None:
    """Show the whole way: data, table, an index built while queries run, the comparison, a picture."""
    console = make_console()
    require_java()
    make_dataset(layout, console)
    with size.session(layout, console) as spark:
        run, _ = show(
            *(spark, layout),
            row_group_rows=row_group_rows,
            columns=columns,
            repeats=repeats,
            console=console,
            anew=anew,
        )
    if run.failures:
        sys.exit(1)


@click.command("all")
@layout_options
@spark_options
@row_group_option
@click.option("--anew", is_flag=True, help="Measure again what was measured; data, table and index are kept.")
def all_command(layout: Layout, size: SparkSize, row_group_rows: int, anew: bool) -> None:
    """Do it all: data, table, index, every workload, systems, appends, sweep, scale, page.

    Goes on where it was stopped. Up to scale factors 2 and 0.5, repeats, appends and simulations are fewer.
    """
    console = make_console()
    require_java()
    spark = ("--cores", str(size.cores), "--memory", size.memory)
    steps = plan_steps(layout, arguments_for(layout.scale_factor), spark=spark, row_group_rows=row_group_rows)
    try:
        failed = run_steps(layout, steps, anew=anew, on_step=lambda text: console.print(text, style="bold"))
    finally:
        console.print(render_times(read_times(times_path(layout))))
    if failed:
        console.print(f"with failures: {', '.join(failed)}", style="bold red")
        sys.exit(1)
