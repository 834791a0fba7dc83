"""A scan that was planned: the scan plan, and what whoever reads or counts its rows needs besides."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema

from planner.prune.row_sets import RowSets
from planner.scans.scan_plan import ScanPlan
from planner.scans.snapshot_files import ScanFile
from puffin_index.storage.arrays import Flags, Ints


@dataclass(frozen=True, slots=True)
class PlannedScan:
    """A scan plan with what its reader needs.

    Attributes:
        plan: The plan.
        schema: The schema of the scan.
        expression: The predicate, unbound; without NOT.
        files: The data files, in the order of `plan.data_files`.
        row_groups: For each row group of the plan its number in the view, -1 where it has no index.
        first_rows: For each row group the position of its first row in the data file; undefined where it has no index.
        row_sets: Rows that can match, by number in the view; deleted rows are not subtracted.
        is_read_whole: For each row group of the plan whether readers of byte ranges read its data file whole or not at
            all.
    """

    plan: ScanPlan
    schema: Schema
    expression: BooleanExpression
    files: tuple[ScanFile, ...]
    row_groups: Ints
    first_rows: Ints
    row_sets: RowSets
    is_read_whole: Flags
