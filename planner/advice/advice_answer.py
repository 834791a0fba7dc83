"""`Advice`: which indexes a workload is worth, which existing ones it does not use, and the statements to run."""

import re
from dataclasses import dataclass

from planner.advice.verdict import CONFIDENCE, range_of
from planner.condition.as_sql import name_text, quoted
from planner.report.scan_plan import shortened
from puffin_index.display import Bar, Cell, Described, Grid, Report, format_bytes
from puffin_index.keys.map_key import split_name

_SHOWN = 10


def create_index(table: str, column: str, kind: str) -> str:
    """Return the statement that creates the index of a column of `catalog.namespace.table`, or of `map#k#key`."""
    name, key, part = split_name(column)
    index = re.sub(r"\W+", "_", f"{column}_{kind}")
    option = "" if key is None else f" OPTIONS (key = {quoted(key)})"
    option = option if part is None else f" OPTIONS (content = {quoted(part)})"
    target, path = (name_text(text.split(".")) for text in (table, name))
    return f"CREATE INDEX {name_text([index])} ON {target} USING {kind} ({path}{option})"


@dataclass(frozen=True, slots=True)
class AdvisedIndex:
    """What the workload says of an index.

    Attributes:
        action: `create` or `keep` for the proposals; `unused` for an existing index that the workload does not need;
            `do not build` for any other candidate.
        column: The column; `map#k#key` for a key of a map.
        index_bytes: Its bytes, estimated where it does not exist yet; None where they were not measured.
        bytes_saved: The bytes that the workload would read more without it, beside the other proposals; for an index
            that is not proposed, the bytes that it would save without the proposals.
        share_saved: The same as a share of what the workload reads without any index.
        reason: The queries that it helps most, or why it is not proposed.
    """

    action: str
    column: str
    kind: str
    index_bytes: int | None
    bytes_saved: int
    share_saved: float
    reason: str
    build_seconds: float = 0.0
    statement: str | None = None


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Advice(Described):
    """What a workload is worth in indexes. Nothing was created unless `created` says so.

    Attributes:
        table: `catalog.namespace.table`.
        queries: The distinct ones among them that an index could help.
        bytes_read: The bytes that these read without any index, in all.
        index_bytes: The bytes of the proposals, those to keep included.
        indexes: The proposals, those that save most first; then unused indexes; then the other candidates.
        warnings: What could not be read, and what else to know, as sentences.
    """

    table: str
    snapshot_id: int | None
    scans: int
    queries: int
    bytes_read: int = 0
    bytes_saved: int = 0
    data_bytes: int
    budget_bytes: int
    index_bytes: int = 0
    indexes: tuple[AdvisedIndex, ...] = ()
    sampled: int
    row_groups: int
    created: bool = False
    warnings: tuple[str, ...] = ()
    JSON = ("*", "share_saved", "source", "statements")

    @property
    def proposals(self) -> tuple[AdvisedIndex, ...]:
        """The indexes to create or to keep."""
        return self._with("create", "keep")

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
        return tuple(own.statement for own in self.indexes if own.statement is not None)

    def _with(self, *actions: str) -> tuple[AdvisedIndex, ...]:
        return tuple(own for own in self.indexes if own.action in actions)

    def describe(self) -> Report:
        """Describe the advice."""
        rejected = self._with("do not build")
        shown = (*self.proposals, *self._with("unused"), *rejected[:_SHOWN])
        rows = [
            (
                own.action,
                f"{own.column}.{own.kind}",
                Bar(f"{format_bytes(own.bytes_saved)} ({own.share_saved:.0%})", own.share_saved),
                "" if own.index_bytes is None else format_bytes(own.index_bytes),
                f"some {own.build_seconds:.1f} s" if own.build_seconds else "",
                shortened(own.reason),
            )
            for own in shown
        ]
        facts: dict[str, Cell] = {
            "advice": self._summary(),
            "scans": f"{self.scans:,}; {self.queries:,} distinct ones could use an index and read "
            f"{format_bytes(self.bytes_read)} in all",
        }
        run = () if self.created else (f"{one};" for one in self.statements)
        sentences = (
            *_more(len(rejected), "that are not worth while"),
            f"source: {self.source}",
            *(f"note: {shortened(warning)}" for warning in self.warnings[:_SHOWN]),
            *_more(len(self.warnings), "notes, in the JSON"),
            *run,
        )
        grid = Grid(("", "index", "saves", "size", "to build", "queries or reason"), rows)
        return Report(f"{self.table}, snapshot {self.snapshot_id}", facts, (grid,), sentences)

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
