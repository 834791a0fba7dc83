"""What-if: measure what a WHERE would read with other indexes, before anybody builds or drops one.

All row groups are planned if indexes are only left out; a sample of them is indexed if some are added.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from pyiceberg.table import Table

from planner.advice.advised_table import AdvisedTable, Scanned
from planner.advice.candidates import find_named, names_of, tests_of
from planner.advice.sample import DEFAULT_SAMPLE, built_sample, choose
from planner.advice.verdict import CONFIDENCE, Range, Verdict, range_of, verdict_on_hidden, verdict_on_new
from planner.condition.session_time import DEFAULT_ZONE, zone_named
from planner.condition.sql.parser import read_where
from planner.condition.tree.nodes import EVERY_ROW, Predicate
from planner.prune.few_rows import MOST_PAGES
from planner.query_log import DEFAULT_BYTES_PER_SECOND
from puffin_index.definition import index_definition
from puffin_index.definition.index_definition import IndexDefinition, ResolvedColumn
from puffin_index.display import Cell, Described, Grid, Report, format_bytes, share_of
from puffin_index.errors import DefinitionError
from puffin_index.keys.map_key import PARTS, Contents, MapKey
from puffin_index.storage.arrays import Bytes, Floats, Ints
from puffin_index.table_index import TableIndex

_SAVED_SHARE: Final = 1 - MOST_PAGES
"""A row group counts as saved if at least this share of it is not read. One that is read by pages does."""


@dataclass(frozen=True, slots=True)
class Reads:
    """What Spark reads of a query in a state (`without index`, `today` or `what if`), and about one core's seconds.

    Of a row group with few matching rows, Spark reads the pages that have them.
    """

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
    wanted = index_definition.resolve(definition, advised.schema) if definition is not None else ()
    there, names = advised.defined - hidden, names_of(advised.columns)
    added = index_definition.without_indexes(wanted, there)
    existing = ", ".join(name for key, name in names_of(wanted).items() if key in there)
    scanned = advised.scanned(condition)
    whole, total = scanned.row_group_bytes, len(scanned)
    today = advised.plan(advised.view, condition, scanned.data_files).shares_read
    before = int(np.count_nonzero(today))
    tested = {leaf.field_id for leaf in tests_of(condition)}
    # A key of a map is looked up among all keys and values as well.
    tested |= {Contents(one.field_id, part) for one in tested if isinstance(one, MapKey) for part in PARTS}
    if added:
        # An index may help only together with another one: the sample has today's indexes of the WHERE's columns, too.
        beside = (own for own in index_definition.without_indexes(advised.columns, hidden) if own.column_id in tested)
        measured = _sampled(advised, condition, scanned, added, tuple(beside), sample)
    else:
        view = advised.view.only(advised.view.built - hidden)
        plan = advised.plan(view, condition, scanned.data_files)
        measured = _Measured(np.arange(total), plan.reasons, plan.shares_read)
    shares, sizes, read_today = measured.shares, whole[measured.positions], today[measured.positions]
    kept, warnings = shares > 0, [*index_definition.fit_warnings(added), *measured.warnings]
    left = int(np.count_nonzero(kept))
    fewer, more = (int(np.count_nonzero(sign * (read_today - shares) >= _SAVED_SHARE)) for sign in (1, -1))
    if added:
        saved = range_of(fewer, len(kept), total)
        untested = {column.name for column in added if column.column_id not in tested}
        verdict = verdict_on_new(total, before, saved, measured.reasons[kept], len(untested) < len(added), untested)
        warnings += [f"the table has already: {existing}"] if existing else []
    elif hidden:
        verdict = verdict_on_hidden(before, Range.exactly(more))
    else:
        verdict = Verdict("do not build", f"the table has it already: {existing}")

    def reads(state: str, row_groups: Range, size: float) -> Reads:
        return Reads(state, row_groups, round(size), size / bytes_per_second)

    hidden_bytes = sum(size for key, size in advised.index_bytes().items() if key in hidden) if hidden else 0
    share_left = float((sizes * shares).sum() / max(1.0, sizes.sum()))
    return WhatIf(
        table=advised.name,
        snapshot_id=advised.snapshot.snapshot_id if advised.snapshot else None,
        where=where,
        added=tuple(names_of(added).values()),
        left_out=tuple(sorted(names[key] for key in hidden)),
        row_groups=sum(max(1, len(own.file.split_offsets)) for own in advised.files),
        without_index=reads("without index", Range.exactly(total), float(whole.sum())),
        today=reads("today", Range.exactly(before), float((whole * today).sum())),
        what_if=reads("what if", range_of(left, len(kept), total), share_left * float(whole.sum())),
        sampled=len(kept),
        index_bytes=measured.added_bytes - hidden_bytes,
        data_bytes=advised.data_bytes,
        build_seconds=measured.build_seconds,
        verdict=verdict,
        bytes_per_second=bytes_per_second,
        warnings=tuple(warnings),
    )


@dataclass(frozen=True, slots=True)
class _Measured:
    """Why row groups at some positions are read or not, which shares of them, and what new indexes take."""

    positions: Ints
    reasons: Bytes
    shares: Floats
    added_bytes: int = 0
    build_seconds: float = 0.0
    warnings: tuple[str, ...] = ()


def _sampled(
    advised: AdvisedTable,
    condition: Predicate,
    scanned: Scanned,
    added: tuple[ResolvedColumn, ...],
    beside: tuple[ResolvedColumn, ...],
    sample: int | None,
) -> _Measured:
    """Measure new indexes beside existing ones on at most `sample` row groups; None for all."""
    columns = index_definition.unite(added, beside)
    # Of a query that has no row group left, the size of indexes is measured on others.
    tried = scanned if len(scanned) else advised.scanned(EVERY_ROW)
    positions = choose(len(tried), sample or len(tried))
    with built_sample(advised, tried, positions, columns) as built:
        reasons, shares = built.plan(condition)
        return _Measured(
            positions[: len(scanned)],
            reasons[: len(scanned)],
            shares[: len(scanned)],
            built.table_bytes(names_of(added)),
            # The time is shared out by rows and by the number of indexes.
            built.seconds * built.growth * len(names_of(added)) / len(names_of(columns)),
            tuple(f"not indexed: {skipped.reason}" for skipped in built.skipped),
        )
