"""The command line. Modules of commands, and what takes long, are imported when called: `--help` waits for nothing."""

from __future__ import annotations

import ast
import functools
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from pkgutil import get_data
from typing import TYPE_CHECKING

import click
from rich.console import Console

from puffin_index.commands.logs import LogFormat, configure_logs
from puffin_index.errors import MissingExtraError, PuffinIndexError

_COMMAND = re.compile("([a-z]\\w*)_command")


class _LazyGroup(click.Group):
    """A group of commands that imports a command when it is called; `what-if` is a module's `what_if_command`.

    Prints errors of this project as one sentence and exits with 1.
    """

    _modules: tuple[str, ...] = ()

    def add_lazy(self, *modules: str) -> None:
        """Add the commands of some modules."""
        self._modules += modules

    @functools.cached_property
    def _lazy(self) -> dict[str, tuple[str, str]]:
        """The module of each command, and the first sentence of its docstring, from the source alone."""
        found: dict[str, tuple[str, str]] = {}
        for module in self._modules:
            package, _, name_of_file = module.rpartition(".")
            for node in ast.parse(get_data(package, f"{name_of_file}.py") or b"").body:
                if isinstance(node, ast.FunctionDef) and (name := _COMMAND.fullmatch(node.name)):
                    text = " ".join((ast.get_docstring(node) or "").split())
                    found[name[1].replace("_", "-")] = module, text.partition(". ")[0].removesuffix(".") + "."
        return found

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        del ctx
        return sorted(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported if need be."""
        del ctx
        if cmd_name not in self._lazy:
            return None
        module, _ = self._lazy[cmd_name]
        command = getattr(import_module(module), f"{cmd_name.replace('-', '_')}_command")
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that arguments begin with; an error names the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], self.list_commands(ctx), 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(error.message + hint, ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of the help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._lazy[name][1]) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except Exception as error:
            # Python asks for the classes once there is an error.
            from puffin_index.index_table.open_catalog import PASSING_ERRORS, SILENCE

            if isinstance(error, BrokenPipeError) or not isinstance(error, PASSING_ERRORS):
                raise
            is_silence = isinstance(error, SILENCE)
            text = f"the catalog does not answer: {str(error).splitlines()[0]}" if is_silence else str(error)
            error_console.print(f"[bold red]error:[/] {escape(text)}", highlight=False, soft_wrap=True)
            sys.exit(1)


if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession
    from rich.progress import ProgressColumn

    from puffin_index.display import Described, Report
    from puffin_index.storage.files import FileReader
    from puffin_index.table_index import TableIndex

# A pipe has no width; a wide console keeps words in tables whole.
console = Console(width=None if sys.stdout.isatty() else 200)
error_console = Console(stderr=True)


def escape(text: str) -> str:
    """Keep rich from reading brackets as its markup."""
    return text.replace("[", r"\[")


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="puffin-index")
@click.option("-v", "--verbose", is_flag=True, help="Show what is done, a log line each.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Log lines.")
def main(verbose: bool, log_format: LogFormat) -> None:
    """Split-level indexes for Apache Iceberg tables.

    TABLE is catalog.namespace.table; the catalog comes from PyIceberg's configuration.
    """
    configure_logs(log_format, verbose=verbose)


def parse_properties(properties: Iterable[str]) -> dict[str, str]:
    """Read `key=value` options."""
    pairs: dict[str, str] = {}
    for item in properties:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"{item!r} should read key=value")
        pairs[key] = value
    return pairs


def show(found: Described, *, as_json: bool) -> None:
    """Print an object; in a terminal, warnings go to the error stream."""
    if as_json:
        click.echo(json.dumps(found.to_json(), default=str))
        return
    report: Report | None = (first := found.describe())
    console.print(first.as_text(warns=False), highlight=False, soft_wrap=True, markup=False)
    while report is not None:
        for warning in report.warnings:
            warn(warning)
        report = report.below


def warn(warning: str) -> None:
    """Print a warning to the error stream."""
    error_console.print(f"warning: {warning}", highlight=False, soft_wrap=True, markup=False)


@contextmanager
def progress_line(*columns: ProgressColumn) -> Iterator[Callable[..., None]]:
    """Show in a terminal how far a command is; gives what updates that. Nothing is left of it."""
    from rich.progress import Progress, SpinnerColumn, TextColumn

    every, hidden = (SpinnerColumn(), TextColumn("{task.description}"), *columns), not error_console.is_terminal
    with Progress(*every, console=error_console, transient=True, disable=hidden) as shown:
        yield functools.partial(shown.update, shown.add_task("", total=None))


@dataclass(frozen=True, slots=True)
class NamedTable:
    """The table that a command is about, TABLE, and whether the command prints JSON."""

    name: str
    properties: dict[str, str]
    as_json: bool

    def open_catalog(self) -> tuple[Catalog, str]:
        """Open the table's catalog; return it with the table's name there."""
        from puffin_index.index_table.open_catalog import open_catalog, split_catalog

        catalog, name = split_catalog(self.name)
        return open_catalog(catalog, self.properties), name

    def open_index(self) -> TableIndex:
        """Open the index of the table."""
        from puffin_index.table_index import TableIndex

        return TableIndex.open(*self.open_catalog())

    def show(self, found: Described) -> None:
        """Print an object."""
        show(found, as_json=self.as_json)


def table_command(command: Callable[..., object], *, required: bool = True) -> Callable[..., object]:
    """Add what all commands on a table take: TABLE, `--catalog-property`, `--json`. The command gets a `NamedTable`.

    Its name is empty if TABLE is not required and not given.
    """

    @functools.wraps(command)
    def run(*, table: str, properties: tuple[str, ...], as_json: bool, **others: object) -> object:
        return command(table=NamedTable(table, parse_properties(properties), as_json), **others)

    own = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(run)
    own = click.option(
        "--catalog-property", "properties", multiple=True, metavar="K=V", help="Override a catalog property."
    )(own)
    return click.argument("table", required=required, default=None if required else "")(own)


def spark_session(name: str) -> SparkSession:
    """Start or get a Spark session, or raise PuffinIndexError if PySpark is not installed or does not start."""
    from puffin_index.jobs.worker_pool import settings_of_executors

    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise PuffinIndexError(f"{MissingExtraError('pyspark', 'spark')}, or use --engine local") from error
    try:
        builder = SparkSession.builder.appName(f"puffin-index {name}")
        for setting, value in settings_of_executors().items():
            builder = builder.config(setting, value)
        return builder.getOrCreate()
    except (PySparkRuntimeError, RuntimeError, OSError) as error:
        raise PuffinIndexError(f"Spark does not start ({error}): install Java 17+ or use --engine local") from error


def open_file(file: str) -> FileReader:
    """Open a file named on the command line: a path, or any location that PyIceberg reads."""
    from pyiceberg.io import load_file_io

    from puffin_index.storage.files import FileReader

    location = Path(file).absolute().as_uri() if "://" not in file else file
    return FileReader(load_file_io(location=location), location)


main.add_lazy("puffin_index.commands.define", "puffin_index.commands.upkeep")
