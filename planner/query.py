"""One query of one scan: which row groups it has to read, and what the index gives of its aggregates.

Every door makes a `QueryRequest` of what it was asked and shows a `QueryAnswer`: `planner.plan`, `scan`, `count` and
`aggregate`, what-if, and the hook in a Spark session.
"""

import time
from dataclasses import dataclass, field

import numpy as np
from pyiceberg.schema import Schema

from planner.aggregates.answer import Answer, aggregate
from planner.aggregates.question import Question
from planner.condition.columns import Unused
from planner.condition.implied import Implied, Source
from planner.condition.tree.nodes import EVERY_ROW, Predicate
from planner.first_rows.search import FirstRows
from planner.prune.distributed import Executors
from planner.prune.few_rows import FewRows, few_rows, pages_of
from planner.prune.gate import DEFAULT_LIMITS, Limits
from planner.prune.verdicts import Pruned, Reason, kept_mask
from planner.report.scan_plan import PagesRead, ScanPlan
from planner.snapshot.judge import judge
from planner.snapshot.scan import Scan
from planner.view.cache import SharedPayloads
from planner.view.index_view import IndexView
from puffin_index.storage.arrays import Bytes
from puffin_index.storage.files import ReadCount


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class QueryRequest:
    """What a query asks of one scan.

    Attributes:
        implied: What the rest of the query says about the rows, and what functions do.
        unused: Parts of the text that nothing is known of.
        question: Aggregates of the matching rows; None if the rows are wanted.
        condition: The condition as it was read, for readers that test rows; Spark tests its own.
        ahead: What was read of the index before.
        shared: Keeps what is opened of some columns, for later questions about the same rows.
    """

    scan: Scan
    predicate: Predicate
    where: str = ""
    implied: tuple[Implied, ...] = ()
    unused: tuple[Unused, ...] = ()
    first_rows: FirstRows | None = None
    question: Question | None = None
    limits: Limits = DEFAULT_LIMITS
    executors: Executors | None = None
    schema: Schema = field(default_factory=Schema)
    condition: Predicate = EVERY_ROW
    ahead: ReadCount = field(default_factory=ReadCount)
    shared: SharedPayloads | None = None
    started: float = field(default_factory=time.perf_counter)


@dataclass(frozen=True, slots=True, eq=False)
class QueryAnswer:
    """The plan of what to read, verdicts, aggregates (none if rows are wanted or Spark has to read them), troubles.

    Spark reads only the pages with the rows in `few`, of the row groups that it names.
    """

    request: QueryRequest
    plan: ScanPlan
    pruned: Pruned
    aggregates: Answer | None = None
    troubles: tuple[str, ...] = ()
    few: FewRows = field(default_factory=FewRows)

    @property
    def scan(self) -> Scan:
        """The scan."""
        return self.request.scan


def answer_query(request: QueryRequest) -> QueryAnswer:
    """Find what a query has to read, and what the index gives of its aggregates."""
    scan, predicate, executors = request.scan, request.predicate, request.executors
    limits = request.limits.of_scan(int(scan.row_group_bytes.sum()))
    if request.question is None:
        return _answer_of(request, judge(scan, predicate, limits, request.first_rows, executors, request.shared))
    found = aggregate(scan, predicate, request.question, limits, executors)
    # Spark plans once more where the index does not answer aggregates.
    return read_everything(request) if found is None else _answer_of(request, *found)


def read_everything(request: QueryRequest, *warnings: str) -> QueryAnswer:
    """Read all row groups of a query, whatever the index says."""
    count = len(request.scan.numbers)
    nothing = Pruned(
        np.full(count, Reason.NOT_TRUSTED, np.uint8), np.full(count, -1, np.int64), (), (), warnings=warnings
    )
    return _answer_of(request, nothing)


