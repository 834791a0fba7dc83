"""Records of a query log."""

from datetime import UTC, datetime

from planner.query_log import QueryRecord

RECORD = QueryRecord(
    time=datetime(2026, 11, 1, 12, tzinfo=UTC),
    table="lake.ns.t",
    where="k = ?",
    row_groups=10,
    kept_without_index=8,
    kept=8,
    bytes_without_index=8_000,
    bytes_read=8_000,
    index_bytes=50,
    planning_seconds=0.5,
    sources=("predicate",),
    columns=(("k", "bitmap"),),
    answered=0,
)


def logged_scan(table: str, where: str, size: int, **more: object) -> str:
    """Return the line of a scan that reads `size` bytes without an index."""
    return RECORD.model_copy(
        update={"table": table, "where": where, "bytes_without_index": size, **more}
    ).model_dump_json()
