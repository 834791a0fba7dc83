"""The report as one HTML page that needs nothing else: tables and pictures of a run, systems, scale and sweep."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Final

from ssb_bench.report.charts import Picture
from ssb_bench.report.pictures import WORKLOADS, Sources, measured_queries
from ssb_bench.report.systems_report import fact_line, reads_line
from ssb_bench.report.terminal import LEAST_SHARE_OF_PERFECT, MOST_PLANNING_SHARE, grouped, title_of
from ssb_bench.results.append_results import AppendRun, lag_text, range_text
from ssb_bench.results.results import QueryResult, Run, Side, mean_speed_up
from ssb_bench.results.statistics import summarize
from ssb_bench.results.step_times import StepTime
from ssb_bench.studies.scale import ScalePoint, grows_linearly, scale_failures
from ssb_bench.studies.sweep import SweepPoint
from ssb_bench.systems.run import SystemResult, SystemsRun

_RUN_COLUMNS: Final = (
    *(
        "query",
        "answer",
        "row<br>groups",
        "kept",
        "hold a<br>match",
        "rows read",
        "MB<br>read",
        "index<br>MB",
        "planning<br>ms",
    ),
    *("without s", "with s", "perfect s", "ratio", "of<br>perfect", "planning<br>share"),
)


def write_page(sources: Sources, pictures: Mapping[str, Picture], path: Path) -> None:
    """Write the page, with the pictures of the same sources."""
    template = Template(files("ssb_bench.report").joinpath("page.html").read_text(encoding="utf-8"))
    made = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(template.substitute(made=made, body="\n".join(_body(sources, pictures))), encoding="utf-8")


def _body(sources: Sources, pictures: Mapping[str, Picture]) -> Iterable[str]:
    if sources.run is not None:
        yield from _run_section(sources.run, pictures)
    if sources.systems is not None:
        yield from _systems_section(sources.systems, pictures)
    if sources.appends is not None:
        yield from _append_section(sources.appends, pictures)
    if sources.sweep:
        yield from _sweep_section(sources.sweep, pictures)
    if sources.scale:
        yield from _scale_section(sources.scale, pictures)
    if sources.steps:
        yield from _steps_section(sources.steps)


def _run_section(run: Run, pictures: Mapping[str, Picture]) -> Iterable[str]:
    yield f"<section><h2>Without the index, with it, and perfect pruning</h2><p>{escape(title_of(run))}.</p>"
    yield _failures(run.failures)
    for workload, heading in WORKLOADS.items():
        queries = [query for query in run.queries if query.workload == workload]
        measured = measured_queries(run, workload)
        if not measured:
            continue
        mean = mean_speed_up(measured)
        yield f"<h3>{heading}</h3>"
        yield f"<p>Geometric mean of the ratios: <b>{mean:.2f}</b>.</p>" if mean is not None else ""
        yield _figure(pictures[f"queries-{workload}"], f"Times of {heading}")
        yield _table(
            _RUN_COLUMNS,
            [_query_row(query) for query in queries],
        )
    yield _run_facts(run)


def _query_row(query: QueryResult) -> list[str]:
    plan, side = query.plan, query.with_index
    joins = query.workload == "ssb"
    return [
        escape(query.name),
        escape(grouped(query.answer or "null")),
        *(("", "", "") if plan is None else (f"{plan.row_groups:,}", f"{plan.kept:,}", _number(query.survivors))),
        _number(None if side is None else side.rows_read),
        "" if side is None or side.bytes_read is None else f"{side.bytes_read / 1e6:.1f}",
        *(("", "") if plan is None else (f"{plan.index_bytes_read / 1e6:.2f}", f"{plan.planning_seconds * 1e3:.0f}")),
        *(_seconds(each) for each in (query.without_index, query.with_index, query.perfect)),
        "null" if query.speed_up is None else f"<b>{query.speed_up:.2f}</b>",
        _share(query.share_of_perfect, lambda share: share >= LEAST_SHARE_OF_PERFECT),
        "" if joins else _share(query.planning_share, lambda share: share <= MOST_PLANNING_SHARE),
    ]


def _run_facts(run: Run) -> str:
    index, table = run.index, run.table
    built = "?" if index.build_seconds is None else f"{index.build_seconds:.1f} s"
    columns = ", ".join(f"{name} ({', '.join(kinds)})" for name, kinds in index.columns.items())
    facts = {
        "table": f"{table.data_bytes / 1e6:.0f} MB, written by Spark in {table.write_seconds:.1f} s",
        "index": f"{index.index_bytes / 1e6:.1f} MB, {index.index_bytes / table.data_bytes:.0%} of the table",
        "indexed columns": columns,
        "build": f"{built}{', beside queries' if index.build_in_background else ''}",
        **{key: str(value) for key, value in run.machine.items()},
    }
    return f"<details><summary>table, index, machine</summary>{_definitions(facts)}</details></section>"


def _systems_section(run: SystemsRun, pictures: Mapping[str, Picture]) -> Iterable[str]:
    ran = [system for system in run.systems if system.failure is None]
    missing = [f"{s.title}: {s.failure}" for s in run.systems if s.failure is not None]
    yield "<section><h2>Systems on the same rows</h2>"
    yield (
        f"<p>Scale factor {run.scale_factor:g}: {run.rows:,} rows, {run.row_groups:,} row groups, "
        f"{run.data_bytes / 1e6:.0f} MB of Parquet. Milliseconds.</p>"
    )
    yield _failures(run.failures)
    yield _figure(pictures["systems"], "Warm medians of all systems")
    for heading, cold in (("Warm: median (least to greatest)", False), ("Cold: first execution", True)):
        yield f"<h3>{heading}</h3>"
        # One table for each workload: all queries side by side are wider than a page.
        by_workload: dict[str, list[str]] = {}
        for query in run.queries:
            by_workload.setdefault(query.partition("-")[2], []).append(query)
        for queries in by_workload.values():
            yield _table(
                ("system", *queries),
                [[escape(s.title), *(_system_cell(s, query, cold) for query in queries)] for s in ran],
            )
    yield "<h3>Data and indexes</h3>"
    yield _list([line for system in ran for line in (fact_line(system), reads_line(system)) if line])
    if missing:
        yield "<h3>Not run</h3>" + _list(missing)
    yield "</section>"


def _system_cell(system: SystemResult, query: str, cold: bool) -> str:
    if cold:
        seconds = system.cold.get(query)
        return "<span class=bad>null</span>" if seconds is None else f"{seconds * 1e3:,.1f}"
    if system.median(query) is None:
        return "<span class=bad>null</span>"
    summary = summarize(system.warm[query])
    least, most = summary.least_seconds * 1e3, summary.greatest_seconds * 1e3
    return f"<b>{summary.median_seconds * 1e3:,.1f}</b><br><small>{least:,.0f} to {most:,.0f}</small>"


def _append_section(run: AppendRun, pictures: Mapping[str, Picture]) -> Iterable[str]:
    yield "<section><h2>While data arrive</h2>"
    yield f"<p>{escape(lag_text(run))}. A watch builds in the background of the application that queries.</p>"
    yield _failures(run.failures)
    yield _figure(pictures["appends"], "Lag of the index and times of queries while batches are appended")
    yield "<p>Seconds of the queries: median and range.</p>"
    rows = []
    for query in run.settled_with:
        sides = (run.meanwhile(query), run.settled_with[query], run.settled_without[query])
        rows.append([query, str(len(sides[0])), *(range_text(seconds) for seconds in sides)])
    yield _table(("query", "executions", "meanwhile", "settled, with index", "settled, without"), rows)
    yield "</section>"


def _steps_section(steps: Mapping[str, StepTime]) -> Iterable[str]:
    yield "<section><h2>Time of each step</h2>"
    together = sum(step.seconds for step in steps.values())
    rows = [[name, f"{step.seconds:.0f}", _exit_text(step.exit_code)] for name, step in steps.items()]
    yield _table(("step", "seconds", "ended"), [*rows, ["together", f"{together:.0f}", ""]])
    yield "</section>"


def _exit_text(code: int) -> str:
    return "well" if code == 0 else f"<span class=bad>exit code {code}</span>"


def _sweep_section(points: Sequence[SweepPoint], pictures: Mapping[str, Picture]) -> Iterable[str]:
    yield "<section><h2>Where an index pays: row groups kept</h2>"
    yield (
        "<p>Share of the row groups that the planner keeps, by selectivity and rows of a row group, beside the theory "
        "1 &minus; (1 &minus; s)<sup>R</sup> for rows in no order. Pale: skipped. Dark: all are read.</p>"
    )
    yield _figure(pictures["sweep"], "Heat maps of the share of row groups kept")
    timed = [p for p in points if p.without_seconds is not None and p.with_seconds is not None]
    if timed:
        yield "<h3>Spark's times</h3>"
        yield _table(
            ("clustering", "row-group rows", "predicates", "selectivity", "kept", "without s", "with s"),
            [
                [
                    *(p.clustering, f"{p.row_group_rows:,}", str(p.predicates), f"{p.selectivity:.0e}"),
                    *(f"{p.kept:.0%}", f"{p.without_seconds:.3f}", f"{p.with_seconds:.3f}"),
                ]
                for p in timed
            ],
        )
    yield "</section>"


def _scale_section(points: Sequence[ScalePoint], pictures: Mapping[str, Picture]) -> Iterable[str]:
    yield "<section><h2>Planning over up to a million row groups</h2>"
    yield "<p>Simulated indexes: real segments, no data. A process of its own for each line.</p>"
    yield _failures(scale_failures(points))
    yield _figure(pictures["scale"], "Planning time and memory by number of row groups")
    rows = []
    for p in sorted(points, key=lambda p: (p.scenario, p.row_groups)):
        if p.probe is None:
            why = escape(p.left_out) if p.left_out else f"<span class=bad>{escape(str(p.failure))}</span>"
            rows.append([p.scenario, f"{p.row_groups:,}", why])
            continue
        times = (p.probe.open_seconds, p.probe.cold_seconds, p.probe.warm_median_seconds)
        linear = {None: "", True: "yes", False: "<span class=bad>no</span>"}[grows_linearly(points, p.scenario)]
        rows.append(
            [
                *(p.scenario, f"{p.row_groups:,}"),
                *(f"{seconds:.3f}" for seconds in times),
                *(f"{p.probe.cold_requests:,}", f"{p.probe.cold_bytes / 1e6:.1f}"),
                *(f"{p.probe.warm_requests:,}", f"{p.probe.warm_bytes / 1e6:.1f}"),
                *(f"{p.probe.kept:,}", f"{p.probe.peak_bytes / 1e6:.0f}", linear),
            ]
        )
    heads = ("scenario", "row groups", "open s", "cold s", "warm s", "cold reads", "cold MB", "warm reads", "warm MB")
    yield _table((*heads, "kept", "peak MB", "linear"), rows)
    yield "</section>"


def _seconds(side: Side | None) -> str:
    if side is None:
        return ""
    summary = summarize(side.seconds)
    least, most = summary.least_seconds, summary.greatest_seconds
    return f"{summary.median_seconds:.3f}<br><small>{least:.3f} to {most:.3f}</small>"


def _number(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _share(share: float | None, is_good: Callable[[float], bool]) -> str:
    if share is None:
        return ""
    return f"{share:.0%}" if is_good(share) else f"<span class=bad>{share:.0%}</span>"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(_cells(row, len(headings)))}</tr>" for row in rows)
    return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _cells(row: Sequence[str], width: int) -> Iterable[str]:
    """Give a row's cells; the last one of a row that is too short is a remark over the rest of the table."""
    yield from (f"<td>{cell}</td>" for cell in row[:-1])
    yield (
        f"<td>{row[-1]}</td>"
        if len(row) == width
        else f"<td class=remark colspan={width - len(row) + 1}>{row[-1]}</td>"
    )


def _figure(picture: Picture, text: str) -> str:
    # The text says what the picture is to those who do not see it.
    svg = re.sub(r"<svg ", f'<svg role="img" aria-label="{escape(text)}" ', picture.svg, count=1)
    return f"<figure>{svg}</figure>"


def _definitions(facts: dict[str, str]) -> str:
    return "<dl>" + "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in facts.items()) + "</dl>"


def _list(lines: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _failures(failures: Sequence[str]) -> str:
    return f"<div class=failures><b>Failures</b>{_list(failures)}</div>" if failures else ""
