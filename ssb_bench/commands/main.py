"""`ssb-bench`: make the SSB data, load it, index it, compare queries without and with the index, and the studies."""

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
from pyspark.sql import SparkSession
from rich.console import Console

from puffin_index.commands.logs import configure_logs
from puffin_index.errors import PuffinIndexError
from ssb_bench.commands.demo import publish, show
from ssb_bench.data.dataset import generate as make_dataset, require_dataset
from ssb_bench.data.layout import Layout, read_if_there, read_record, write_record
from ssb_bench.data.workload import ALL_QUERIES, QUERIES_OF, ROWS_QUERIES, VOLCANO_QUERIES, Workload
from ssb_bench.report import reports
from ssb_bench.report.document import Part, render
from ssb_bench.report.figures import draw_run, save
from ssb_bench.report.page import write_page
from ssb_bench.results.run import Run, newest_run
from ssb_bench.results.studies import AppendRun, ClusteredRun, DoorsRun, Scale, StoreRun, SystemsRun, WritesRun
from ssb_bench.spark_runs.index import build_index, define_index
from ssb_bench.spark_runs.jars import S3_SUPPORT, session_jars
from ssb_bench.spark_runs.load import DEFAULT_ROW_GROUP_ROWS, load, make_bloom_table, require_load
from ssb_bench.spark_runs.run import fit_queries, run_queries, stamped_path
from ssb_bench.spark_runs.session import create_session, require_java, stderr_to
from ssb_bench.studies.append import DEFAULT_EVERY_SECONDS, fitting_batch_rows, measure_appends
from ssb_bench.studies.clustered import DEFAULT_GRID, DEFAULT_TRIALS, Grid, measure_clustered
from ssb_bench.studies.doors import measure_doors
from ssb_bench.studies.scale import DEFAULT_SIZES, measure_scale
from ssb_bench.studies.store import DEFAULT_MEGABYTES, DEFAULT_MILLISECONDS, measure_store
from ssb_bench.studies.writes import measure_writes
from ssb_bench.systems.look_ups import measure_look_ups
from ssb_bench.systems.peers import SYSTEM_NAMES, SYSTEMS
from ssb_bench.systems.run import run_systems

# Iceberg estimates the dimension `part` as larger than Spark's 10 MB. Joining it would shuffle all of lineorder, which
# takes five times as long as all else and hides what an index costs.
_SPARK_CONF = {"spark.sql.autoBroadcastJoinThreshold": "64MB"}

FILE = click.Path(path_type=Path, dir_okay=False)
POSITIVE = click.IntRange(min=1)

# Any: click calls a command with whatever its options are.
Command: TypeAlias = Callable[..., Any]
Option: TypeAlias = Callable[[Command], Command]


def setting(
    name: str, default: object, text: str, kind: click.ParamType[Any] = POSITIVE, *, multiple: bool = False
) -> Option:
    """Make an option with a default that its help shows."""
    typed = click.FloatRange(min=0) if multiple else kind
    return click.option(name, type=typed, default=default, show_default=True, multiple=multiple, help=text)


def many(name: str, parameter: str, choices: Sequence[str], text: str) -> Option:
    """Make an option of some names that may be given again."""
    kind = click.Choice(choices)
    return click.option(name, parameter, multiple=True, type=kind, metavar="NAME", help=f"{text} May be given again.")


row_group_option = setting("--row-group-rows", DEFAULT_ROW_GROUP_ROWS, "Rows of a row group of lineorder.")
repeat_option = setting("--repeats", 5, "Measured executions of each query on each side, after one that warms up.")


def layout_options(command: Command) -> Command:
    """Add `--data` and `--sf`; the command gets a `layout`."""
    folder = click.Path(path_type=Path, file_okay=False)

    @setting("--data", Path("data"), "Directory of the data; each scale factor has its own below it.", folder)
    @setting("--sf", 1.0, "Scale factor.", click.FLOAT)
    @wraps(command)
    def with_layout(*, data: Path, sf: float, **others: object) -> object:
        return command(layout=Layout.of(data, sf), **others)

    return with_layout


