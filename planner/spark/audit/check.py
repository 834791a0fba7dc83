"""Check what the index said of one scan against the data of some of its row groups.

A row group was dropped because no row of it satisfies what the query says. So no live row may: neither one that
satisfies the planner's own predicate, nor one that satisfies the query by the second opinion of `direct`. Row groups
that were dropped because others have all the rows that the query wants do hold matching rows. There the others have to
have so many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from planner.condition.rows import Residual
from planner.condition.tree.nodes import Everything, Predicate, is_exact
from planner.condition.tree.simplify import conjunction
from planner.prune.pruned import ZONE_MAPS, Reason, Used, kept_mask
from planner.query_log.records import AuditMiss, AuditRecord
from planner.spark.audit.answers import compare_answers
from planner.spark.audit.direct import DirectTest
from planner.spark.audit.live_rows import LiveRows, Snapshot
from planner.spark.observe.planned_query import PlannedQuery
from planner.spark.observe.record import column_text, deciding
from planner.spark.requests.hook_filters import bind_runtime_keys, where_of
from puffin_index.catalogue.index_table import TableName
from puffin_index.data.data_table import open_table
from puffin_index.errors import PuffinIndexError
from puffin_index.segments.directory import STATISTICS
from puffin_index.storage.arrays import Flags, Ints

_UNREADABLE = (PuffinIndexError, OSError, pa.ArrowException)
_SHOWN_ROWS = 5

_NOT_EMPTY = (Reason.ENOUGH_ROWS, Reason.ANSWERED)
"""What is dropped for these reasons may hold matching rows."""


@dataclass(slots=True, eq=False)
class Check:
    """One audit of one scan.

    Attributes:
        query: The scan.
        is_ending: Says that the process ends, and with it the audit.
        random: Chooses the sample.
        checked: How many row groups were read and checked.
        unchecked: How many row groups of the sample could not be checked.
        misses: What was wrong.
    """

    query: PlannedQuery
    is_ending: Callable[[], bool] = lambda: False
    random: np.random.Generator = field(default_factory=np.random.default_rng)
    checked: int = 0
    unchecked: int = 0
    misses: list[AuditMiss] = field(default_factory=list)

    @property
    def is_of_use(self) -> bool:
        """Whether the index left anything unread that could be checked."""
        return bool((~self.query.plan.kept_mask).any())

    def run(self) -> AuditRecord:
        """Read a sample and compare."""
        query = self.query
        try:
            table = open_table(query.table.catalog, TableName.parse(query.table.name).identifier)
            if str(table.metadata.table_uuid) == query.table.uuid:
                self._run(table, Snapshot.of(table, query.request.snapshot, query.reading))
        except _UNREADABLE:
            # Whatever is gone by now says nothing about the index.
            self.unchecked += 1
        return AuditRecord(
            time=datetime.now(UTC),
            table=query.plan.table,
            row_groups=self.checked,
            unchecked=self.unchecked,
            misses=tuple(self.misses),
        )

    def _run(self, table: Table, snapshot: Snapshot) -> None:
        reasons = self.query.plan.reasons
        self._check_dropped(snapshot, np.flatnonzero(~kept_mask(reasons) & ~np.isin(reasons, _NOT_EMPTY)))
        answered = np.flatnonzero(reasons == Reason.ANSWERED)
        if self.query.request.snapshot is None:
            # Rows may have been deleted since: that adds none to dropped row groups, but counts differ.
            self.unchecked += len(answered)
            return
        if self.query.dropped_for_first_rows.any():
            self._check_first_rows(snapshot)
        self._check_answers(table, snapshot, answered)

    @property
    def _threshold(self) -> Predicate:
        """What the first rows satisfy that the query wants."""
        threshold = self.query.answer.enough.threshold
        return Everything(exact=True) if threshold is None else threshold

    @property
    def _field_ids(self) -> list[int]:
        """All columns that the query names."""
        reading = self.query.reading
        return [field_id for field_id in sorted(reading.schema.field_ids) if reading.ids(field_id)]

    def _sample(self, positions: Ints) -> list[int]:
        settings, query = self.query.settings, self.query
        count = min(len(positions), settings.audit_row_groups)
        chosen = self.random.choice(positions, count, replace=False) if count else positions
        sizes = np.cumsum(query.view.row_group_bytes[query.numbers[chosen]])
        within = max(int(np.searchsorted(sizes, settings.audit_bytes, "right")), 1)
        return [int(at) for at in chosen[:within].tolist()]

    def _read(self, snapshot: Snapshot, positions: list[int], judge: Callable[[int, LiveRows], object]) -> bool:
        """Judge row groups one by one; False if some cannot be read, or the process ends."""
        before = self.unchecked
        query = self.query
        for at in positions:
            if self.is_ending():
                return False
            try:
                with snapshot.rows(query.view, int(query.numbers[at]), self._field_ids) as rows:
                    judge(at, rows)
                self.checked += 1
            except _UNREADABLE:
                self.unchecked += 1
        return self.unchecked == before

    def _check_dropped(self, snapshot: Snapshot, positions: Ints) -> None:
        query, request, schema = self.query, self.query.request, self.query.reading.schema
        claimed = Residual(conjunction([query.predicate, self._threshold]))
        keys = [bind_runtime_keys(one, schema) for one in request.runtime_keys]
        others = Residual(conjunction([*keys, self._threshold]))
        listed = Residual(query.listed)
        direct = DirectTest(request.filters, request.conditions, schema)

        def judge(at: int, rows: LiveRows) -> None:
            found = claimed.matching(rows.read_column, rows.row_count)
            certain = direct.certain(rows.read_column, rows.row_count)
            if certain.any():
                certain = certain & others.matching(rows.read_column, rows.row_count)
            # Spark has evaluated functions for the values that the index lists: there must be no others.
            unlisted = ~listed.matching(rows.read_column, rows.row_count)
            missed = rows.live & (found | certain | unlisted)
            if missed.any():
                self._miss_rows(at, missed)

        self._read(snapshot, self._sample(positions), judge)

    def _miss_rows(self, at: int, missed: Flags) -> None:
        query = self.query
        number, reason = int(query.numbers[at]), Reason(int(query.plan.reasons[at]))
        used = deciding(query)
        of_stage = {one for one in used if (one[1] == ZONE_MAPS) == (reason is Reason.ZONE_MAP)} or used
        miss = self._miss(f"no row matches ({reason.code})", f"{np.count_nonzero(missed)} rows do", of_stage, [number])
        place = {
            "data_file": query.view.paths[int(query.view.file_of[number])],
            "row_group": int(query.view.ordinals_in_file[number]),
            "rows": tuple(np.flatnonzero(missed)[:_SHOWN_ROWS].tolist()),
        }
        self.misses.append(miss.model_copy(update=place))

    def _check_first_rows(self, snapshot: Snapshot) -> None:
        query = self.query
        kept = np.flatnonzero(query.plan.kept_mask)
        first = query.answer.request.first_rows
        wanted = 0 if first is None else first.count
        sample = self._sample(kept)
        if len(sample) < len(kept) or not is_exact(query.predicate):
            self.unchecked += 1
            return
        residual = Residual(conjunction([query.predicate, self._threshold]))
        counts: list[int] = []

        def judge(_: int, rows: LiveRows) -> None:
            matching = residual.matching(rows.read_column, rows.row_count)
            counts.append(int(np.count_nonzero(rows.live & matching)))

        if self._read(snapshot, sample, judge) and sum(counts) < wanted:
            claim = f"the row groups that are read have at least {wanted} rows that match"
            self.misses.append(
                self._miss(claim, f"they have {sum(counts)}", deciding(query), query.numbers[kept].tolist())
            )

    def _check_answers(self, table: Table, snapshot: Snapshot, positions: Ints) -> None:
        query = self.query
        sample = np.sort(np.array(self._sample(positions), np.int64)) if len(positions) else positions
        if not len(sample) or self.is_ending():
            return
        found = compare_answers(
            query, table, snapshot, query.numbers[sample], self._field_ids, is_whole=len(sample) == len(positions)
        )
        self.checked += len(found.numbers)
        self.unchecked += len(sample) - len(found.numbers)
        if found.difference:
            claim, data = found.difference
            self.misses.append(self._miss(claim, data, deciding(query), found.numbers))

    def _miss(self, claim: str, found: str, used: frozenset[Used] | set[Used], numbers: list[int]) -> AuditMiss:
        query, view = self.query, self.query.view
        segments: set[str] = set()
        for column, kind in used:
            placement = view.placements.get((column, STATISTICS if kind == ZONE_MAPS else kind))
            own = [] if placement is None else placement.segment[numbers].tolist()
            segments.update(view.segments[segment][0] for segment in own if segment >= 0)
        schema = query.reading.schema
        return AuditMiss(
            claim=claim,
            found=found,
            table=query.plan.table,
            snapshot=query.request.snapshot,
            data_file="",
            row_group=-1,
            columns=tuple(sorted((column_text(column, schema), kind) for column, kind in used)),
            segments=tuple(sorted(segments)),
            where=where_of(query.request, literals=True),
        )
