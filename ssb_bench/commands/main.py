"""`ssb-bench`: make the SSB data, load it, index it, compare queries without and with the index."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
from rich.console import Console

from puffin_index.errors import PuffinIndexError
from ssb_bench.commands.data_commands import build_command, generate_command, load_command
from ssb_bench.commands.measuring_commands import append_command, interference_command, run_command, systems_command
from ssb_bench.commands.report_commands import compare_command, report_command
from ssb_bench.commands.study_commands import hook_command, kernels_command, scale_command, sweep_command
from ssb_bench.commands.whole_commands import all_command, demo_command


@click.group()
@click.version_option(package_name="puffin-index")
def cli() -> None:
    """Measure what the index is worth on the Star Schema Benchmark.

    The steps are generate, load, build, run, report; each goes on where it was stopped. `demo` does them all.
    """


for _command in (
    *(generate_command, load_command, build_command, run_command, report_command, demo_command, all_command),
    *(append_command, compare_command, hook_command, interference_command, kernels_command),
    *(scale_command, sweep_command, systems_command),
):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command, that of the command line unless told; print an error of ours as one sentence and exit 1."""
    try:
        cli(arguments, prog_name="ssb-bench")
    except PuffinIndexError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {error}", soft_wrap=True)
        sys.exit(1)
