"""The whole benchmark in steps, each in a process of its own and left alone once its result is there."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ssb_bench.errors import BenchError
from ssb_bench.layout import Layout, write_json
from ssb_bench.load import read_load


@dataclass(frozen=True, slots=True)
class BenchStep:
    """One step.

    Attributes:
        name: The command of `ssb-bench` that it is.
        arguments: Its arguments.
        result: The file that it leaves; None where the command itself leaves alone what is there.
        may_fail: Whether the steps after it make sense if it fails (its failures are in its result).
    """

    name: str
    arguments: tuple[str, ...]
    result: Path | None = None
    may_fail: bool = False


def plan_steps(layout: Layout, *, row_group_rows: int, repeats: int, cores: int, memory: str) -> list[BenchStep]:
    """List the steps of the whole benchmark."""
    data, here = layout.root.parent, layout.root / "all"
    where = ("--data", str(data), "--sf", f"{layout.scale_factor:g}")
    spark = ("--cores", str(cores), "--memory", memory)
    often = ("--repeats", str(repeats))
    workloads = tuple(part for name in ("count", "rows", "aggregate", "ssb") for part in ("--workload", name))
    results = {name: here / f"{name}.json" for name in ("run", "systems", "sweep", "scale")}
    outputs = {name: ("--output", str(path)) for name, path in results.items()}
    sources = tuple(part for name in ("run", "systems", "sweep", "scale") for part in (f"--{name}", str(results[name])))
    return [
        BenchStep("generate", where),
        BenchStep("load", (*where, *spark, "--row-group-rows", str(row_group_rows))),
        BenchStep("build", (*where, *spark)),
        BenchStep("run", (*where, *spark, *often, *workloads, *outputs["run"]), results["run"], True),
        BenchStep("systems", (*where, *spark, *often, *outputs["systems"]), results["systems"], True),
        BenchStep("sweep", (*where, *spark, *outputs["sweep"]), results["sweep"], True),
        BenchStep("scale", ("--data", str(data), *outputs["scale"]), results["scale"], True),
        BenchStep("report", (*where, *sources, "--page", str(here / "report.html"))),
    ]


def run_steps(
    layout: Layout, steps: Sequence[BenchStep], *, anew: bool = False, on_step: Callable[[str], None] = lambda _: None
) -> list[str]:
    """Run the steps whose result is not there, or is of a table that has been loaded anew since.

    Args:
        layout: The data.
        steps: The steps, in order.
        anew: Measure again what was measured.
        on_step: Called with what is done.

    Returns:
        The steps that ended with a failure which does not stop the others.

    Raises:
        BenchError: If a step fails that the others need.
    """
    times_file = layout.root / "all" / "steps.json"
    times: dict[str, float] = json.loads(times_file.read_text(encoding="utf-8")) if times_file.exists() else {}
    failed: list[str] = []
    for step in steps:
        if step.result is not None and not anew and _is_current(layout, step.result):
            on_step(f"{step.name}: {step.result} is there")
            continue
        on_step(f"{step.name} ...")
        started = time.perf_counter()
        command = [sys.executable, "-c", "from ssb_bench.cli import main; main()", step.name, *step.arguments]
        code = subprocess.run(command, check=False).returncode
        times[step.name] = time.perf_counter() - started
        write_json(times_file, times)
        on_step(f"{step.name}: {times[step.name]:.0f} s{'' if code == 0 else f', exit code {code}'}")
        if code != 0 and not (step.may_fail and step.result is not None and step.result.exists()):
            raise BenchError(f"the step `{step.name}` failed; `ssb-bench all` goes on there when it is run again")
        if code != 0:
            failed.append(step.name)
    return failed


def _is_current(layout: Layout, result: Path) -> bool:
    """Whether a result is there and no older than the table."""
    if not result.exists() or read_load(layout) is None:
        return False
    return result.stat().st_mtime >= layout.load_json.stat().st_mtime
