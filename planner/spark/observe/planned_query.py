"""A scan as it was planned, with all that its record and its audit need. The query waits for it, so it only refers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, datetime

import numpy as np
from pyiceberg.io import FileIO

from planner.first_rows.search import Enough, FirstRows
from planner.predicate.nodes import Predicate
from planner.prune.pruned import Used
from planner.scans.scan_plan import ScanPlan
from planner.spark.aggregates import AnsweredScan
from planner.spark.left_behind import DataTable
from planner.spark.requests.functions import ColumnFunctions
from planner.spark.requests.wire import Request
from planner.spark.settings import Settings
from planner.view.index_view import IndexView
from puffin_index.data.column_source import Reading
from puffin_index.storage.arrays import Ints


@dataclass(frozen=True, slots=True, eq=False)
class AskedScan:
    """One scan that the hook asks about.

    Attributes:
        request: The request.
        settings: The settings of its session.
        table: The data table.
        reading: How the scan finds columns.
        view: The index.
        numbers: The row groups of the view that the scan has.
        predicate: What rows satisfy.
        functions: The functions of the request.
    """

    request: Request
    settings: Settings
    table: DataTable
    reading: Reading
    view: IndexView
    numbers: Ints
    predicate: Predicate
    functions: ColumnFunctions | None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PlannedQuery(AskedScan):
    """One scan, planned.

    Attributes:
        time: When it was planned, in UTC.
        plan: What was planned for the row groups, in the order of `numbers`.
        used: The columns and kinds of index that decided something.
        enough: What was found for a query that wants only some rows.
        wanted: The rows that such a query wants.
        answered: What was answered from the index, for a query of aggregates.
    """

    time: datetime
    plan: ScanPlan
    used: frozenset[Used] = frozenset()
    enough: Enough | None = None
    wanted: FirstRows | None = None
    answered: AnsweredScan | None = None

    @classmethod
    def of(
        cls,
        asked: AskedScan,
        plan: ScanPlan,
        used: frozenset[Used] = frozenset(),
        *,
        enough: Enough | None = None,
        wanted: FirstRows | None = None,
        answered: AnsweredScan | None = None,
    ) -> PlannedQuery:
        """A scan that was planned just now."""
        known = {field.name: getattr(asked, field.name) for field in fields(AskedScan)}
        time = datetime.now(UTC)
        return cls(**known, time=time, plan=plan, used=used, enough=enough, wanted=wanted, answered=answered)

    @property
    def io(self) -> FileIO:
        """What reads the segments of the index."""
        return self.view.io

    @property
    def has_dropped_for_first_rows(self) -> bool:
        """Whether row groups were dropped because others have all the rows that the query wants."""
        return self.enough is not None and self.enough.dropped is not None and bool(np.any(self.enough.dropped))
