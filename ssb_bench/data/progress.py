"""Progress bars for the steps of the benchmark; lines where there is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from puffin_index import BuildProgress
from ssb_bench.data.dataset import Step


@contextmanager
def step_bar(console: Console, name: str) -> Iterator[Callable[[Step], None]]:
    """Show a bar for a job of steps, in a log a line for each; gives the function that moves it."""
    if not console.is_terminal:
        yield lambda step: console.print(f"{name}: {step.done}/{step.total} {step.text}", highlight=False, markup=False)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(TextColumn("{task.description}"), *columns, console=console) as progress:
        task = progress.add_task(name, total=None)

        def move(step: Step) -> None:
            progress.update(task, completed=step.done, total=step.total, description=f"{name}: {step.text}")

        yield move


def build_step(built: BuildProgress) -> Step:
    """Say how far the build of an index is, in data files."""
    text = f"{built.rows_done:,} of {built.rows_total:,} rows, {built.index_bytes / 1e6:.1f} MB of index"
    return Step(built.files_done, built.files_total, text)
