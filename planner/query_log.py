"""The query log, an object for each scan and each audit of a scan; and what indexes were good for, summed up from it.

The log is a folder of files of JSON lines, `2026-11-23-<session>.jsonl`, in UTC. The audits are in its folder `audits`.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pyiceberg.io import FileIO, load_file_io

from puffin_index.display import Cell, Described, Grid, Report, format_bytes, share_of
from puffin_index.errors import PuffinIndexError
from puffin_index.index_table.stored_files import list_stored_files
from puffin_index.table_index import TableIndex

_log = logging.getLogger(__name__)

AUDITS_FOLDER: Final = "audits"
SUFFIX: Final = ".jsonl"


class _Record(BaseModel):
    """A line of the log, with UTC and the table's name in Spark; readers ignore what later releases add."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    time: datetime
    table: str

    @property
    def day(self) -> date:
        """The day, in UTC."""
        return self.time.date()


class QueryRecord(_Record):
    """One scan of an indexed table, as it was planned; docs/monitoring.md (Query log) describes each field."""

    where: str
    row_groups: int
    kept_without_index: int
    kept: int
    bytes_without_index: int
    bytes_read: int
    index_bytes: int
    planning_seconds: float
    sources: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    answered: int
    continues: bool = False
    not_trusted: bool = False


class AuditMiss(BaseModel):
    """What an audit found wrong, with what it takes to see that again.

    Attributes:
        snapshot: The snapshot that was scanned; None for the current one.
        data_file: Its location; empty for a claim about several.
        row_group: Its ordinal in the data file; -1 for a claim about several.
        columns: The columns and kinds of index that decided.
        rows: The first of the rows in the row group that contradict the claim, from 0.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    claim: str
    found: str
    table: str
    snapshot: int | None
    data_file: str = ""
    row_group: int = -1
    columns: tuple[tuple[str, str], ...]
    segments: tuple[str, ...]
    where: str
    rows: tuple[int, ...] = ()

    def __str__(self) -> str:
        where = f", data file {self.data_file}, row group {self.row_group}, rows {list(self.rows)}"
        place = where if self.data_file else ""
        indexes = ", ".join(f"{column} ({kind})" for column, kind in self.columns) or "unknown"
        return (
            f"the index of {self.table} is wrong: it said {self.claim}, the data say {self.found}; "
            f"snapshot {self.snapshot}{place}; indexes: {indexes}; segments: {', '.join(self.segments) or 'unknown'}; "
            f"where {self.where}"
        )


class AuditRecord(_Record):
    """One audit of a scan: row groups that were checked, and those that could not be."""

    row_groups: int
    unchecked: int
    misses: tuple[AuditMiss, ...]


@dataclass(frozen=True, slots=True)
class QueryLog:
    """What a log has of one table, or of all tables."""

    queries: tuple[QueryRecord, ...]
    audits: tuple[AuditRecord, ...]


_AnyRecord = TypeVar("_AnyRecord", QueryRecord, AuditRecord)


def read_log(io: FileIO, location: str, table: str | None = None) -> QueryLog:
    """Read a log, of one table if a name is given: `namespace.table`, or the name in Spark with the catalog first.

    Lines that are no records are left out with a warning.
    """
    queries: list[QueryRecord] = []
    audits: list[AuditRecord] = []
    for file in list_stored_files(io, location):
        if not file.name.endswith(SUFFIX):
            continue
        with io.new_input(file.location).open() as stream:
            lines = stream.read().decode("utf-8", errors="replace").splitlines()
        if file.name.startswith(f"{AUDITS_FOLDER}/"):
            audits += _records(AuditRecord, lines, table, file.location)
        else:
            queries += _records(QueryRecord, lines, table, file.location)
    return QueryLog(tuple(sorted(queries, key=lambda one: one.time)), tuple(sorted(audits, key=lambda one: one.time)))


def _records(kind: type[_AnyRecord], lines: list[str], table: str | None, location: str) -> Iterator[_AnyRecord]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = kind.model_validate_json(line)
        except ValidationError as error:
            _log.warning("%s, line %d is no record and left out: %s", location, number, error)
            continue
        # The same table may have another catalog's name in Spark than in PyIceberg.
        if table is None or record.table == table or record.table.partition(".")[2] == table:
            yield record


DEFAULT_BYTES_PER_SECOND: Final = 100_000_000
"""Bytes of data files that a query is assumed to read in a second, all of its tasks together."""


_HEADERS: Final = (
    *("scans", "row groups", "dropped by default", "by index", "answered", "bytes saved", "index bytes"),
    "seconds saved",
)


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over some scans. A scan that keys of a join narrow once more counts once.

    Attributes:
        row_groups: Their row groups, after Iceberg's own pruning of partitions and files.
        dropped_by_default: Row groups that their statistics drop; indexes drop or answer more.
        bytes_without_index: What would have been read without an index, all columns of the row groups.
        seconds_saved: About how much shorter the queries were: the bytes at an assumed speed, less the planning.
    """

    scans: int
    row_groups: int
    dropped_by_default: int
    dropped_by_index: int
    answered: int
    bytes_without_index: int
    bytes_saved: int
    index_bytes: int
    planning_seconds: float
    seconds_saved: float


