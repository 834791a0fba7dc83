"""What each measurement says: runs of the queries, appends, scale, stores, systems, keys in bursts, writes, doors."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
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
from ssb_bench.report.figures import draw_appends, draw_clustered, draw_run, draw_scale, draw_systems
from ssb_bench.results.run import Plan, QueryResult, Run, Side, Summary, mean_speed_up, summarize
from ssb_bench.results.studies import (
    MOST_KEPT,
    AppendRun,
    BurstCell,
    ClusteredRun,
    DoorsRun,
    DoorStep,
    Scale,
    ScalePoint,
    StoreRun,
    StoreStep,
    SystemResult,
    SystemsRun,
    WritesRun,
    WriteStep,
)

WORKLOADS: Final[dict[Workload, str]] = {
    "count": "Q1-Q7, count(*)",
    "rows": "Q1-Q7, select *",
    "aggregate": "Q1-Q7, aggregates",
    "ssb": "The 13 standard queries, where nothing can be skipped",
    "shapes": "Joins, subqueries, first rows, functions: what the rest of a query implies",
}
_RUN_HEADINGS: Final = (
    *("query", "answer", "index", "row\ngroups", "rows\nSpark read", "data read\nMB", "index read\nMB", "planning\nms"),
    *("seconds\nmedian", "seconds\nmin..max", "ratio"),
)


def run_parts(run: Run) -> Iterator[Part]:
    """Lay out a run: what came out, each workload, then the table, the index, the machine, and what went wrong."""
    yield Heading(f"{run.title}; without and with the index, {run.repeats} runs each")
    yield Line(_answer_line(run))
    yield Figure("queries", "Times, row groups and bytes of all queries", partial(draw_run, run))
    for workload in dict.fromkeys(query.workload for query in run.queries):
        queries = [query for query in run.queries if query.workload == workload]
        yield Heading(WORKLOADS[workload])
        yield Table(_RUN_HEADINGS, [row for query in queries for row in _query_rows(query)], texts=("index",))
        if (mean := mean_speed_up(queries)) is not None:
            yield Line(f"geometric mean of the ratios: {mean:.2f}")
    yield from map(Line, (_table_line(run), _index_line(run)))
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


def _answer_line(run: Run) -> str:
    """Say in one sentence how much faster each workload is."""
    said = []
    for workload in dict.fromkeys(query.workload for query in run.queries):
        ratios = [query.speed_up for query in run.measured(workload) if query.speed_up is not None]
        if (mean := mean_speed_up(run.measured(workload))) is not None:
            extent = f"geometric mean of {len(ratios)}, {min(ratios):.1f} to {max(ratios):.1f}"
            said.append(f"{WORKLOADS[workload]}: {mean:.1f} times as fast ({extent})")
    if not said:
        return "No query was measured."
    is_right = all(query.answers_equal for query in run.queries if query.speed_up is not None)
    equal = "DuckDB gives the same answers" if is_right else "some answers are not those of DuckDB"
    return f"With the index, {'; '.join(said)}; {equal}."


def _query_rows(query: QueryResult) -> Iterator[list[Cell]]:
    """Give the two rows of a query: without the index, and with it."""
    without, with_index, plan = query.without_index, query.with_index, query.plan
    if without is None or with_index is None or query.answer is None:
        yield [query.name, Marked("null", "bad")]
        return
    answer = f"{int(query.answer):,}" if query.answer.isdecimal() else query.answer
    groups, kept = ("?", "not used") if plan is None else (f"{plan.row_groups:,}", _kept(plan))
    planned = ("", "") if plan is None else (_megabytes(plan.index_bytes_read), f"{plan.planning_seconds * 1000:.0f}")
    yield [
        *(query.name, marked_if(not query.answers_equal, answer), "without", groups, f"{without.rows_read:,}"),
        *(_megabytes(without.bytes_read), "", "", *_times(without)),
    ]
    yield [
        *("", "", "with", kept, f"{with_index.rows_read:,}", _megabytes(with_index.bytes_read)),
        *(*planned, *_times(with_index), marked_ratio(query.speed_up, 2)),
    ]


def _kept(plan: Plan) -> str:
    return f"{plan.kept:,} ({plan.answered:,} answered)" if plan.answered else f"{plan.kept:,}"


def _times(side: Side) -> tuple[str, str]:
    times = summarize(side.seconds)
    return f"{times.median_seconds:.3f}", f"{times.least_seconds:.3f}..{times.greatest_seconds:.3f}"


def _megabytes(count: int | None) -> str:
    return "?" if count is None else f"{count / 1e6:.2f}"


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


def append_parts(run: AppendRun) -> Iterator[Part]:
    """Lay out the lag of the indexes, and the times of the queries meanwhile."""
    yield Line(f"{_lag_text(run)}. A watch builds in the background of the application that queries.")
    yield Figure(
        "appends", "Lag of the index and times of queries while batches are appended", partial(draw_appends, run)
    )
    rows = []
    for query, executions in run.by_query().items():
        unindexed = max((execution.unindexed or 0) for execution in executions)
        seconds = summarize([execution.seconds for execution in executions])
        rows.append([query, str(len(executions)), _range(seconds), str(unindexed)])
    headings = ("query", "executions", "seconds: median and range", "most row groups not yet indexed")
    yield Table(headings, rows, "queries while data arrive")
    yield from failed(run.failures)


def _lag_text(run: AppendRun) -> str:
    """Say in one sentence how long the index of a batch takes."""
    if not run.appended:
        return "no batch was appended"
    known = "no batch was indexed" if run.lag is None else f"indexed {_range(run.lag)} s after its commit"
    took = summarize([batch.write_seconds for batch in run.appended])
    return (
        f"{len(run.appended)} batches of {run.appended[0].rows:,} rows, one every {run.every_seconds:g} s, "
        f"written in {_range(took)} s: {known}"
    )


def _range(summary: Summary) -> str:
    return f"{summary.median_seconds:.2f} ({summary.least_seconds:.2f} to {summary.greatest_seconds:.2f})"


def scale_parts(scale: Scale) -> Iterator[Part]:
    """Lay out the points, what dominates the largest ones, and failures."""
    yield Line("Simulated indexes: real segments, no data. A process of its own for each line.")
    yield Figure("scale", "Planning time and memory by number of row groups", partial(draw_scale, scale.points))
    ordered = sorted(scale.points, key=lambda point: (point.scenario, point.row_groups))
    headings = (
        *("scenario", "row groups", "open s", "cold s", "warm s", "cold reads", "cold MB", "warm reads", "warm MB"),
        *("kept", "peak MB"),
    )
    yield Table(headings, [_scale_row(point) for point in ordered], "planning over simulated indexes")
    largest = {point.scenario: point for point in ordered if point.probe is not None}
    for scenario, point in largest.items():
        stages = point.probe.stage_seconds.items() if point.probe is not None else ()
        times = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in stages)
        yield Line(f"{scenario}, warm, {point.row_groups:,} row groups: {times}")
    yield from failed(scale.failures)


def _scale_row(point: ScalePoint) -> list[Cell]:
    probe = point.probe
    if probe is None:
        return [point.scenario, f"{point.row_groups:,}", Marked("null", "bad")]
    return [
        *(point.scenario, f"{point.row_groups:,}"),
        *(f"{seconds:.3f}" for seconds in (probe.open_seconds, probe.cold_seconds, probe.warm_median_seconds)),
        *(f"{probe.cold_requests:,}", f"{probe.cold_bytes / 1e6:.1f}"),
        *(f"{probe.warm_requests:,}", f"{probe.warm_bytes / 1e6:.1f}"),
        *(f"{probe.kept:,}", f"{probe.peak_bytes / 1e6:.0f}"),
    ]


_STORE_HEADINGS = (
    *("distance ms", "work", "index", "rounds", "seconds", "seconds as rounds", "requests", "of kind", "at once"),
    *("MB read", "MB written", "answer"),
)
_MOST_ROUNDS = {"q1: plan": 1.5, "q2: plan": 2.0}
"""Of a plan whose directories are in memory."""


def store_parts(run: StoreRun) -> Iterator[Part]:
    """Lay out what each piece of work asked of the store, at each distance."""
    yield Line(
        f"lineorder of scale factor {run.scale_factor:g} in a store: {run.data_files} data files with "
        f"{run.data_bytes / 1e6:.0f} MB, {run.segments} segments with {run.index_bytes / 1e6:.0f} MB. Rounds are the "
        "longest chain of requests, each of which began after the end of the one before. "
        "The answer: row groups kept by a plan, rows counted, read or indexed, segments after compaction."
    )
    for milliseconds in dict.fromkeys(step.milliseconds for step in run.steps):
        rows = [_store_row(step) for step in run.steps if step.milliseconds == milliseconds]
        yield Table(_STORE_HEADINGS, rows, f"a store {milliseconds:g} ms away", ("work", "index", "of kind"))
    yield from failed(run.failures)


def _store_row(step: StoreStep) -> list[Cell]:
    traffic = step.traffic
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in traffic.by_kind.items())
    return [
        *(f"{step.milliseconds:g}", step.name, "yes" if step.side == "index" else "no"),
        marked_if(traffic.rounds > _MOST_ROUNDS.get(step.name, traffic.rounds), f"{traffic.rounds:,}"),
        *(f"{step.seconds:.3f}", f"{step.seconds * 1000 / step.milliseconds:.1f}" if step.milliseconds else ""),
        *(f"{traffic.requests:,}", kinds, f"{traffic.most_at_once:,}"),
        *(f"{traffic.bytes_in / 1e6:.2f}", f"{traffic.bytes_out / 1e6:.2f}"),
        "" if step.answer is None else f"{step.answer:,}",
    ]


_SECONDS = {
    "write_seconds": "written in",
    "build_seconds": "index built in",
}
_BYTES = {"data_bytes": "data", "index_bytes": "index"}


def systems_parts(run: SystemsRun) -> Iterator[Part]:
    """Lay out warm and cold times, what each system's data and index took, and which systems are missing."""
    ran = [system for system in run.systems if system.failure is None]
    yield Line(
        f"Scale factor {run.scale_factor:g}: {run.rows:,} rows, {run.row_groups:,} row groups, "
        f"{run.data_bytes / 1e6:.0f} MB of Parquet. Milliseconds."
    )
    yield Figure("systems", "Warm medians of all systems", partial(draw_systems, run))
    # One table for each workload: all queries side by side are too wide.
    workloads: dict[str, list[str]] = {}
    for query in run.queries:
        workloads.setdefault(query.partition("-")[2], []).append(query)
    for title, cell in (("warm: median, least to greatest", _warm), ("cold: first execution", _cold)):
        for queries in workloads.values():
            yield Table(("system", *queries), [[s.title, *(cell(s, query) for query in queries)] for s in ran], title)
    yield from (Line(line) for system in ran if (line := fact_line(system)))
    yield from (Line(f"not run: {s.title}: {s.failure}") for s in run.systems if s.failure is not None)
    yield from failed(run.failures)


