"""`WhatIf`: what a question about an index is answered with."""

from __future__ import annotations

from dataclasses import dataclass

from planner.advice.interval import CONFIDENCE, Range
from planner.advice.verdict import Verdict
from puffin_index.display import Cell, Described, Grid, Report, format_bytes, share_of

DEFAULT_BYTES_PER_SECOND = 100 * 1024 * 1024
"""About what one core of Spark reads, decompresses and filters; an assumption that every answer states."""


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
