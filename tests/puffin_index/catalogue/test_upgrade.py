"""Index tables of the earlier version: their entries are not used, and the next build makes them anew."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import planner
from puffin_index import IndexDefinition, TableIndex
from puffin_index.catalogue.index_table import PROPERTY_VERSION, read_entries
from puffin_index.errors import UnsupportedError
from tests.conftest import create_table

ROWS = 100


@pytest.fixture
def earlier(local_catalog: SqlCatalog) -> TableIndex:
    """An index that version 1 has written."""
    create_table(local_catalog, "t", pa.table({"k": pa.array(range(ROWS), pa.int64())}), 10)
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=["k"]))
    index.build(workers=1)
    with index.index_table.transaction() as transaction:
        with transaction.update_schema() as update:
            update.delete_column(("directories", "source"))
            update.delete_column("partition_constants")
        transaction.set_properties({PROPERTY_VERSION: "1"})
    return TableIndex.open(local_catalog, "ns.t")


def test_what_the_earlier_version_wrote_is_not_used_and_built_anew(earlier: TableIndex) -> None:
    assert earlier.status().indexed_data_files == 0
    assert planner.count(earlier, "k = 7").rows == 1
    assert planner.plan(earlier, "k = 7").unindexed == ROWS // 10
    earlier.compact()

    assert earlier.build(workers=1).files == 1

    assert earlier.status().indexed_data_files == 1
    assert planner.plan(earlier, "k = 7", strict=True).kept == 1
    assert planner.count(earlier, "k = 7").rows == 1
    assert len(read_entries(earlier.index_table)) == 1
    assert earlier.verify(None).findings == ()
    assert earlier.build(workers=1).files == 0


def test_a_later_version_is_refused(earlier: TableIndex, local_catalog: SqlCatalog) -> None:
    with earlier.index_table.transaction() as transaction:
        transaction.set_properties({PROPERTY_VERSION: "3"})
    with pytest.raises(UnsupportedError, match="version '3'"):
        TableIndex.open(local_catalog, "ns.t")
