"""Java of tests, in a session's JVM, and what the hook's Java says."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

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


@contextmanager
def log_of_java(spark: SparkSession) -> Iterator[Callable[[], list[str]]]:
    """What the hook's Java says in its log within a context, without the stacks of exceptions."""
    assert spark._jvm is not None
    logging4j, text = spark._jvm.org.apache.logging.log4j, spark._jvm.java.io.StringWriter()
    layout = logging4j.core.layout.PatternLayout.newBuilder().withPattern("%m%ex{0}%n").build()
    appender = logging4j.core.appender.WriterAppender.createAppender(layout, None, text, uuid4().hex, False, True)
    appender.start()
    logger = logging4j.LogManager.getContext(False).getLogger("puffin-index")
    logger.addAppender(appender)
    level = logger.getLevel()
    logger.setLevel(logging4j.Level.WARN)
    try:
        yield lambda: str(text.toString()).splitlines()
    finally:
        logger.setLevel(level)
        logger.removeAppender(appender)
