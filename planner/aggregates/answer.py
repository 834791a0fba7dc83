"""Aggregates of a scan: each row group from the cheapest of the buckets that give its part exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from planner.aggregates.indexed import Unit, each_unit
from planner.aggregates.known_rows import KnownRows
from planner.aggregates.partial import Partial
from planner.aggregates.question import MOST_GROUPS, Question
from planner.aggregates.statistics import most_rows, settle
from planner.clock import Clock
from planner.condition.tree.nodes import Predicate
from planner.prune.distributed import Executors, join_pruned, run_on_executors
from planner.prune.gate import Limits
from planner.prune.row_sets import RowSets
from planner.prune.verdicts import Pruned
from planner.snapshot.files import FileWithDeletes, ScanFile
from planner.snapshot.judge import judge
from planner.snapshot.scan import Scan
from planner.view.cache import SharedPayloads
from planner.view.directories import IndexReads, positions_by_number
from planner.view.index_view import IndexView
from puffin_index.keys.map_key import field_of
from puffin_index.storage.arrays import Floats, Ints

_COLUMN_SHARE: Final = 0.1
"""The share of a data file that a column takes if the manifest does not tell."""

_ROW_GROUP_OVERHEAD_BYTES: Final = 128 * 1024
"""What reading a row group costs besides the bytes of its columns, in bytes."""

_ROWS_AT_ONCE: Final = 64 * 1024 * 1024
"""How many rows are judged and answered together. These count even if there is no time for the others."""

UNBOUNDED: Final = Limits(byte_budget=2**63, seconds=np.inf)
"""No bounds of bytes and time."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What statistics and indexes give of a question, by reads besides the plan's; unread row groups have the rest."""

    partial: Partial
    unread: Ints
    row_groups_settled: int = 0
    row_groups_indexed: int = 0
    index_reads: int = 0
    index_bytes_read: int = 0
    warnings: tuple[str, ...] = ()

    @classmethod
    def joined(cls, question: Question, parts: Sequence[Answer], unread: Ints) -> Answer:
        """The answers of parts of a scan as one, which leaves `unread`, as places in the whole scan, unread."""
        return cls(
            Partial.merged(question, [one.partial for one in parts]),
            unread,
            sum(one.row_groups_settled for one in parts),
            sum(one.row_groups_indexed for one in parts),
            sum(one.index_reads for one in parts),
            sum(one.index_bytes_read for one in parts),
            tuple(dict.fromkeys(text for one in parts for text in one.warnings)),
        )

    def describe(self, unlisted: int) -> str:
        """Say how many row groups the index answers, beside `unlisted` more that have no index."""
        return (
            f"{self.partial.question.text}: {self.row_groups_settled} row groups from statistics, "
            f"{self.row_groups_indexed} from indexes, {len(self.unread) + unlisted} to be read"
        )


def costs_of_data(rows: KnownRows, question: Question) -> Floats:
    """The cost of reading the columns of a question in each row group, in weighed bytes."""
    scan, view = rows.scan, rows.scan.view
    costs = np.full(len(rows.is_whole), _ROW_GROUP_OVERHEAD_BYTES, np.float64)
    at, columns = rows.positions, [field_of(asked.column) for asked in question.every_column]
    if not len(at):
        return costs
    files, file_of = view.file_of[scan.numbers[at]], scan.file_of[at]
    sizes = view.file_sizes[files] * _COLUMN_SHARE * len(columns)
    # Spark's tasks do not tell the sizes of columns, and manifests do.
    for number in scan.files.keys() & set(np.unique(file_of).tolist()):
        file = scan.files[number]
        if isinstance(file, ScanFile) and file.entry.column_sizes:
            guess, known = file.file.file_size * _COLUMN_SHARE, file.entry.column_sizes
            sizes[file_of == number] = sum(known.get(column, guess) for column in columns)
    costs[at] += sizes / np.maximum(view.record_counts[files], 1) * scan.row_counts[at]
    return costs


def aggregate(
    scan: Scan, predicate: Predicate, question: Question, limits: Limits, executors: Executors | None
) -> tuple[Pruned, Answer] | None:
    """Judge and answer, here or on executors; None if an engine that reads ranges of bytes had better read the rows."""
    if not scan.by_ranges:
        return _aggregate_here(scan, predicate, question, limits, executors)
    most = most_rows(scan.view, predicate, question, scan.numbers)
    if most is None:
        return None
    if executors is not None and executors.are_worth_it(len(scan.numbers), int(scan.row_counts.sum())):
        found = _aggregate_on_executors(executors, scan, predicate, question, limits, most)
    else:
        found = _aggregate_here(scan, predicate, question, limits, most=most)
    if found is None:
        return None
    _, answered = found
    is_anything_known = answered.row_groups_settled + answered.row_groups_indexed > 0 or not len(answered.unread)
    return found if is_anything_known and len(answered.partial.groups) <= MOST_GROUPS else None


