"""Run the queries without the index, with it and with perfect pruning, side by side; compare answers and reads.

- All arms run in one application, on one table, each in a session of its own. The hook stays in one session.
- Each query runs once on each arm to warm up (`first_seconds`), then in turns: without, with, perfect, perfect, with,
  without. A drift of the machine hits all arms. The two fast arms run several times a turn.
- Answers are compared by value, with each other and with DuckDB's on the source files.
- A failure is a row with a reason.
- A slow query runs as many rounds as fit `ROUNDS_SECONDS`, two at least.
"""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from typing import Final

import duckdb
from pyspark.sql import SparkSession

from ssb_bench.data.dataset import Step, open_duckdb, require_dataset
from ssb_bench.data.layout import Layout
from ssb_bench.data.workload import VOLCANO_QUERIES, DuckValues, FittedQuery, fit, load_query
from ssb_bench.errors import BenchError
from ssb_bench.results.run import Plan, QueryResult, Run, Side, TableFacts
from ssb_bench.spark_runs.arms import Arm, Executions, Task, answer_due, execute_rounds, open_sessions
from ssb_bench.spark_runs.indexing import describe_index, open_index
from ssb_bench.spark_runs.load import require_load
from ssb_bench.spark_runs.measure import Answer, Measurement
from ssb_bench.spark_runs.perfect import Survivors, count_survivors, data_file_locations, find_survivors
from ssb_bench.spark_runs.session import describe_machine

ROUNDS_SECONDS: Final = 15.0
LEAST_ROUNDS: Final = 2


def fit_queries(layout: Layout, names: Sequence[str] = VOLCANO_QUERIES) -> list[FittedQuery]:
    """Fit the literals of queries to the SSB files."""
    require_dataset(layout)
    with open_duckdb(layout) as connection:
        return [fit(load_query(name), DuckValues(connection)) for name in names]


def run_queries(
    spark: SparkSession,
    layout: Layout,
    queries: Sequence[FittedQuery],
    *,
    repeats: int = 5,
    on_step: Callable[[Step], None] = lambda _: None,
) -> Run:
    """Measure queries without the index, with it, and with perfect pruning.

    Args:
        spark: A session over the layout's warehouse; nothing else may run in it.
        layout: The data.
        queries: What to run.
        repeats: Measured executions of each query on each arm, at most.
        on_step: Called before each query and once at the end.

    Returns:
        The run; `failures` in it is empty if all went well.

    Raises:
        BenchError: If the table is not loaded, or `repeats` is not positive.
        NotFoundError: If the table has no index.
    """
    if repeats < 1:
        raise BenchError(f"repeats must be at least 1, not {repeats}")
    loaded, index = require_load(layout), open_index(layout)
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    steps = 2 * len(queries) + 1
    on_step(Step(0, steps, "perfect pruning and answers, by DuckDB"))
    locations = data_file_locations(layout)
    # The queries of a workload ask for the same rows as those of the others.
    survivors = cache(partial(find_survivors, locations, layout=layout))
    tasks = [_task_of(layout, survivors, query) for query in queries]
    collected = [Executions(error=task.refusal) for task in tasks]
    with open_sessions(spark) as sessions:
        for number, (task, executions) in enumerate(zip(tasks, collected, strict=True)):
            on_step(Step(1 + number, steps, "warming up"))
            execute_rounds(sessions, task, 1, executions)
        for number, (task, executions) in enumerate(zip(tasks, collected, strict=True)):
            on_step(Step(1 + len(queries) + number, steps, f"{task.query.query.name}, {task.query.query.title}"))
            execute_rounds(sessions, task, rounds_within(executions.round_seconds, repeats), executions)
    on_step(Step(steps, steps, "done"))
    results = [_result(task, executions, loaded.rows) for task, executions in zip(tasks, collected, strict=True)]
    return Run(
        started_at=started,
        scale_factor=layout.scale_factor,
        repeats=repeats,
        machine=describe_machine(spark),
        # The facts of a table are some of those of its load.
        table=TableFacts(**{field.name: getattr(loaded, field.name) for field in fields(TableFacts)}),
        index=describe_index(layout, index),
        queries=tuple(results),
    )


def rounds_within(round_seconds: float, repeats: int) -> int:
    """Say how many rounds of a query are run: `repeats`, or fewer where one takes long."""
    fitting = repeats if round_seconds <= 0 else int(ROUNDS_SECONDS / round_seconds)
    return min(repeats, max(LEAST_ROUNDS, fitting))


