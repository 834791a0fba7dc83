"""What-if: say what a WHERE would read with other indexes, before anybody builds or drops one.

`WhatIf`: what a question about an index is answered with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pyiceberg.table import Table

from planner.advice.advised_table import AdvisedTable
from planner.advice.candidates import names_of
from planner.advice.measure import Question, measure
from planner.advice.sample import DEFAULT_SAMPLE
from planner.advice.verdict import CONFIDENCE, Range, Verdict
from planner.condition.sql.parser import read_where
from planner.query_log.benefits import DEFAULT_BYTES_PER_SECOND
from puffin_index.definition.index_definition import IndexDefinition, fit_warnings
from puffin_index.display import Cell, Described, Grid, Report, format_bytes, share_of
from puffin_index.table_index import TableIndex


@dataclass(frozen=True, slots=True)
class Reads:
    """What a query reads in one of the states that are compared.

    Attributes:
        state: `without index`, `today` or `what if`.
        row_groups: The row groups.
        bytes: About the bytes of these row groups.
        seconds: About the seconds that one core takes to read them.
    """

    state: str
    row_groups: Range
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, repr=False)
class WhatIf(Described):
    """What a WHERE would read if indexes were added or left out. Nothing was changed.

    Attributes:
        table: `namespace.table`.
        snapshot_id: The snapshot; None for an empty table.
        where: The WHERE.
        added: The indexes to add, as `column.kind`.
        left_out: The existing indexes that were hidden, as `column.kind`.
        row_groups: The row groups of the snapshot.
        without_index: What the query reads by Iceberg's own pruning alone.
        today: What it reads with today's index.
        what_if: What it would read.
        sampled: The row groups that were measured.
        index_bytes: About the bytes of the indexes to add, for the whole table; less the bytes of those left out.
        data_bytes: The bytes of the table's data files.
        build_seconds: About the seconds that one core takes to build the indexes to add for the whole table.
        verdict: Whether to build (or keep) the indexes.
        bytes_per_second: The reading speed that `seconds` assume.
        warnings: What else to know, as sentences.
    """

    table: str
    snapshot_id: int | None
    where: str
    added: tuple[str, ...]
    left_out: tuple[str, ...]
    row_groups: int
    without_index: Reads
    today: Reads
    what_if: Reads
    sampled: int
    index_bytes: int
    data_bytes: int
    build_seconds: float
    verdict: Verdict
    bytes_per_second: float = DEFAULT_BYTES_PER_SECOND
    warnings: tuple[str, ...] = ()
    JSON = (
        *("table", "snapshot_id", "where", "added", "left_out", "row_groups", "without_index", "today", "what_if"),
        *("sampled", "index_bytes", "data_bytes", "build_seconds", "verdict", "bytes_per_second", "warnings"),
        *("source", "assumption", "bytes_saved", "seconds_saved", "index_share"),
    )

    @property
    def source(self) -> str:
        """Where the numbers come from: `measured on n of N row groups`."""
        total = self.without_index.row_groups.estimate
        certainty = "" if self.sampled >= total else f"; ranges hold with {CONFIDENCE:.0%} confidence"
        return f"measured on {self.sampled:,} of {total:,} row groups{certainty}"

    @property
    def assumption(self) -> str:
        """What the seconds assume."""
        speed = self.bytes_per_second / 1024 / 1024
        return f"seconds are those of one core that reads {speed:.0f} MiB/s of row groups with all their columns"

    @property
    def bytes_saved(self) -> int:
        """About the bytes that a query would no longer read; negative if it would read more."""
        return self.today.bytes - self.what_if.bytes

    @property
    def seconds_saved(self) -> float:
        """About the seconds of one core that a query would save; negative if it would take longer."""
        return self.today.seconds - self.what_if.seconds

    @property
    def index_share(self) -> float:
        """The bytes of the indexes as a share of the data's."""
        return self.index_bytes / self.data_bytes if self.data_bytes else 0.0

    def rows(self) -> list[dict[str, object]]:
        """The answer as rows of a table: one for each state, in the order in which they are read."""
        return [
            {
                "state": reads.state,
                "row_groups": reads.row_groups.estimate,
                "row_groups_low": reads.row_groups.low,
                "row_groups_high": reads.row_groups.high,
                "bytes": reads.bytes,
                "seconds": reads.seconds,
                "index_bytes": self.index_bytes if reads is self.what_if else None,
                "build_seconds": self.build_seconds if reads is self.what_if else None,
                "verdict": self.verdict.text if reads is self.what_if else None,
                "reason": self.verdict.reason if reads is self.what_if else None,
                "source": self.source if reads is self.what_if else "counted",
            }
            for reads in (self.without_index, self.today, self.what_if)
        ]

    def describe(self) -> Report:
        """Describe the answer."""
        rows = [
            (
                reads.state,
                share_of(reads.row_groups.estimate, self.row_groups, f"{reads.row_groups} of {self.row_groups:,}"),
                format_bytes(reads.bytes),
                f"{reads.seconds:.2f} s",
            )
            for reads in (self.without_index, self.today, self.what_if)
        ]
        changes = [*(f"+{name}" for name in self.added), *(f"-{name}" for name in self.left_out)]
        facts: dict[str, Cell] = {
            "table": f"{self.table}, snapshot {self.snapshot_id}",
            "where": self.where,
            "index size": f"{format_bytes(self.index_bytes)}, {self.index_share:.1%} of the data",
            "build": f"some {self.build_seconds:.1f} s of one core" if self.added else "",
            "source": f"{self.source}; {self.assumption}",
        }
        title = f"what if {' '.join(changes)}: {self.verdict.text}, because {self.verdict.reason}"
        read = Grid(("", "row groups read", "bytes", "time"), rows)
        return Report(title, facts, (read,), [f"note: {warning}" for warning in self.warnings])

    def __str__(self) -> str:
        return self.describe().as_text()

    __repr__ = __str__