@dataclass(frozen=True, slots=True)
class SparkSize:
    """How large Spark's process is."""

    cores: int
    memory: str

    @contextmanager
    def session(self, layout: Layout, console: Console, jars: Sequence[str] = ()) -> Iterator[SparkSession]:
        """Start Spark with its own messages in a file, and stop it at the end."""
        require_java()
        session_jars(*jars)
        log = layout.root / "spark.log"
        with console.status("starting Spark"), stderr_to(log):
            spark = create_session(layout.warehouse, cores=self.cores, memory=self.memory, jars=jars, conf=_SPARK_CONF)
        try:
            yield spark
        finally:
            spark.stop()


def spark_options(command: Command) -> Command:
    """Add `--cores` and `--memory`; the command gets a `size`."""

    @setting("--cores", 2, "Spark's threads.")
    @setting("--memory", "3g", "Heap of Spark's process.", click.STRING)
    @wraps(command)
    def with_size(*, cores: int, memory: str, **others: object) -> object:
        return command(size=SparkSize(cores, memory), **others)

    return with_size


def make_console() -> Console:
    """Make the console that commands print on."""
    # A pipe or a log has no width of its own; the 80 columns that rich assumes would break the tables.
    return Console(width=None if sys.stdout.isatty() else 120)


SYSTEMS_QUERIES = (*VOLCANO_QUERIES, *ROWS_QUERIES[:-1])
"""All but the rows of Q7, which are most of the table."""

APPEND_QUERIES = VOLCANO_QUERIES[:-1]
"""All but Q7, which the index does not help."""

STORE_QUERIES = ("q1", "q2", "q5", "q6")
"""One column and two, few rows and many."""

_STUDIES: Final[dict[str, tuple[str, type, Callable[[Any], Iterable[Part]]]]] = {
    "systems": ("Other systems", SystemsRun, reports.systems_parts),
    "append": ("While data arrive", AppendRun, reports.append_parts),
    "clustered": ("Keys in bursts", ClusteredRun, reports.clustered_parts),
    "scale": ("Planning at scale", Scale, reports.scale_parts),
    "writes": ("Writes by keys", WritesRun, reports.writes_parts),
    "doors": ("Doors of Spark, and look-ups", DoorsRun, reports.doors_parts),
    "store": ("In an object store", StoreRun, reports.store_parts),
}
"""By study: its heading on the page, its record, and what the page says of it."""


@click.group()
@click.version_option(package_name="puffin-index")
def cli() -> None:
    """Measure what the index is worth on the Star Schema Benchmark.

    The steps are generate, load, build, run, report; each goes on where it was stopped. `demo` does them all.
    """
    configure_logs("text", verbose=False)
    logging.getLogger("ssb_bench").setLevel(logging.INFO)


@cli.command()
@layout_options
@spark_options
@row_group_option
@repeat_option
def demo(layout: Layout, size: SparkSize, row_group_rows: int, repeats: int) -> None:
    """Show the whole way: data, table, an index built while queries run, the comparison, a picture."""
    console = make_console()
    # A missing Java is said before the data take their minutes.
    require_java()
    make_dataset(layout)
    with size.session(layout, console) as spark:
        run, _ = show(spark, layout, row_group_rows=row_group_rows, repeats=repeats, console=console)
    _exit_if(run.failures)


@cli.command()
@layout_options
def generate(layout: Layout) -> None:
    """Make the five SSB tables as Parquet files."""
    console = make_console()
    dataset = make_dataset(layout)
    for table, rows in dataset.rows.items():
        console.print(f"{table}: {rows:,} rows")
    console.print(f"{dataset.data_bytes / 1e6:.0f} MB in {layout.ssb}", soft_wrap=True)


@cli.command("load")
@layout_options
@spark_options
@row_group_option
def load_command(layout: Layout, size: SparkSize, row_group_rows: int) -> None:
    """Write the SSB tables into Iceberg through Spark, and prove that all rows arrived."""
    console = make_console()
    require_dataset(layout)
    with size.session(layout, console) as spark:
        loaded = load(spark, layout, row_group_rows=row_group_rows)
    console.print(
        f"lineorder: {loaded.rows:,} rows, {loaded.row_groups} row groups of {loaded.smallest_row_group_rows:,} to "
        f"{loaded.largest_row_group_rows:,} rows, {loaded.data_files} files, {loaded.data_bytes / 1e6:.0f} MB, "
        f"written in {loaded.write_seconds:.1f} s"
    )