def fact_line(system: SystemResult) -> str:
    """Say in one line what a system is and what making its data and index took; nothing if it does not tell."""
    facts = system.facts
    parts = [str(facts["version"])] if "version" in facts else []
    parts += [f"{what} {float(facts[key]):.1f} s" for key, what in _SECONDS.items() if key in facts]
    parts += [f"{what} {float(facts[key]) / 1e6:.1f} MB" for key, what in _BYTES.items() if key in facts]
    return f"{system.title}: {', '.join(parts)}" if parts else ""


def _warm(system: SystemResult, query: str) -> Cell:
    if system.median(query) is None:
        return Marked("null", "bad")
    summary = summarize(system.warm[query])
    least, most = summary.least_seconds * 1e3, summary.greatest_seconds * 1e3
    return f"{summary.median_seconds * 1e3:,.1f}\n{least:,.0f} to {most:,.0f}"


def _cold(system: SystemResult, query: str) -> Cell:
    seconds = system.cold.get(query)
    return Marked("null", "bad") if seconds is None else f"{seconds * 1e3:,.1f}"


_SUMS = ("row groups", "matching", "kept", "by min and max", "kept / matching", "missed cells")
_COSTS = ("index / data bytes", "planning ms")


def clustered_parts(run: ClusteredRun) -> Iterator[Part]:
    """Lay out what is kept by query and by burst, the cells that miss the target, and times of some scans."""
    tables = "; ".join(
        f"{table.row_groups} row groups of {table.size} (at most {table.row_group_rows:,} rows), "
        f"{table.data_bytes / 1e6:.0f} MB and {table.index_bytes / 1e6:.0f} MB of index"
        for table in run.tables
    )
    yield Line(f"{run.rows:,} rows whose keys come in bursts: {tables}. Sums over {run.trials} queries a cell.")
    yield Figure("clustered", "Heat maps of the share of row groups kept", partial(draw_clustered, run))
    selective = [cell for cell in run.cells if cell.is_selective]
    rows = [[*key, *_sums(cells), *_costs(cells)] for key, cells in _grouped(selective, lambda c: (c.size, c.query))]
    title = "cells in which fewer than half of the row groups match, by query"
    yield Table(("row groups of", "query", *_SUMS, *_COSTS), rows, title, ("query",))
    needles = [cell for cell in run.cells if (cell.query, cell.order) == ("needle", "random")]
    rows = [[*key, *_sums(cells)] for key, cells in _grouped(needles, lambda c: (c.size, str(c.burst)))]
    yield Table(("row groups of", "burst", *_SUMS), rows, "one key, bursts in random order, by burst")
    rows = [
        [
            one.query,
            f"{statistics.median(one.planning_seconds) * 1e3:,.1f}",
            f"{statistics.median(one.scan_seconds) * 1e3:,.1f}",
            marked_if(one.is_missed, f"{one.share:.1%}"),
            str(one.dropped),
            f"{one.index_bytes / 1e6:.2f}",
        ]
        for one in run.regrets
    ]
    titles = ("list of", "planning ms", "scan ms", "share", "dropped", "index MB")
    yield Table(
        titles, rows, "lists of keys that are in every row group: what planning takes of a scan without an index"
    )
    missed = [cell for cell in selective if cell.is_missed]
    yield Line(
        marked_if(
            bool(missed),
            f"{len(missed)} of {len(selective)} cells in which fewer than half of the row groups match keep more than "
            f"{MOST_KEPT:g} times the matching ones.",
        )
    )
    if missed:
        rows = [[cell.name, *_sums([cell])[:-1], *_costs([cell])] for cell in missed]
        yield Table(("cell", *_SUMS[:-1], *_COSTS), rows)
    idle = [cell for cell in run.cells if cell.kept == cell.without and cell.index_bytes]
    if idle:
        most = max(idle, key=lambda cell: cell.share_read)
        yield Line(
            f"Where nothing is dropped, the index reads are at most {most.share_read:.2%} of the data: {most.name}."
        )
    yield from failed(run.failures)


