"""The Python side of statements: Spark's side executes one by calling `apply` over py4j."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from planner.condition.spark.nodes import Message
from planner.spark.catalogs import SparkCatalogs
from planner.spark.rules import JavaFunction
from planner.spark.statements.index_statements import CreateIndex, DropIndex
from planner.spark.statements.procedures import Row, Value, procedure_named
from planner.spark.statements.session import Builds, StatementSession
from puffin_index.index_table.open_catalog import PASSING_ERRORS

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


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
