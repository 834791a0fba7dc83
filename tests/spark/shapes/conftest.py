"""The fact tables that tests of whole queries share."""

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from tests.spark.shapes import shapes


@pytest.fixture(scope="session")
def tables(spark: SparkSession, catalog: SqlCatalog) -> None:
    """All tables of `shapes`."""
    shapes.create(spark, catalog)
