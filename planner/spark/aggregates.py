"""Aggregates of a Spark query: which row groups of a scan need not be read, and what they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from planner.aggregates.answer import COLUMN_SHARE, ROW_GROUP_OVERHEAD_BYTES, Answer, answer
from planner.aggregates.known_rows import KnownRows
from planner.aggregates.partial import Partial
from planner.aggregates.question import MOST_GROUPS, Question
from planner.aggregates.settled import leaf_of
from planner.clock import Clock
from planner.predicate.nodes import Everything, Predicate, is_exact, necessary_leaves
from planner.prune.distributed import Executors, join_pruned, run_on_executors
from planner.prune.estimate import most_distinct
from planner.prune.found_rows import RowSets
from planner.prune.gate import Limits
from planner.prune.pruned import Pruned, kept_mask
from planner.prune.pruner import expected_matches
from planner.prune.row_groups import prune_row_groups
from planner.scans.scan_row_groups import ScanRowGroups
from planner.scans.snapshot_files import FileWithDeletes
from planner.scans.subtract_deletes import subtract_deletes
from planner.scans.whole_files import keep_whole_files
from planner.spark.requests.aggregates import question_of
from planner.spark.requests.wire import FileDeletes, WantedAggregates
from planner.view.directories import FieldStatistics, IndexReads
from planner.view.index_view import IndexView
from planner.view.shared_payloads import sharing_payloads
from puffin_index.data.data_table import DataFile
from puffin_index.data.deletes import DeleteFile
from puffin_index.keys.forms import floats_of_keys
from puffin_index.storage.arrays import Flags, Floats, Ints
from puffin_index.storage.files import ReadCount

_FEW_GROUPS: Final = 10_000
"""A column with so many values in a row group is tried, however many values and matching rows there may be."""


_BITS_OF_DOUBLES: Final = 53


@dataclass(frozen=True, slots=True, eq=False)
class AnsweredScan:
    """What is known of the aggregates of a scan.

    Attributes:
        pruned: The verdict on each row group, deleted rows subtracted.
        answer: What the index gives.
        unread: The row groups of the view that have to be read, ascending.
        warnings: Delete files that could not be read, and index troubles, as sentences.
    """

    pruned: Pruned
    answer: Answer
    unread: Ints
    warnings: tuple[str, ...] = field(default=())


def answer_aggregates(
    view: IndexView,
    predicate: Predicate,
    row_groups: Ints,
    wanted: WantedAggregates,
    schema: Schema,
    io: FileIO,
    limits: Limits,
    executors: Executors | None,
) -> AnsweredScan | None:
    """Answer the aggregates of a scan as far as the index is exact.

    Args:
        view: The index.
        predicate: What rows satisfy.
        row_groups: The row groups of the view that the scan has.
        wanted: The aggregates.
        schema: The schema that has their columns.
        io: The FileIO of the delete files.
        limits: Bounds.
        executors: Where to answer for many row groups; None for here.

    Returns:
        None if the index cannot answer, or is not worth asking.
    """
    question = question_of(wanted, schema)
    if question is None or not is_exact(predicate) or not _may_answer(view, question, wanted, row_groups):
        return None
    has_many_groups = _has_many_groups(view, question, row_groups)
    # So many rows at most make so many groups at most.
    if has_many_groups and expected_matches(view, predicate, row_groups) > MOST_GROUPS:
        return None
    most_rows = MOST_GROUPS if has_many_groups else None
    asked = _Asked(predicate, question, wanted.deletes, io, most_rows)
    if executors is not None and executors.are_worth_it(len(row_groups), int(view.row_counts[row_groups].sum())):
        found = _answer_on_executors(executors, view, row_groups, asked, limits)
    else:
        found = _answer_part(asked, view, 0, row_groups, limits)
    if found is None:
        return None
    answered = found.answer
    is_anything_known = answered.row_groups_settled + answered.row_groups_indexed > 0 or not len(found.unread)
    return found if is_anything_known and len(answered.partial.groups) <= MOST_GROUPS else None


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """What is asked of row groups, here or on an executor.

    Attributes:
        predicate: What rows satisfy.
        question: The question.
        deletes: The delete files of the scan.
        io: The FileIO of the delete files.
        most_rows: With more matching rows there may be too many groups; None if there are not many groups in any case.
    """

    predicate: Predicate
    question: Question
    deletes: tuple[FileDeletes, ...]
    io: FileIO
    most_rows: int | None


def _answer_part(asked: _Asked, view: IndexView, first: int, row_groups: Ints, limits: Limits) -> AnsweredScan | None:
    """Answer for row groups of a view, whose first row group has another number in the request."""
    with sharing_payloads([one.column for one in asked.question.every_column]):
        return _answer_in(asked, view, first, row_groups, limits)


def _answer_in(asked: _Asked, view: IndexView, first: int, row_groups: Ints, limits: Limits) -> AnsweredScan | None:
    clock = Clock(limits.seconds)
    pruned = prune_row_groups(view, asked.predicate, row_groups, replace(limits, rows_wanted=True))
    scanned = _row_groups(view, row_groups)
    files, has_deletes = _files(view, scanned, first, asked.deletes)
    matches = np.where(has_deletes & (pruned.matches > 0), -1, pruned.matches)
    after = subtract_deletes(
        files,
        scanned,
        replace(pruned, matches=matches),
        asked.io,
        clock,
        all_rows=isinstance(asked.predicate, Everything),
        strict=limits.strict,
        always=True,
    )
    reasons = keep_whole_files(after.reasons, scanned.file_of, scanned.is_read_whole)
    # A reader of byte ranges reads all of such a file, so that none of its rows may be counted here.
    known = np.where(kept_mask(reasons) & scanned.is_read_whole, -1, after.matches)
    pruned = replace(pruned, reasons=reasons, matches=known, stages=(*pruned.stages, *after.stages))
    if asked.most_rows is not None and int(known[known > 0].sum()) > asked.most_rows:
        return None
    tests = necessary_leaves(asked.predicate)
    rows = KnownRows(scanned, reasons, known, pruned.row_sets, files, asked.io, tests)
    left = replace(limits, seconds=clock.seconds_left)
    found = answer(view, rows, asked.question, _data_costs(view, asked.question, scanned), left)
    return AnsweredScan(pruned, found, row_groups[found.unread], (*after.warnings, *found.warnings))


@dataclass(frozen=True, slots=True, eq=False)
class _Sent:
    """What an executor sends back: an answer without locks and row sets.

    Attributes:
        pruned: The verdict on each row group of the task.
        settled: What statistics give.
        indexed: What indexes give.
        unread: The places of the row groups of the task that have to be read.
        row_groups: How many row groups statistics answer, and how many indexes.
        read: Requests and bytes of index that were read besides the plan.
        warnings: Troubles, as sentences.
    """

    pruned: Pruned
    settled: Partial
    indexed: Partial
    unread: Ints
    row_groups: tuple[int, int]
    read: tuple[int, int]
    warnings: tuple[str, ...]


def _send(asked: _Asked, view: IndexView, first: int, row_groups: Ints, limits: Limits) -> _Sent | None:
    found = _answer_part(asked, view, first, row_groups, limits)
    if found is None:
        return None
    own, pruned = found.answer, replace(found.pruned, row_sets=RowSets())
    counts = (own.row_groups_settled, own.row_groups_indexed)
    read = (own.reads.count.requests, own.reads.count.bytes)
    return _Sent(pruned, own.settled, own.indexed, own.unread, counts, read, found.warnings)


def _answer_on_executors(
    executors: Executors, view: IndexView, row_groups: Ints, asked: _Asked, limits: Limits
) -> AnsweredScan | None:
    """Answer on executors, each task for its row groups; None if there are too many groups."""
    verdicts: list[tuple[Ints, Pruned]] = []
    parts: list[_Sent] = []
    unread = [np.zeros(0, np.int64)]
    for place, sent in run_on_executors(executors, view, row_groups, limits, partial(_send, asked)):
        if sent is None:
            return None
        if isinstance(sent, Pruned):
            # The task cannot read the index table.
            verdicts.append((place, sent))
            unread.append(place)
        else:
            verdicts.append((place, sent.pruned))
            unread.append(place[sent.unread])
            parts.append(sent)
    positions = np.sort(np.concatenate(unread))
    joined = Answer(
        Partial.merged(asked.question, [one.settled for one in parts]),
        Partial.merged(asked.question, [one.indexed for one in parts]),
        positions,
        sum(one.row_groups[0] for one in parts),
        sum(one.row_groups[1] for one in parts),
        IndexReads(ReadCount(sum(one.read[0] for one in parts), sum(one.read[1] for one in parts))),
    )
    warnings = tuple(dict.fromkeys(text for one in parts for text in one.warnings))
    return AnsweredScan(join_pruned(verdicts, len(row_groups), limits), joined, row_groups[positions], warnings)


def _may_answer(view: IndexView, question: Question, wanted: WantedAggregates, row_groups: Ints) -> bool:
    """Whether directories allow an answer: an index of each column, and no doubles that lose bits."""
    reads = IndexReads()
    for asked in question.every_column:
        statistics = view.statistics(leaf_of(asked), reads)
        if statistics is None or not statistics.known[row_groups].any():
            return False
    added = {question.groups[place].column: question.groups[place] for place in wanted.added_doubles}
    for asked in added.values():
        statistics = view.statistics(leaf_of(asked), reads)
        if statistics is not None and _lose_bits(statistics, row_groups):
            return False
    return True


def _has_many_groups(view: IndexView, question: Question, row_groups: Ints) -> bool:
    """Whether a column to group by may have more values than the answer may have groups."""
    for group in question.groups:
        statistics = view.statistics(leaf_of(group), IndexReads())
        if statistics is not None and most_distinct(statistics) > MOST_GROUPS:
            # Of bytes, the number over all row groups may count a value once for each.
            known = row_groups[statistics.known[row_groups]]
            if int(statistics.distinct_count[known].max()) > _FEW_GROUPS:
                return True
    return False


def _lose_bits(statistics: FieldStatistics, row_groups: Ints) -> bool:
    """Whether a sum of doubles most likely loses bits, to judge by the ends of row groups: reading is then in vain."""
    keys = (statistics.minimum, statistics.maximum)
    known = row_groups[statistics.known[row_groups]]
    values = np.concatenate([floats_of_keys(key[known]) for key in keys if isinstance(key, np.ndarray)])
    values = values[np.isfinite(values) & (values != 0)]
    fractions, exponents = np.frexp(values)
    integers = np.ldexp(np.abs(fractions), _BITS_OF_DOUBLES).astype(np.int64)
    lowest = exponents - _BITS_OF_DOUBLES + np.log2(integers & -integers)
    rows = float(statistics.value_count[known].sum())
    # Most values are smaller than the ends.
    magnitude = float(np.abs(values).mean()) / 4 * rows if len(values) else 0.0
    return bool(magnitude > np.exp2(lowest.min(initial=np.inf) + _BITS_OF_DOUBLES))


def _row_groups(view: IndexView, numbers: Ints) -> ScanRowGroups:
    # Data files are numbered from 0 among those of the scan.
    _, file_of = np.unique(view.file_of[numbers], return_inverse=True)
    return ScanRowGroups(
        file_of=file_of,
        ordinals=view.ordinals_in_file[numbers],
        numbers=numbers,
        row_counts=view.row_counts[numbers],
        first_rows=view.first_rows[numbers],
        is_read_whole=view.is_read_whole[numbers],
    )


def _files(
    view: IndexView, scanned: ScanRowGroups, first: int, deletes: Sequence[FileDeletes]
) -> tuple[Sequence[FileWithDeletes], Flags]:
    """The data files of a scan, and for each row group whether its data file has deletes."""
    here = [own for own in deletes if first <= own.first < first + view.row_group_count]
    of_file = {int(view.file_of[own.first - first]): own for own in here}
    numbers = np.unique(view.file_of[scanned.numbers])
    has_deletes = np.isin(numbers, list(of_file))[scanned.file_of]
    if not deletes:
        nothing = FileWithDeletes(DataFile("", 0, 0, ()), (), has_equality_deletes=False)
        return [nothing] * len(numbers), has_deletes
    files = []
    for number in numbers.tolist():
        own = of_file.get(number)
        file = DataFile(view.paths[number], int(view.file_sizes[number]), int(view.record_counts[number]), ())
        listed = () if own is None else tuple(DeleteFile(*one) for one in own.files)
        files.append(FileWithDeletes(file, listed, has_equality_deletes=own is not None and own.others))
    return files, has_deletes


def _data_costs(view: IndexView, question: Question, scanned: ScanRowGroups) -> Floats:
    """The cost of reading each row group, in weighed bytes; Spark's tasks do not tell the sizes of columns."""
    numbers = view.file_of[scanned.numbers]
    sizes = view.file_sizes[numbers] * scanned.row_counts / np.maximum(view.record_counts[numbers], 1)
    costs: Floats = sizes * COLUMN_SHARE * len(question.every_column) + ROW_GROUP_OVERHEAD_BYTES
    return costs
