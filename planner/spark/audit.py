"""Audits: Spark is asked for the rows of row groups that the index left out; a wrong index is no longer used.

A row group was dropped because no row of it satisfies what the query says. So Spark finds no row there under the same
filter, as the planner has read it and as Spark itself writes it. Of a row group of which few rows were to be read, no
other row satisfies the filter. Row groups that were dropped because others have all the rows that the query wants may
hold matching rows: there the others must have as many. Aggregates that the index answered are computed again from the
rows that Spark gives.

An audit runs in a copy of the query's session. All scans of the copy read a sample of the row groups and nothing else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from planner.aggregates.partial import Partial, group_name
from planner.condition.as_sql import as_sql, column_text, name_text
from planner.condition.tree.nodes import EVERY_ROW, Everything, Leaf, Part, Predicate, is_exact, parts
from planner.condition.tree.simplify import conjunction, rebuilt
from planner.prune.verdicts import ZONE_MAPS, Reason, Used, kept_mask
from planner.query import answer_query
from planner.query_log import AuditMiss, AuditRecord
from planner.snapshot.scan import Scan
from planner.spark.observed_query import PlannedQuery, column_text as name_of, deciding
from planner.spark.requests.hook_filters import bind_runtime_keys, read_conditions, where_of
from planner.spark.requests.wire import KEEP_ALL, Request, serialize_dropped, serialize_view
from planner.spark.rules import RULE, JavaFunction, call_ours, load_hook, make
from puffin_index.data.data_table import open_table
from puffin_index.errors import PuffinIndexError, UnsupportedError
from puffin_index.index_table.table import TableName
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.map_key import Contents
from puffin_index.segments.directory import STATISTICS
from puffin_index.storage.arrays import Ints

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_MOST_CHARACTERS = 1_000_000
_SECONDS = 120.0
"""Spark is given up after this time."""
_SHOWN_GROUPS = 3

_NOT_EMPTY = (Reason.ENOUGH_ROWS, Reason.ANSWERED)
"""What is dropped for these reasons may hold matching rows."""


def audited(query: PlannedQuery, context: SparkContext, session: JavaObject) -> AuditRecord:
    """Audit a scan in a copy of its session."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    audit = _Audit(query)

    @contextmanager
    def counted() -> Iterator[None]:
        try:
            yield
        # Whatever is gone by now, and whatever Spark cannot read from SQL text, says nothing about the index.
        except (PySparkException, Py4JError, PuffinIndexError, OSError, pa.ArrowException) as error:
            audit.unchecked += 1
            _log.info("a part of a scan of %s is not audited: %s", query.answer.plan.table, error)

    with counted(), _sampled_scans(context, session, query) as scans:
        for check in (audit.check_dropped, audit.check_few_rows, audit.check_first_rows, audit.check_answers):
            with counted():
                check(scans)
    return AuditRecord(
        time=datetime.now(UTC),
        table=query.answer.plan.table,
        row_groups=audit.checked,
        unchecked=audit.unchecked,
        misses=tuple(audit.misses),
    )


@contextmanager
def _sampled_scans(context: SparkContext, session: JavaObject, query: PlannedQuery) -> Iterator[_SampledScans]:
    """Copy a session, and let the scans of the copy read samples."""
    from pyspark.sql import SparkSession

    copied = SparkSession(context, session.cloneSession())
    copied.conf.set("spark.sql.parser.escapedStringLiterals", "false")
    # The hook then asks about scans without a condition as well.
    copied.conf.set("spark.puffin-index.sampled", "true")
    scans = _SampledScans(copied, query)
    rule = make(copied, load_hook(copied), RULE, uuid4().hex, query.request.session, scans, True)
    call_ours(copied, rule, "enableAlone", copied._jsparkSession)
    group = f"puffin-index-audit-{uuid4().hex}"
    context.setJobGroup(group, f"audit of the index of {query.answer.plan.table}", interruptOnCancel=True)
    timer = threading.Timer(_SECONDS, context.cancelJobGroup, [group])
    timer.daemon = True
    timer.start()
    try:
        yield scans
    finally:
        timer.cancel()