@dataclass(frozen=True, slots=True)
class Benefits(Described):
    """What the log says of the indexes of a table.

    Attributes:
        by_day: The sums of each day, in UTC.
        by_index: The sums of the scans in which a column's index of a kind decided something. A scan counts for each of
            them, so these sums overlap.
        unused: Columns and kinds of the table's index that no scan of the log used.
        scans_not_trusted: How many scans read everything because of the misses that audits found.
    """

    table: str
    total: Sums
    by_day: Mapping[date, Sums]
    by_index: Mapping[tuple[str, str], Sums]
    unused: tuple[tuple[str, str], ...]
    audits: int
    audited_row_groups: int
    misses: tuple[str, ...]
    scans_not_trusted: int
    bytes_per_second: int

    @property
    def assumption(self) -> str:
        """What the seconds rest on, as a sentence."""
        return (
            f"seen: {self.total.scans:,} scans on {len(self.by_day)} days; "
            f"seconds: {self.bytes_per_second / 1e6:g} MB of row groups a second, all columns, less the time of "
            "planning; row groups of data files without an index have no size here"
        )

    JSON = (
        *("table", "total", "by_day=days", "by_index=indexes", "unused=unused_by_name", "audits", "audited_row_groups"),
        *("misses", "scans_not_trusted", "bytes_per_second", "assumption"),
    )

    @property
    def days(self) -> list[dict[str, object]]:
        """The sums of each day, with the day."""
        return [{"day": day.isoformat(), **asdict(sums)} for day, sums in self.by_day.items()]

    @property
    def indexes(self) -> list[dict[str, object]]:
        """The sums of each index, with column and kind."""
        return [{"column": column, "kind": kind, **asdict(sums)} for (column, kind), sums in self.by_index.items()]

    @property
    def unused_by_name(self) -> list[dict[str, object]]:
        """Column and kind of each index that no query used."""
        return [{"column": column, "kind": kind} for column, kind in self.unused]

    def describe(self) -> Report:
        """Describe the benefits."""
        days = [("all", self.total), *((day.isoformat(), sums) for day, sums in self.by_day.items())]
        indexes = ((f"{column}.{kind}", sums) for (column, kind), sums in self.by_index.items())
        audits = (
            f"{self.audits} audits checked {self.audited_row_groups} row groups, {len(self.misses)} misses; "
            f"{self.scans_not_trusted} scans read everything because of a miss"
        )
        sentences = (
            *(f"no query used: {column}.{kind}" for column, kind in self.unused),
            audits,
            *(f"miss: {miss}" for miss in self.misses),
            self.assumption,
        )
        grids = (
            Grid(("day", *_HEADERS), [(name, *_cells(sums)) for name, sums in days]),
            Grid(("index", *_HEADERS), [(name, *_cells(sums)) for name, sums in indexes]),
        )
        return Report(f"what the indexes of {self.table} have saved", grids=grids, sentences=sentences)


