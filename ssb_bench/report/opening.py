"""What a stranger wants first of a run: what is compared, the answer in one sentence, and a table of all queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ssb_bench.data.workload import Workload
from ssb_bench.report.document import Cell, Line, Marked, Part, Table, marked_if, marked_ratio
from ssb_bench.results.run import QueryResult, Run, Side, mean_speed_up
from ssb_bench.results.statistics import summarize

_NAMES: Final[dict[Workload, str]] = {
    "count": "counts of rows",
    "rows": "queries for whole rows",
    "aggregate": "sums and other aggregates",
    "ssb": "standard queries of the benchmark",
    "shapes": "joins, subqueries, first rows and functions",
}


def opening_parts(run: Run) -> Iterator[Part]:
    """Say what is compared and what came out, then give a line a query."""
    yield Line(_compared(run))
    yield Line(_answer(run))
    if wrong := _wrong(run):
        yield Line(Marked(wrong, "bad"))
    has_bound = any(query.perfect is not None for query in run.queries)
    bound = ("perfect pruning\ns",) if has_bound else ()
    headings = (
        "query",
        "what",
        "without index\ns",
        "with index\ns",
        *bound,
        "times\nas fast",
        "row groups\nread",
        "of",
    )
    yield Table(headings, [_row(query, has_bound=has_bound) for query in run.queries], texts=("what",))


def _compared(run: Run) -> str:
    table, index = run.table, run.index
    bound = (
        " Perfect pruning is a bound: it is told for free which row groups hold a match."
        if any(query.perfect is not None for query in run.queries)
        else ""
    )
    return (
        f"Spark runs the same SQL on an Iceberg table of {table.rows:,} rows ({table.data_bytes / 1e6:,.0f} MB, "
        f"{table.row_groups:,} row groups), {_times(run.repeats)} without and {_times(run.repeats)} "
        f"with secondary indexes on {', '.join(index.columns)} ({index.index_bytes / 1e6:,.0f} MB).{bound}"
    )


def _times(repeats: int) -> str:
    return "once" if repeats == 1 else f"{repeats} times"


def _answer(run: Run) -> str:
    """Give the geometric mean, the least and the greatest ratio of each workload, in one sentence."""
    workloads = dict.fromkeys(query.workload for query in run.queries)
    said = [_speed_up(workload, run.measured(workload)) for workload in workloads if run.measured(workload)]
    if not said:
        return "No query was measured."
    checked = [query for query in run.queries if query.speed_up is not None]
    is_right = all(query.answers_equal for query in checked)
    equal = "DuckDB gives the same answers" if is_right else "some answers are not those of DuckDB"
    return f"With the indexes, {'; '.join(said)}; {equal}."


def _speed_up(workload: Workload, queries: Sequence[QueryResult]) -> str:
    ratios = [query.speed_up for query in queries if query.speed_up is not None]
    mean = mean_speed_up(queries)
    assert mean is not None
    if len(ratios) == 1:
        return f"{_NAMES[workload]} are {mean:.1f} times as fast (one query)"
    extent = f"{min(ratios):.1f} to {max(ratios):.1f}"
    return f"{_NAMES[workload]} are {mean:.1f} times as fast (geometric mean of {len(ratios)}, {extent})"


def _wrong(run: Run) -> str:
    failed = [query.name for query in run.queries if query.failures]
    return f"Something went wrong with {', '.join(dict.fromkeys(failed))}: see below." if failed else ""


def _row(query: QueryResult, *, has_bound: bool) -> list[Cell]:
    sides = (query.without_index, query.with_index, *((query.perfect,) if has_bound else ()))
    groups = ("", "") if query.plan is None else (f"{query.plan.kept:,}", f"{query.plan.row_groups:,}")
    name = marked_if(bool(query.failures), query.name)
    return [name, query.title, *map(_median, sides), marked_ratio(query.speed_up, 1), *groups]


def _median(side: Side | None) -> str:
    return "" if side is None else f"{summarize(side.seconds).median_seconds:.3g}"
