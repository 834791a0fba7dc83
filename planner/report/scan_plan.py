"""The scan plan: whether each row group of a scan is kept, and why; the funnel of stages, and what planning cost."""

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np

from planner.condition.columns import Unused
from planner.condition.implied import Implied
from planner.prune.verdicts import Reason, Stage, kept_mask
from puffin_index.display import Cell, Described, Grid, Report, format_bytes, share_of
from puffin_index.storage.arrays import Bytes, Flags, Floats, Ints

_PLAN_BYTES = 2_048


@dataclass(frozen=True, slots=True)
class Split:
    """One row group of a scan: `kept` or `dropped`, the code of a `Reason`, and its matching rows where known."""

    data_file: str
    row_group: int
    verdict: str
    reason: str
    rows: int | None


@dataclass(frozen=True, slots=True, eq=False)
class PagesRead:
    """How much of a scan is read where some row groups are read by pages; a page has 20,000 rows here.

    Attributes:
        shares: For each row group the share of its pages that is read: 0 of a dropped one.
        row_groups: How many row groups are read by pages.
        pages_read: The pages that are read, those of whole row groups included.
        bytes_read: Their bytes, those of all columns, in proportion to the pages.
    """

    JSON: ClassVar = ("row_groups", "pages_read", "pages", "bytes_read", "bytes")

    shares: Floats
    row_groups: int
    pages_read: int
    pages: int
    bytes_read: int
    bytes: int

    def __str__(self) -> str:
        """Say how much is read."""
        read, whole = format_bytes(self.bytes_read), format_bytes(self.bytes)
        return f"{self.pages_read:,} of {self.pages:,} pages, {read} of {whole}"


