"""A Spark session's JVM from Python: its configuration and rules, and the Java of the hook, compiled by Janino.

Compilation takes a second and more, so classes are kept for later applications of the same user, for each build of
Spark and of Iceberg in a file of its own.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from puffin_index.storage.caches import user_folder

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway, JavaObject, JVMView
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_EPOCH = (1980, 1, 1, 0, 0, 0)


def place_of(jvm: JVMView, sources: Iterable[str]) -> Path | None:
    """Return where the classes of some sources are kept for the Spark and Iceberg of a JVM; None if nowhere.

    The folder is `puffin-index` in `$XDG_CACHE_HOME`, by default `~/.cache`. Only its owner may write there, because
    the driver executes what it finds.
    """
    from py4j.protocol import Py4JError

    spark = getattr(jvm.org.apache.spark, "package$")
    try:
        builds = [
            getattr(spark, "MODULE$").SPARK_VERSION(),
            getattr(spark, "MODULE$").SPARK_REVISION(),
            jvm.org.apache.iceberg.IcebergBuild.fullVersion(),
            jvm.java.lang.System.getProperty("java.specification.version"),
        ]
        folder = user_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except (Py4JError, TypeError, OSError, RuntimeError) as error:
        _log.debug("compiled classes are not kept: %s", error)
        return None
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        _log.debug("compiled classes are not kept: others may write to %s", folder)
        return None
    key = hashlib.sha256("\0".join([*map(str, builds), *sources]).encode()).hexdigest()
    return folder / f"hook-{key[:32]}.jar"


def keep(place: Path, classes: Mapping[str, bytes]) -> None:
    """Keep classes by name. A reader of the place finds all of them or no file."""
    temporary = ""
    try:
        with tempfile.NamedTemporaryFile(dir=place.parent, suffix=".tmp", delete=False) as file:
            temporary = file.name
            with zipfile.ZipFile(file, "w") as jar:
                for name, content in sorted(classes.items()):
                    jar.writestr(zipfile.ZipInfo(f"{name.replace('.', '/')}.class", _EPOCH), content)
        os.replace(temporary, place)
    except OSError as error:
        _log.debug("compiled classes are not kept: %s", error)
        with suppress(OSError):
            os.unlink(temporary)


RULE = "io.puffinindex.spark.PruneScans"
STRATEGY = "io.puffinindex.spark.AnswerAggregates"
STATEMENTS = "io.puffinindex.spark.IndexStatements"
PYTHON_STATEMENTS = "io.puffinindex.spark.PythonStatements"
EVERY_SESSION = "io.puffinindex.spark.EverySession"

_SOURCES = (
    "Change.java",
    "Lists.java",
    "JobNotes.java",
    "PartitionConstants.java",
    "SessionSettings.java",
    "ScanTasks.java",
    "commands/SessionCatalogs.java",
    "View.java",
    "functions/ColumnValues.java",
    "functions/MonotoneFunction.java",
    "functions/Evaluation.java",
    "functions/ColumnFunction.java",
    "PythonCalls.java",
    "PackedList.java",
    "Conditions.java",
    "aggregates/AggregateAnswer.java",
    "aggregates/ComputedValues.java",
    "aggregates/AggregateQuestion.java",
    "ScanQuestion.java",
    "IndexPlanner.java",
    "joins/RuntimeScan.java",
    "joins/SmallSide.java",
    "joins/AwaitedColumn.java",
    "joins/JoinKey.java",
    "joins/ScalarComparison.java",
    "joins/RuntimeFilters.java",
    "WantedRows.java",
    "Subqueries.java",
    "PruneScans.java",
    "aggregates/ExistingRows.java",
    "aggregates/AnswerAggregates.java",
    "commands/PythonStatements.java",
    "commands/IndexStatements.java",
    "EverySession.java",
)
"""Each file uses the files before it."""

_compiled: WeakKeyDictionary[JavaGateway, list[tuple[JavaObject, tuple[str, ...], JavaObject]]] = WeakKeyDictionary()
"""For each JVM: a loader, the files that were compiled on top of it, and the loader of their classes."""


class JavaFunction:
    """A Java function of two arguments that py4j calls in Python, as `apply`."""

    def toString(self) -> str:  # noqa: N802 - Java's name
        """Java's `toString`."""
        return "puffin-index"

    class Java:
        """Tells py4j which Java interface this is."""

        implements: ClassVar[list[str]] = ["java.util.function.BiFunction"]


