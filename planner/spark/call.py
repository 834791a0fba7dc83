"""`planner.call`: the procedures of `puffin.system` from Python, on every release of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.spark.hook import callback_of
from planner.spark.statements.procedure import Value
from planner.spark.statements.procedures import procedure_named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def call(spark: SparkSession, procedure: str, /, **arguments: Value) -> DataFrame:
    """Call a procedure, as `CALL puffin.system.<procedure>(<name> => <value>, ...)` does on Spark 4.

    Args:
        spark: A session with the hook.
        procedure: The name.
        arguments: The arguments by name.

    Returns:
        The rows of the result.

    Raises:
        PuffinIndexError: If the session is not enabled, if there is no such procedure or parameter, or whatever the
            procedure raises.
    """
    rows = callback_of(spark).statements.call(procedure, arguments, spark)
    columns = ", ".join(f"`{column.name}` {column.type}" for column in procedure_named(procedure).columns)
    return spark.createDataFrame([tuple(row) for row in rows], columns)
