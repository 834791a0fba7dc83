"""`ssb-bench`: make the SSB data, load it, index it, and a command for each study of `ssb_bench.studies`."""

import logging
import pkgutil
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, get_args, get_origin, get_type_hints

import click
from pyspark.sql import SparkSession
from rich.console import Console, Group

import ssb_bench.studies
from puffin_index import TableIndex
from puffin_index.commands.logs import OWN, configure_logs
from puffin_index.commands.main import CommandGroup
from ssb_bench.data.dataset import generate as make_dataset, require_dataset
from ssb_bench.data.layout import NAMESPACE, BenchError, Layout, read_record, write_record
from ssb_bench.report.page import write_page
from ssb_bench.report.picture import draw, save
from ssb_bench.report.tables import parts_of
from ssb_bench.results.record import Record
from ssb_bench.spark_runs import load as tables
from ssb_bench.spark_runs.bench import Bench, Repeats
from ssb_bench.spark_runs.load import DEFAULT_ROW_GROUP_ROWS, DEFAULT_TABLE, TABLE
from ssb_bench.spark_runs.measure import both_sides, hooked, measure
from ssb_bench.spark_runs.session import CATALOG, open_catalog, require_java
from ssb_bench.studies.run import fit_queries, run_queries

_TYPES: Final[dict[object, click.ParamType[Any]]] = {
    int: click.IntRange(min=1),
    float: click.FloatRange(min=0),
    Path: click.Path(path_type=Path),
}
# Any: commands have whatever options they have.
Command: TypeAlias = Callable[..., Any]
RowGroupRows: TypeAlias = Annotated[int, "Rows of a row group of lineorder."]

STUDIES: Final = {
    module.name: import_module(f"ssb_bench.studies.{module.name}")
    for module in pkgutil.iter_modules(ssb_bench.studies.__path__)
}


@click.group(cls=CommandGroup)
@click.version_option(package_name="puffin-index")
def cli() -> None:
    """Measure what the index is worth on the Star Schema Benchmark.

    The steps are generate, load, build, run, report; each goes on where it was stopped. `demo` does them all. The other
    commands are studies beside `run`.
    """
    OWN.extend(("planner", "ssb_bench"))
    configure_logs("text", verbose=False)
    logging.getLogger("ssb_bench").setLevel(logging.INFO)


def make_bench(
    *,
    data: Annotated[Path, "Directory of the data; each scale factor has its own below it."] = Path("data"),
    sf: Annotated[float, "Scale factor."] = 1.0,
    cores: Annotated[int, "Spark's threads."] = 2,
    memory: Annotated[str, "Heap of Spark's process."] = "3g",
) -> Bench:
    """Make what every command gets; raise BenchError for an impossible scale factor."""
    # A pipe or a log has no width of its own; the 80 columns that rich assumes would break the tables.
    return Bench(Layout.of(data, sf), cores, memory, Console(width=None if sys.stdout.isatty() else 180))


def demo(bench: Bench, *, row_group_rows: RowGroupRows = DEFAULT_ROW_GROUP_ROWS, repeats: Repeats = 5) -> None:
    """Show the whole way: data, table, an index built while queries run, the comparison, a picture."""
    # A missing Java is said before the data take their minutes.
    require_java()
    generate(bench)
    queries, say = fit_queries(bench.layout), bench.console.print
    with bench.session() as spark:
        load(bench, row_group_rows=row_group_rows)
        spark.sql(f"USE {CATALOG}.{NAMESPACE}")
        with hooked(spark):
            handle, finished = tables.define_index(bench.layout).build_async(spark), False
            # One more round after the end shows every query with the whole index.
            while not finished:
                finished = handle.status() != "running"
                say(f"build: {handle.progress()}")
                for query in queries:
                    took, kept = measure(spark, query.sql), "all row groups"
                    if took.plan is not None:
                        kept = f"{took.plan.kept} row groups kept, {took.plan.unindexed} not yet indexed"
                    say(f"  {query.name}: {took.seconds:.2f} s, {kept}")
            report = tables.record_build(bench.layout, handle.wait(), in_background=True)
        text = f"index of {report.row_groups} row groups built in {report.seconds:.1f} s beside the queries"
        say(text if report.rows else "the index was there already; nothing to build")
        run_queries(bench, queries, repeats=repeats)
        for line in _needle(spark, bench.layout):
            say(line, soft_wrap=True)
    _finish(bench, "run")


def _needle(spark: SparkSession, layout: Layout) -> Iterator[str]:
    """Ask for the rows of a price in default row groups, then in those of the benchmark, and say what that took."""
    TableIndex.create(open_catalog(layout.warehouse), DEFAULT_TABLE, tables.DEFAULT_DEFINITION).build(spark)
    [query] = fit_queries(layout, ["q1"])
    with both_sides(spark) as sides:
        for table in (DEFAULT_TABLE, TABLE):
            sql = f"SELECT * FROM {CATALOG}.{table} WHERE {query.where}"
            for session in sides.values():
                measure(session, sql)  # warms up
            without = measure(sides["without"], sql).seconds
            took = measure(sides["with"], sql)
            read = "nothing dropped" if took.plan is None else took.plan.summary
            yield f"{sql}: {without:.2f} s without the index, {took.seconds:.2f} s with it: {read}"


