"""`ssb-bench`: make the SSB data, load it, index it, and a command for each study of `ssb_bench.studies`."""

import logging
import pkgutil
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias, get_args, get_origin, get_type_hints

import click
from rich.console import Console, Group

import ssb_bench.studies
from puffin_index.commands.logs import OWN, configure_logs
from puffin_index.errors import PuffinIndexError
from ssb_bench.commands.demo import show
from ssb_bench.data.dataset import generate as make_dataset, require_dataset
from ssb_bench.data.layout import Layout, read_record, write_record
from ssb_bench.report.page import write_page
from ssb_bench.report.picture import draw, save
from ssb_bench.report.tables import parts_of
from ssb_bench.results.record import Record, newest_run
from ssb_bench.spark_runs.bench import Bench
from ssb_bench.spark_runs.index import build_index, define_index
from ssb_bench.spark_runs.load import DEFAULT_ROW_GROUP_ROWS, load
from ssb_bench.spark_runs.session import require_java

FILE = click.Path(path_type=Path, dir_okay=False)
_TYPES: Final[dict[object, click.ParamType[Any]]] = {
    int: click.IntRange(min=1),
    float: click.FloatRange(min=0),
    bool: click.BOOL,
    str: click.STRING,
}

# Any: click calls a command with whatever its options are.
Command: TypeAlias = Callable[..., Any]
Option: TypeAlias = Callable[[Command], Command]


def setting(name: str, default: object, text: str, kind: click.ParamType[Any] = _TYPES[int]) -> Option:
    """Make an option with a default that its help shows."""
    return click.option(name, type=kind, default=default, show_default=True, help=text)


row_group_option = setting("--row-group-rows", DEFAULT_ROW_GROUP_ROWS, "Rows of a row group of lineorder.")


def bench_options(command: Command) -> Command:
    """Add `--data`, `--sf`, `--cores` and `--memory`; the command gets a `bench`."""
    folder = click.Path(path_type=Path, file_okay=False)

    @setting("--data", Path("data"), "Directory of the data; each scale factor has its own below it.", folder)
    @setting("--sf", 1.0, "Scale factor.", click.FLOAT)
    @setting("--cores", 2, "Spark's threads.")
    @setting("--memory", "3g", "Heap of Spark's process.", click.STRING)
    @wraps(command)
    def with_bench(*, data: Path, sf: float, cores: int, memory: str, **others: object) -> object:
        # A pipe or a log has no width of its own; the 80 columns that rich assumes would break the tables.
        console = Console(width=None if sys.stdout.isatty() else 180)
        return command(bench=Bench(Layout.of(data, sf), cores, memory, console), **others)

    return with_bench


@click.group()
@click.version_option(package_name="puffin-index")
def cli() -> None:
    """Measure what the index is worth on the Star Schema Benchmark.

    The steps are generate, load, build, run, report; each goes on where it was stopped. `demo` does them all. The other
    commands are studies beside `run`.
    """
    OWN.extend(("planner", "ssb_bench"))
    configure_logs("text", verbose=False)
    logging.getLogger("ssb_bench").setLevel(logging.INFO)


@cli.command()
@bench_options
@row_group_option
@setting("--repeats", 5, "Measured executions of each query on each side, after one that warms up.")
def demo(bench: Bench, row_group_rows: int, repeats: int) -> None:
    """Show the whole way: data, table, an index built while queries run, the comparison, a picture."""
    # A missing Java is said before the data take their minutes.
    require_java()
    make_dataset(bench.layout)
    show(bench, row_group_rows=row_group_rows, repeats=repeats)
    _finish(bench, STUDIES["run"], "run")


@cli.command()
@bench_options
def generate(bench: Bench) -> None:
    """Make the five SSB tables as Parquet files."""
    dataset = make_dataset(bench.layout)
    for table, rows in dataset.rows.items():
        bench.console.print(f"{table}: {rows:,} rows")
    bench.console.print(f"{dataset.data_bytes / 1e6:.0f} MB in {bench.layout.ssb}", soft_wrap=True)


