"""The planner: which row groups of an Iceberg table a query has to read; scans and counts that read just those."""

from planner.arrow_scan import scan
from planner.count import RowCount, count
from planner.plan import plan
from planner.scan_plan import ScanPlan, Split
from planner.spark_explain import explain
from planner.spark_hook import disable, enable, reports

__all__ = ["RowCount", "ScanPlan", "Split", "count", "disable", "enable", "explain", "plan", "reports", "scan"]
