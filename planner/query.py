"""One query of one scan: which row groups it has to read, and what the index gives of its aggregates.

Every door makes a `QueryRequest` of what it was asked and shows a `QueryAnswer`: `planner.plan`, `scan`, `count` and
`aggregate`, what-if, and the hook in a Spark session.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from planner.aggregates.answer import UNBOUNDED, Answer, answer, costs_of_data
from planner.aggregates.known_rows import KnownRows
from planner.aggregates.question import MOST_GROUPS, Question
from planner.aggregates.statistics import most_rows
from planner.clock import Clock
from planner.condition.columns import Unused
from planner.condition.implied import Implied
from planner.condition.tree.nodes import EVERY_ROW, Predicate
from planner.first_rows.search import Enough, FirstRows, prune_first_rows
from planner.prune.distributed import Executors, join_pruned, run_on_executors
from planner.prune.gate import DEFAULT_LIMITS, Limits
from planner.prune.row_sets import RowSets
from planner.prune.verdicts import Pruned, Reason, kept_mask
from planner.report.scan_plan import ScanPlan
from planner.snapshot.files import FileWithDeletes
from planner.snapshot.scan import Scan, keep_whole_files
from planner.snapshot.subtract_deletes import subtract_deletes
from planner.view.cache import SharedPayloads
from planner.view.index_view import IndexView
from puffin_index.storage.arrays import Ints
from puffin_index.storage.files import ReadCount


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class QueryRequest:
    """What a query asks of one scan.

    Attributes:
        implied: What the rest of the query says about the rows, and what functions do.
        unused: Parts of the text that nothing is known of.
        question: Aggregates of the matching rows; None if the rows are wanted.
        for_spark: Spark reads the rest by ranges of bytes, so that some data files are read whole or not at all, and
            plans once more where the index does not answer aggregates.
        executors: The executors that judge many row groups; None to judge all here.
        condition: The condition as it was read, for readers that test rows; Spark tests its own.
        ahead: What was read of the index before.
        shared: Keeps what is opened of some columns, for later questions about the same rows.
        started: When planning began, by `time.perf_counter`.
    """

    scan: Scan
    predicate: Predicate
    where: str = ""
    implied: tuple[Implied, ...] = ()
    unused: tuple[Unused, ...] = ()
    first_rows: FirstRows | None = None
    question: Question | None = None
    for_spark: bool = False
    limits: Limits = DEFAULT_LIMITS
    executors: Executors | None = None
    schema: Schema = field(default_factory=Schema)
    condition: Predicate = EVERY_ROW
    ahead: ReadCount = field(default_factory=ReadCount)
    shared: SharedPayloads | None = None
    started: float = field(default_factory=time.perf_counter)


@dataclass(frozen=True, slots=True, eq=False)
class QueryAnswer:
    """The plan of what a query has to read, the verdicts behind it, what the index gives of aggregates, and troubles.

    There are no aggregates if rows were asked for, or if Spark has to read them.
    """

    request: QueryRequest
    plan: ScanPlan
    enough: Enough
    aggregates: Answer | None = None
    troubles: tuple[str, ...] = ()

    @property
    def scan(self) -> Scan:
        """The scan."""
        return self.request.scan

    @property
    def row_sets(self) -> RowSets:
        """Rows that can match, by number in the view; deleted rows are not subtracted."""
        return self.enough.pruned.row_sets


def answer_query(request: QueryRequest) -> QueryAnswer:
    """Find what a query has to read, and what the index gives of its aggregates.

    Raises PuffinIndexError on index trouble, if the limits are strict.
    """
    if request.question is None:
        return _answer_of(request, _judge(request))
    found = _aggregate(request, request.question)
    return read_everything(request) if found is None else _answer_of(request, *found)


def read_everything(request: QueryRequest, *warnings: str) -> QueryAnswer:
    """Read all row groups of a query, whatever the index says."""
    count = len(request.scan.numbers)
    nothing = Pruned(
        np.full(count, Reason.NOT_TRUSTED, np.uint8), np.full(count, -1, np.int64), (), (), warnings=warnings
    )
    return _answer_of(request, Enough(nothing))


def _judge(request: QueryRequest) -> Enough:
    """Judge the row groups of a scan, those without an index included, and subtract deletes."""
    scan, limits = request.scan, request.limits
    clock, here = Clock(limits.seconds), slice(None) if scan.is_indexed.all() else scan.is_indexed
    enough = prune_first_rows(
        scan.view,
        request.predicate,
        scan.numbers[here],
        ~scan.has_deletes[here],
        request.first_rows,
        limits,
        request.executors,
        request.shared,
    )
    count = len(scan.numbers)
    reasons, matches = np.full(count, Reason.UNINDEXED, np.uint8), np.full(count, -1, np.int64)
    reasons[here], matches[here] = enough.pruned.reasons, enough.pruned.matches
    dropped = None
    if enough.dropped is not None:
        dropped = np.zeros(count, np.bool_)
        dropped[here] = enough.dropped
    # With deletes, a count is an upper bound until deleted rows are subtracted.
    matches[scan.has_deletes & (matches > 0)] = -1
    verdicts = replace(enough.pruned, reasons=reasons, matches=matches)
    pruned = subtract_deletes(scan, request.predicate, verdicts, clock, limits)
    if request.for_spark:
        pruned = replace(pruned, reasons=keep_whole_files(pruned.reasons, scan.file_of, scan.is_read_whole))
    return replace(enough, pruned=pruned, dropped=dropped)


def _answer_of(request: QueryRequest, enough: Enough, aggregates: Answer | None = None) -> QueryAnswer:
    """Put the answer together, once everything is known."""
    scan, pruned = request.scan, enough.pruned
    of_index = tuple(map(str, pruned.troubles))
    reasons, troubles, reads, bytes_read, answered = pruned.reasons, pruned.warnings, 0, 0, ""
    if aggregates is not None:
        troubles = (*troubles, *aggregates.warnings)
        reads, bytes_read = aggregates.index_reads, aggregates.index_bytes_read
    if aggregates is not None and request.for_spark:
        # A plan without Spark says which row groups have matching rows, whatever is read of them.
        is_answered = pruned.kept
        is_answered[aggregates.unread] = False
        reasons = np.where(is_answered, np.uint8(Reason.ANSWERED), reasons)
        answered = aggregates.describe(scan.unlisted)
    first_rows = "" if request.first_rows is None else request.first_rows.text
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
        implied=(*request.implied, *enough.as_implied(first_rows, kept_mask(reasons))),
        unused=request.unused,
    )
    return QueryAnswer(request, plan, enough, aggregates, (*of_index, *troubles))


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


def _aggregate(request: QueryRequest, question: Question) -> tuple[Enough, Answer] | None:
    """Judge the row groups and answer aggregates; None if Spark has to read the rows."""
    request = replace(request, limits=replace(request.limits, rows_wanted=True))
    if not request.for_spark:
        return _aggregate_here(request, question)
    view, numbers, executors = request.scan.view, request.scan.numbers, request.executors
    most = most_rows(view, request.predicate, question, numbers)
    if most is None:
        return None
    if executors is not None and executors.are_worth_it(len(numbers), int(view.row_counts[numbers].sum())):
        found = _aggregate_on_executors(executors, request, question, most)
    else:
        found = _aggregate_here(replace(request, executors=None), question, most)
    if found is None:
        return None
    _, answered = found
    is_anything_known = answered.row_groups_settled + answered.row_groups_indexed > 0 or not len(answered.unread)
    return found if is_anything_known and len(answered.partial.groups) <= MOST_GROUPS else None


def _aggregate_here(request: QueryRequest, question: Question, most: float = np.inf) -> tuple[Enough, Answer] | None:
    """Judge and answer; None if more rows match than an answer may be of."""
    clock, scan = Clock(request.limits.seconds), request.scan
    shared = SharedPayloads([asked.column for asked in question.every_column])
    enough = _judge(replace(request, shared=shared))
    pruned = enough.pruned
    if request.for_spark:
        # A reader of byte ranges reads all of such a file, so that none of its rows may be counted here.
        is_read = pruned.kept & scan.is_read_whole
        pruned = replace(pruned, matches=np.where(is_read, -1, pruned.matches))
    if int(pruned.matches[pruned.matches > 0].sum()) > most:
        return None
    rows = KnownRows(scan, request.predicate, pruned.reasons, pruned.matches, pruned.row_sets)
    left = replace(request.limits, seconds=clock.seconds_left) if request.for_spark else UNBOUNDED
    answered = answer(rows, question, costs_of_data(rows, question), left, shared)
    return replace(enough, pruned=pruned), answered


def _aggregate_on_executors(
    executors: Executors, request: QueryRequest, question: Question, most: float
) -> tuple[Enough, Answer] | None:
    """Judge and answer on executors, each task for its row groups."""
    scan, limits = request.scan, request.limits
    work = partial(_aggregate_part, request.predicate, question, scan.files, scan.io, most)
    verdicts: list[tuple[Ints, Pruned]] = []
    answers: list[Answer] = []
    unread = [np.zeros(0, np.int64)]
    for place, found in run_on_executors(executors, scan.view, scan.numbers, limits, work):
        if found is None:
            return None
        if isinstance(found, Pruned):
            # The task cannot read the index table.
            verdicts.append((place, found))
            unread.append(place)
        else:
            enough, answered = found
            verdicts.append((place, enough.pruned))
            answers.append(answered)
            unread.append(place[answered.unread])
    joined = Answer.joined(question, answers, np.sort(np.concatenate(unread)))
    return Enough(join_pruned(verdicts, len(scan.numbers), limits)), joined


def _aggregate_part(
    predicate: Predicate,
    question: Question,
    files: Mapping[int, FileWithDeletes],
    io: FileIO,
    most: float,
    view: IndexView,
    first_file: int,
    row_groups: Ints,
    limits: Limits,
) -> tuple[Enough, Answer] | None:
    """Judge and answer in a task: row groups of a view of some data files, whose first one has another number."""
    own = {number - first_file: file for number, file in files.items() if 0 <= number - first_file < len(view.paths)}
    scan = Scan.of_view(view, row_groups, own, io=io)
    request = QueryRequest(scan=scan, predicate=predicate, for_spark=True, limits=limits)
    found = _aggregate_here(request, question, most)
    # Verdicts travel, row sets do not: they may be large.
    return found and (Enough(replace(found[0].pruned, row_sets=RowSets())), found[1])
