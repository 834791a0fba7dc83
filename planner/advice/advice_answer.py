"""`Advice`: which indexes a workload is worth, which existing ones it does not use, and the statements to run.

Statements and commands that create indexes, as text to copy.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from planner.advice.verdict import CONFIDENCE, range_of
from puffin_index.display import Bar, Cell, Described, Grid, Report, format_bytes
from puffin_index.keys.map_key import split_name
from puffin_index.kinds.registry import KINDS

_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one table.

    Attributes:
        table: `catalog.namespace.table`.
    """

    table: str

    def create_index(self, column: str, kind: str) -> str:
        """Return the statement that creates the index of a column, or of `map#k#key`."""
        name, key = split_name(column)
        index = re.sub(r"\W+", "_", f"{column}_{kind}")
        option = "" if key is None else f" OPTIONS (key = {_quoted_text(key)})"
        path = ".".join(map(_quoted, name.split(".")))
        return f"CREATE INDEX {_quoted(index)} ON {self._quoted_table} USING {kind} ({path}{option})"

    def create_command(self, indexes: Iterable[tuple[str, str]]) -> str:
        """Return the command line that defines indexes, given as column and kind."""
        by_kind: dict[str, list[str]] = {kind: [] for kind in KINDS}
        for column, kind in indexes:
            by_kind[kind].append(column)
        options = (f"--{kind} {shlex.quote(','.join(columns))}" for kind, columns in by_kind.items() if columns)
        return " ".join(["puffin-index create", shlex.quote(self.table), *options])

    @property
    def _quoted_table(self) -> str:
        return ".".join(map(_quoted, self.table.split(".")))


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _quoted_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_SHOWN = 10
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Evidence:
    """A query that an index helps.

    Attributes:
        where: Its WHERE.
        times: How often it was asked.
        bytes_saved: The bytes that it would read more without the index, in all times together.
    """

    where: str
    times: int
    bytes_saved: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """An index to create or to keep.

    Attributes:
        column: The column; `map#k#key` for a key of a map.
        kind: The kind.
        action: `create` or `keep`.
        index_bytes: Its bytes; estimated where it does not exist yet.
        build_seconds: About the seconds that one core takes to build it; 0 for an existing one.
        bytes_saved: The bytes that the workload would read more without it, beside the other proposals.
        share_saved: The same as a share of what the workload reads without any index.
        alone_bytes_saved: The bytes that it saves without the other proposals.
        evidence: The queries that it helps most.
        note: What else to know, as a sentence; empty mostly.
    """

    column: str
    kind: str
    action: str
    index_bytes: int
    build_seconds: float
    bytes_saved: int
    share_saved: float
    alone_bytes_saved: int
    evidence: tuple[Evidence, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Rejected:
    """An index that is not proposed, or an existing one that the workload does not need.

    Attributes:
        column: The column; `map#k#key` for a key of a map.
        kind: The kind.
        index_bytes: Its bytes; None where they were not measured.
        alone_bytes_saved: The bytes that it would save without the proposals.
        reason: Why, as a sentence without a full stop.
    """

    column: str
    kind: str
    index_bytes: int | None
    alone_bytes_saved: int
    reason: str


@dataclass(frozen=True, slots=True, repr=False)
class Advice(Described):
    """What a workload is worth in indexes. Nothing was created unless `created` says so.

    Attributes:
        table: `catalog.namespace.table`.
        snapshot_id: The snapshot; None for an empty table.
        scans: The scans of the table that were looked at.
        queries: The distinct ones among them that an index could help.
        bytes_read: The bytes that these read without any index, in all.
        bytes_saved: The bytes that the proposals save of them.
        data_bytes: The bytes of the table's data files.
        budget_bytes: The most that indexes may take.
        index_bytes: The bytes of the proposals, those to keep included.
        proposals: The indexes to create or to keep; those that save most come first.
        unused: Existing indexes that the workload does not need.
        rejected: Candidates that are not proposed.
        sampled: The row groups that were measured.
        row_groups: The row groups of the table.
        created: Whether the definition of the table now has the proposals.
        warnings: What could not be read, and what else to know, as sentences.
    """

    table: str
    snapshot_id: int | None
    scans: int
    queries: int
    bytes_read: int
    bytes_saved: int
    data_bytes: int
    budget_bytes: int
    index_bytes: int
    proposals: tuple[Proposal, ...]
    unused: tuple[Rejected, ...]
    rejected: tuple[Rejected, ...]
    sampled: int
    row_groups: int
    created: bool = False
    warnings: tuple[str, ...] = ()
    _kept: tuple[tuple[str, str], ...] = ()
    JSON = (
        *("table", "snapshot_id", "scans", "queries", "bytes_read", "bytes_saved", "data_bytes", "budget_bytes"),
        *("index_bytes", "proposals", "unused", "rejected", "sampled", "row_groups", "created", "warnings"),
        *("share_saved", "source", "statements", "command"),
    )

    @property
    def share_saved(self) -> float:
        """The share of the bytes that the proposals save."""
        return self.bytes_saved / self.bytes_read if self.bytes_read else 0.0

    @property
    def source(self) -> str:
        """Where the numbers come from: `measured on n of N row groups`, how many scans, and how sure they are."""
        measured = f"measured on {self.sampled:,} of {self.row_groups:,} row groups for {self.scans:,} scans"
        if self.sampled >= self.row_groups or not self.bytes_read:
            return measured
        # As if row groups had equal bytes.
        saved = range_of(round(self.share_saved * self.sampled), self.sampled, self.row_groups)
        low, high = saved.low / self.row_groups, saved.high / self.row_groups
        return f"{measured}; by this sample {low:.0%} to {high:.0%} are saved with {CONFIDENCE:.0%} confidence"

    @property
    def statements(self) -> tuple[str, ...]:
        """The SQL statements that create the proposals."""
        names = Names(self.table)
        return tuple(names.create_index(own.column, own.kind) for own in self.proposals if own.action == "create")

    @property
    def command(self) -> str:
        """The command that defines existing indexes and proposals, as a line for a shell; empty without new ones."""
        new = [(own.column, own.kind) for own in self.proposals if own.action == "create"]
        return Names(self.table).create_command([*self._kept, *new]) if new else ""

    def rows(self) -> list[dict[str, object]]:
        """The advice as rows of a table: proposals, then unused indexes, then rejected candidates."""
        names = Names(self.table)
        proposals: list[dict[str, object]] = [
            {
                "action": own.action,
                "column": own.column,
                "kind": own.kind,
                "index_bytes": own.index_bytes,
                "bytes_saved": own.bytes_saved,
                "share_saved": own.share_saved,
                "reason": own.note or "; ".join(f"{one.times} x {one.where}" for one in own.evidence),
                "statement": names.create_index(own.column, own.kind) if own.action == "create" else None,
            }
            for own in self.proposals
        ]
        others: list[dict[str, object]] = [
            {
                "action": action,
                "column": own.column,
                "kind": own.kind,
                "index_bytes": own.index_bytes,
                "bytes_saved": own.alone_bytes_saved,
                "share_saved": own.alone_bytes_saved / self.bytes_read if self.bytes_read else 0.0,
                "reason": own.reason,
                "statement": None,
            }
            for action, group in (("unused", self.unused), ("do not build", self.rejected))
            for own in group
        ]
        return [*proposals, *others]

    def describe(self) -> Report:
        """Describe the advice."""
        proposals = [
            (
                own.action,
                f"{own.column}.{own.kind}",
                Bar(f"{format_bytes(own.bytes_saved)} ({own.share_saved:.0%})", own.share_saved),
                format_bytes(own.index_bytes),
                f"some {own.build_seconds:.1f} s" if own.action == "create" else "",
                _shortened(own.note or "; ".join(f"{one.times} x WHERE {one.where}" for one in own.evidence)),
            )
            for own in self.proposals
        ]
        others = [
            (
                action,
                f"{own.column}.{own.kind}",
                "" if own.index_bytes is None else format_bytes(own.index_bytes),
                own.reason,
            )
            for action, group in (("unused", self.unused), ("do not build", self.rejected[:_SHOWN]))
            for own in group
        ]
        facts: dict[str, Cell] = {
            "advice": self._summary(),
            "scans": f"{self.scans:,}, of which {self.queries:,} distinct ones could use an index and read "
            f"{format_bytes(self.bytes_read)} in all",
        }
        grids = (
            Grid(("", "index", "saves", "size", "to build", "evidence"), proposals),
            Grid(("", "index", "size", "reason"), others),
        )
        run = (*(f"{one};" for one in self.statements), self.command) if self.statements and not self.created else ()
        sentences = (
            *_more(len(self.rejected), "that are not worth while"),
            f"source: {self.source}",
            *(f"note: {_shortened(warning)}" for warning in self.warnings[:_SHOWN]),
            *_more(len(self.warnings), "notes, in the JSON"),
            *run,
        )
        return Report(f"{self.table}, snapshot {self.snapshot_id}", facts, grids, sentences)

    def __str__(self) -> str:
        return self.describe().as_text()

    __repr__ = __str__

    def _summary(self) -> str:
        budget = f"{format_bytes(self.budget_bytes)} ({self._share(self.budget_bytes)} of the data)"
        if not self.proposals:
            return f"create nothing: no index within {budget} saves anything to speak of"
        verb = "created" if self.created else "proposed"
        return (
            f"{verb}: {len(self.proposals)} indexes of {format_bytes(self.index_bytes)} "
            f"({self._share(self.index_bytes)} of the data) within {budget} save {format_bytes(self.bytes_saved)} "
            f"({self.share_saved:.0%})"
        )

    def _share(self, size: int) -> str:
        return f"{size / self.data_bytes:.1%}" if self.data_bytes else "0%"


def _more(count: int, what: str) -> tuple[str, ...]:
    return (f"and {count - _SHOWN} more {what}",) if count > _SHOWN else ()


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
