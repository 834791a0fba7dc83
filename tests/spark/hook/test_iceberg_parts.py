"""What the hook uses of Iceberg that is not public; after a change of Iceberg's release, look here first."""

import pytest
from pyspark.sql import SparkSession

from planner.spark.rules import jvm_of, load_hook

pytestmark = pytest.mark.spark


def test_this_release_of_iceberg_has_all_parts(spark: SparkSession) -> None:
    # Loading the class looks all of them up, and names one that is missing.
    jvm_of(spark).java.lang.Class.forName("io.puffinindex.spark.scans.IcebergScans", True, load_hook(spark))