@cli.command()
@layout_options
@spark_options
def build(layout: Layout, size: SparkSize) -> None:
    """Define the index of lineorder and build what is missing of it."""
    console = make_console()
    index = define_index(layout)
    logging.getLogger("puffin_index.jobs").setLevel(logging.INFO)
    with size.session(layout, console) as spark:
        report = build_index(spark, layout, index)
    built = f"{report.row_groups} row groups indexed in {report.seconds:.1f} s, {report.index_bytes / 1e6:.1f} MB"
    console.print(built if report.rows else "nothing to build")


@cli.command()
@layout_options
@spark_options
@repeat_option
@many("--query", "names", ALL_QUERIES, "A query, such as q1, q1-rows, q1-aggregate or q1.1.")
@many("--workload", "workloads", [*QUERIES_OF], "Q1-Q7 as count (the default), rows or aggregate; ssb; shapes.")
@click.option("--output", type=FILE, help="Where to write JSON.")
def run(
    layout: Layout,
    size: SparkSize,
    repeats: int,
    names: tuple[str, ...],
    workloads: tuple[Workload, ...],
    output: Path | None,
) -> None:
    """Run queries without the index and with it; exit 1 if an answer or a count is wrong."""
    console = make_console()
    require_load(layout)
    chosen = [*names, *(name for workload in workloads for name in QUERIES_OF[workload])]
    queries = fit_queries(layout, chosen or VOLCANO_QUERIES)
    console.print(render(reports.literal_parts(queries)))
    with size.session(layout, console) as spark:
        measured = run_queries(spark, layout, queries, repeats=repeats)
    publish(measured, output or stamped_path(layout, measured.started_at), console)
    _exit_if(measured.failures)


@cli.command()
@layout_options
@click.option("--run", "file", type=FILE, help="A run; the newest by default.")
@click.option("--page", type=FILE, help="Where to write the HTML page; beside the run by default.")
def report(layout: Layout, file: Path | None, page: Path | None) -> None:
    """Print a run as a table, draw it, and make an HTML page of it and of what else was measured."""
    console = make_console()
    path = file or newest_run(layout.runs)
    newest, target, html = read_record(path, Run), path.with_suffix(".png"), page or path.with_suffix(".html")
    save(draw_run(newest), target)
    console.print(render(reports.run_parts(newest)))
    sections: dict[str, Iterable[Part]] = {"Queries in Spark": reports.run_parts(newest)}
    for study, (heading, record, parts) in _STUDIES.items():
        if (measured := read_if_there(layout.result(study), record)) is not None:
            sections[heading] = parts(measured)
    pictures = write_page(sections, html)
    console.print(f"picture: {target}\npage: {html}\npictures of the page: {pictures}", soft_wrap=True)


@cli.command()
@layout_options
@spark_options
@repeat_option
@many("--system", "names", SYSTEM_NAMES, "A system.")
@many("--query", "queries", SYSTEMS_QUERIES, "A query.")
def systems(layout: Layout, size: SparkSize, repeats: int, names: tuple[str, ...], queries: tuple[str, ...]) -> None:
    """Compare systems on the same rows, cold and warm; one that cannot be run is listed with the reason."""
    console = make_console()
    require_load(layout)
    chosen = [system for system in SYSTEMS if not names or system.name in names]
    bloom = None
    if any(system.name == "iceberg-bloom" for system in chosen):
        with size.session(layout, console) as spark, console.status("writing bloom filters"):
            bloom = make_bloom_table(spark, layout)
    fitted = fit_queries(layout, queries or SYSTEMS_QUERIES)
    resources = {"cores": size.cores, "memory": size.memory}
    measured = run_systems(layout, chosen, fitted, repeats=repeats, resources=resources, bloom=bloom)
    _finish(console, layout, "systems", measured)


@cli.command()
@layout_options
@spark_options
@setting("--batches", 20, "Appends.")
@click.option("--batch-rows", type=POSITIVE, help="Rows of an append; 250,000 by default, fewer of small data.")
@setting("--every", DEFAULT_EVERY_SECONDS, "Seconds.", click.FloatRange(min=0))
def append(layout: Layout, size: SparkSize, batches: int, batch_rows: int | None, every: float) -> None:
    """Append batches while a watch indexes them and queries run: the lag of the index, the times of the queries."""
    console = make_console()
    queries = fit_queries(layout, APPEND_QUERIES)
    rows = batch_rows or fitting_batch_rows(layout, batches)
    with size.session(layout, console) as spark:
        measured = measure_appends(spark, layout, queries, batches=batches, batch_rows=rows, every_seconds=every)
    _finish(console, layout, "append", measured)


