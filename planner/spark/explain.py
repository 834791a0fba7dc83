"""Explain a DataFrame before it runs: Spark's plan, and the scan plan of each scan of an indexed table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.report.scan_plan import ScanPlan
from planner.spark.hook import callback_of
from planner.spark.rules import jvm_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def explain(frame: DataFrame) -> str:
    """Plan a DataFrame anew and say what it reads of its indexed tables; nothing is executed.

    Raises:
        PuffinIndexError: If the session's hook is not enabled.
    """
    callback = callback_of(frame.sparkSession)
    thread = jvm_of(frame.sparkSession).java.lang.Thread.currentThread().getId()
    with callback.reports.recorded(thread) as plans:
        # A DataFrame keeps its first plan. Spark plans an alias anew.
        spark_plan = frame.alias("explained")._jdf.queryExecution().executedPlan().toString()
    described = [describe(plan) for plan in plans] or ["no scan of an indexed table with filters"]
    return "\n".join([*described, spark_plan])


def describe(plan: ScanPlan) -> str:
    """Say in lines what one scan reads, and why."""
    lines = [
        f"{plan.table}: {plan.kept} of {plan.row_groups} row groups kept, {plan.unindexed} not indexed; "
        f"{plan.index_reads} reads, {plan.index_bytes_read} bytes of index, {plan.planning_seconds * 1000:.0f} ms",
        *([f"  {plan.staleness}"] if plan.staleness else []),
        f"  where {plan.where}",
        *([f"  answered: {plan.answered}"] if plan.answered else []),
        *(f"  implied by {implied}" for implied in plan.implied),
        *(
            f"  {stage.name}: {stage.entered} entered, {stage.dropped} dropped, {stage.reads} reads, "
            f"{stage.bytes_read} bytes, {stage.seconds * 1000:.1f} ms"
            for stage in plan.funnel
        ),
        *(f"  {code}: {count}" for code, count in plan.reason_counts().items()),
        *(f"  warning: {warning}" for warning in plan.warnings),
    ]
    return "\n".join(lines)
