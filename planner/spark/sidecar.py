"""The Python process beside a driver: plans for all sessions of a Spark application that another program drives.

The plugin (`Sidecar.java`) starts it, tells it on its standard input how to reach the JVM, and restarts it. It ends
when the input ends, which it does with the JVM however the JVM dies.
"""

import logging
import os
import sys
import threading
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, BinaryIO

from puffin_index.errors import PuffinIndexError

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_SIGN_SECONDS = 1.0
_FAREWELL_SECONDS = 1.5
"""How long the end waits for query logs to be written; the plugin waits a little longer."""

_OF_CONNECT = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE")


def main() -> None:
    """Attach to the JVM, plan for its sessions, and end with it."""
    # Ctrl-C in the terminal of a SQL shell means the statement that runs there.
    os.setsid()
    signs = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what others print must not look like a sign of life
    threading.Thread(target=_give_signs, args=(signs,), daemon=True).start()
    # The plugin hands the lines on to the log of the JVM, which has the times.
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    for package in ("planner", "puffin_index"):
        logging.getLogger(package).setLevel(logging.INFO)
    port, secret, release, spark_path = (sys.stdin.readline().rstrip("\n") for _ in range(4))
    _find_pyspark(release, spark_path)
    for name in _OF_CONNECT:
        os.environ.pop(name, None)
    _serve(port, secret)
    sys.stdin.read()
    # A thread that still waits for something must not keep the process alive.
    end = threading.Timer(_FAREWELL_SECONDS, os._exit, (0,))
    end.daemon = True
    end.start()


def _give_signs(signs: BinaryIO) -> None:
    with suppress(BrokenPipeError):
        while True:
            signs.write(b".")
            time.sleep(_SIGN_SECONDS)


def _find_pyspark(release: str, spark_path: str) -> None:
    """Let `import pyspark` find the PySpark of the driver's release: that of this Python, or else Spark's own."""
    try:
        installed = version("pyspark")
    except PackageNotFoundError:
        installed = ""
    if installed.split(".")[:2] != release.split(".")[:2]:
        sys.path[:0] = spark_path.split(os.pathsep)


def _serve(port: str, secret: str) -> None:
    os.environ |= {"PYSPARK_GATEWAY_PORT": port, "PYSPARK_GATEWAY_SECRET": secret}
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    from planner.spark.hook import every_session

    gateway = launch_gateway()  # type: ignore[no-untyped-call] # pyspark leaves it untyped
    # Processes of builds need not know it.
    del os.environ["PYSPARK_GATEWAY_SECRET"]
    sidecar: JavaObject = gateway.jvm.io.puffinindex.spark.plugin.Sidecar.current()
    session = sidecar.awaitSession()
    if session is None:
        return
    java_context = gateway.jvm.org.apache.spark.api.java.JavaSparkContext(session.sparkContext())
    conf = SparkConf(_jconf=java_context.getConf())
    python_of_executors = conf.get("spark.pyspark.python")
    if python_of_executors:
        os.environ["PYSPARK_PYTHON"] = python_of_executors
    spark: SparkSession = SparkSession(SparkContext(gateway=gateway, jsc=java_context, conf=conf), session)
    try:
        sidecar.use(every_session(spark))
    except PuffinIndexError as error:
        # Java's own stack follows.
        sys.exit(" ".join(str(error).splitlines()[:2]))


if __name__ == "__main__":
    main()
