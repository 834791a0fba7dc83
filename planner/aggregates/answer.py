"""Aggregates of a scan: each row group from the cheapest of the buckets that give its part exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from planner.aggregates.indexed import Unit, each_unit, partials_of
from planner.aggregates.known_rows import KnownRows
from planner.aggregates.partial import Partial
from planner.aggregates.question import Question
from planner.aggregates.statistics import settle
from planner.prune.gate import Limits
from planner.prune.verdicts import kept_mask
from planner.snapshot.files import ScanFile
from planner.view.cache import SharedPayloads
from planner.view.directories import IndexReads
from puffin_index.keys.map_key import column_and_key
from puffin_index.storage.arrays import Floats, Ints

_COLUMN_SHARE: Final = 0.1
"""The share of a data file that a column takes if the manifest does not tell."""

_ROW_GROUP_OVERHEAD_BYTES: Final = 128 * 1024
"""What reading a row group costs besides the bytes of its columns, in bytes."""

UNBOUNDED: Final = Limits(byte_budget=2**63, seconds=np.inf)
"""No bounds of bytes and time."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What statistics and indexes give of a question; the rest is in the unread row groups, exactly.

    Reads of the index are those besides the plan's.
    """

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
    costs = np.full(len(rows.reasons), _ROW_GROUP_OVERHEAD_BYTES, np.float64)
    at, columns = rows.positions, [column_and_key(asked.column)[0] for asked in question.every_column]
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
    reads = IndexReads(shared=shared)
    found = _answer(rows, question, data_costs, limits, reads)
    warnings = tuple(map(str, reads.troubles))
    return replace(found, index_reads=reads.count.requests, index_bytes_read=reads.count.bytes, warnings=warnings)


def _answer(rows: KnownRows, question: Question, data_costs: Floats, limits: Limits, reads: IndexReads) -> Answer:
    kept = np.flatnonzero(kept_mask(rows.reasons))
    if question.needs_data:
        return Answer(Partial.merged(question, []), kept)
    if not question.every_column:
        count, known = rows.count()
        counted = Partial.of_table(question, {"rows": pa.array([count], pa.int64())})
        return Answer(counted, kept[~known[kept]], int(known[kept].sum()))
    view = rows.scan.view
    whole = rows.positions[rows.is_whole[rows.positions]]
    settled, is_settled = settle(view, question, rows.scan.numbers[whole], reads)
    others = np.setdiff1d(rows.positions, whole[is_settled])
    indexed, left = each_unit(view, question, rows, others, reads, data_costs[others], limits, Unit.answer)
    partial = Partial.merged(question, [*settled, *partials_of(question, indexed)])
    unread = np.union1d(left, np.setdiff1d(kept, rows.positions))
    return Answer(partial, unread, int(is_settled.sum()), len(others) - len(left))