@dataclass(frozen=True, slots=True, repr=False)
class ScanPlan(Described):
    """Which row groups of a scan are to be read.

    Attributes:
        file_of: For each row group its data file, as a number in `data_files`.
        ordinals: For each row group its ordinal in the data file.
        row_counts: For each row group its rows; 0 where they are not known (unindexed files).
        matches: For each row group its matching rows where they are known exactly, else -1.
        implied: What the rest of the query says about the rows, besides the predicate: keys of joins, first rows of an
            order; and in how many values of a column a function satisfies its condition.
        unused: Parts of the predicate that nothing was dropped by, with the reasons; only of a text.
        answered: What the index answers of the query's aggregates, as text; empty if the query wants rows.
        by_pages: How much is read, if only the pages with matching rows are read of some row groups.
        unlisted: How many row groups without an index the arrays leave out: Spark's hook only counts these.
    """

    table: str
    snapshot_id: int | None
    where: str
    data_files: tuple[str, ...]
    file_of: Ints
    ordinals: Ints
    row_counts: Ints
    reasons: Bytes
    matches: Ints
    funnel: tuple[Stage, ...]
    index_reads: int
    index_bytes_read: int
    planning_seconds: float
    warnings: tuple[str, ...] = ()
    unlisted: int = 0
    unlisted_files: int = 0
    answered: str = ""
    implied: tuple[Implied, ...] = ()
    unused: tuple[Unused, ...] = ()
    by_pages: PagesRead | None = None

    JSON = (
        *("table", "snapshot_id", "where", "answered", "implied", "unused", "row_groups", "kept", "dropped"),
        *("unindexed", "staleness", "late", "kept_rows", "reasons=reason_counts", "funnel=stages", "index_reads"),
        *("index_bytes_read", "planning_seconds", "by_pages", "warnings", "splits"),
    )

    def __repr__(self) -> str:
        return f"ScanPlan({self.table} where {shortened(self.where)}: {self.summary})"

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes, without the locations of data files, which many plans share."""
        arrays = (self.file_of, self.ordinals, self.row_counts, self.reasons, self.matches)
        shares = 0 if self.by_pages is None else self.by_pages.shares.nbytes
        texts = (self.where, self.answered, *(one.text for one in self.implied))
        return _PLAN_BYTES + shares + sum(array.nbytes for array in arrays) + sum(map(len, texts))

    @property
    def location_bytes(self) -> int:
        """The approximate memory of the locations of data files in bytes, as if all were as long as the first."""
        first = sys.getsizeof(self.data_files[0]) if self.data_files else 0
        return sys.getsizeof(self.data_files) + len(self.data_files) * first

    @property
    def summary(self) -> str:
        """How much is read, in a line."""
        kept = f"{self.kept} of {self.row_groups} row groups kept"
        return ", ".join(filter(None, (kept, str(self.by_pages or ""), f"{self.unindexed} not indexed")))

    @property
    def note(self) -> str:
        """What the descriptions of a query's jobs say."""
        if self.answered:
            return f"puffin-index: {self.answered} of {self.table}"
        note = f"puffin-index: {self.kept} of {self.row_groups} row groups of {self.table}"
        return ", ".join(filter(None, (note, str(self.by_pages or ""), self.staleness, self.late)))

    def describe(self) -> Report:
        """Describe the plan."""
        facts: dict[str, Cell] = {
            "snapshot": str(self.snapshot_id),
            "where": self.where,
            "answered": self.answered,
            "row groups kept": share_of(self.kept, self.row_groups),
            "not indexed": f"{self.unindexed} ({self.staleness})" if self.staleness else self.unindexed,
            "rows kept": self.kept_rows,
            "by pages": f"{self.by_pages.row_groups} row groups: {self.by_pages}" if self.by_pages else "",
            "index read": f"{format_bytes(self.index_bytes_read)} in {self.index_reads} reads",
            "planning": f"{self.planning_seconds * 1000:.0f} ms{f'; {self.late}' if self.late else ''}",
        }
        counts = [(code, "dropped" if Reason.of(code).drops else "kept", n) for code, n in self.reason_counts().items()]
        sentences = (
            *(f"implied by {implied}" for implied in self.implied),
            *(f"not used: {unused}" for unused in self.unused),
        )
        return Report(
            f"{self.table}: {self.summary}",
            facts,
            (self._funnel(), Grid(("reason", "", "row groups"), counts)),
            sentences,
            self.warnings,
        )

    def _funnel(self) -> Grid:
        left = self.row_groups
        rows: list[tuple[Cell, ...]] = []
        for stage in self.funnel:
            left -= stage.dropped
            bytes_read, took = format_bytes(stage.bytes_read), f"{stage.seconds * 1000:.1f}"
            share = share_of(left, self.row_groups, f"{left:,}")
            rows.append((stage.name, share, stage.dropped, stage.reads, bytes_read, took))
        return Grid(("stage", "row groups left", "dropped", "reads", "read", "ms"), rows)

    @property
    def stages(self) -> dict[str, dict[str, float]]:
        """The numbers of each stage by its name."""
        return {
            stage.name: {name: value for name, value in asdict(stage).items() if name != "name"}
            for stage in self.funnel
        }

    @property
    def row_groups(self) -> int:
        """Row groups of the scan, after Iceberg's own pruning of partitions and files."""
        return len(self.reasons) + self.unlisted

    @property
    def kept_mask(self) -> Flags:
        """Which row groups are read."""
        return kept_mask(self.reasons)

    @property
    def shares_read(self) -> Floats:
        """The share of each row group that is read."""
        return self.kept_mask.astype(np.float64) if self.by_pages is None else self.by_pages.shares

    @property
    def kept(self) -> int:
        """Row groups that are read, unindexed ones included."""
        return int(self.kept_mask.sum()) + self.unlisted

    @property
    def dropped(self) -> int:
        """Row groups that are not read."""
        return self.row_groups - self.kept

    @property
    def unindexed(self) -> int:
        """Kept row groups of data files without an index."""
        return int((self.reasons == Reason.UNINDEXED).sum()) + self.unlisted

    @property
    def staleness(self) -> str:
        """How many files of the scan have an index, and what helps, as a sentence; empty if all have one."""
        if not self.unindexed:
            return ""
        is_unindexed = self.reasons == Reason.UNINDEXED
        indexed = len(np.unique(self.file_of[~is_unindexed]))
        files = indexed + len(np.unique(self.file_of[is_unindexed])) + self.unlisted_files
        return f"{indexed} of {files} files {'is' if indexed == 1 else 'are'} indexed: run `puffin-index build`"

    @property
    def late(self) -> str:
        """How many row groups nobody could judge in time, as a sentence; empty if there was time for all."""
        left = int((self.reasons == Reason.TIME_BUDGET).sum())
        return f"the time was over, {left} of {self.row_groups} row groups were left" if left else ""

    @property
    def kept_rows(self) -> int:
        """Rows of the kept row groups of indexed files."""
        return int(self.row_counts[self.kept_mask].sum())

    @property
    def splits(self) -> Iterator[Split]:
        """Every row group with its verdict."""
        for at in range(len(self.reasons)):
            reason = Reason(int(self.reasons[at]))
            yield Split(
                self.data_files[self.file_of[at]],
                int(self.ordinals[at]),
                "dropped" if reason.drops else "kept",
                reason.code,
                int(self.matches[at]) if self.matches[at] >= 0 else None,
            )

    def reason_counts(self) -> dict[str, int]:
        """How many row groups have each reason."""
        values, counts = np.unique(self.reasons, return_counts=True)
        return {Reason(int(value)).code: int(count) for value, count in zip(values, counts, strict=True)}


def shortened(text: str, most: int = 200) -> str:
    """The beginning of a long text."""
    return text if len(text) <= most else f"{text[:most]}…"


class ScanPlans(list[ScanPlan], Described):
    """Scan plans in the order in which they were made."""

    def describe(self) -> Report:
        """Describe the plans, one a row."""
        rows = [
            (
                plan.table,
                shortened(plan.answered or plan.where),
                share_of(plan.kept, plan.row_groups),
                format_bytes(plan.index_bytes_read),
                f"{plan.planning_seconds * 1000:.0f}",
                len(plan.warnings),
            )
            for plan in self
        ]
        headers = ("table", "where", "row groups kept", "index read", "ms", "warnings")
        return Report(f"{len(self)} scans, oldest first", grids=(Grid(headers, rows),))
