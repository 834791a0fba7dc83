"""What a query must answer: asked of DuckDB on the source files, and compared by value with what Spark gives.

A `select *` of many rows is compared by a digest: the count of rows, the sum of every numeric column, and least value,
greatest value and total length of every text column.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ssb_bench.data.dataset import open_duckdb
from ssb_bench.data.layout import Layout
from ssb_bench.data.workload import FittedQuery
from ssb_bench.spark_runs.measure import Answer, answer_of, rows_text

MOST_ROWS_COMPARED: Final = 20_000
_NUMBERS: Final = (
    *("lo_orderkey", "lo_linenumber", "lo_custkey", "lo_partkey", "lo_suppkey", "lo_orderdate", "lo_shippriority"),
    *("lo_quantity", "lo_extendedprice", "lo_ordtotalprice", "lo_discount", "lo_revenue", "lo_supplycost", "lo_tax"),
    "lo_commitdate",
)
_TEXTS: Final = ("lo_orderpriority", "lo_shipmode")


def fetches(query: FittedQuery) -> bool:
    """Whether a query gives so few rows that every execution can fetch them: not a `select *`."""
    return query.query.workload != "rows"


def answer_due(layout: Layout, query: FittedQuery) -> tuple[str, Answer]:
    """Ask DuckDB on the source files; give the SQL (the query, or the digest of its rows) and the answer.

    Raises:
        duckdb.Error: If the query is none.
    """
    with open_duckdb(layout) as connection:
        sql, rows = query.sql, 0
        if not fetches(query):
            counted = connection.execute(f"SELECT count(*) FROM ({query.sql}) AS matching").fetchone()
            rows = 0 if counted is None else int(counted[0])
            sql = _digest_sql(query.sql) if rows > MOST_ROWS_COMPARED else sql
        answer = answer_of(connection.execute(sql).fetchall())
    return sql, answer if sql == query.sql else replace(answer, text=rows_text(rows))


def _digest_sql(sql: str) -> str:
    parts = ["count(*)", *(f"sum(CAST({column} AS BIGINT))" for column in _NUMBERS)]
    for column in _TEXTS:
        parts += [f"min({column})", f"max({column})", f"sum(length({column}))"]
    return f"SELECT {', '.join(parts)} FROM ({sql}) AS matching"
