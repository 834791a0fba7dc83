"""Java of tests, in a session's JVM."""

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from planner.spark.build_jar import compile_jar
from planner.spark.rules import class_path, load_jar, make

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject


def object_of(spark: SparkSession, source: Path, folder: Path) -> "JavaObject":
    """Compile a file into a folder; return an object of its class `io.puffinindex.tests.<file>`."""
    jar = folder / f"{source.stem}.jar"
    compile_jar([source], class_path(spark), jar)
    return make(spark, load_jar(spark, jar), f"io.puffinindex.tests.{source.stem}")