def _answer_of(request: QueryRequest, pruned: Pruned, aggregates: Answer | None = None) -> QueryAnswer:
    scan, first = request.scan, pruned.first
    of_index = tuple(map(str, pruned.troubles))
    reasons, troubles, reads, bytes_read, answered = pruned.reasons, pruned.warnings, 0, 0, ""
    if aggregates is not None:
        troubles = (*troubles, *aggregates.warnings)
        reads, bytes_read = aggregates.index_reads, aggregates.index_bytes_read
    if aggregates is not None and scan.by_ranges:
        # A plan without Spark says which row groups have matching rows, whatever is read of them.
        is_answered = pruned.kept
        is_answered[aggregates.unread] = False
        reasons = np.where(is_answered, np.uint8(Reason.ANSWERED), reasons)
        answered = aggregates.describe(scan.unlisted)
    implied = request.implied
    if first is not None and request.first_rows is not None:
        source: Source = "limit" if first.threshold is None else "top-k"
        only = int(np.isin(scan.numbers[~kept_mask(reasons)], first.dropped).sum())
        text = f"{request.first_rows.text}: {first.text}"
        implied = (*implied, Implied(source, text, only, first.seconds, first.bytes_read))
    few = FewRows()
    if request.limits.pages:
        here = np.flatnonzero(kept_mask(reasons) & scan.is_indexed & ~scan.is_read_whole)
        here = here[scan.view.has_pages[scan.numbers[here]]]
        few = few_rows(pruned.row_sets, scan.numbers[here], scan.row_counts[here])
    plan = ScanPlan(
        table=scan.table,
        snapshot_id=scan.snapshot_id,
        where=request.where,
        data_files=scan.paths,
        file_of=scan.file_of,
        ordinals=scan.ordinals,
        row_counts=scan.row_counts,
        reasons=reasons,
        matches=pruned.matches,
        funnel=pruned.stages,
        index_reads=sum(stage.reads for stage in pruned.stages) + request.ahead.requests + reads,
        index_bytes_read=sum(stage.bytes_read for stage in pruned.stages) + request.ahead.bytes + bytes_read,
        planning_seconds=time.perf_counter() - request.started,
        warnings=(*_warnings(scan.view, pruned), *dict.fromkeys(troubles)),
        unlisted=scan.unlisted,
        unlisted_files=scan.unlisted_files,
        answered=answered,
        implied=implied,
        unused=request.unused,
        by_pages=_read_by_pages(scan, reasons, few) if few.rows else None,
    )
    return QueryAnswer(request, plan, pruned, aggregates, (*of_index, *troubles), few)


def _read_by_pages(scan: Scan, reasons: Bytes, few: FewRows) -> PagesRead:
    """Say how much is read. Row groups without an index have no pages and bytes here."""
    pages, shares, sizes = pages_of(scan.row_counts), kept_mask(reasons).astype(np.float64), scan.row_group_bytes
    is_few = np.isin(scan.numbers, list(few.pages))
    shares[is_few] = [few.pages[number] for number in scan.numbers[is_few].tolist()] / pages[is_few]
    pages_read, bytes_read = (round(float(shares @ whole)) for whole in (pages, sizes))
    return PagesRead(shares, len(few.rows), pages_read, int(pages.sum()), bytes_read, int(sizes.sum()))


def _warnings(view: IndexView, pruned: Pruned) -> tuple[str, ...]:
    """The parts of an index that could not be used for a scan, and why, as sentences."""
    outdated = (
        f"field {field_id}: indexes that were built while the table had other column mappings are not used; "
        "`puffin-index build` makes them anew"
        for field_id in sorted({field_id for field_id, _ in view.rejected})
    )
    of_segment: dict[str, list[str]] = {}
    for trouble in pruned.troubles:
        of_segment.setdefault(trouble.segment, []).append(trouble.reason)
    damaged = (
        f"{segment}: {reasons[0]}" + (f"; {len(reasons) - 1} more of this segment" if len(reasons) > 1 else "")
        for segment, reasons in of_segment.items()
    )
    return (*outdated, *damaged)
