"""A table of items that tests of the hook query and never change."""

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from puffin_index import IndexDefinition, TableIndex
from tests.spark.hook.items import ROW_GROUP_ROWS, ROWS, create_items


@pytest.fixture(scope="session")
def items(spark: SparkSession, catalog: SqlCatalog) -> TableIndex:
    """`ns.items`: 20 row groups in 2 files, indexed with all three kinds."""
    create_items(spark, "items")
    definition = IndexDefinition.of(bitmap=["city", "k"], bsi=["k", "price", "note"], bloom=["price", "note"])
    index = TableIndex.create(catalog, "ns.items", definition)
    report = index.build(spark)
    assert (report.files, report.rows, report.row_groups) == (2, ROWS, ROWS // ROW_GROUP_ROWS)
    return index


@pytest.fixture
def hook(hooked: SparkSession, items: TableIndex) -> SparkSession:
    """The session with the hook, which fails loudly, and this table."""
    assert items.name == "ns.items"
    return hooked
