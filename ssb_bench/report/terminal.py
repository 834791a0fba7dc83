"""A run as a table in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ssb_bench.data.workload import FittedQuery
from ssb_bench.results.results import QueryResult, Run, Side, mean_speed_up
from ssb_bench.results.statistics import summarize, verdict

LEAST_SHARE_OF_PERFECT = 0.9
"""Target: share of perfect pruning's speed-up that the index gives."""

MOST_PLANNING_SHARE = 0.1
"""Target: planning (warm) by the time without the index."""

_MEGABYTE = 1e6
_HEADINGS = (
    *("query", "answer", "index", "row\ngroups", "rows\nSpark read", "data read\nMB", "index read\nMB", "planning\nms"),
    *("seconds\nmedian", "seconds\nmin..max", "ratio"),
)


def render_run(run: Run) -> RenderableType:
    """Lay out a run: the comparison, one line on the table, one on the index, and what went wrong."""
    table = Table(
        title=_title(run),
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for heading in _HEADINGS:
        left = heading in ("query", "index")
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    for query in run.queries:
        _add_rows(table, query)
    lines = [_rows_line(run), _table_line(run), _index_line(run)]
    if (mean := run.geometric_mean_speed_up) is not None:
        lines.insert(0, f"geometric mean of the ratios: {mean:.2f}")
    failures = [Text(f"FAILED  {failure}", style="bold red") for failure in run.failures]
    bounds = [_bounds_table(run)] if any(query.perfect for query in run.queries) else []
    return Group(table, *bounds, *(Text(line, style="dim") for line in [*lines, *_workload_lines(run)]), *failures)


def _bounds_table(run: Run) -> Table:
    """Set the index beside perfect pruning, which is told for free which row groups hold a match."""
    table = Table(title="beside perfect pruning", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("query", "hold a\nmatch", "kept", "without\ns", "with\ns", "perfect\ns", "share of the\nspeed-up"):
        table.add_column(heading, justify="left" if heading == "query" else "right")
    table.add_column("planning, share of\ntime without", justify="right")
    for query in run.queries:
        if query.perfect is None or query.without_index is None or query.with_index is None:
            continue
        sides = (query.without_index, query.with_index, query.perfect)
        table.add_row(
            query.name,
            "?" if query.survivors is None else f"{query.survivors:,}",
            "?" if query.plan is None else f"{query.plan.kept:,}",
            *(_seconds(side)[0] for side in sides),
            _judged(query.share_of_perfect, lambda share: share >= LEAST_SHARE_OF_PERFECT),
            _judged(query.planning_share, lambda share: share <= MOST_PLANNING_SHARE),
        )
    return table


def _judged(share: float | None, is_good: Callable[[float], bool]) -> Text:
    if share is None:
        return Text("?")
    return Text(f"{share:.1%}", style="" if is_good(share) else "bold red")


def _workload_lines(run: Run) -> list[str]:
    workloads = dict.fromkeys(query.workload for query in run.queries)
    if len(workloads) < 2:
        return []
    means = {name: mean_speed_up([q for q in run.queries if q.workload == name]) for name in workloads}
    return ["by workload: " + ", ".join(f"{name} {mean:.2f}" for name, mean in means.items() if mean is not None)]


def render_literals(queries: Sequence[FittedQuery]) -> RenderableType:
    """Lay out how the literals of the source were fitted to the data."""
    table = Table(title="literals: the source's, and those used here", title_justify="left", title_style="bold")
    for heading in ("query", "what", "literal of the source", "used", "why"):
        table.add_column(heading, justify="right" if heading == "used" else "left")
    for query in queries:
        for number, literal in enumerate(query.literals):
            name, title = (query.query.name, query.query.title) if number == 0 else ("", "")
            parameter = literal.parameter
            source = f"{parameter.column} {parameter.operator} {parameter.literal}"
            table.add_row(name, title, source, str(literal.used), literal.reason)
    return table


def title_of(run: Run) -> str:
    """Give the headline of a run: scale factor, rows, row groups."""
    return (
        f"SSB scale factor {run.scale_factor:g}: {run.table.rows:,} rows of lineorder "
        f"in {run.table.row_groups:,} row groups, {run.table.data_files:,} files"
    )


def _title(run: Run) -> str:
    return f"{title_of(run)}; without and with the index, {run.repeats} runs each"


def _add_rows(table: Table, query: QueryResult) -> None:
    """Add a query: a row without the index, and below it one with it."""
    without, with_index, plan = query.without_index, query.with_index, query.plan
    if without is None or with_index is None or query.answer is None:
        table.add_row(query.name, Text("failed", style="bold red"))
        return
    answer = Text(grouped(query.answer), style="" if query.answers_equal else "bold red")
    groups, kept = ("?", "not used") if plan is None else (f"{plan.row_groups:,}", f"{plan.kept:,}")
    planned = ("", "") if plan is None else (_megabytes(plan.index_bytes_read), f"{plan.planning_seconds * 1000:.0f}")
    data = (_megabytes(without.bytes_read), _megabytes(with_index.bytes_read))
    table.add_row(
        query.name, answer, "without", groups, f"{without.rows_read:,}  ", data[0], "", "", *_seconds(without)
    )
    table.add_row(
        *("", "", "with", kept, f"{with_index.rows_read:,} {_against_plan(query)}", data[1], *planned),
        *_seconds(with_index),
        _ratio(query.speed_up),
    )


def grouped(answer: str) -> str:
    """Group the digits of a whole number."""
    return f"{int(answer):,}" if answer.isdecimal() else answer


def _seconds(side: Side) -> tuple[str, str]:
    summary = summarize(side.seconds)
    return f"{summary.median_seconds:.3f}", f"{summary.least_seconds:.3f}..{summary.greatest_seconds:.3f}"


def _against_plan(query: QueryResult) -> str:
    """Compare the rows that Spark read with those of the row groups that the plan kept."""
    if query.plan is None or query.with_index is None or query.plan.unindexed or query.workload == "ssb":
        return "?"
    if query.with_index.rows_read == query.plan.kept_rows:
        return "="
    return "<" if query.with_index.rows_read < query.plan.kept_rows else ">"


def _megabytes(count: int | None) -> str:
    return "?" if count is None else f"{count / _MEGABYTE:.2f}"


def _ratio(speed_up: float | None) -> Text:
    if speed_up is None:
        return Text("")
    style = {"faster": "bold green", "slower": "bold yellow", "unchanged": ""}[verdict(speed_up)]
    return Text(f"{speed_up:.2f}", style=style)


def _rows_line(run: Run) -> str:
    checked = [_against_plan(query) for query in run.queries]
    return (
        "rows Spark read, from the input records of its tasks, against the rows of the kept row groups: "
        f"= equal ({checked.count('=')}), < Iceberg skipped some more by its dictionaries ({checked.count('<')}), "
        f"> more ({checked.count('>')}), ? not known ({checked.count('?')})"
    )


def _table_line(run: Run) -> str:
    table = run.table
    return (
        f"table: {table.data_bytes / _MEGABYTE:.0f} MB, row groups of {table.row_group_rows:,} rows, "
        f"written by Spark in {table.write_seconds:.1f} s"
    )


def _index_line(run: Run) -> str:
    index = run.index
    kinds = ", ".join(f"{column} ({', '.join(kinds)})" for column, kinds in index.columns.items())
    share = index.index_bytes / run.table.data_bytes
    built = "" if index.build_seconds is None else f", built in {index.build_seconds:.1f} s"
    background = " beside running queries" if index.build_in_background else ""
    return (
        f"index: {kinds}; {index.indexed_row_groups:,} of {run.table.row_groups:,} row groups, "
        f"{index.index_bytes / _MEGABYTE:.1f} MB ({share:.0%} of the table){built}{background}"
    )
