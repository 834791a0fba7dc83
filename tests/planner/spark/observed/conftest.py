"""Tables with a wrong index."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.data_table import list_data_files
from tests.planner.spark.observed.wrong_index import NEW, OLD, ROW_GROUP_ROWS, ROWS, Plant, overwrite


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    """Makes such a table, `ns.t` of `k`, `v`, `s`."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=tmp_path.as_uri())
    catalog.create_namespace("ns")

    def make(definition: IndexDefinition) -> TableIndex:
        keys = [(row * 7919) % ROWS + (row << 32) for row in range(ROWS)]
        keys[120] = OLD
        schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
        properties = {
            "write.parquet.row-group-limit": str(ROW_GROUP_ROWS),
            "write.parquet.compression-codec": "uncompressed",
        }
        table = catalog.create_table("ns.t", schema, properties=properties)
        rows = {"k": keys, "v": [row % 10 for row in range(ROWS)], "s": [f"s{row % 97}" for row in range(ROWS)]}
        table.append(pa.table(rows, schema=schema))
        index = TableIndex.create(catalog, "ns.t", definition)
        index.build(workers=1)
        (file,) = list_data_files(table)
        overwrite(file.path, OLD, NEW)
        return index

    yield make
    catalog.close()
