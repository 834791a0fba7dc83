"""What was measured while data arrived, as plain data, as one JSON file, and as a table in the terminal."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ssb_bench.data.layout import write_json
from ssb_bench.errors import BenchError
from ssb_bench.results.statistics import Summary, summarize

FORMAT: Final = "ssb-bench/append/1"


@dataclass(frozen=True, slots=True)
class Appended:
    """One batch.

    Attributes:
        rows: Its rows.
        write_seconds: Time that Spark took to append it.
        committed_seconds: When it was committed, from the begin.
        lag_seconds: From then until its index was committed; None if it never was.
    """

    rows: int
    write_seconds: float
    committed_seconds: float
    lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a query with the hook while data arrived.

    Attributes:
        query: Its name.
        started_seconds: When it began, from the begin.
        seconds: Wall time.
        row_groups: Row groups of the scan; None if no index was there to look into.
        kept: Those left to read.
        unindexed: Those kept because they had no index yet.
    """

    query: str
    started_seconds: float
    seconds: float
    row_groups: int | None
    kept: int | None
    unindexed: int | None


@dataclass(frozen=True, slots=True)
class AppendRun:
    """What was measured.

    Attributes:
        scale_factor: Of the data that the batches are cut from.
        every_seconds: Pace of the appends; a slower one waits for the one before it.
        row_group_rows: Rows of a row group.
        machine: Hardware and versions.
        appended: The batches, in order.
        executions: The queries while data arrived, in order.
        settled_without: Seconds of each query without the hook, after all was indexed.
        settled_with: The same with the hook, in turns with those without.
        failures: What went wrong, one sentence each.
    """

    scale_factor: float
    every_seconds: float
    row_group_rows: int
    machine: dict[str, str | int]
    appended: tuple[Appended, ...]
    executions: tuple[Execution, ...]
    settled_without: dict[str, list[float]]
    settled_with: dict[str, list[float]]
    failures: tuple[str, ...]

    @property
    def lag(self) -> Summary | None:
        """The lags of the batches that were indexed; None if none was."""
        lags = [batch.lag_seconds for batch in self.appended if batch.lag_seconds is not None]
        return summarize(lags) if lags else None

    def meanwhile(self, query: str) -> list[float]:
        """Give the seconds of a query while data arrived."""
        return [execution.seconds for execution in self.executions if execution.query == query]


def write_appends(run: AppendRun, path: Path) -> None:
    """Write a run as JSON."""
    write_json(path, {"format": FORMAT, **asdict(run)})


def read_appends(path: Path) -> AppendRun:
    """Read a run.

    Raises:
        BenchError: If the file is not one.
    """
    # Any: what json.loads gives has no narrower type.
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if content.pop("format", None) != FORMAT:
        raise BenchError(f"{path} is not of format {FORMAT}")
    appended = tuple(Appended(**batch) for batch in content["appended"])
    executions = tuple(Execution(**execution) for execution in content["executions"])
    failures = tuple(content["failures"])
    return AppendRun(**{**content, "appended": appended, "executions": executions, "failures": failures})


def render_appends(run: AppendRun) -> RenderableType:
    """Lay out the lag of the indexes and the times of the queries meanwhile and afterwards."""
    table = Table(title="queries while data arrive, seconds", title_justify="left", box=None, pad_edge=False)
    table.add_column("query")
    for heading in ("executions", "meanwhile", "settled, with", "settled, without"):
        table.add_column(heading, justify="right")
    for query in run.settled_with:
        meanwhile = run.meanwhile(query)
        sides = (meanwhile, run.settled_with[query], run.settled_without[query])
        table.add_row(query, str(len(meanwhile)), *(range_text(seconds) for seconds in sides))
    failures = [Text(f"FAILED  {failure}", style="bold red") for failure in run.failures]
    return Group(Text(lag_text(run)), table, *failures)


def lag_text(run: AppendRun) -> str:
    """Say in one sentence how long the index of a batch takes."""
    lag, rows = run.lag, run.appended[0].rows if run.appended else 0
    took = summarize([batch.write_seconds for batch in run.appended]) if run.appended else None
    known = "no batch was indexed" if lag is None or took is None else f"indexed {_range(lag)} s after its commit"
    written = "" if took is None else f", written in {_range(took)} s"
    return f"{len(run.appended)} batches of {rows:,} rows, one every {run.every_seconds:g} s{written}: {known}"


def range_text(seconds: list[float]) -> str:
    """Give median and range of some times; nothing if there are none."""
    return _range(summarize(seconds)) if seconds else "null"


def _range(summary: Summary) -> str:
    return f"{summary.median_seconds:.2f} ({summary.least_seconds:.2f} to {summary.greatest_seconds:.2f})"