def _grouped(
    cells: Sequence[BurstCell], key: Callable[[BurstCell], tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], list[BurstCell]]]:
    """Group cells by a key, in the order in which keys first come."""
    of_key: dict[tuple[str, ...], list[BurstCell]] = {}
    for cell in cells:
        of_key.setdefault(key(cell), []).append(cell)
    yield from of_key.items()


def _sums(cells: Sequence[BurstCell]) -> list[Cell]:
    total, matching, kept, without = (
        sum(getattr(cell, name) for cell in cells) for name in ("row_groups", "matching", "kept", "without")
    )
    missed = sum(cell.is_missed for cell in cells)
    share = f"{kept / matching:.2f}" if matching else "" if not kept else "\N{INFINITY}"
    return [
        *(f"{total:,}", f"{matching:,}", f"{kept:,}", f"{without:,}"),
        marked_if(kept > MOST_KEPT * matching, share),
        marked_if(missed > 0, f"{missed} of {len(cells)}"),
    ]


def _costs(cells: Sequence[BurstCell]) -> list[Cell]:
    read, data = (sum(getattr(cell, name) for cell in cells) for name in ("index_bytes", "data_bytes"))
    return [f"{read / max(data, 1):.2%}", f"{max(cell.planning_seconds for cell in cells) * 1000:.0f}"]