def benefits(index: TableIndex, query_log: str, *, bytes_per_second: int = DEFAULT_BYTES_PER_SECOND) -> Benefits:
    """Sum up what the log has of a table, if a query reads this many bytes of row groups a second.

    Raises PuffinIndexError if the folder has nothing of the table.
    """
    log = read_log(load_file_io(dict(index.catalog.properties), query_log), query_log, index.name)
    if not log.queries and not log.audits:
        raise PuffinIndexError(f"{query_log} has no query of {index.name}: name the folder of the hook's query log")
    own = [(column.name, kind) for column in index.columns for kind in column.kinds]
    return sum_up(log, index.name, own, bytes_per_second)


def sum_up(
    log: QueryLog, table: str, indexes: Iterable[tuple[str, str]], bytes_per_second: int = DEFAULT_BYTES_PER_SECOND
) -> Benefits:
    """Sum up a log of one table, if a query reads this many bytes of row groups a second."""
    by_day: dict[date, list[QueryRecord]] = {}
    by_index: dict[tuple[str, str], list[QueryRecord]] = {}
    for record in log.queries:
        by_day.setdefault(record.day, []).append(record)
        for used in record.columns:
            by_index.setdefault(used, []).append(record)
    return Benefits(
        table=table,
        total=_sums(log.queries, bytes_per_second),
        by_day={day: _sums(records, bytes_per_second) for day, records in sorted(by_day.items())},
        by_index={used: _sums(records, bytes_per_second) for used, records in sorted(by_index.items())},
        unused=tuple(sorted(set(indexes) - set(by_index))),
        audits=len(log.audits),
        audited_row_groups=sum(audit.row_groups for audit in log.audits),
        misses=tuple(f"{audit.time:%Y-%m-%d %H:%M:%S}: {miss}" for audit in log.audits for miss in audit.misses),
        scans_not_trusted=sum(record.not_trusted for record in log.queries),
        bytes_per_second=bytes_per_second,
    )


def _cells(sums: Sums) -> tuple[Cell, ...]:
    return (
        sums.scans,
        sums.row_groups,
        share_of(sums.dropped_by_default, sums.row_groups, f"{sums.dropped_by_default:,}"),
        share_of(sums.dropped_by_index, sums.row_groups, f"{sums.dropped_by_index:,}"),
        sums.answered,
        share_of(sums.bytes_saved, sums.bytes_without_index, format_bytes(sums.bytes_saved)),
        format_bytes(sums.index_bytes),
        f"{sums.seconds_saved:,.1f}",
    )


def _sums(records: Iterable[QueryRecord], bytes_per_second: int) -> Sums:
    every = list(records)
    # What a scan would have read without an index counts once, however often its keys narrow it.
    scans = [one for one in every if not one.continues]
    saved = sum(one.bytes_without_index - one.bytes_read for one in every)
    planning = sum(one.planning_seconds for one in every)
    return Sums(
        scans=len(scans),
        row_groups=sum(one.row_groups for one in scans),
        dropped_by_default=sum(one.row_groups - one.kept_without_index for one in scans),
        dropped_by_index=sum(one.kept_without_index - one.kept for one in every),
        answered=sum(one.answered for one in every),
        bytes_without_index=sum(one.bytes_without_index for one in scans),
        bytes_saved=saved,
        index_bytes=sum(one.index_bytes for one in every),
        planning_seconds=round(planning, 3),
        seconds_saved=round(saved / bytes_per_second - planning, 3),
    )
