"""Aggregates of a scan, judged and answered here or on the executors of a Spark application."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from pyiceberg.io import FileIO

from planner.aggregates.answer import UNBOUNDED, Answer, answer, costs_of_data
from planner.aggregates.known_rows import KnownRows
from planner.aggregates.question import MOST_GROUPS, Question
from planner.aggregates.statistics import most_rows
from planner.clock import Clock
from planner.condition.tree.nodes import Predicate
from planner.first_rows.search import Enough
from planner.prune.distributed import Executors, join_pruned, run_on_executors
from planner.prune.gate import Limits
from planner.prune.row_sets import RowSets
from planner.prune.verdicts import Pruned
from planner.snapshot.files import FileWithDeletes
from planner.snapshot.judge import judge
from planner.snapshot.scan import Scan
from planner.view.cache import SharedPayloads
from planner.view.index_view import IndexView
from puffin_index.storage.arrays import Ints


def aggregate_or_leave(
    scan: Scan, predicate: Predicate, question: Question, limits: Limits, executors: Executors | None
) -> tuple[Enough, Answer] | None:
    """Judge the row groups and answer aggregates, here or on executors; None if an engine had better read the rows."""
    view, numbers = scan.view, scan.numbers
    most = most_rows(view, predicate, question, numbers)
    if most is None:
        return None
    if executors is not None and executors.are_worth_it(len(numbers), int(view.row_counts[numbers].sum())):
        found = _aggregate_on_executors(executors, scan, predicate, question, limits, most)
    else:
        found = aggregate_here(scan, predicate, question, limits, most=most)
    if found is None:
        return None
    _, answered = found
    is_anything_known = answered.row_groups_settled + answered.row_groups_indexed > 0 or not len(answered.unread)
    return found if is_anything_known and len(answered.partial.groups) <= MOST_GROUPS else None


def aggregate_here(
    scan: Scan,
    predicate: Predicate,
    question: Question,
    limits: Limits,
    executors: Executors | None = None,
    most: float | None = None,
) -> tuple[Enough, Answer] | None:
    """Judge and answer; if there is another reader, for at most that many rows and within the limits, else None."""
    clock, shared = Clock(limits.seconds), SharedPayloads([asked.column for asked in question.every_column])
    enough = judge(scan, predicate, replace(limits, rows_wanted=True), executors=executors, shared=shared)
    pruned = enough.pruned
    # A reader of byte ranges reads all of such a file, so that none of its rows may be counted here.
    is_read = pruned.kept & scan.is_read_whole
    pruned = replace(pruned, matches=np.where(is_read, -1, pruned.matches))
    if most is not None and int(pruned.matches[pruned.matches > 0].sum()) > most:
        return None
    rows = KnownRows(scan, predicate, pruned.reasons, pruned.matches, pruned.row_sets)
    left = UNBOUNDED if most is None else replace(limits, seconds=clock.seconds_left)
    answered = answer(rows, question, costs_of_data(rows, question), left, shared)
    return replace(enough, pruned=pruned), answered


def _aggregate_on_executors(
    executors: Executors, scan: Scan, predicate: Predicate, question: Question, limits: Limits, most: float
) -> tuple[Enough, Answer] | None:
    """Judge and answer on executors, each task for its row groups."""
    work = partial(_aggregate_part, predicate, question, scan.files, scan.io, most)
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
    scan = Scan.of_view(view, row_groups, own, io=io, by_ranges=True)
    found = aggregate_here(scan, predicate, question, limits, most=most)
    # Verdicts travel, row sets do not: they may be large.
    return found and (Enough(replace(found[0].pruned, row_sets=RowSets())), found[1])
