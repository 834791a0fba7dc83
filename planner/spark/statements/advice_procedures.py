"""Procedures about the worth of indexes: before they are built, for a workload, and after queries have used them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict

from pyiceberg.catalog import Catalog

from planner.advice.advise import DEFAULT_ADVICE_SAMPLE, DEFAULT_MAX_SHARE, advise
from planner.advice.sample import DEFAULT_SAMPLE
from planner.advice.what_if import what_if
from planner.query_log.benefits import DEFAULT_BYTES_PER_SECOND, Sums, benefits
from planner.spark.statements.procedure import Parameter, Procedure, ResultColumn, Row, Value
from planner.spark.statements.session import StatementSession
from puffin_index.data.data_table import open_table

_KINDS = ("bitmap", "bsi", "bloom")


def _what_if(
    session: StatementSession,
    table: str,
    where: str,
    bitmap: str | None,
    bsi: str | None,
    bloom: str | None,
    without: str | None,
    sample: int,
    snapshot_id: int | None,
) -> Iterable[Row]:
    found = session.table(table)
    wanted = {kind: _names(text) for kind, text in zip(_KINDS, (bitmap, bsi, bloom), strict=True) if text}
    answer = what_if(
        open_table(found.catalog, Catalog.identifier_to_tuple(found.name)),
        where,
        wanted or None,
        without=_names(without),
        sample=sample or None,
        snapshot_id=snapshot_id,
    )
    return _rows(answer.rows(), _WHAT_IF_COLUMNS)


def _advise(
    session: StatementSession,
    table: str,
    queries: str | None,
    query_log: str | None,
    max_share: float,
    sample: int,
) -> Iterable[Row]:
    found = session.table(table)
    advice = advise(
        open_table(found.catalog, Catalog.identifier_to_tuple(found.name)),
        queries,
        query_log=query_log,
        max_share=max_share,
        sample=sample or None,
    )
    yield from _rows((asdict(own) for own in advice.indexes), _ADVISE_COLUMNS)
    for warning in advice.warnings:
        yield ("note", *(None,) * 5, warning, None)


def _benefits(session: StatementSession, table: str, query_log: str, bytes_per_second: int) -> Iterator[Row]:
    answer = benefits(session.table(table).index(), query_log, bytes_per_second=bytes_per_second)
    yield ("total", None, None, None, *_sums(answer.total), None)
    for day, sums in answer.by_day.items():
        yield ("day", day.isoformat(), None, None, *_sums(sums), None)
    for (column, kind), sums in answer.by_index.items():
        yield ("index", None, column, kind, *_sums(sums), None)
    nothing = (None,) * len(_SUMS)
    for column, kind in answer.unused:
        yield ("unused", None, column, kind, *nothing, "no query used this index")
    for miss in answer.misses:
        yield ("miss", None, None, None, *nothing, miss)


def _names(text: str | None) -> tuple[str, ...]:
    """Names between commas."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _rows(found: Iterable[dict[str, object]], columns: tuple[ResultColumn, ...]) -> Iterator[Row]:
    for row in found:
        yield tuple(_value(row[column.name]) for column in columns)


def _value(value: object) -> Value:
    assert value is None or isinstance(value, str | int | float)
    return round(value, 4) if isinstance(value, float) else value


def _sums(sums: Sums) -> Iterator[Value]:
    for column in _SUMS:
        yield _value(getattr(sums, column.name))


_TABLE = Parameter("table", is_required=True)
_WHAT_IF_COLUMNS = (
    ResultColumn("state"),
    *(ResultColumn(name, "bigint") for name in ("row_groups", "row_groups_low", "row_groups_high", "bytes")),
    ResultColumn("seconds", "double"),
    ResultColumn("index_bytes", "bigint"),
    ResultColumn("build_seconds", "double"),
    *(ResultColumn(name) for name in ("verdict", "reason", "source")),
)
_ADVISE_COLUMNS = (
    *(ResultColumn(name) for name in ("action", "column", "kind")),
    *(ResultColumn(name, "bigint") for name in ("index_bytes", "bytes_saved")),
    ResultColumn("share_saved", "double"),
    *(ResultColumn(name) for name in ("reason", "statement")),
)
_SUMS = (
    *(
        ResultColumn(name, "bigint")
        for name in (
            "scans",
            "row_groups",
            "dropped_by_default",
            "dropped_by_index",
            "answered",
            "bytes_without_index",
            "bytes_saved",
            "index_bytes",
        )
    ),
    *(ResultColumn(name, "double") for name in ("planning_seconds", "seconds_saved")),
)

ADVICE_PROCEDURES = (
    Procedure(
        "what_if",
        "Measure what a query with this WHERE text would read if the table had other indexes; nothing is changed.",
        (
            _TABLE,
            Parameter("where", is_required=True),
            *(Parameter(kind) for kind in _KINDS),
            Parameter("without"),
            Parameter("sample", "bigint", default=DEFAULT_SAMPLE),
            Parameter("snapshot_id", "bigint"),
        ),
        _WHAT_IF_COLUMNS,
        _what_if,
    ),
    Procedure(
        "advise",
        "Propose indexes for the queries of a text or of the query log; nothing is created.",
        (
            _TABLE,
            Parameter("queries"),
            Parameter("query_log"),
            Parameter("max_share", "double", default=DEFAULT_MAX_SHARE),
            Parameter("sample", "bigint", default=DEFAULT_ADVICE_SAMPLE),
        ),
        _ADVISE_COLUMNS,
        _advise,
    ),
    Procedure(
        "benefits",
        "Sum up from the query log what the indexes of a table have saved.",
        (
            _TABLE,
            Parameter("query_log", is_required=True),
            Parameter("bytes_per_second", "bigint", default=DEFAULT_BYTES_PER_SECOND),
        ),
        (*(ResultColumn(name) for name in ("of", "day", "column", "kind")), *_SUMS, ResultColumn("what")),
        _benefits,
    ),
)