@cli.command("load")
@bench_options
@row_group_option
def load_command(bench: Bench, row_group_rows: int) -> None:
    """Write the SSB tables into Iceberg through Spark, and prove that all rows arrived."""
    require_dataset(bench.layout)
    with bench.session() as spark:
        loaded = load(spark, bench.layout, row_group_rows=row_group_rows)
    bench.console.print(
        f"lineorder: {loaded.rows:,} rows, {loaded.row_groups} row groups of {loaded.smallest_row_group_rows:,} to "
        f"{loaded.largest_row_group_rows:,} rows, {loaded.data_files} files, {loaded.data_bytes / 1e6:.0f} MB, "
        f"written in {loaded.write_seconds:.1f} s"
    )


@cli.command()
@bench_options
def build(bench: Bench) -> None:
    """Define the index of lineorder and build what is missing of it."""
    index = define_index(bench.layout)
    logging.getLogger("puffin_index.jobs").setLevel(logging.INFO)
    with bench.session() as spark:
        report = build_index(spark, bench.layout, index)
    built = f"{report.row_groups} row groups indexed in {report.seconds:.1f} s, {report.index_bytes / 1e6:.1f} MB"
    bench.console.print(built if report.rows else "nothing to build")


@cli.command()
@bench_options
@click.option("--run", "file", type=FILE, help="A run; the newest by default.")
@click.option("--page", type=FILE, help="Where to write the HTML page; beside the run by default.")
def report(bench: Bench, file: Path | None, page: Path | None) -> None:
    """Print a run as a table, draw it, and make an HTML page of it and of what else was measured."""
    path = file or newest_run(bench.layout.runs)
    run, html = read_record(path, Record), page or path.with_suffix(".html")
    others = [bench.layout.result(name) for name in STUDIES if name != "run"]
    pictures = write_page([run, *(read_record(one, Record) for one in others if one.exists())], html)
    _show(bench.console, run, path)
    bench.console.print(f"page: {html}\npictures of the page: {pictures}", soft_wrap=True)


def _finish(bench: Bench, study: ModuleType, name: str) -> None:
    """Write what a study measured, print and draw it, and exit with 1 if there are failures."""
    record = bench.record(name, study.TITLE)
    path = record.file_in(bench.layout.runs)
    for file in (path, bench.layout.result(name)):
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


def _add(name: str, study: ModuleType) -> None:
    """Make a command of a study, with an option for each parameter of its `measure`."""

    def run_study(bench: Bench, **options: object) -> None:
        study.measure(bench, **options)
        _finish(bench, study, name)

    command: Command = run_study
    for parameter, hint in reversed(get_type_hints(study.measure, include_extras=True).items()):
        if parameter in study.measure.__kwdefaults__:
            command = _option(parameter, hint, study.measure.__kwdefaults__[parameter])(command)
    cli.command(name, help=study.measure.__doc__)(bench_options(command))


def _option(parameter: str, hint: Any, default: object) -> Option:
    """Make an option of a parameter: its type, its help, and the values to choose from, if any, stand in its hint."""
    text, *choices = hint.__metadata__
    kind = hint.__origin__
    is_many = get_origin(kind) is tuple
    # The first type of `tuple[int, ...]` and of `int | None` is that of a value.
    typed: click.ParamType[Any] = _TYPES[(get_args(kind) or (kind,))[0]]
    if choices:
        typed = click.Choice([*choices[0]])
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


STUDIES: Final = {
    module.name: import_module(f"ssb_bench.studies.{module.name}")
    for module in pkgutil.iter_modules(ssb_bench.studies.__path__)
}
for _name, _study in STUDIES.items():
    _add(_name, _study)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command, that of the command line unless told; print an error of ours as one sentence and exit 1."""
    try:
        cli(arguments, prog_name="ssb-bench")
    except PuffinIndexError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {error}", soft_wrap=True)
        sys.exit(1)
