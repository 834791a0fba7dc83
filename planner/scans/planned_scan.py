"""A scan that was planned: the scan plan, and what else somebody needs to read or count the rows."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema

from planner.first_rows.search import FirstRows
from planner.predicate.nodes import Predicate
from planner.prune.found_rows import RowSets
from planner.scans.scan_plan import ScanPlan
from planner.scans.scan_row_groups import ScanRowGroups
from planner.scans.snapshot_files import ScanFile
from planner.view.index_view import IndexView


@dataclass(frozen=True, slots=True)
class PlannedScan:
    """A scan plan with what a reader needs.

    Attributes:
        plan: The plan.
        schema: The schema of the scan.
        expression: The predicate, unbound; without NOT.
        predicate: The predicate as the planner evaluates it.
        files: The data files, in the order of `plan.data_files`.
        row_groups: The row groups of the plan, in the same order, as the view knows them.
        view: The index, as the plan saw it.
        row_sets: Rows that can match, by number in the view; deleted rows are not subtracted.
        first_rows: How many rows are wanted, and in what order; None for all.
    """

    plan: ScanPlan
    schema: Schema
    expression: BooleanExpression
    predicate: Predicate
    files: tuple[ScanFile, ...]
    row_groups: ScanRowGroups
    view: IndexView
    row_sets: RowSets
    first_rows: FirstRows | None = None
