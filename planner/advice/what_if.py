"""What-if: measure what a WHERE would read with other indexes, before anybody builds or drops one.

All row groups are planned if indexes are only left out; a sample of them is indexed if some are added.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pyiceberg.table import Table

from planner.advice.advised_table import AdvisedTable
from planner.advice.candidates import find_named, names_of, tests_of
from planner.advice.sample import DEFAULT_SAMPLE, built_sample, choose
from planner.advice.verdict import (
    CONFIDENCE,
    Range,
    Verdict,
    note_on_row_groups,
    range_of,
    verdict_on_hidden,
    verdict_on_new,
)
from planner.condition.session_time import DEFAULT_ZONE, zone_named
from planner.condition.sql.parser import read_where
from planner.condition.tree.nodes import EVERY_ROW, Predicate
from planner.prune.verdicts import kept_mask
from planner.query_log import DEFAULT_BYTES_PER_SECOND
from puffin_index.definition.index_definition import (
    IndexDefinition,
    ResolvedColumn,
    fit_warnings,
    resolve,
    unite,
    without_indexes,
)
from puffin_index.display import Cell, Described, Grid, Report, format_bytes, share_of
from puffin_index.errors import DefinitionError
from puffin_index.keys.map_key import FieldKind
from puffin_index.storage.arrays import Floats
from puffin_index.table_index import TableIndex


@dataclass(frozen=True, slots=True)
class Reads:
    """What a query reads in a state (`without index`, `today` or `what if`), and about one core's seconds for that."""

    state: str
    row_groups: Range
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, repr=False)
class WhatIf(Described):
    """What a WHERE would read if indexes were added or left out, as `column.kind`. Nothing was changed.

    Attributes:
        without_index: What the query reads by Iceberg's own pruning alone.
        index_bytes: About the bytes of the indexes to add, for the whole table; less the bytes of those left out.
        build_seconds: About the seconds that one core takes to build the indexes to add for the whole table.
        bytes_per_second: The reading speed that `seconds` assume.
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
    JSON = ("*", "source", "assumption", "bytes_saved", "seconds_saved", "index_share")

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


def what_if(
    index_or_table: TableIndex | Table,
    where: str,
    definition: IndexDefinition | Mapping[str, Iterable[str]] | None = None,
    *,
    without: Sequence[str] = (),
    sample: int | None = DEFAULT_SAMPLE,
    snapshot_id: int | None = None,
    bytes_per_second: float = DEFAULT_BYTES_PER_SECOND,
    session_zone: str = DEFAULT_ZONE,
) -> WhatIf:
    """Say what a WHERE would read if indexes were added to a table, or left out. Nothing is changed.

    The ordinary build makes the indexes in a temporary folder, of a sample of the row groups that Iceberg's own pruning
    leaves, and the ordinary planner reads them.

    Args:
        definition: The indexes to add: a definition, or columns by kind such as `{"bitmap": ["a"]}`.
        without: The existing indexes to leave out, as `column.kind`.
        sample: The most row groups to measure; None for all.
        bytes_per_second: The reading speed of one core, by which bytes become seconds.
        session_zone: The time zone of timestamps that name none.

    Raises what `planner.plan` raises, and DefinitionError if a kind does not fit its column, the table lacks an index
    to leave out, or nothing is asked.
    """
    advised = AdvisedTable.of(index_or_table, snapshot_id)
    condition = read_where(where, advised.schema, zone_named(session_zone))
    if definition is None and not without:
        raise DefinitionError("name the indexes to add, or existing ones to leave out")
    hidden = find_named(without, advised.columns)
    if isinstance(definition, Mapping):
        definition = IndexDefinition.of(options=None, **definition)
    wanted = resolve(definition, advised.schema) if definition is not None else ()
    names = names_of(advised.columns)
    question = _Question(advised, condition, wanted, hidden)
    measured = question.measure(sample)
    whole = question.scanned.row_group_bytes
    today = question.kept_today

    def reads(state: str, row_groups: Range, size: float) -> Reads:
        return Reads(state, row_groups, round(size), size / bytes_per_second)

    return WhatIf(
        table=advised.name,
        snapshot_id=advised.snapshot.snapshot_id if advised.snapshot else None,
        where=where,
        added=tuple(names_of(question.added).values()),
        left_out=tuple(sorted(names[key] for key in hidden)),
        row_groups=sum(max(1, len(own.file.split_offsets)) for own in advised.files),
        without_index=reads("without index", Range.exactly(len(today)), float(whole.sum())),
        today=reads("today", Range.exactly(int(np.count_nonzero(today))), float(whole[today].sum())),
        what_if=reads("what if", measured.kept, measured.kept_share * float(whole.sum())),
        sampled=measured.sampled,
        index_bytes=measured.added_bytes - question.hidden_bytes,
        data_bytes=advised.data_bytes,
        build_seconds=measured.build_seconds,
        verdict=measured.verdict,
        bytes_per_second=bytes_per_second,
        warnings=(*fit_warnings(question.added), *measured.warnings),
    )


@dataclass(frozen=True, slots=True)
class _Measured:
    """The row groups that the query would read, and their share of the bytes that Iceberg's pruning leaves."""

    kept: Range
    kept_share: float
    verdict: Verdict
    sampled: int = 0
    added_bytes: int = 0
    build_seconds: float = 0.0
    warnings: tuple[str, ...] = ()


