"""A scan as it was planned, with all that its record and its audit need. The query waits for it, so it only refers."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
from pyiceberg.io import FileIO

from planner.condition.tree.nodes import Predicate
from planner.query import QueryAnswer
from planner.report.scan_plan import ScanPlan
from planner.spark.left_behind import DataTable
from planner.spark.requests.wire import Request
from planner.spark.settings import Settings
from planner.view.index_view import IndexView
from puffin_index.data.column_source import Reading
from puffin_index.storage.arrays import Flags, Ints


@dataclass(frozen=True, slots=True, eq=False)
class PlannedQuery:
    """One scan that the hook was asked about.

    Attributes:
        request: The request.
        settings: The settings of its session.
        table: The data table.
        reading: How the scan finds columns.
        answer: What was planned.
        time: When it was planned, in UTC.
    """

    request: Request
    settings: Settings
    table: DataTable
    reading: Reading
    answer: QueryAnswer
    time: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def plan(self) -> ScanPlan:
        """What was planned for the row groups, in the order of `numbers`."""
        return self.answer.plan

    @property
    def predicate(self) -> Predicate:
        """What rows satisfy."""
        return self.answer.request.predicate

    @property
    def view(self) -> IndexView:
        """The index."""
        return self.answer.scan.view

    @property
    def numbers(self) -> Ints:
        """The row groups of the view that the scan has."""
        return self.answer.scan.row_groups.numbers

    @property
    def io(self) -> FileIO:
        """What reads the segments of the index."""
        return self.view.io

    @property
    def dropped_for_first_rows(self) -> Flags:
        """Which row groups were dropped because others have all the rows that the query wants."""
        dropped = self.answer.enough.dropped
        return np.zeros(len(self.numbers), np.bool_) if dropped is None else dropped
