"""The procedures of `puffin.system`. To add one, write a function: its signature and docstring are the declaration."""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TypeAlias, get_args, get_type_hints

from pyiceberg.catalog import Catalog

from planner.advice.advise import DEFAULT_ADVICE_SAMPLE, DEFAULT_MAX_SHARE, advise as advise_indexes
from planner.advice.sample import DEFAULT_SAMPLE as DEFAULT_WHAT_IF_SAMPLE
from planner.advice.what_if import what_if as measure_what_if
from planner.arrow.plan import plan
from planner.condition.iceberg_filters import file_filter
from planner.condition.session_time import zone_named
from planner.condition.sql.parser import read_where
from planner.query_log import DEFAULT_BYTES_PER_SECOND, benefits as sum_benefits
from planner.spark.statements.session import StatementSession
from puffin_index.data.data_table import find_snapshot, open_table
from puffin_index.errors import DefinitionError, NotFoundError, UnsupportedError
from puffin_index.index_table.status import BuildScope
from puffin_index.jobs.drop import drop_index
from puffin_index.jobs.verify import DEFAULT_SAMPLE
from puffin_index.keys.map_key import details_of, index_of, split_kind, suffix_of
from puffin_index.table_index import TableIndex
from puffin_index.units import parse_duration, parse_size

Value: TypeAlias = str | int | float | bool | None
Row: TypeAlias = list[Value]
Found: TypeAlias = Mapping[str, object]
"""A row by columns, NULL where it has none."""

_SQL_TYPES: dict[type, str] = {str: "string", int: "bigint", float: "double", bool: "boolean"}


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure: its parameters, the SQL types of its result, and the function that takes them by name.

    The annotation of a parameter is its SQL type; calls must give one that has no default.
    """

    name: str
    description: str
    parameters: tuple[inspect.Parameter, ...]
    columns: Mapping[str, str]
    run: Callable[..., Iterable[Found]]

    def call(self, session: StatementSession, arguments: Mapping[str, Value]) -> list[Row]:
        """Call the procedure; parameters that are left out, or NULL, have their defaults.

        Raises NotFoundError if there is no such parameter, UnsupportedError if a required argument is missing or one
        has another type, and PuffinIndexErrors of the function.
        """
        unknown = sorted(arguments.keys() - {parameter.name for parameter in self.parameters})
        if unknown:
            raise NotFoundError(f"procedure {self.name} has no parameter {unknown[0]!r}; it has: {self.signature}")
        bound = {parameter.name: self._argument(parameter, arguments) for parameter in self.parameters}
        rows = self.run(session, **bound)
        return [[_value(found.get(name), kind) for name, kind in self.columns.items()] for found in rows]

    @property
    def signature(self) -> str:
        """The parameters as text."""
        return ", ".join(
            f"{one.name} {one.annotation}" + ("" if one.default is one.empty else f" default {json.dumps(one.default)}")
            for one in self.parameters
        )

    def _argument(self, parameter: inspect.Parameter, arguments: Mapping[str, Value]) -> object:
        name, value, kind = parameter.name, arguments.get(parameter.name), parameter.annotation
        if value is None and parameter.default is parameter.empty:
            raise UnsupportedError(f"procedure {self.name} needs {name}; it has: {self.signature}")
        if value is not None and kind not in (_SQL_TYPES.get(type(value)), "double" if type(value) is int else None):
            raise UnsupportedError(f"procedure {self.name}: {name} should be a {kind}, not {value!r}")
        return parameter.default if value is None else value

    @property
    def schema(self) -> str:
        """The columns of the result as in `CREATE TABLE`."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.columns.items())

    def describe(self) -> dict[str, str]:
        """The procedure as Spark's side wants it."""
        required = {one.name: " NOT NULL" for one in self.parameters if one.default is one.empty}
        parameters = (f"`{one.name}` {one.annotation}{required.get(one.name, '')}" for one in self.parameters)
        texts = {"parameters": ", ".join(parameters), "columns": self.schema}
        return {"name": self.name, "description": self.description, **texts}


def _value(value: object, kind: str) -> Value:
    assert value is None or isinstance(value, str | int | float)
    if value is not None and kind in ("double", "bigint"):
        return round(float(value), 4) if kind == "double" else int(value)
    return value


PROCEDURES: dict[str, Procedure] = {}
"""The procedures by name."""


def procedure(columns: str) -> Callable[[Callable[..., Iterable[Found]]], Callable[..., Iterable[Found]]]:
    """Make a function a procedure of its name; `columns` are names and types by comma, strings unless typed."""

    def declare(run: Callable[..., Iterable[Found]]) -> Callable[..., Iterable[Found]]:
        hints = get_type_hints(run)
        # The first parameter is the session.
        _, *given = inspect.signature(run).parameters.values()
        parameters = [one.replace(annotation=_sql_type(hints[one.name])) for one in given]
        typed = (column.split() for column in columns.split(","))
        types = {name: kind[0] if kind else "string" for name, *kind in typed}
        description = " ".join((inspect.getdoc(run) or "").split())
        PROCEDURES[run.__name__] = Procedure(run.__name__, description, tuple(parameters), types, run)
        return run

    return declare


