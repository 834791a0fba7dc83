"""SSB's lineorder as an Iceberg table of many small row groups, without an index."""

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from ssb_bench.data.dataset import generate, open_duckdb
from ssb_bench.data.layout import Layout
from tests.conftest import amount, create_table

FILES = 4
SCALE, ROW_GROUP_ROWS = amount(1, 5) / 100, amount(1_000, 5_000)


@pytest.fixture(scope="session")
def lineorder_rows(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """60,000 rows; nightly 300,000."""
    layout = Layout.of(tmp_path_factory.mktemp("ssb"), SCALE)
    generate(layout)
    with open_duckdb(layout) as connection:
        return connection.sql("SELECT * FROM lineorder").to_arrow_table()


@pytest.fixture
def lineorder(local_catalog: SqlCatalog, lineorder_rows: pa.Table) -> Table:
    """`ns.lineorder`: some 60 row groups in 4 files."""
    rows = -(-lineorder_rows.num_rows // FILES)
    table = create_table(local_catalog, "lineorder", lineorder_rows.slice(0, rows), ROW_GROUP_ROWS)
    for number in range(1, FILES):
        table.append(lineorder_rows.slice(number * rows, rows))
    return table