def jvm_of(spark: SparkSession) -> JVMView:
    """The JVM of a classic session."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return jvm


def session_conf(spark: SparkSession) -> dict[str, str]:
    """The whole configuration of a session, in one crossing."""
    entries = spark._jsparkSession.sessionState().conf().settings()
    mapper = jvm_of(spark).com.fasterxml.jackson.databind.ObjectMapper()
    conf: dict[str, str] = json.loads(mapper.writeValueAsString(entries))
    return conf


def our_rules(spark: SparkSession) -> list[JavaObject]:
    """The hook's rules in a session."""
    # A session asks its extensions for rules when it lists its batches, and `EverySession` adds a rule then.
    spark._jsparkSession.sessionState().optimizer().batches()
    return [rule for rule in _added(spark, "extraOptimizations") if _is_ours(rule)]


def replace_ours(spark: SparkSession, rules: Sequence[JavaObject] = (), strategies: Sequence[JavaObject] = ()) -> None:
    """Put rules and planning strategies of the hook into a session, in place of those that the session has."""
    experimental = spark._jsparkSession.experimental()
    # Both Scala 2.12 and 2.13 have this method.
    to_sequence = jvm_of(spark).org.apache.spark.api.python.PythonUtils.toSeq
    for name, ours in (("extraOptimizations", rules), ("extraStrategies", strategies)):
        others = (one for one in _added(spark, name) if not _is_ours(one))
        getattr(experimental, f"{name}_$eq")(to_sequence(java_list(spark, [*others, *ours])))


def _added(spark: SparkSession, name: str) -> list[JavaObject]:
    added = getattr(spark._jsparkSession.experimental(), name)()
    return [added.apply(at) for at in range(added.size())]


def _is_ours(rule: JavaObject) -> bool:
    return rule.getClass().getName() in (RULE, STRATEGY, STATEMENTS)


def call_ours(spark: SparkSession, rule: JavaObject, method: str) -> Any:
    """Call a method of the hook's rule.

    Another Python process of the JVM has classes of the same names. py4j keeps methods by the name of their class, so
    only reflection finds the method of the right class.
    """
    return jvm_of(spark).org.apache.commons.lang3.reflect.MethodUtils.invokeMethod(rule, method)


def hook_source(name: str) -> str:
    """The text of one of the hook's Java files."""
    return files("planner.spark").joinpath("java", name).read_text(encoding="utf-8")


def compile_java(
    spark: SparkSession, sources: Iterable[str], parent: JavaObject | None = None, target: int | None = None
) -> JavaObject:
    """Compile Java files with Janino, which Spark ships, once a JVM; return the class loader that has the classes.

    Each file sees the files before it, and the classes of `parent`, by default those of the thread. The target is 8 for
    files that call static methods of interfaces.
    """
    jvm = jvm_of(spark)
    beneath = parent or jvm.java.lang.Thread.currentThread().getContextClassLoader()
    texts = tuple(sources)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    known = _compiled.setdefault(gateway, [])
    for other, compiled, found in known:
        if compiled == texts and other == beneath:
            return found
    kept = place_of(jvm, texts)
    if kept is not None and zipfile.is_zipfile(kept):
        urls = gateway.new_array(jvm.java.net.URL, 1)
        urls[0] = jvm.java.net.URL(kept.as_uri())
        loader = jvm.java.net.URLClassLoader(urls, beneath)
    else:
        loader, classes = _compile(jvm, texts, beneath, target)
        if kept is not None:
            keep(kept, classes)
    known.append((beneath, texts, loader))
    return loader


def compile_hook(spark: SparkSession) -> JavaObject:
    """Compile the hook; return the class loader that has its classes."""
    return compile_java(spark, map(hook_source, _SOURCES))


def _compile(
    jvm: JVMView, texts: Iterable[str], loader: JavaObject, target: int | None
) -> tuple[JavaObject, dict[str, bytes]]:
    classes: dict[str, bytes] = {}
    for text in texts:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        if target is not None:
            compiler.setTargetVersion(target)
        compiler.cook(text)
        loader = compiler.getClassLoader()
        classes |= {entry.getKey(): bytes(entry.getValue()) for entry in compiler.getBytecodes().entrySet()}
    return loader, classes


def make(spark: SparkSession, loader: JavaObject, name: str, *arguments: object) -> JavaObject:
    """Make an object of a compiled class with one public constructor."""
    return loader.loadClass(name).getConstructors()[0].newInstance(java_list(spark, arguments).toArray())


def java_list(spark: SparkSession, items: Iterable[object]) -> JavaObject:
    """A Java list; py4j can add a Python object to a list, but cannot put one into an array."""
    as_list = jvm_of(spark).java.util.ArrayList()
    for item in items:
        as_list.add(item)
    return as_list