def _sql_type(hint: type) -> str:
    return next(_SQL_TYPES[one] for one in (*get_args(hint), hint) if one in _SQL_TYPES)


def procedure_named(name: str) -> Procedure:
    """Return the procedure of a name, or raise NotFoundError if there is none."""
    if name not in PROCEDURES:
        raise NotFoundError(f"there is no procedure {name!r}; there are: {', '.join(PROCEDURES)}")
    return PROCEDURES[name]


@procedure(
    "state, files bigint, rows bigint, row_groups bigint, segments bigint, index_bytes bigint, files_left bigint, "
    "seconds double, warnings"
)
def build(
    session: StatementSession,
    table: str,
    mode: str = "sync",
    where: str | None = None,
    ref: str | None = None,
    snapshot_id: int | None = None,
    max_files: int | None = None,
) -> Iterator[Found]:
    """Index the data files that have no index yet."""
    found = session.table(table)
    index = TableIndex.open_or_define(found.catalog, found.name)
    schema = index.data_table.schema()
    row_filter = None if where is None else file_filter(read_where(where, schema, zone_named(session.zone)), schema)
    scope = BuildScope(snapshot_id, ref, row_filter, max_files)
    match mode:
        case "sync":
            report = session.builds.run(found, index, session.spark, scope)
            skipped = [f"{file.path}: {file.reason}" for file in report.skipped]
            yield report.to_json() | {"state": "done", "warnings": _sentences([*skipped, *report.warnings])}
        case "async":
            yield {"state": session.builds.start(found, index, session.spark, scope).status()}
        case _:
            raise DefinitionError(f"mode cannot be {mode!r}; there are: sync, async")


@procedure(
    "table, index_table, snapshot_id bigint, data_files bigint, indexed_data_files bigint, row_groups bigint, "
    "indexed_row_groups bigint, segments bigint, index_bytes bigint, total_index_bytes bigint, data_bytes bigint, "
    "unindexed_bytes bigint, snapshots_behind bigint, build, warnings"
)
def status(session: StatementSession, table: str) -> Iterator[Found]:
    """Say how much of a table is indexed, and what the latest build in the background does."""
    found = session.table(table)
    now, handle = found.index().status(), session.builds.latest(found)
    state = None if handle is None else handle.status()
    yield now.to_json() | {
        "index_bytes": now.live_index_bytes,
        "build": f"{state}: {handle.error}" if handle is not None and state == "failed" else state,
        "warnings": _sentences([*now.outdated, *now.left_out, *now.unusable]),
    }


@procedure("name, kind, column, map_key, field_id bigint, options, bytes bigint, is_named boolean")
def indexes(session: StatementSession, table: str) -> Iterator[Found]:
    """List the indexes of a table."""
    index = session.table(table).index()
    columns = {column.name: column for column in index.status().columns}
    options = {
        index_of(column.column_id, kind): (column.name, column.kinds[kind])
        for column in index.columns
        for kind in column.kinds
    }
    for named in index.names:
        for field_id, stored in sorted(named.indexes):
            subject, kind = split_kind(field_id, stored)
            details = details_of(subject)
            # A column that was dropped keeps its indexes for older snapshots.
            name, own = options.get((field_id, stored), ("", {}))
            key = details.pop("map-key", None)
            yield {
                "name": named.name,
                "kind": kind,
                "column": name.removesuffix(suffix_of(subject)) or None,
                "map_key": key,
                "field_id": field_id,
                "options": ", ".join(f"{option}={value}" for option, value in sorted({**details, **own}.items()))
                or None,
                "bytes": columns[name].live_kinds.get(kind, 0) if name in columns else 0,
                "is_named": named.is_given,
            }


@procedure("stage, row_groups bigint, dropped bigint, reads bigint, bytes bigint, seconds double")
def explain(
    session: StatementSession, table: str, where: str, ref: str | None = None, snapshot_id: int | None = None
) -> Iterator[Found]:
    """Say which row groups a query with this WHERE text reads, stage by stage."""
    index = session.table(table).index()
    if ref is not None:
        snapshot = find_snapshot(index.data_table, ref=ref)
        snapshot_id = None if snapshot is None else snapshot.snapshot_id
    planned = plan(index, where, snapshot_id, session_zone=session.zone)
    yield {"stage": "row groups of the scan", "row_groups": planned.row_groups}
    for stage in planned.funnel:
        yield asdict(stage) | {"stage": stage.name, "row_groups": stage.entered, "bytes": stage.bytes_read}
    read = {"reads": planned.index_reads, "bytes": planned.index_bytes_read, "seconds": planned.planning_seconds}
    yield {"stage": "kept", "row_groups": planned.kept, "dropped": planned.dropped, **read}
    yield {"stage": "not indexed", "row_groups": planned.unindexed}
    for text in (planned.staleness, *(f"warning: {warning}" for warning in planned.warnings)):
        if text:
            yield {"stage": text}


