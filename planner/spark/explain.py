"""What the index does for a DataFrame, before it runs: Spark's plan of it and the scan plan of each of its scans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.scans.scan_plan import ScanPlan
from planner.spark.hook import callback_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def explain(frame: DataFrame) -> str:
    """Plan a DataFrame anew and say what is read of its indexed tables; nothing is executed.

    Raises:
        PuffinIndexError: If the session's hook is not enabled.
    """
    callback = callback_of(frame.sparkSession)
    jvm = frame.sparkSession.sparkContext._jvm
    assert jvm is not None
    with callback.recorded(jvm.java.lang.Thread.currentThread().getId()) as plans:
        # A DataFrame keeps the plan it got first; an alias of it is planned anew.
        spark_plan = frame.alias("explained")._jdf.queryExecution().executedPlan().toString()
    described = [describe(plan) for plan in plans] or ["no scan of an indexed table with filters"]
    return "\n".join([*described, spark_plan])


def describe(plan: ScanPlan) -> str:
    """Say in lines what is read of one scan, and why."""
    lines = [
        f"{plan.table}: {plan.kept} of {plan.row_groups} row groups kept, {plan.unindexed} not indexed; "
        f"{plan.index_reads} reads, {plan.index_bytes_read} bytes of index, {plan.planning_seconds * 1000:.0f} ms",
        f"  where {plan.where}",
        *(
            f"  {stage.name}: {stage.entered} entered, {stage.dropped} dropped, {stage.reads} reads, "
            f"{stage.bytes_read} bytes, {stage.seconds * 1000:.1f} ms"
            for stage in plan.funnel
        ),
        *(f"  {code}: {count}" for code, count in plan.reason_counts().items()),
        *(f"  warning: {warning}" for warning in plan.warnings),
    ]
    return "\n".join(lines)
