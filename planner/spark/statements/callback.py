"""The Python side of statements: Spark's side executes one by calling `apply` over py4j."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError, RESTError
from requests.exceptions import RequestException
from sqlalchemy.exc import SQLAlchemyError

from planner.spark.catalogs import SparkCatalogs
from planner.spark.statements.index_statements import CreateIndex, DropIndex, create_index, drop_index
from planner.spark.statements.procedures import Row, Value, procedure_named
from planner.spark.statements.session import Builds, StatementSession
from puffin_index.errors import PuffinIndexError

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_EXPECTED = (
    PuffinIndexError,
    NoSuchTableError,
    NoSuchNamespaceError,
    CommitFailedException,
    RESTError,
    RequestException,
    SQLAlchemyError,
    OSError,
)
"""Errors that users see as a sentence. Others come with the stack of Python."""


class CallProcedure(BaseModel):
    """`CALL puffin.system.name(arguments)`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    statement: Literal["call"]
    name: str
    arguments: dict[str, Value]


_Request: TypeAlias = Annotated[CreateIndex | DropIndex | CallProcedure, Field(discriminator="statement")]
_REQUEST: TypeAdapter[CreateIndex | DropIndex | CallProcedure] = TypeAdapter(_Request)


class Statements:
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
        session = SparkSession(self._context, java_session)
        try:
            return json.dumps({"rows": self._execute(request, session)})
        except _EXPECTED as error:
            return json.dumps({"error": str(error)})

    def call(self, name: str, arguments: Mapping[str, Value], spark: SparkSession) -> list[Row]:
        """Call a procedure. Raises PuffinIndexError if there is no such procedure, or whatever the procedure raises."""
        return procedure_named(name).call(StatementSession(spark, self._catalogs, self._builds), arguments)

    def _execute(self, request: CreateIndex | DropIndex | CallProcedure, spark: SparkSession) -> list[Row]:
        if isinstance(request, CallProcedure):
            return self.call(request.name, request.arguments, spark)
        session = StatementSession(spark, self._catalogs, self._builds)
        if isinstance(request, CreateIndex):
            create_index(request, session)
        else:
            drop_index(request, session)
        return []

    def toString(self) -> str:  # noqa: N802 - Java's name
        """Java's `toString`."""
        return "puffin-index statements"

    class Java:
        """Tells py4j which Java interface this is."""

        implements: ClassVar[list[str]] = ["java.util.function.BiFunction"]
