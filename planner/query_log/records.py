"""What the query log has: an object for each scan, and beside these an object for each audit of a scan.

The log is a folder of files of JSON lines, `2026-11-23-<session>.jsonl`, in UTC. The audits are in its folder `audits`.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pyiceberg.io import FileIO

from puffin_index.index_table.stored_files import list_stored_files

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
    """One scan of an indexed table, as it was planned; docs/operations.md (Query log) describes each field."""

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
        claim: What the index had said.
        found: What the data say.
        table: The table's name in Spark.
        snapshot: The snapshot that was scanned; None for the current one.
        data_file: The location of the data file; empty for a claim about several.
        row_group: The ordinal of the row group in the data file; -1 for a claim about several.
        columns: The columns and kinds of index that decided.
        where: What the query says about the rows, with literals.
        rows: The first of the rows in the row group that contradict the claim, from 0.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    claim: str
    found: str
    table: str
    snapshot: int | None
    data_file: str
    row_group: int
    columns: tuple[tuple[str, str], ...]
    segments: tuple[str, ...]
    where: str
    rows: tuple[int, ...] = ()

    def __str__(self) -> str:
        place = (
            f", data file {self.data_file}, row group {self.row_group}, rows {list(self.rows)}"
            if self.data_file
            else ""
        )
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
