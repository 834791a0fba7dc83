"""Work on a small lineorder in a store: answers agree, and reads with the index ask for fewer bytes."""

from ssb_bench.data.layout import Layout
from ssb_bench.spark_runs.bench import Bench
from ssb_bench.studies.store import measure


def test_a_store_is_measured(layout: Layout) -> None:
    bench = Bench(layout)
    measure(bench, repeats=1, milliseconds=(5.0,), bandwidth=100.0, row_group_rows=2_000, spark=False)

    assert bench.record("store", "Store").failures == []
    assert bench.facts["table"]["data files"] == len(layout.files("lineorder"))
    steps = {(step.name, step.side): step for step in bench.steps}
    assert steps["q1: rows", "with"].answer == steps["q1: rows", "without"].answer
    assert 0 < steps["q1: rows", "with"].counts["read bytes"] < steps["q1: rows", "without"].counts["read bytes"]
    assert "HEAD" not in steps["q1: first plan", "with"].counts
    assert steps["q1: plan", "with"].most == {"rounds": 1.5}
    assert steps["build", "with"].answer == "60175"
    assert steps["compact", "with"].answer == "1"