def stamped_path(layout: Layout, kind: str, started_at: str) -> Path:
    """Name the file of a measurement by its begin, ISO 8601 in UTC."""
    stamp = datetime.datetime.fromisoformat(started_at).strftime("%Y%m%dT%H%M%SZ")
    return layout.runs / f"{kind}-{stamp}.json"


def _task_of(layout: Layout, survivors: Callable[[str], Survivors], query: FittedQuery) -> Task:
    try:
        return Task(query, *answer_due(layout, query), None if query.where is None else survivors(query.where))
    except duckdb.Error as error:
        return Task(query, query.sql, Answer("", ""), None, refusal=str(error).splitlines()[0])


def _result(task: Task, executions: Executions, table_rows: int) -> QueryResult:
    """Compare the answers with each other and with DuckDB, and what was read with what the planner kept."""
    if executions.error is not None:
        sides, plan, failures = {}, None, [executions.error]
        equal = False
    else:
        sides = {arm: _side_of(runs) for arm, runs in executions.measurements.items() if runs}
        equal = executions.answers == {task.due}
        plan = _plan_of(executions)
        failures = list(_failures(task, executions, equal, sides, plan, table_rows))
    return QueryResult(
        name=task.query.query.name,
        title=task.query.query.title,
        sql=task.query.sql,
        literals=tuple(str(literal) for literal in task.query.literals),
        answer=None if executions.error is not None else task.due.text,
        answers_equal=equal,
        without_index=sides.get("without"),
        with_index=sides.get("with"),
        plan=plan,
        failures=tuple(failures),
        workload=task.query.query.workload,
        perfect=sides.get("perfect"),
        survivors=None if task.survivors is None else count_survivors(task.survivors),
    )


def _failures(
    task: Task, executions: Executions, equal: bool, sides: Mapping[Arm, Side], plan: Plan | None, table_rows: int
) -> Iterator[str]:
    if not equal:
        texts = ", ".join(sorted(answer.text for answer in executions.answers))
        yield f"the answers differ: DuckDB {task.due.text}, Spark {texts}"
    # A join without a filter on lineorder need not have a plan, and reads other tables as well.
    if task.query.query.workload not in ("ssb", "shapes"):
        if plan is None:
            count = len(executions.measurements["with"])
            yield f"the planner reported {len(executions.reports)} of {count} scans: the index was not used"
        elif not plan.unindexed and sides["with"].rows_read > plan.kept_rows:
            yield f"Spark read {sides['with'].rows_read:,} rows, but the kept row groups have {plan.kept_rows:,}"
        if sides["without"].rows_read > table_rows:
            yield f"Spark read {sides['without'].rows_read:,} rows of a table of {table_rows:,}"
    if plan is not None and task.survivors is not None and plan.kept + plan.answered < count_survivors(task.survivors):
        known = f"{plan.kept} were kept and {plan.answered} answered from the index"
        yield f"{count_survivors(task.survivors)} row groups hold a match, but {known}"


def _plan_of(executions: Executions) -> Plan | None:
    """Sum up the planner's reports; None if there is not one for each execution with the index."""
    reports = executions.reports
    if len(reports) != len(executions.measurements["with"]):
        return None
    last = reports[-1]
    return Plan(
        row_groups=last.row_groups,
        kept=last.kept,
        unindexed=last.unindexed,
        kept_rows=last.kept_rows,
        index_bytes_read=max(report.index_bytes_read for report in reports),
        planning_seconds=statistics.median(report.planning_seconds for report in reports[1:]),
        answered=last.reason_counts().get("answered", 0),
    )


def _side_of(measurements: Sequence[Measurement]) -> Side:
    """Sum up the executions of one arm: the first apart, the others as timings, the last for what was read."""
    first, *measured = measurements
    last = measured[-1]
    process_bytes = [run.process_bytes for run in measured if run.process_bytes is not None]
    return Side(
        first_seconds=first.seconds,
        seconds=tuple(run.seconds for run in measured),
        rows_read=last.read.rows,
        # The least: sometimes the process reads what is not the query's.
        bytes_read=min(process_bytes) if process_bytes else None,
        spark_input_bytes=last.read.spark_bytes,
        tasks=last.read.tasks,
    )