def _aggregate_here(
    scan: Scan,
    predicate: Predicate,
    question: Question,
    limits: Limits,
    executors: Executors | None = None,
    most: float | None = None,
) -> tuple[Pruned, Answer] | None:
    """Judge and answer data files of many rows in turn; those beyond the time or the byte budget are to be read."""
    rows_until = np.cumsum(np.bincount(scan.file_of, scan.row_counts))[scan.file_of]
    places = positions_by_number((rows_until // _ROWS_AT_ONCE).astype(np.int64))
    if len(places) < 2 or executors is not None:
        return _aggregate_at_once(scan, predicate, question, limits, executors, most)
    clock, budget, found = Clock(limits.seconds), limits.byte_budget, list[tuple[Ints, Pruned, Answer]]()
    for _, place in places:
        own = replace(limits, seconds=clock.seconds_left, byte_budget=budget)
        part = _aggregate_at_once(scan.part(place), predicate, question, own, most=most)
        if part is None:
            return None
        # Row sets may be large.
        found.append((place, replace(part[0], row_sets=RowSets()), part[1]))
        budget = max(0, budget - part[1].index_bytes_read - sum(stage.bytes_read for stage in part[0].stages))
    pruned = join_pruned([(place, one) for place, one, _ in found], scan.numbers, limits, in_turn=True)
    unread = np.concatenate([place[one.unread] for place, _, one in found])
    return pruned, Answer.joined(question, [one for _, _, one in found], np.sort(unread))


def _aggregate_at_once(
    scan: Scan,
    predicate: Predicate,
    question: Question,
    limits: Limits,
    executors: Executors | None = None,
    most: float | None = None,
) -> tuple[Pruned, Answer] | None:
    """Judge and answer; if there is another reader, for at most that many rows and within the limits, else None."""
    clock, shared = Clock(limits.seconds), SharedPayloads([asked.column for asked in question.every_column])
    pruned = judge(scan, predicate, replace(limits, rows_wanted=True), executors=executors, shared=shared)
    # A reader of byte ranges reads all of such a file, so that none of its rows may be counted here.
    is_read = pruned.kept & scan.is_read_whole
    pruned = replace(pruned, matches=np.where(is_read, -1, pruned.matches))
    if most is not None and int(pruned.matches[pruned.matches > 0].sum()) > most:
        return None
    rows = KnownRows(scan, predicate, pruned)
    left = UNBOUNDED if most is None else replace(limits, seconds=clock.seconds_left)
    return pruned, answer(rows, question, costs_of_data(rows, question), left, shared)


def _aggregate_on_executors(
    executors: Executors, scan: Scan, predicate: Predicate, question: Question, limits: Limits, most: float
) -> tuple[Pruned, Answer] | None:
    work = partial(_aggregate_part, predicate, question, scan.files, scan.io, most)
    verdicts: list[tuple[Ints, Pruned]] = []
    answers: list[Answer] = []
    unread = [np.zeros(0, np.int64)]
    for place, found in run_on_executors(executors, scan.view, scan.numbers, limits, work):
        if found is None:
            return None
        # A task that cannot read the index table gives no answer.
        pruned, answered = (found, None) if isinstance(found, Pruned) else found
        verdicts.append((place, pruned))
        answers += [] if answered is None else [answered]
        unread.append(place if answered is None else place[answered.unread])
    joined = Answer.joined(question, answers, np.sort(np.concatenate(unread)))
    return join_pruned(verdicts, scan.numbers, limits), joined


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
) -> tuple[Pruned, Answer] | None:
    own = {number - first_file: file for number, file in files.items() if 0 <= number - first_file < len(view.paths)}
    scan = Scan.of_view(view, row_groups, own, io=io)
    found = _aggregate_here(scan, predicate, question, limits, most=most)
    # Verdicts travel, row sets do not: they may be large.
    return found and (replace(found[0], row_sets=RowSets()), found[1])


def answer(
    rows: KnownRows,
    question: Question,
    data_costs: Floats,
    limits: Limits = UNBOUNDED,
    shared: SharedPayloads | None = None,
) -> Answer:
    """Answer a question from statistics and indexes as far as they are exact; `shared` has what is open already.

    An index that costs more than a row group's data is not read; beyond the limits, row groups are unread.
    """
    kept = np.flatnonzero(rows.pruned.kept)
    if question.needs_data:
        return Answer(Partial.merged(question, []), kept)
    if not question.every_column:
        count, known = rows.count()
        counted = Partial.of_table(question, {"rows": pa.array([count], pa.int64())})
        return Answer(counted, kept[~known[kept]], int(known[kept].sum()))
    reads = IndexReads(shared=shared)
    whole = rows.positions[rows.is_whole[rows.positions]]
    settled, is_settled = settle(rows.scan.view, question, rows.scan.numbers[whole], reads)
    others = np.setdiff1d(rows.positions, whole[is_settled])
    indexed, left = each_unit(question, rows, others, reads, data_costs[others], limits, Unit.answer)
    return Answer(
        Partial.merged(question, [*settled, *indexed]),
        np.union1d(left, np.setdiff1d(kept, rows.positions)),
        int(is_settled.sum()),
        len(others) - len(left),
        reads.count.requests,
        reads.count.bytes,
        tuple(map(str, reads.troubles)),
    )
