"""A session with statements."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import planner


@pytest.fixture(scope="module")
def enabled(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with the hook, failing loudly on trouble of ours."""
    planner.enable(spark, strict=True)
    yield spark
    planner.disable(spark)