class _Question:
    """The indexes that a what-if adds and leaves out, and what the query reads today of what Iceberg leaves."""

    def __init__(
        self,
        advised: AdvisedTable,
        condition: Predicate,
        wanted: tuple[ResolvedColumn, ...],
        hidden: frozenset[FieldKind],
    ) -> None:
        there = advised.defined - hidden
        self.scanned = advised.scanned(condition)
        self.kept_today = advised.plan(advised.view, condition, self.scanned.data_files).kept_mask
        self.added = without_indexes(wanted, there)
        self.hidden_bytes = sum(size for key, size in advised.index_bytes().items() if key in hidden) if hidden else 0
        self._existing = ", ".join(name for key, name in names_of(wanted).items() if key in there)
        self._advised = advised
        self._condition = condition
        self._hidden = hidden

    def measure(self, sample: int | None) -> _Measured:
        """Measure what the query would read, on at most `sample` row groups if indexes are added; None for all."""
        return self._measure_added(sample) if self.added else self._measure_hidden()

    def _measure_hidden(self) -> _Measured:
        view = self._advised.view.only(self._advised.view.built - self._hidden)
        kept = self._advised.plan(view, self._condition, self.scanned.data_files).kept_mask
        before, after = int(np.count_nonzero(self.kept_today)), int(np.count_nonzero(kept))
        if self._hidden:
            verdict = verdict_on_hidden(before, Range.exactly(after - before))
        else:
            verdict = Verdict("do not build", f"the table has it already: {self._existing}")
        sizes = self.scanned.row_group_bytes
        return _Measured(Range.exactly(after), _share(sizes[kept], sizes), verdict, len(sizes))

    def _measure_added(self, sample: int | None) -> _Measured:
        tested = {leaf.field_id for leaf in tests_of(self._condition)}
        # An index may help only together with another one: the sample has today's indexes of the WHERE's columns, too.
        current = without_indexes(self._advised.columns, self._hidden)
        columns = unite(self.added, tuple(own for own in current if own.column_id in tested))
        # Of a query that has no row group left, the size of indexes is measured on others.
        scanned = self.scanned if len(self.scanned) else self._advised.scanned(EVERY_ROW)
        positions = choose(len(scanned), sample or len(scanned))
        with built_sample(self._advised, scanned, positions, columns) as built:
            reasons = built.reasons(self._condition)
            shares_left = built.shares_left(self._condition)
            added = names_of(self.added)
            added_bytes = built.table_bytes(added)
            # The time is shared out by rows and by the number of indexes.
            seconds = built.seconds * built.growth * len(added) / len(names_of(columns))
            warnings = [f"not indexed: {skipped.reason}" for skipped in built.skipped]
        if self._existing:
            warnings.append(f"the table has already: {self._existing}")
        if not len(self.scanned):
            verdict = Verdict("do not build", "Iceberg's own pruning leaves no row group to read")
            return _Measured(Range.exactly(0), 0.0, verdict, 0, added_bytes, seconds, tuple(warnings))
        total, sampled, today = len(scanned), len(positions), self.kept_today[positions]
        is_kept = kept_mask(reasons)
        kept = int(np.count_nonzero(is_kept))
        verdict = verdict_on_new(
            int(np.count_nonzero(self.kept_today)),
            range_of(max(0, int(np.count_nonzero(today)) - kept), sampled, total),
            reasons[is_kept],
            any(column.column_id in tested for column in self.added),
            {column.name for column in self.added if column.column_id not in tested},
        )
        sizes = scanned.row_group_bytes[positions]
        if note := note_on_row_groups(sizes, today, is_kept, shares_left):
            warnings.append(note)
        share = _share(sizes[is_kept], sizes)
        return _Measured(range_of(kept, sampled, total), share, verdict, sampled, added_bytes, seconds, tuple(warnings))


def _share(part: Floats, whole: Floats) -> float:
    return float(part.sum() / max(1.0, whole.sum()))
