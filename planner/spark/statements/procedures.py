"""The procedures of `puffin.system`: one entry of `PROCEDURES` each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from planner.arrow.plan import plan
from planner.condition.iceberg_filters import file_filter
from planner.condition.sql.parser import read_where
from planner.spark.statements.advice_procedures import ADVICE_PROCEDURES
from planner.spark.statements.procedure import Parameter, Procedure, ResultColumn, Row
from planner.spark.statements.session import StatementSession
from puffin_index.data.data_table import find_snapshot
from puffin_index.errors import DefinitionError, NotFoundError
from puffin_index.index_table.status import BuildScope
from puffin_index.jobs.build_job import BuildHandle
from puffin_index.jobs.drop import drop_index
from puffin_index.jobs.verify import DEFAULT_SAMPLE
from puffin_index.keys.map_key import SEPARATOR, split_kind
from puffin_index.table_index import TableIndex
from puffin_index.units import parse_duration, parse_size


def _build(
    session: StatementSession,
    table: str,
    mode: str,
    where: str | None,
    ref: str | None,
    snapshot_id: int | None,
    max_files: int | None,
) -> Iterable[Row]:
    found = session.table(table)
    index = TableIndex.open_or_define(found.catalog, found.name)
    schema = index.data_table.schema()
    row_filter = None if where is None else file_filter(read_where(where, schema), schema)
    scope = BuildScope(snapshot_id, ref, row_filter, max_files)
    match mode:
        case "sync":
            report = session.builds.run(found, index, session.spark, scope)
            yield (
                "done",
                report.files,
                report.rows,
                report.row_groups,
                report.segments,
                report.index_bytes,
                report.files_left,
                _rounded(report.seconds),
                _sentences([*(f"{file.path}: {file.reason}" for file in report.skipped), *report.warnings]),
            )
        case "async":
            handle = session.builds.start(found, index, session.spark, scope)
            yield (handle.status(), *(None,) * 8)
        case _:
            raise DefinitionError(f"mode cannot be {mode!r}; there are: sync, async")


def _status(session: StatementSession, table: str) -> Iterable[Row]:
    found = session.table(table)
    index = found.index()
    status = index.status()
    handle = session.builds.latest(found)
    yield (
        status.table,
        status.index_table,
        status.snapshot_id,
        status.data_files,
        status.indexed_data_files,
        status.row_groups,
        status.indexed_row_groups,
        status.segments,
        status.live_index_bytes,
        status.total_index_bytes,
        status.data_bytes,
        status.unindexed_bytes,
        status.snapshots_behind,
        None if handle is None else _state(handle),
        _sentences([*status.outdated, *status.left_out, *index.warnings]),
    )


def _state(handle: BuildHandle) -> str:
    state = handle.status()
    return f"{state}: {handle.error}" if state == "failed" else state


def _indexes(session: StatementSession, table: str) -> Iterable[Row]:
    index = session.table(table).index()
    status = {column.name: column for column in index.status().columns}
    options = {
        (column.field_id, column.stored_kind(kind)): (column.name, column.kinds[kind])
        for column in index.columns
        for kind in column.kinds
    }
    for named in index.names:
        for field_id, stored in sorted(named.indexes):
            kind = split_kind(field_id, stored)[1]
            # A column that was dropped keeps its indexes for older snapshots.
            name, own = options.get((field_id, stored), (None, {}))
            sizes = status[name].live_kinds if name in status else {}
            column, _, key = (name or "").partition(SEPARATOR)
            yield (
                named.name,
                kind,
                column or None,
                key or None,
                field_id,
                ", ".join(f"{option}={value}" for option, value in sorted(own.items())) or None,
                sizes.get(kind, 0),
                named.is_given,
            )


def _explain(
    session: StatementSession, table: str, where: str, ref: str | None, snapshot_id: int | None
) -> Iterator[Row]:
    index = session.table(table).index()
    if ref is not None:
        snapshot = find_snapshot(index.data_table, ref=ref)
        snapshot_id = None if snapshot is None else snapshot.snapshot_id
    planned = plan(index, where, snapshot_id)
    yield ("row groups of the scan", planned.row_groups, None, None, None, None)
    for stage in planned.funnel:
        yield (stage.name, stage.entered, stage.dropped, stage.reads, stage.bytes_read, _rounded(stage.seconds))
    seconds = _rounded(planned.planning_seconds)
    yield ("kept", planned.kept, planned.dropped, planned.index_reads, planned.index_bytes_read, seconds)
    yield ("not indexed", planned.unindexed, None, None, None, None)
    if planned.staleness:
        yield (planned.staleness, None, None, None, None, None)
    for warning in planned.warnings:
        yield (f"warning: {warning}", None, None, None, None, None)


def _compact(session: StatementSession, table: str, target_size: str) -> Iterable[Row]:
    report = session.table(table).index().compact(parse_size(target_size))
    skipped = _sentences([f"{segment}: {reason}" for segment, reason in report.skipped])
    yield (
        report.segments_before,
        report.segments_after,
        report.rewritten,
        report.segments,
        report.index_bytes,
        _rounded(report.seconds),
        skipped,
    )


def _expire(session: StatementSession, table: str, older_than: str, dry_run: bool) -> Iterable[Row]:
    report = session.table(table).index().expire(parse_duration(older_than), dry_run=dry_run)
    yield (
        report.entries,
        report.directories,
        report.snapshots,
        report.segments,
        report.leftovers,
        report.table_files,
        report.bytes,
        report.dry_run,
        _rounded(report.seconds),
    )


def _verify(session: StatementSession, table: str, sample: int, every: bool, repair: bool) -> Iterable[Row]:
    report = session.table(table).index().verify(None if every else sample, repair=repair)
    findings = [str(finding) for finding in report.findings]
    yield (
        report.data_files,
        report.indexed_data_files,
        report.segments,
        report.blobs,
        report.row_groups,
        len(findings),
        report.repaired_data_files,
        _sentences(findings),
    )


def _drop(session: StatementSession, table: str) -> Iterable[Row]:
    found = session.table(table)
    report = drop_index(found.catalog, found.name)
    yield report.index_table, report.segments, report.bytes, _sentences(report.kept)


def _rounded(seconds: float) -> float:
    return round(seconds, 4)


def _sentences(texts: Iterable[str]) -> str | None:
    """Several sentences as lines of one value."""
    return "\n".join(texts) or None


_TABLE = Parameter("table", is_required=True)
_REF, _SNAPSHOT_ID = Parameter("ref"), Parameter("snapshot_id", "bigint")


def _counts(*names: str) -> tuple[ResultColumn, ...]:
    return tuple(ResultColumn(name, "bigint") for name in names)


_SECONDS = ResultColumn("seconds", "double")

PROCEDURES: dict[str, Procedure] = {
    procedure.name: procedure
    for procedure in (
        Procedure(
            "build",
            "Index the data files that have no index yet.",
            (
                _TABLE,
                Parameter("mode", default="sync"),
                Parameter("where"),
                _REF,
                _SNAPSHOT_ID,
                Parameter("max_files", "bigint"),
            ),
            (
                ResultColumn("state"),
                *_counts("files", "rows", "row_groups", "segments", "index_bytes", "files_left"),
                _SECONDS,
                ResultColumn("warnings"),
            ),
            _build,
        ),
        Procedure(
            "status",
            "Say how much of a table is indexed, and what the latest build in the background does.",
            (_TABLE,),
            (
                ResultColumn("table"),
                ResultColumn("index_table"),
                *_counts(
                    "snapshot_id",
                    "data_files",
                    "indexed_data_files",
                    "row_groups",
                    "indexed_row_groups",
                    "segments",
                    "index_bytes",
                    "total_index_bytes",
                    "data_bytes",
                    "unindexed_bytes",
                    "snapshots_behind",
                ),
                ResultColumn("build"),
                ResultColumn("warnings"),
            ),
            _status,
        ),
        Procedure(
            "indexes",
            "List the indexes of a table.",
            (_TABLE,),
            (
                ResultColumn("name"),
                ResultColumn("kind"),
                ResultColumn("column"),
                ResultColumn("map_key"),
                ResultColumn("field_id", "bigint"),
                ResultColumn("options"),
                ResultColumn("bytes", "bigint"),
                ResultColumn("is_named", "boolean"),
            ),
            _indexes,
        ),
        Procedure(
            "explain",
            "Say which row groups a query with this WHERE text reads, stage by stage.",
            (_TABLE, Parameter("where", is_required=True), _REF, _SNAPSHOT_ID),
            (ResultColumn("stage"), *_counts("row_groups", "dropped", "reads", "bytes"), _SECONDS),
            _explain,
        ),
        *ADVICE_PROCEDURES,
        Procedure(
            "compact",
            "Merge small segments into large ones.",
            (_TABLE, Parameter("target_size", default="256MiB")),
            (
                *_counts("segments_before", "segments_after", "rewritten", "segments_written", "index_bytes"),
                _SECONDS,
                ResultColumn("skipped"),
            ),
            _compact,
        ),
        Procedure(
            "expire",
            "Drop what no snapshot of a table needs: entries, segments, leftovers of dead builds.",
            (_TABLE, Parameter("older_than", default="3d"), Parameter("dry_run", "boolean", default=False)),
            (
                *_counts("entries", "directories", "snapshots", "segments", "leftovers", "table_files", "bytes"),
                ResultColumn("dry_run", "boolean"),
                _SECONDS,
            ),
            _expire,
        ),
        Procedure(
            "verify",
            "Check an index: checksums, directories, and a sample of row groups (or every one) against the data.",
            (
                _TABLE,
                Parameter("sample", "bigint", default=DEFAULT_SAMPLE),
                Parameter("every", "boolean", default=False),
                Parameter("repair", "boolean", default=False),
            ),
            (
                *_counts(
                    "data_files",
                    "indexed_data_files",
                    "segments",
                    "blobs",
                    "row_groups",
                    "findings",
                    "repaired_data_files",
                ),
                ResultColumn("what"),
            ),
            _verify,
        ),
        Procedure(
            "drop",
            "Drop all indexes of a table with their files.",
            (_TABLE,),
            (ResultColumn("index_table"), *_counts("segments", "bytes"), ResultColumn("kept")),
            _drop,
        ),
    )
}
"""The procedures by name. To add one, write a function and an entry."""


def procedure_named(name: str) -> Procedure:
    """Return the procedure of a name, or raise NotFoundError if there is none."""
    if name not in PROCEDURES:
        raise NotFoundError(f"there is no procedure {name!r}; there are: {', '.join(PROCEDURES)}")
    return PROCEDURES[name]
