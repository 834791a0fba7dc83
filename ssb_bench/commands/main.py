"""`ssb-bench`: make the SSB data, load it, index it, compare queries without and with the index."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
from rich.console import Console

from puffin_index.errors import PuffinIndexError
from ssb_bench.commands import demo, step_commands, study_commands


@click.group()
@click.version_option(package_name="puffin-index")
def cli() -> None:
    """Measure what the index is worth on the Star Schema Benchmark.

    The steps are generate, load, build, run, report; each goes on where it was stopped. `demo` does them all.
    """


for _module in (step_commands, demo, study_commands):
    for _command in vars(_module).values():
        if isinstance(_command, click.Command):
            cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command, that of the command line unless told; print an error of ours as one sentence and exit 1."""
    try:
        cli(arguments, prog_name="ssb-bench")
    except PuffinIndexError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {error}", soft_wrap=True)
        sys.exit(1)
