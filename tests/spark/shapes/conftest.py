"""The fact tables that tests of whole queries share."""

from collections.abc import Iterator

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from tests.spark.agreement import settings
from tests.spark.shapes import shapes


@pytest.fixture(scope="session")
def tables(spark: SparkSession, catalog: SqlCatalog) -> None:
    """All tables of `shapes`."""
    shapes.create(spark, catalog)


@pytest.fixture
def answering(spark: SparkSession) -> Iterator[None]:
    """Aggregates are answered, which other tests of pruning switch off."""
    with settings(spark, {"spark.puffin-index.aggregates": "true"}):
        yield
