"""Lines of a query log."""

from datetime import UTC, datetime

from planner.query_log.records import QueryRecord


def logged_scan(
    table: str,
    where: str,
    size: int,
    *,
    continues: bool = False,
    sources: tuple[str, ...] = (),
    columns: tuple[tuple[str, str], ...] = (),
) -> str:
    """Return the line of a scan that reads `size` bytes without an index."""
    record = QueryRecord(
        time=datetime(2026, 1, 1, tzinfo=UTC),
        table=table,
        where=where,
        row_groups=9,
        kept_without_index=9,
        kept=1,
        bytes_without_index=size,
        bytes_read=1,
        index_bytes=1,
        planning_seconds=0.1,
        sources=sources,
        columns=columns,
        answered=0,
        continues=continues,
    )
    return record.model_dump_json()