@procedure(
    "state, row_groups bigint, row_groups_low bigint, row_groups_high bigint, bytes bigint, seconds double, "
    "index_bytes bigint, build_seconds double, verdict, reason, source"
)
def what_if(
    session: StatementSession,
    table: str,
    where: str,
    bitmap: str | None = None,
    bsi: str | None = None,
    bloom: str | None = None,
    without: str | None = None,
    sample: int = DEFAULT_WHAT_IF_SAMPLE,
    snapshot_id: int | None = None,
) -> Iterator[Found]:
    """Measure what a query with this WHERE text would read if the table had other indexes; nothing is changed."""
    found = session.table(table)
    kinds = {"bitmap": bitmap, "bsi": bsi, "bloom": bloom}
    answer = measure_what_if(
        open_table(found.catalog, Catalog.identifier_to_tuple(found.name)),
        where,
        {kind: _names(text) for kind, text in kinds.items() if text} or None,
        without=_names(without),
        sample=sample or None,
        snapshot_id=snapshot_id,
        session_zone=session.zone,
    )
    yield from answer.rows()


@procedure("action, column, kind, index_bytes bigint, bytes_saved bigint, share_saved double, reason, statement")
def advise(
    session: StatementSession,
    table: str,
    queries: str | None = None,
    query_log: str | None = None,
    max_share: float = DEFAULT_MAX_SHARE,
    sample: int = DEFAULT_ADVICE_SAMPLE,
) -> Iterator[Found]:
    """Propose indexes for the queries of a text or of the query log; nothing is created."""
    found = session.table(table)
    advice = advise_indexes(
        open_table(found.catalog, Catalog.identifier_to_tuple(found.name)),
        queries,
        query_log=query_log,
        max_share=max_share,
        sample=sample or None,
    )
    yield from map(asdict, advice.indexes)
    for warning in advice.warnings:
        yield {"action": "note", "reason": warning}


@procedure(
    "of, day, column, kind, scans bigint, row_groups bigint, dropped_by_default bigint, dropped_by_index bigint, "
    "answered bigint, bytes_without_index bigint, bytes_saved bigint, index_bytes bigint, planning_seconds double, "
    "seconds_saved double, what"
)
def benefits(
    session: StatementSession, table: str, query_log: str, bytes_per_second: int = DEFAULT_BYTES_PER_SECOND
) -> Iterator[Found]:
    """Sum up from the query log what the indexes of a table have saved."""
    answer = sum_benefits(session.table(table).index(), query_log, bytes_per_second=bytes_per_second)
    yield {"of": "total", **asdict(answer.total)}
    yield from ({"of": "day", **sums} for sums in answer.days)
    yield from ({"of": "index", **sums} for sums in answer.indexes)
    yield from ({"of": "unused", **index, "what": "no query used this index"} for index in answer.unused_by_name)
    for miss in answer.misses:
        yield {"of": "miss", "what": miss}


@procedure(
    "segments_before bigint, segments_after bigint, rewritten bigint, segments_written bigint, index_bytes bigint, "
    "seconds double, skipped"
)
def compact(session: StatementSession, table: str, target_size: str = "256MiB") -> Iterator[Found]:
    """Merge small segments into large ones."""
    report = session.table(table).index().compact(parse_size(target_size))
    skipped = _sentences(f"{segment}: {reason}" for segment, reason in report.skipped)
    yield report.to_json() | {"segments_written": report.segments, "skipped": skipped}


@procedure(
    "entries bigint, directories bigint, snapshots bigint, segments bigint, leftovers bigint, table_files bigint, "
    "bytes bigint, dry_run boolean, seconds double"
)
def expire(session: StatementSession, table: str, older_than: str = "3d", dry_run: bool = False) -> Iterator[Found]:
    """Drop what no snapshot of a table needs: entries, segments, leftovers of dead builds."""
    yield session.table(table).index().expire(parse_duration(older_than), dry_run=dry_run).to_json()


@procedure(
    "data_files bigint, indexed_data_files bigint, segments bigint, blobs bigint, row_groups bigint, findings bigint, "
    "repaired_data_files bigint, what"
)
def verify(
    session: StatementSession, table: str, sample: int = DEFAULT_SAMPLE, every: bool = False, repair: bool = False
) -> Iterator[Found]:
    """Check an index: checksums, directories, and a sample of row groups (or every one) against the data."""
    report = session.table(table).index().verify(None if every else sample, repair=repair)
    yield report.to_json() | {"findings": len(report.findings), "what": _sentences(map(str, report.findings))}


@procedure("index_table, segments bigint, bytes bigint, kept")
def drop(session: StatementSession, table: str) -> Iterator[Found]:
    """Drop all indexes of a table with their files."""
    found = session.table(table)
    report = drop_index(found.catalog, found.name)
    yield report.to_json() | {"kept": _sentences(report.kept)}


def _names(text: str | None) -> tuple[str, ...]:
    """Names between commas."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _sentences(texts: Iterable[str]) -> str | None:
    """Several sentences as lines of one value."""
    return "\n".join(texts) or None