class _SampledScans(JavaFunction):
    """Answers the hook of a copied session: a scan of the table reads a sample of its row groups, and nothing else."""

    def __init__(self, session: SparkSession, query: PlannedQuery) -> None:
        self._session = session
        self._query = query
        self._sample = BitMap()
        self._snapshots: set[int | None] = set()
        name = TableName.parse(query.table.name)
        self._table = name_text([query.answer.plan.table.partition(".")[0], *name])
        table = open_table(query.table.catalog, name)
        current = table.current_snapshot()
        wanted = query.request.snapshot
        self._version = "" if wanted in (None, current and current.snapshot_id) else f" VERSION AS OF {wanted}"

    def select(self, fetch: str, columns: str, where: str, numbers: Ints, more: str = "") -> Any:
        """Select columns of the rows of some row groups, as SQL with `more` behind WHERE, by a method of the DataFrame.

        Raises UnsupportedError if Spark reads something else than these row groups.
        """
        self._sample, self._snapshots = BitMap(numbers), set()
        text = f"SELECT {columns} FROM {self._table}{self._version} WHERE _pos >= 0 AND ({where}){more}"
        if len(text) > _MOST_CHARACTERS:
            raise UnsupportedError("the condition is too long")
        found = getattr(self._session.sql(text), fetch)()
        if self._snapshots != {self._query.request.snapshot}:
            raise UnsupportedError(f"Spark read the snapshots {self._snapshots}")
        return found

    def apply(self, request_text: str, _: bytes) -> bytearray:
        """Answer a request."""
        request, view = Request.model_validate_json(request_text), self._query.answer.scan.view
        if request.uuid != self._query.table.uuid or request.aggregates is not None:
            return bytearray(KEEP_ALL)
        if request.version != view.version:
            return bytearray(serialize_view(view))
        self._snapshots.add(request.snapshot)
        return bytearray(serialize_dropped(BitMap(range(view.row_group_count)) - self._sample, first=b"O"))


