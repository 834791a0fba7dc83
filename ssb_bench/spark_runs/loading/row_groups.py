"""Table properties that make Iceberg's Parquet writer cut even row groups of several pages a column."""

from __future__ import annotations

from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from ssb_bench.data.layout import NAMESPACE, local_path
from ssb_bench.spark_runs.session import CATALOG

MOST_PAGE_ROWS: Final = 20_000
"""Rows of a page at most, as Iceberg's and parquet-java's writers have it by default."""
_LARGEST_TARGET: Final = 2**31 - 1
_TRIAL: Final = f"{CATALOG}.{NAMESPACE}.row_group_trial"


def page_rows(row_group_rows: int, most: int = MOST_PAGE_ROWS) -> int:
    """Give the rows of a page: the greatest divisor of `row_group_rows` that is within `most`.

    A row group whose greatest such divisor is below a tenth of `most` has one page a column chunk.
    """
    for pages in range(-(-row_group_rows // most), 10 * row_group_rows // most + 1):
        if row_group_rows % pages == 0:
            return row_group_rows // pages
    return row_group_rows


def row_group_properties(rows: DataFrame, row_group_rows: int, most_page_rows: int = MOST_PAGE_ROWS) -> dict[str, str]:
    """Give the table properties by which Iceberg's writer cuts row groups of `row_group_rows` rows into even pages.

    The writer looks at the size of a row group after every so many rows as `check-min` and `check-max` say, and cuts
    the row group when the size is over the target. Parquet's library gives the first page at least `check-min` rows, so
    both are the rows of a page. Then the target has to lie between the sizes of a row group with and without its last
    page. A trial tells the size: one row group of the first rows, in a table that is dropped again.

    Args:
        rows: What will be written, in order. The rows of all row groups must take nearly the same bytes.
        row_group_rows: Rows of a row group.
        most_page_rows: Rows of a page at most.
    """
    page = page_rows(row_group_rows, most_page_rows)
    pages = row_group_rows // page
    # The writer cuts at its first look where a row group is one page.
    target = 1 if pages == 1 else int(_trial_bytes(rows, row_group_rows, page) * (1 - 0.5 / pages))
    return _properties(page, target)


def _properties(page: int, target_bytes: int) -> dict[str, str]:
    return {
        "write.format.default": "parquet",
        "write.parquet.row-group-size-bytes": str(min(max(target_bytes, 1), _LARGEST_TARGET)),
        "write.parquet.row-group-size-track-uncompressed": "false",
        "write.parquet.row-group-check-min-record-count": str(page),
        "write.parquet.row-group-check-max-record-count": str(page),
        "write.parquet.page-row-limit": str(page),
        "write.distribution-mode": "none",
    }


def _trial_bytes(rows: DataFrame, row_group_rows: int, page: int) -> float:
    """Write the first rows as one row group; give the bytes of the data pages of a whole row group."""
    spark = rows.sparkSession
    spark.sql(f"DROP TABLE IF EXISTS {_TRIAL} PURGE")
    writer = rows.limit(row_group_rows).coalesce(1).writeTo(_TRIAL).using("iceberg")
    for key, value in _properties(page, _LARGEST_TARGET).items():
        writer = writer.tableProperty(key, value)
    writer.create()
    try:
        file = spark.sql(f"SELECT file_path FROM {_TRIAL}.files").collect()[0][0]
        row_group = pq.read_metadata(local_path(file)).row_group(0)
    finally:
        spark.sql(f"DROP TABLE {_TRIAL} PURGE")
    columns = [row_group.column(ordinal) for ordinal in range(row_group.num_columns)]
    # The writer's idea of a size leaves dictionaries out until the row group ends.
    dictionaries = sum(c.data_page_offset - c.dictionary_page_offset for c in columns if c.has_dictionary_page)
    in_pages = sum(c.total_compressed_size for c in columns) - dictionaries
    return float(in_pages * row_group_rows / row_group.num_rows)
