"""Explain a DataFrame before it runs: Spark's plan, and the scan plan of each scan of an indexed table."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    described = [plan.describe().as_text() for plan in plans] or ["no scan of an indexed table with filters"]
    return "\n".join([*described, spark_plan])