@dataclass(slots=True, eq=False)
class _Audit:
    """What an audit of one scan has found, and how many row groups of the sample could not be checked."""

    query: PlannedQuery
    random: np.random.Generator = field(default_factory=np.random.default_rng)
    checked: int = 0
    unchecked: int = 0
    misses: list[AuditMiss] = field(default_factory=list)

    def check_dropped(self, scans: _SampledScans) -> None:
        """Look for matching rows where the index said that there are none."""
        reasons = self.query.answer.plan.reasons
        sample = self._sample(np.flatnonzero(~kept_mask(reasons) & ~np.isin(reasons, _NOT_EMPTY)))
        if not len(sample):
            return
        columns, more = "_file AS file, count(*) AS count, min(_pos) AS first", " GROUP BY _file"
        for path, count, first in self._matching(scans, columns, sample, more):
            self._miss_rows(path, count, first)
        self.checked += len(sample)

    def check_few_rows(self, scans: _SampledScans) -> None:
        """Look for matching rows beside those that Spark was to read."""
        scan, few = self.query.answer.scan, self.query.answer.few.rows
        sample = self._sample(np.flatnonzero(np.isin(scan.numbers, list(few))))
        if not len(sample):
            return
        numbers, view = scan.numbers[sample].tolist(), scan.view
        # One more than there should be tells that there are others.
        most = sum(len(few[number].rows) for number in numbers) + 1
        found = self._matching(scans, "_file AS file, _pos AS position", sample, f" LIMIT {most}")
        positions: dict[str, BitMap] = {}
        for path, position in found:
            positions.setdefault(path, BitMap()).add(position)
        for number in numbers:
            path, first = view.paths[view.file_of[number]], int(view.first_rows[number])
            own = positions.get(path, BitMap()) & BitMap(range(first, first + int(view.row_counts[number])))
            others = own - few[number].rows.shift(first)
            if others:
                self._miss_rows(path, len(others), others.min(), f"{len(few[number].rows)} other rows can match")
        self.checked += len(sample)

    def _matching(self, scans: _SampledScans, columns: str, sample: Ints, more: str) -> Any:
        """Select columns of the rows that satisfy the filter, as the planner has read it or as Spark writes it."""
        from pyspark.errors import PySparkException

        numbers, claimed, own = self.query.answer.scan.numbers[sample], self._claimed, self._own_filter
        if any(map(_is_of_words, parts(self.query.answer.request.predicate))):
            if not own:
                raise UnsupportedError("SQL cannot ask for the words of a text")
            return scans.select("collect", columns, own, numbers, more)
        if own:
            try:
                return scans.select("collect", columns, f"({claimed}) OR ({own})", numbers, more)
            except PySparkException as error:
                # Spark writes some expressions in a way that it cannot read.
                _log.debug("a filter is audited without Spark's own text: %s", error)
        return scans.select("collect", columns, claimed, numbers, more)

    def check_first_rows(self, scans: _SampledScans) -> None:
        """Count the matching rows of the row groups that are read, if others were dropped because of them."""
        query, first = self.query, self.query.answer.request.first_rows
        if first is None or not query.dropped_for_first_rows.any():
            return
        predicate, kept = query.answer.request.predicate, np.flatnonzero(query.answer.plan.kept_mask)
        if len(self._sample(kept)) < len(kept) or not is_exact(predicate) or query.request.snapshot is None:
            self.unchecked += 1
            return
        numbers = query.answer.scan.numbers[kept]
        count = scans.select("count", "1", self._claimed, numbers)
        self.checked += len(kept)
        if count < first.count:
            claim = f"the row groups that are read have at least {first.count} rows that match"
            self._miss(claim, f"they have {count}", deciding(query), numbers)

    def check_answers(self, scans: _SampledScans) -> None:
        """Compute aggregates that the index answered."""
        query, answered = self.query, self.query.answer.aggregates
        request, positions = query.answer.request, np.flatnonzero(query.answer.plan.reasons == Reason.ANSWERED)
        question = request.question
        if question is None or answered is None or not len(positions):
            return
        if query.request.snapshot is None:
            # Rows may have been deleted since, so counts may differ.
            self.unchecked += len(positions)
            return
        sample, scan = np.sort(self._sample(positions)), request.scan
        numbers = scan.numbers[sample]
        if len(sample) < len(positions):
            sampled = Scan.of_view(scan.view, numbers, scan.files)
            answered = answer_query(replace(request, scan=sampled, executors=None)).aggregates
            if answered is None:
                self.unchecked += len(sample)
                return
            self.unchecked += len(answered.unread)
            numbers = np.delete(numbers, answered.unread)
        asked = [*enumerate(question.every_column)]
        names = [f"{column_text(one.column, query.reading.schema)} AS c{place}" for place, one in asked]
        rows = scans.select("toArrow", ", ".join(names) or "1 AS one", self._claimed, numbers)
        columns = {one.column: column_of(rows[f"c{place}"], one.value_type) for place, one in asked}
        said, data = _groups(answered.partial), _groups(Partial.of_rows(question, columns, len(rows)))
        self.checked += len(numbers)
        differing = [key for key in said.keys() | data.keys() if said.get(key) != data.get(key)]
        if differing:
            claim, found = ({key: one.get(key, "no row") for key in differing[:_SHOWN_GROUPS]} for one in (said, data))
            text = f"{question.text} by groups of keys, {len(differing)} differ: {claim}"
            self._miss(text, str(found), deciding(query), numbers)

    @property
    def _claimed(self) -> str:
        """What the planner has read of the query and found out about it; what it does not know holds for all rows."""
        predicate = conjunction([self.query.answer.request.predicate, self._threshold])
        return as_sql(_known(predicate), self.query.reading.schema)

    @property
    def _own_filter(self) -> str:
        """The filter above the scan as Spark writes it, with all else that holds; empty without that text."""
        query, schema = self.query, self.query.reading.schema
        if query.request.sql is None:
            return ""
        filters = query.request.model_copy(update={"conditions": ()})
        keys = [bind_runtime_keys(one, schema) for one in query.request.runtime_keys]
        others = conjunction([*read_conditions(filters), *keys, self._threshold])
        return f"({query.request.sql}) AND ({as_sql(_known(others), schema)})"

    @property
    def _threshold(self) -> Predicate:
        """What the first rows satisfy that the query wants."""
        threshold = self.query.answer.pruned.threshold
        return EVERY_ROW if threshold is None else threshold

    def _sample(self, positions: Ints) -> Ints:
        settings, scan = self.query.settings, self.query.answer.scan
        count = min(len(positions), settings.audit_row_groups)
        chosen = self.random.choice(positions, count, replace=False) if count else positions
        sizes = np.cumsum(scan.row_group_bytes[chosen])
        return chosen[: max(int(np.searchsorted(sizes, settings.audit_bytes, "right")), 1)]

    def _miss_rows(self, path: str, count: int, first: int, claim: str = "no row matches") -> None:
        """Report rows of the data file at a location that match."""
        query, scan = self.query, self.query.answer.scan
        at = np.flatnonzero([scan.paths[file] == path for file in scan.file_of.tolist()])
        place = at[np.searchsorted(scan.first_rows[at], first, "right") - 1]
        used, reason = deciding(query), Reason(int(query.answer.plan.reasons[place]))
        of_stage = {one for one in used if (one[1] == ZONE_MAPS) == (reason is Reason.ZONE_MAP)} or used
        self._miss(
            f"{claim} ({reason.code})",
            f"{count} rows do",
            of_stage,
            scan.numbers[[place]],
            data_file=path,
            row_group=int(scan.ordinals[place]),
            rows=(first - int(scan.first_rows[place]),),
        )

    def _miss(self, claim: str, found: str, used: Iterable[Used], numbers: Ints, **place: Any) -> None:
        """Report a miss in some row groups; the place is that of rows of one of them."""
        query, view = self.query, self.query.answer.scan.view
        segments: set[str] = set()
        for column, kind in used:
            placement = view.placements.get((column, STATISTICS if kind == ZONE_MAPS else kind))
            own = [] if placement is None else placement.segment[numbers].tolist()
            segments.update(view.segments[segment][0] for segment in own if segment >= 0)
        schema = query.reading.schema
        miss = AuditMiss(
            claim=claim,
            found=found,
            table=query.answer.plan.table,
            snapshot=query.request.snapshot,
            columns=tuple(sorted((name_of(column, schema), kind) for column, kind in used)),
            segments=tuple(sorted(segments)),
            where=where_of(query.request, literals=True),
            **place,
        )
        self.misses.append(miss)


def _known(predicate: Predicate) -> Predicate:
    """A predicate whose unknown parts hold for all rows, and what follows of words, which SQL cannot say."""
    return rebuilt(predicate, lambda part: EVERY_ROW if isinstance(part, Everything) or _is_of_words(part) else part)


def _is_of_words(part: Part) -> bool:
    return isinstance(part, Leaf) and isinstance(part.field_id, Contents) and part.field_id.part == "words"


def _groups(partial: Partial) -> dict[tuple[object, ...], dict[str, object]]:
    keys = [group_name(number) for number in range(len(partial.question.groups))]
    rows = (row for row in partial.groups.to_pylist() if row["rows"] or not keys)
    return {tuple(row.pop(key) for key in keys): row for row in rows}
