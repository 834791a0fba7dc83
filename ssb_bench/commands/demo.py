"""The demonstration: data, table, an index built while queries run, and the comparison."""

from functools import partial

from ssb_bench.data.layout import NAMESPACE
from ssb_bench.spark_runs.bench import Bench
from ssb_bench.spark_runs.load import define_index, load, record_build
from ssb_bench.spark_runs.measure import hooked, measure, with_report
from ssb_bench.spark_runs.session import CATALOG
from ssb_bench.studies.run import fit_queries, run_queries


def show(bench: Bench, *, row_group_rows: int, repeats: int) -> None:
    """Go the whole way from the SSB files, which must be there, to a run of the queries.

    A table and an index from an earlier run are used. Raises BuildError if the build fails.
    """
    queries, say = fit_queries(bench.layout), bench.console.print
    with bench.session() as spark:
        loaded = load(spark, bench.layout, row_group_rows=row_group_rows)
        say(f"{loaded.row_groups} row groups in {loaded.data_files} files, {loaded.data_bytes / 1e6:.0f} MB")
        spark.sql(f"USE {CATALOG}.{NAMESPACE}")
        with hooked(spark):
            handle, finished = define_index(bench.layout).build_async(spark), False
            # One more round after the end shows every query with the whole index.
            while not finished:
                finished = handle.status() != "running"
                say(f"build: {handle.progress()}")
                for query in queries:
                    took, plan = with_report(spark, partial(measure, spark, query.sql))
                    kept = "all row groups"
                    if plan is not None:
                        kept = f"{plan.kept} row groups kept, {plan.unindexed} not yet indexed"
                    say(f"  {query.name}: {took.seconds:.2f} s, {kept}")
            report = record_build(bench.layout, handle.wait(), in_background=True)
        text = f"index of {report.row_groups} row groups built in {report.seconds:.1f} s beside the queries"
        say(text if report.rows else "the index was there already; nothing to build")
        run_queries(bench, queries, repeats=repeats)
