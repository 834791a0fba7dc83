"""The executors of a Spark application: the Python that they run, and whether it has this package."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from puffin_index.errors import BuildError, UnsupportedError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_PACKAGE = "puffin_index"


def context_of(spark: SparkSession, instead: str) -> SparkContext:
    """Return the application of a session; raise UnsupportedError, with what to do instead, if it has no JVM here."""
    if not hasattr(spark, "_jsparkSession"):
        raise UnsupportedError(f"the session has no JVM here, as is so with Spark Connect: {instead}")
    return spark.sparkContext


def use_python_of_driver(context: SparkContext) -> None:
    """Let the executors of a local master run the driver's Python, unless the user chose another one.

    PySpark takes the `python3` of the path, which is another Python if the driver's environment is not activated.
    """
    if (context.master or "").startswith("local") and "PYSPARK_PYTHON" not in os.environ and sys.executable:
        context.pythonExec = sys.executable


def check_package(context: SparkContext) -> None:
    """Ask the executors whether they find this package: without it, each task fails with pages of stack traces.

    Raises BuildError if they do not find it.
    """
    # The question is made of Python's own functions: ours could not be loaded there.
    if not context.parallelize([_PACKAGE], 1).map(find_spec).map(bool).collect()[0]:
        raise lacking(_PACKAGE, context)


def lacking(package: str, context: SparkContext) -> BuildError:
    """Return the error of executors that lack a package."""
    return BuildError(
        f"the Python of Spark's executors ({context.pythonExec}) lacks {package!r}: install puffin-index there, or set "
        "PYSPARK_PYTHON before the session starts to a Python that has it"
    )