@cli.command()
@layout_options
@setting("--rows", DEFAULT_GRID.rows, "Of a table.", click.IntRange(min=1000))
@setting("--trials", DEFAULT_TRIALS, "Queries of each cell.")
def clustered(layout: Layout, rows: int, trials: int) -> None:
    """Plan queries of keys in bursts: what is kept, beside what holds a match; exit 1 if a match is dropped."""
    console, folder = make_console(), layout.root / "clustered"
    measured = measure_clustered(folder, grid=Grid(rows), trials=trials)
    _finish(console, layout, "clustered", measured)


@cli.command()
@layout_options
@click.option("--row-groups", "sizes", type=POSITIVE, multiple=True, help="N; may be given again.")
@repeat_option
def scale(layout: Layout, sizes: tuple[int, ...], repeats: int) -> None:
    """Plan over simulated indexes of 10^3 to 10^6 row groups: time, reads, memory, and what dominates."""
    console = make_console()
    measured = measure_scale(layout.root / "scale", sizes or DEFAULT_SIZES, repeats=repeats)
    _finish(console, layout, "scale", measured)


@cli.command()
@layout_options
@spark_options
@row_group_option
@repeat_option
def writes(layout: Layout, size: SparkSize, row_group_rows: int, repeats: int) -> None:
    """Merge, delete, join and locate rows by keys, without and with the index; exit 1 if a result differs."""
    console = make_console()
    require_dataset(layout)
    with size.session(layout, console) as spark:
        measured = measure_writes(spark, layout, repeats=repeats, row_group_rows=row_group_rows)
    _finish(console, layout, "writes", measured)


@cli.command()
@layout_options
@spark_options
@setting("--repeats", 20, "Measured executions of each query through each door, after many that warm up.")
@setting("--starts", 5, "Starts of `spark-sql` without the plugin, and with it.")
def doors(layout: Layout, size: SparkSize, repeats: int, starts: int) -> None:
    """Query through each door of Spark, start the plugin, look rows up by key; exit 1 if an answer is wrong."""
    console = make_console()
    look_ups = measure_look_ups(layout)
    with size.session(layout, console) as spark:
        measured = measure_doors(spark, layout, look_ups, repeats=repeats, starts=starts)
    _finish(console, layout, "doors", measured)


@cli.command()
@layout_options
@spark_options
@repeat_option
@setting("--milliseconds", DEFAULT_MILLISECONDS, "From a request to its answer; may be given again.", multiple=True)
@setting("--bandwidth", DEFAULT_MEGABYTES, "MB a second each way.", click.FloatRange(min=0, min_open=True))
@click.option("--spark/--no-spark", "with_spark", default=True, help="Measure Spark, too.")
def store(
    layout: Layout,
    size: SparkSize,
    repeats: int,
    milliseconds: tuple[float, ...],
    bandwidth: float,
    with_spark: bool,
) -> None:
    """Work on lineorder in an object store: rounds, requests, bytes and seconds at several distances."""
    console = make_console()
    queries = fit_queries(layout, STORE_QUERIES)
    with size.session(layout, console, [S3_SUPPORT]) if with_spark else nullcontext() as spark:
        measure = partial(measure_store, milliseconds=milliseconds, megabytes_a_second=bandwidth)
        measured = measure(layout, queries, repeats=repeats, spark=spark)
    _finish(console, layout, "store", measured)


def _finish(console: Console, layout: Layout, study: str, measured: Any) -> None:
    """Write what a study measured, print it, and exit with 1 if there are failures."""
    path, (_, _, parts) = layout.result(study), _STUDIES[study]
    write_record(path, measured)
    console.print(render(parts(measured)))
    console.print(f"JSON: {path}", soft_wrap=True)
    _exit_if(measured.failures)


def _exit_if(failures: Sequence[str]) -> None:
    if failures:
        sys.exit(1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command, that of the command line unless told; print an error of ours as one sentence and exit 1."""
    try:
        cli(arguments, prog_name="ssb-bench")
    except PuffinIndexError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {error}", soft_wrap=True)
        sys.exit(1)
