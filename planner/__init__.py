"""The planner: which row groups of an Iceberg table a query has to read."""

from planner.plan import plan
from planner.scan_plan import ScanPlan, Split
from planner.spark_explain import explain
from planner.spark_hook import disable, enable, reports

__all__ = ["ScanPlan", "Split", "disable", "enable", "explain", "plan", "reports"]