_WRITES_HEADINGS = (
    "by keys",
    "keys",
    "row groups\nholding",
    "row groups\nkept",
    "seconds\nwithout",
    "seconds\nwith",
    "ratio",
)


def writes_parts(run: WritesRun) -> Iterator[Part]:
    """Lay out what each statement took and read; targets that are missed stand out."""
    yield Line(
        f"{run.rows:,} rows in {run.data_files} data files of {run.data_bytes / 1e6:.0f} MB, {run.row_groups:,} row "
        f"groups; index of the keys {run.index_bytes / 1e6:.0f} MB. Ids are in no order; the recent ones are of the "
        "newest 100,000 rows. Median, least to greatest."
    )
    yield Table(_WRITES_HEADINGS, [_write_row(step) for step in run.steps], texts=("keys",))
    yield from failed(run.failures)


def _write_row(step: WriteStep) -> list[Cell]:
    without, with_index = (_spread(seconds, 2) for seconds in (step.without, step.with_index))
    kept = "" if step.kept is None else f"{step.kept:,}"
    return [
        *(step.name, step.keys, f"{step.holding:,}", marked_if(step.is_missed, kept), without, with_index),
        marked_if(step.is_slow, f"{step.ratio:.1f}"),
    ]


def doors_parts(run: DoorsRun) -> Iterator[Part]:
    """Lay out what each thing took beside what it is held against; targets that are missed stand out."""
    yield Line(
        f"{run.rows:,} rows in {run.row_groups:,} row groups. Median, least to greatest. A look-up is of one key, all "
        "columns: the median and the 99th of 100 of a round, and what it takes where two threads look keys up."
    )
    headings = ("what", "held against", "its seconds", "seconds", "at most", "ratio")
    yield Table(headings, [_door_row(step) for step in run.steps], texts=("held against",))
    yield from failed(run.failures)


def _door_row(step: DoorStep) -> list[Cell]:
    others, seconds = (_spread(one, 4) if one else "" for one in (step.others, step.seconds))
    most = "" if step.most_seconds is None else f"{step.most_seconds:.4f}"
    ratio = f"{statistics.median(step.seconds) / statistics.median(step.others):.2f}" if step.others else ""
    return [step.name, step.against, others, marked_if(step.is_slow, seconds), most, ratio]


def _spread(seconds: Sequence[float], digits: int) -> str:
    median, least, most = astuple(summarize(seconds))
    return f"{median:.{digits}f}\n{least:.{digits}f} to {most:.{digits}f}"
