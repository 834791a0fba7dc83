"""What a run says: the comparison, the bound, the table and the index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from ssb_bench.data.workload import FittedQuery, Workload
from ssb_bench.report.document import (
    Cell,
    Facts,
    Figure,
    Heading,
    Line,
    Marked,
    Part,
    Table,
    failed,
    marked_if,
    marked_ratio,
)
from ssb_bench.report.figures import draw_queries
from ssb_bench.results.run import Plan, QueryResult, Run, Side, mean_speed_up
from ssb_bench.results.statistics import summarize

LEAST_SHARE_OF_PERFECT: Final = 0.9
"""Target: share of perfect pruning's speed-up that the index gives."""

MOST_PLANNING_SHARE: Final = 0.1
"""Target: planning (warm) by the time without the index."""

WORKLOADS: Final[dict[Workload, str]] = {
    "count": "Q1-Q7, count(*)",
    "rows": "Q1-Q7, select *",
    "aggregate": "Q1-Q7, aggregates",
    "ssb": "The 13 standard queries, where nothing can be skipped",
    "shapes": "Joins, subqueries, first rows, functions: what the rest of a query implies",
}
_HEADINGS: Final = (
    *("query", "answer", "index", "row\ngroups", "rows\nSpark read", "data read\nMB", "index read\nMB", "planning\nms"),
    *("seconds\nmedian", "seconds\nmin..max", "ratio"),
)
_BOUND_HEADINGS: Final = (
    *("query", "hold a\nmatch", "kept", "without\ns", "with\ns", "perfect\ns", "perfect s\nmin..max"),
    *("share of the\nspeed-up", "planning, share of\ntime without"),
)


def run_parts(run: Run) -> Iterator[Part]:
    """Lay out a run: each workload, then the table, the index, the machine, and what went wrong."""
    yield Heading(f"{run.title}; without and with the index, {run.repeats} runs each")
    workloads = list(dict.fromkeys(query.workload for query in run.queries))
    for workload in workloads:
        queries = [query for query in run.queries if query.workload == workload]
        yield Heading(WORKLOADS[workload])
        if measured := run.measured(workload):
            shows = f"Times, row groups and bytes of {WORKLOADS[workload]}"
            yield Figure(f"queries-{workload}", shows, partial(draw_queries, measured))
        yield Table(_HEADINGS, [row for query in queries for row in _rows(query)], texts=("index",))
        bounds = [_bound_row(query) for query in queries if query.perfect is not None]
        if bounds:
            yield Table(_BOUND_HEADINGS, bounds, "beside perfect pruning")
        if (mean := mean_speed_up(queries)) is not None:
            yield Line(f"geometric mean of the ratios: {mean:.2f}")
    if len(workloads) > 1 and (mean := run.geometric_mean_speed_up) is not None:
        yield Line(f"geometric mean of all ratios: {mean:.2f}")
    yield from map(Line, (_rows_line(run), _table_line(run), _index_line(run)))
    yield Facts("machine", run.machine)
    yield from failed(run.failures)


def literal_parts(queries: Sequence[FittedQuery]) -> Iterator[Part]:
    """Lay out how the literals of the source were fitted to the data."""
    rows = []
    for query in queries:
        for number, literal in enumerate(query.literals):
            parameter = literal.parameter
            source = f"{parameter.column} {parameter.operator} {parameter.literal}"
            names = (query.query.name, query.query.title) if number == 0 else ("", "")
            rows.append((*names, source, str(literal.used), literal.reason))
    yield Table(
        ("query", "what", "literal of the source", "used", "why"),
        rows,
        "literals: the source's, and those used here",
        ("what", "literal of the source", "why"),
    )


def _rows(query: QueryResult) -> Iterator[list[Cell]]:
    """Give the two rows of a query: without the index, and with it."""
    without, with_index, plan = query.without_index, query.with_index, query.plan
    if without is None or with_index is None or query.answer is None:
        yield [query.name, Marked("null", "bad")]
        return
    answer = f"{int(query.answer):,}" if query.answer.isdecimal() else query.answer
    groups, kept = ("?", "not used") if plan is None else (f"{plan.row_groups:,}", _kept(plan))
    planned = ("", "") if plan is None else (_megabytes(plan.index_bytes_read), f"{plan.planning_seconds * 1000:.0f}")
    yield [
        *(query.name, marked_if(not query.answers_equal, answer), "without", groups, f"{without.rows_read:,}  "),
        *(_megabytes(without.bytes_read), "", "", _median(without), _range(without)),
    ]
    yield [
        *("", "", "with", kept, f"{with_index.rows_read:,} {_against_plan(query)}", _megabytes(with_index.bytes_read)),
        *(*planned, _median(with_index), _range(with_index), marked_ratio(query.speed_up, 2)),
    ]


def _kept(plan: Plan) -> str:
    return f"{plan.kept:,} ({plan.answered:,} answered)" if plan.answered else f"{plan.kept:,}"


def _bound_row(query: QueryResult) -> list[Cell]:
    """Set the index beside perfect pruning, which is told for free which row groups hold a match."""
    share, planning = query.share_of_perfect, query.planning_share
    return [
        query.name,
        "?" if query.survivors is None else f"{query.survivors:,}",
        "?" if query.plan is None else f"{query.plan.kept:,}",
        *("?" if side is None else _median(side) for side in (query.without_index, query.with_index, query.perfect)),
        "?" if query.perfect is None else _range(query.perfect),
        "?" if share is None else marked_if(share < LEAST_SHARE_OF_PERFECT, f"{share:.1%}"),
        "?" if planning is None else marked_if(planning > MOST_PLANNING_SHARE, f"{planning:.1%}"),
    ]


def _median(side: Side) -> str:
    return f"{summarize(side.seconds).median_seconds:.3f}"


def _range(side: Side) -> str:
    return f"{min(side.seconds):.3f}..{max(side.seconds):.3f}"


def _against_plan(query: QueryResult) -> str:
    """Compare the rows that Spark read with those of the row groups that the plan kept."""
    if query.plan is None or query.with_index is None or query.plan.unindexed or query.workload == "ssb":
        return "?"
    if query.with_index.rows_read == query.plan.kept_rows:
        return "="
    return "<" if query.with_index.rows_read < query.plan.kept_rows else ">"


def _megabytes(count: int | None) -> str:
    return "?" if count is None else f"{count / 1e6:.2f}"


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
        f"table: {table.data_bytes / 1e6:.0f} MB, row groups of {table.row_group_rows:,} rows, "
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
        f"{index.index_bytes / 1e6:.1f} MB ({share:.0%} of the table){built}{background}"
    )
