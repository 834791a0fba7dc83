"""The SSB tables of scale factor 0.01 with their TPC-H sources, made once."""

from collections.abc import Iterator

import duckdb
import pytest

from ssb_bench.data.dataset import generate, open_duckdb
from ssb_bench.data.layout import Layout

SCALE_FACTOR = 0.01


@pytest.fixture(scope="session")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """A finished data set; tests must not change it."""
    made = Layout.of(tmp_path_factory.mktemp("ssb"), SCALE_FACTOR)
    generate(made, keep_tpch=True)
    return made


@pytest.fixture
def ssb(layout: Layout) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the SSB tables, and the TPC-H tables as `tpch_<name>`."""
    with open_duckdb(layout) as connection:
        for table in ("customer", "supplier", "part", "nation", "region", "orders"):
            connection.execute(f"CREATE VIEW tpch_{table} AS FROM read_parquet('{layout.tpch}/{table}.parquet')")
        connection.execute(f"CREATE VIEW tpch_lineitem AS FROM read_parquet('{layout.tpch}/lineitem/*.parquet')")
        yield connection
