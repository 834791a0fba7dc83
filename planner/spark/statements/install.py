"""Put the statements into a Spark session, and take them out."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from planner.spark.rules import compile_java, hook_source, java_list, jvm_of, make
from planner.spark.statements.procedures import PROCEDURES

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

CATALOG = "puffin"
_PROCEDURES = "io.puffinindex.spark.Procedures"
_SESSION_CATALOGS = "io.puffinindex.spark.SessionCatalogs"
_SPARK_PROCEDURES = "org.apache.spark.sql.connector.catalog.ProcedureCatalog"


def put_procedures(
    spark: SparkSession, loader: JavaObject, rule: JavaObject, java_statements: JavaObject
) -> JavaObject | None:
    """Give a session the catalog of the procedures, unless a catalog of the user has that name; return the catalog.

    Returns None before Spark 4, or (with a warning) if the catalog does not compile.
    """
    from py4j.protocol import Py4JError

    try:
        jvm_of(spark).java.lang.Class.forName(_SPARK_PROCEDURES, False, loader)
    except Py4JError:
        _log.info("this Spark has no CALL for catalogs: planner.call(spark, ...) calls the procedures")
        return None
    described = json.dumps([procedure.describe() for procedure in PROCEDURES.values()])
    try:
        with_procedures = compile_java(spark, [hook_source("commands/Procedures.java")], loader, target=8)
        procedures = make(spark, with_procedures, _PROCEDURES, rule, java_statements, described)
        is_put = _session_catalogs(spark, loader, "put", spark._jsparkSession, CATALOG, procedures)
    except Py4JError as error:
        _log.warning("CALL %s.system is not there; planner.call(spark, ...) is: %s", CATALOG, error)
        return None
    if not is_put:
        _log.warning(
            "the session has a catalog %s of its own: CALL does not find the procedures, planner.call(spark, ...) does",
            CATALOG,
        )
    return procedures


def remove_procedures(spark: SparkSession, rule: JavaObject) -> None:
    """Take the catalog of the procedures out of a session that has a rule of the hook."""
    from py4j.protocol import Py4JError

    loader = rule.getClass().getClassLoader()
    try:
        _session_catalogs(spark, loader, "remove", spark._jsparkSession, CATALOG, _PROCEDURES)
    except Py4JError as error:
        # A catalog that cannot be taken out could not be put in either, or refuses calls by itself.
        _log.debug("the catalog %s is still there: %s", CATALOG, error)


def _session_catalogs(spark: SparkSession, loader: JavaObject, method: str, *arguments: object) -> object:
    found = loader.loadClass(_SESSION_CATALOGS)
    invoke = jvm_of(spark).org.apache.commons.lang3.reflect.MethodUtils.invokeStaticMethod
    return invoke(found, method, java_list(spark, arguments).toArray())