def what_if(
    index_or_table: TableIndex | Table,
    where: str,
    definition: IndexDefinition | Mapping[str, Iterable[str]] | None = None,
    *,
    without: Sequence[str] = (),
    sample: int | None = DEFAULT_SAMPLE,
    snapshot_id: int | None = None,
    bytes_per_second: float = DEFAULT_BYTES_PER_SECOND,
) -> WhatIf:
    """Say what a WHERE would read if indexes were added to a table, or left out. Nothing is changed.

    The ordinary build makes the indexes in a temporary folder, of a sample of the row groups that Iceberg's own pruning
    leaves, and the ordinary planner reads them.

    Args:
        index_or_table: The table, whether it has an index or not.
        where: SQL WHERE text.
        definition: The indexes to add: a definition, or columns by kind such as `{"bitmap": ["a"]}`.
        without: The existing indexes to leave out, as `column.kind`.
        sample: The most row groups to measure; None for all.
        snapshot_id: The snapshot, None for the current one.
        bytes_per_second: The reading speed of one core, by which bytes become seconds.

    Raises:
        WhereSyntaxError: If the text does not parse.
        NotFoundError: If the text names a column that the table lacks, or there is no such snapshot.
        DefinitionError: If a kind does not fit its column, the table lacks an index to leave out, or nothing is asked.
    """
    advised = AdvisedTable.of(index_or_table, snapshot_id)
    condition = read_where(where, advised.schema)
    question = Question.of(advised, condition, definition, without)
    scanned = advised.scanned(condition)
    kept_today = advised.plan(advised.view, condition, scanned.data_files).kept_mask
    measured = measure(advised, question, scanned, kept_today, sample)
    row_group_bytes = scanned.row_group_bytes

    def reads(state: str, row_groups: Range, size: float) -> Reads:
        return Reads(state, row_groups, round(size), size / bytes_per_second)

    kept_now = Range.exactly(int(np.count_nonzero(kept_today)))
    whole = float(row_group_bytes.sum())
    return WhatIf(
        table=advised.name,
        snapshot_id=advised.snapshot.snapshot_id if advised.snapshot else None,
        where=where,
        added=tuple(names_of(question.added).values()),
        left_out=question.hidden_names,
        row_groups=sum(max(1, len(own.file.split_offsets)) for own in advised.files),
        without_index=reads("without index", Range.exactly(len(scanned)), whole),
        today=reads("today", kept_now, float(row_group_bytes[kept_today].sum())),
        what_if=reads("what if", measured.kept, measured.kept_share * whole),
        sampled=measured.sampled,
        index_bytes=measured.index_bytes,
        data_bytes=advised.data_bytes,
        build_seconds=measured.build_seconds,
        verdict=measured.verdict,
        bytes_per_second=bytes_per_second,
        warnings=(*fit_warnings(question.added), *measured.warnings),
    )
