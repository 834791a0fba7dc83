"""Predicates of the oracle as the nodes that the JVM sends."""

from base64 import b64encode
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
from pyiceberg.schema import Schema

from tests import oracle
from tests.oracle import Among, And, Between, Compare, IsNan, IsNull, Like, Not, Or

_EPOCH = datetime(1970, 1, 1)
_UNKNOWN = {"node": "unknown", "name": "Anything"}


def column_node(name: str, schema: Schema) -> dict[str, Any]:
    """The node of a column, a leaf of a struct, or the value of a key of a map of text."""
    map_name, _, key = name.partition("['")
    found = schema.find_field(map_name)
    node = {"node": "column", "field": found.field_id, "path": map_name.split(".")}
    if not key:
        return node | {"type": str(found.field_type).replace(" ", "")}
    text = {"node": "literal", "type": "string", "content": b64encode(key.removesuffix("']").encode()).decode()}
    return node | {"type": "string", "key": text}


def literal_node(value: Any, type_name: str) -> dict[str, Any] | None:
    """The node of a literal of a type; None if it is of another type."""
    match value:
        case None:
            return {"node": "literal", "type": type_name, "content": None}
        case bool() if type_name == "boolean":
            return {"node": "literal", "type": type_name, "content": value}
        case bool():
            return None
        case int() if type_name in ("int", "long"):
            bits = 31 if type_name == "int" else 63
            fits = -(2**bits) <= value < 2**bits
            return {"node": "literal", "type": type_name, "content": value} if fits else None
        case float() if type_name in ("float", "double"):
            number = float(np.float32(value)) if type_name == "float" else value
            return {"node": "literal", "type": type_name, "content": int(np.float64(number).view(np.int64))}
        case datetime() if type_name in ("timestamp", "timestamptz"):
            since = value.astimezone(UTC).replace(tzinfo=None) - _EPOCH if value.tzinfo else value - _EPOCH
            micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
            return {"node": "literal", "type": type_name, "content": micros}
        case date() if type_name == "date":
            return {"node": "literal", "type": type_name, "content": (value - _EPOCH.date()).days}
        case Decimal() if type_name.startswith("decimal"):
            precision, scale = map(int, type_name[8:-1].split(","))
            own = value.as_tuple()
            exponent = own.exponent
            fits = isinstance(exponent, int) and -exponent <= scale and abs(value) < Decimal(10) ** (precision - scale)
            return {"node": "literal", "type": type_name, "content": str(value)} if fits else None
        case str() if type_name == "string":
            return {"node": "literal", "type": "string", "content": b64encode(value.encode()).decode()}
        case _:
            return None


def condition_node(predicate: oracle.Predicate, schema: Schema) -> dict[str, Any]:
    """The node of a predicate; parts that Spark would convert first are unknown."""
    match predicate:
        case And(parts) | Or(parts):
            own = [condition_node(part, schema) for part in parts]
            return {"node": "and" if isinstance(predicate, And) else "or", "parts": own}
        case Not(part):
            return {"node": "not", "part": condition_node(part, schema)}
        case Compare(column, operator, value):
            if operator == "<>":
                return {"node": "not", "part": condition_node(Compare(column, "=", value), schema)}
            node = column_node(column, schema)
            literal = literal_node(value, node["type"])
            if literal is None:
                return _UNKNOWN
            return {"node": "comparison", "left": node, "operator": operator, "right": literal}
        case Among(column, values):
            node = column_node(column, schema)
            members = [literal_node(value, node["type"]) for value in values]
            return _UNKNOWN if None in members else {"node": "in", "value": node, "members": members}
        case Between(column, low, high):
            return condition_node(And((Compare(column, ">=", low), Compare(column, "<=", high))), schema)
        case IsNull(column):
            return {"node": "is-null", "value": column_node(column, schema)}
        case IsNan(column):
            return {"node": "is-nan", "value": column_node(column, schema)}
        case Like():
            return _UNKNOWN
