"""Work on a small lineorder in a store: answers agree, and reads with the index ask for fewer bytes."""

from dataclasses import replace

from ssb_bench.data.layout import Layout
from ssb_bench.report.document import Line, Marked, Table
from ssb_bench.report.reports import store_parts
from ssb_bench.results.studies import StoreRun
from ssb_bench.spark_runs.run import fit_queries
from ssb_bench.studies.store import measure_store


def test_a_store_is_measured(layout: Layout) -> None:
    queries = fit_queries(layout, ("q1", "q2"))

    run = measure_store(layout, queries, milliseconds=(5.0,), megabytes_a_second=100.0, repeats=1, row_group_rows=2_000)

    assert run.failures == ()
    assert run.data_files == len(layout.files("lineorder"))
    steps = {(step.name, step.side): step for step in run.steps}
    assert steps["q1: rows", "index"].answer == steps["q1: rows", "none"].answer
    assert 0 < steps["q1: rows", "index"].traffic.bytes_in < steps["q1: rows", "none"].traffic.bytes_in
    assert "HEAD" not in steps["q1: first plan", "index"].traffic.by_kind
    assert steps["build", "index"].answer == 60_175
    assert steps["compact", "index"].answer == 1
    check_report(run)


def check_report(run: StoreRun) -> None:
    slow = tuple(
        replace(step, traffic=replace(step.traffic, rounds=3)) if step.name == "q1: plan" else step
        for step in run.steps
    )
    line, table, failure = store_parts(replace(run, steps=slow, failures=("q1: 1 and 2",)))

    assert isinstance(line, Line)
    assert isinstance(table, Table)
    rows = {(row[1], row[2]): row for row in table.rows}
    assert rows["q1: plan", "yes"][3] == Marked("3", "bad")
    assert rows["q1: rows", "no"][3] == str(
        next(s.traffic.rounds for s in run.steps if (s.name, s.side) == ("q1: rows", "none"))
    )
    assert failure == Line(Marked("FAILED  q1: 1 and 2", "bad"))
