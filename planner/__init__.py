"""The planner: which row groups of an Iceberg table a query has to read; scans and aggregates that read just those."""

from typing import TYPE_CHECKING

from planner.advice.advice_answer import Advice
from planner.advice.advise import advise
from planner.advice.what_if import what_if
from planner.advice.what_if_answer import WhatIf
from planner.aggregates.answer import aggregate
from planner.scans.arrow_scan import scan
from planner.scans.count import RowCount, count
from planner.scans.plan import plan
from planner.scans.scan_plan import ScanPlan, Split
from planner.spark.explain import explain
from planner.spark.hook import disable, enable, reports

if TYPE_CHECKING:
    from planner.spark.source import PuffinIndexSource

__all__ = [
    "Advice",
    "PuffinIndexSource",
    "RowCount",
    "ScanPlan",
    "Split",
    "WhatIf",
    "advise",
    "aggregate",
    "count",
    "disable",
    "enable",
    "explain",
    "plan",
    "reports",
    "scan",
    "what_if",
]


def __getattr__(name: str) -> object:
    # Spark is optional, and before 4.1 its Python data sources take no filters.
    if name == "PuffinIndexSource":
        from planner.spark.source import PuffinIndexSource

        return PuffinIndexSource
    raise AttributeError(f"module 'planner' has no attribute {name!r}")
