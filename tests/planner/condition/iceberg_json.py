"""Filters of PyIceberg's in the JSON that Iceberg hands to the planner in Spark."""

import json
from typing import Any

from pyiceberg.expressions import BooleanExpression, Reference
from pyiceberg.schema import Schema

from planner.condition.iceberg_filters import read_filter
from planner.condition.tree.nodes import Predicate


def read_expression(expression: BooleanExpression, schema: Schema) -> Predicate:
    """Write a filter as JSON, which may hold half of a surrogate pair, and read it."""
    return read_filter(json.dumps(expression, default=_plain), schema)


def _plain(part: Any) -> Any:
    match part:
        case BooleanExpression():
            return part.model_dump()
        case Reference(name=name):
            return name
        case set():
            return list(part)
        case _:
            return str(part)
