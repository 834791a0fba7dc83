"""Plans of data files without their table."""

from collections.abc import Sequence

from planner.condition.tree.nodes import Predicate
from planner.prune.gate import DEFAULT_LIMITS, Limits
from planner.query import QueryRequest, answer_query
from planner.report.scan_plan import ScanPlan
from planner.snapshot.scan import Scan
from planner.view.index_view import IndexView
from puffin_index.data.data_table import DataFile


def plan_files(
    view: IndexView, predicate: Predicate, files: Sequence[DataFile], limits: Limits = DEFAULT_LIMITS
) -> ScanPlan:
    """Plan the scan of some data files without their table; deletes are not looked at."""
    return answer_query(QueryRequest(scan=Scan.of_files(view, files), predicate=predicate, limits=limits)).plan
