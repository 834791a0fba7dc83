"""The Python side of statements: Spark's side executes one by calling `apply` over py4j.

The procedures are in a catalog that is put into a Spark session, and taken out of it.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from planner.condition.spark.nodes import Message
from planner.spark.catalogs import SparkCatalogs
from planner.spark.rules import JavaFunction, java_list, jvm_of, make
from planner.spark.statements.index_statements import CreateIndex, DropIndex
from planner.spark.statements.procedures import PROCEDURES, Row, Value, procedure_named
from planner.spark.statements.session import Builds, StatementSession
from puffin_index.index_table.open_catalog import PASSING_ERRORS

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

CATALOG = "puffin"
_PROCEDURES = "io.puffinindex.spark.commands.Procedures"
_SESSION_CATALOGS = "io.puffinindex.spark.commands.SessionCatalogs"


class CallProcedure(Message):
    """`CALL puffin.system.name(arguments)`."""

    statement: Literal["call"]
    name: str
    arguments: dict[str, Value]

    def execute(self, session: StatementSession) -> list[Row]:
        """Call the procedure, or raise NotFoundError if there is none of this name."""
        return procedure_named(self.name).call(session, self.arguments)


_Request: TypeAlias = Annotated[CreateIndex | DropIndex | CallProcedure, Field(discriminator="statement")]
_REQUEST: TypeAdapter[CreateIndex | DropIndex | CallProcedure] = TypeAdapter(_Request)


class Statements(JavaFunction):
    """Executes the statements of an application's sessions."""

    def __init__(self, catalogs: SparkCatalogs, context: SparkContext) -> None:
        self._catalogs = catalogs
        self._context = context
        self._builds = Builds()

    def apply(self, request_text: str, java_session: JavaObject) -> str:
        """Execute a `CreateIndex`, `DropIndex` or `CallProcedure` given as JSON, in a session of the JVM.

        Returns JSON: `{"rows": [...]}`, or `{"error": "..."}` with a sentence for the user.
        """
        from pyspark.sql import SparkSession

        request = _REQUEST.validate_json(request_text)
        try:
            rows = request.execute(self.session_of(SparkSession(self._context, java_session)))
            return json.dumps({"rows": rows or []})
        except PASSING_ERRORS as error:
            # Any other error comes with the stack of Python.
            return json.dumps({"error": str(error)})

    def session_of(self, spark: SparkSession) -> StatementSession:
        """A session that executes statements."""
        return StatementSession(spark, self._catalogs, self._builds)


def put_procedures(
    spark: SparkSession, loader: JavaObject, rule: JavaObject, java_statements: JavaObject
) -> JavaObject | None:
    """Give a session the catalog of the procedures, unless a catalog of the user has that name; return the catalog.

    Returns None before Spark 4, or (with a warning) if the catalog cannot be put in.
    """
    from py4j.protocol import Py4JError

    try:
        loader.loadClass(_PROCEDURES)
    except Py4JError:
        _log.info("this Spark has no CALL for catalogs: planner.call(spark, ...) calls the procedures")
        return None
    described = json.dumps([procedure.describe() for procedure in PROCEDURES.values()])
    try:
        procedures = make(spark, loader, _PROCEDURES, rule, java_statements, described)
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