def generate(bench: Bench) -> None:
    """Make the five SSB tables as Parquet files."""
    dataset = make_dataset(bench.layout)
    for table, rows in dataset.rows.items():
        bench.console.print(f"{table}: {rows:,} rows")
    bench.console.print(f"{dataset.data_bytes / 1e6:.0f} MB in {bench.layout.ssb}", soft_wrap=True)


def load(
    bench: Bench,
    *,
    row_group_rows: RowGroupRows = DEFAULT_ROW_GROUP_ROWS,
    default_table: Annotated[bool, "Write lineorder_default, too: with Iceberg's default properties."] = True,
) -> None:
    """Write the SSB tables into Iceberg through Spark, and prove that all rows arrived."""
    require_dataset(bench.layout)
    with bench.session() as spark:
        loads = {TABLE: tables.load(spark, bench.layout, row_group_rows=row_group_rows)}
        if default_table:
            loads = {DEFAULT_TABLE: tables.load_default(spark, bench.layout), **loads}
    for table, loaded in loads.items():
        bench.console.print(
            f"{table}: {loaded.rows:,} rows, {loaded.row_groups} row groups of {loaded.row_group_rows:,} rows, "
            f"{loaded.data_files} files, {loaded.data_bytes / 1e6:.0f} MB, written in {loaded.write_seconds:.1f} s"
        )


def build(bench: Bench) -> None:
    """Define the index of lineorder and build what is missing of it."""
    index = tables.define_index(bench.layout)
    logging.getLogger("puffin_index.jobs").setLevel(logging.INFO)
    with bench.session() as spark:
        report = tables.record_build(bench.layout, index.build(spark), in_background=False)
    built = f"{report.row_groups} row groups indexed in {report.seconds:.1f} s, {report.index_bytes / 1e6:.1f} MB"
    bench.console.print(built if report.rows else "nothing to build")


def report(
    bench: Bench,
    *,
    run: Annotated[Path | None, "A run; the newest by default."] = None,
    page: Annotated[Path | None, "Where to write the HTML page; beside the run by default."] = None,
) -> None:
    """Print a run as a table, draw it, and make an HTML page of it and of what else was measured."""
    path = run or bench.layout.result("run")
    record, html = read_record(path, Record), page or path.with_suffix(".html")
    if record is None:
        raise BenchError(f"there is no {path}: run `ssb-bench run` first")
    others = (read_record(bench.layout.result(name), Record) for name in STUDIES if name != "run")
    pictures = write_page([record, *filter(None, others)], html)
    _show(bench.console, record, path)
    bench.console.print(f"page: {html}\npictures of the page: {pictures}", soft_wrap=True)


def _finish(bench: Bench, study: str) -> None:
    """Write what a study measured, print and draw it, and exit with 1 if there are failures."""
    record = bench.record(study, STUDIES[study].TITLE)
    path = record.file_in(bench.layout.root / "runs")
    for file in (path, bench.layout.result(study)):
        write_record(file, record)
    _show(bench.console, record, path)
    if record.failures:
        sys.exit(1)


def _show(console: Console, record: Record, path: Path) -> None:
    """Print a record, and draw it beside its file."""
    console.print(Group(*parts_of(record)))
    picture = path.with_suffix(".png")
    save(draw(record), picture)
    console.print(f"JSON: {path}\npicture: {picture}", soft_wrap=True)


def _add(name: str, work: Command) -> None:
    """Make a command that gives a bench to some work, with an option for each other parameter of both."""

    def run(**options: Any) -> None:
        bench = make_bench(**{option: options.pop(option) for option in make_bench.__kwdefaults__ or ()})
        work(bench, **options)
        if name in STUDIES:
            _finish(bench, name)

    command: Command = run
    for function in (work, make_bench):
        hints = get_type_hints(function, include_extras=True)
        for parameter, default in reversed((function.__kwdefaults__ or {}).items()):
            command = _option(parameter, hints[parameter], default)(command)
    cli.command(name, help=work.__doc__)(command)


def _option(parameter: str, hint: Any, default: object) -> Callable[[Command], Command]:
    """Make an option of a parameter: its type, its help, and the values to choose from, if any, stand in its hint."""
    text, *choices = hint.__metadata__
    kind, is_many = hint.__origin__, get_origin(hint.__origin__) is tuple
    # The first type of `tuple[int, ...]` and of `Path | None` is that of a value.
    own = (get_args(kind) or (kind,))[0]
    typed: Any = click.Choice([*choices[0]]) if choices else _TYPES.get(own, own)
    name = f"--{parameter.replace('_', '-')}"
    return click.option(
        f"{name}/--no-{name[2:]}" if kind is bool else name,
        parameter,
        type=typed,
        default=default,
        show_default=default not in ((), None),
        multiple=is_many,
        metavar="NAME" if choices else None,
        help=f"{text} May be given again." if is_many else text,
    )


for _work in (demo, generate, load, build, report):
    _add(_work.__name__, _work)
for _name, _study in STUDIES.items():
    _add(_name, _study.measure)
