"""The commands that read results: report, compare."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ssb_bench.commands.options import FILE, layout_options, make_console
from ssb_bench.data.layout import Layout
from ssb_bench.data.records import read_if_there, read_record
from ssb_bench.report.compare import DEFAULT_NOISE_BAND, compare_runs, comparison_parts
from ssb_bench.report.figures import draw_run, save
from ssb_bench.report.page import Sources, write_page
from ssb_bench.report.run_report import run_parts
from ssb_bench.report.terminal import render
from ssb_bench.results.appends import AppendRun
from ssb_bench.results.run import Run, newest_run
from ssb_bench.results.step_times import read_times, times_path
from ssb_bench.studies.scale import Scale
from ssb_bench.studies.sweep import Sweep
from ssb_bench.systems.run import SystemsRun


@click.command("report")
@layout_options
@click.option("--run", "file", type=FILE, help="A run; the newest by default.")
@click.option("--picture", type=FILE, help="Where to draw it: PNG, SVG or PDF.")
@click.option("--systems", type=FILE, help="A comparison of systems; the newest by default.")
@click.option("--append", type=FILE, help="Queries while data arrive; append.json beside the data by default.")
@click.option("--sweep", type=FILE, help="A sweep; DATA/sweep.json by default.")
@click.option("--scale", type=FILE, help="Planning over simulated indexes; DATA/scale.json by default.")
@click.option("--steps", type=FILE, help="The times of the steps of `all`; of its last run by default.")
@click.option("--page", type=FILE, help="Where to write the HTML page; beside the run by default.")
def report_command(
    layout: Layout,
    file: Path | None,
    picture: Path | None,
    systems: Path | None,
    append: Path | None,
    sweep: Path | None,
    scale: Path | None,
    steps: Path | None,
    page: Path | None,
) -> None:
    """Print a run as a table, draw it, and make an HTML page of it and of what else was measured."""
    console = make_console()
    path = file or newest_run(layout.runs)
    run, target, html = read_record(path, Run), picture or path.with_suffix(".png"), page or path.with_suffix(".html")
    save(draw_run(run), target)
    console.print(render(run_parts(run)))
    compared = systems or max(layout.runs.glob("systems-*.json"), default=None)
    swept = read_if_there(sweep or layout.data / "sweep.json", Sweep)
    scaled = read_if_there(scale or layout.data / "scale.json", Scale)
    sources = Sources(
        run,
        None if compared is None else read_if_there(compared, SystemsRun),
        read_if_there(append or layout.root / "append.json", AppendRun),
        () if scaled is None else scaled.points,
        () if swept is None else swept.points,
        read_times(steps or times_path(layout)),
    )
    pictures = write_page(sources, html)
    console.print(f"picture: {target}\npage: {html}\npictures of the page: {pictures}", soft_wrap=True)


@click.command("compare")
@click.argument("old", type=FILE)
@click.argument("new", type=FILE)
@click.option("--noise", type=click.FloatRange(0, 1, max_open=True), default=DEFAULT_NOISE_BAND, show_default=True)
@click.option("--relative", is_flag=True, help="Compare by the time without the index of each run.")
def compare_command(old: Path, new: Path, noise: float, relative: bool) -> None:
    """Compare two runs query by query; exit 1 if one is slower, keeps more row groups, fails or is missing."""
    compared = compare_runs(read_record(old, Run), read_record(new, Run), noise_band=noise, relative=relative)
    make_console().print(render(comparison_parts(compared, noise_band=noise)))
    if any(query.is_regression for query in compared):
        sys.exit(1)
