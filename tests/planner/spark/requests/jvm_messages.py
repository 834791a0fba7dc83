"""What the JVM sends of a scan: a request, and the nodes of conditions, also of the oracle's predicates."""

import json
from base64 import b64encode
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
from pyiceberg.schema import Schema

from planner.spark.requests.wire import Request
from tests import oracle
from tests.oracle import Among, And, Between, Compare, Contains, IsEmpty, IsNan, IsNull, Like, Not, Or
from tests.planner.laws.random_tables import LISTS

_EPOCH = datetime(1970, 1, 1)
_UNKNOWN = {"node": "unknown", "name": "Anything"}

_MAP = {"type": "map", "key-id": 7, "key": "string", "value-id": 8, "value": "double", "value-required": False}


def columns_of(*fields: tuple[int, str, Any]) -> str:
    """The schema of columns: the field id, the name and the type of each."""
    said = [
        {"id": field_id, "name": name, "required": False, "type": field_type, "initial-default": None}
        for field_id, name, field_type in fields
    ]
    return json.dumps({"type": "struct", "schema-id": 0, "fields": said})


REQUEST: dict[str, object] = {
    "table": "lake.ns.t",
    "uuid": "u",
    "snapshot": None,
    "filters": [],
    "conditions": [],
    "runtime_fields": {},
    "runtime_keys": [],
    "wanted": None,
    "aggregates": None,
    "sql": None,
    "columns": columns_of(
        (1, "i", "int"),
        (2, "s.t", "string"),
        (3, "v", "variant"),
        (4, "m", _MAP),
        (5, "key", "uuid"),
        (6, "place", "geometry(srid:3857)"),
    ),
    "name_mapping": None,
    "catalog": {},
    "settings": {},
    "session": "s",
    "thread": 1,
    "version": "",
    "unindexed": 0,
    "unindexed_files": 0,
}


def request_of(**changes: object) -> Request:
    return Request.model_validate_json(json.dumps(REQUEST | changes))


def column(field: int, type_name: str) -> dict[str, Any]:
    return {"node": "column", "type": type_name, "field": field, "path": ["a", "b.c"]}


def literal(content: Any, type_name: str = "int") -> dict[str, Any]:
    return {"node": "literal", "type": type_name, "content": content}


def encoded(content: bytes) -> str:
    return b64encode(content).decode()


def text(content: bytes) -> dict[str, Any]:
    return literal(encoded(content), "string")


def comparison(left: dict[str, Any], operator: str, right: dict[str, Any]) -> dict[str, Any]:
    return {"node": "comparison", "left": left, "operator": operator, "right": right}


def column_node(name: str, schema: Schema) -> dict[str, Any]:
    """The node of a column, a leaf of a struct, or the value of a key of a map of text."""
    map_name, _, key = name.partition("['")
    found = schema.find_field(map_name)
    node = {"node": "column", "field": found.field_id, "path": map_name.split(".")}
    if not key:
        return node | {"type": str(found.field_type).replace(" ", "")}
    return node | {"type": "string", "key": text(key.removesuffix("']").encode())}


def packed(contents: list[int] | list[bytes], form: str) -> str:
    """A list as the hook's Java packs it."""
    count = len(contents).to_bytes(4)
    if form == "N":
        return b64encode(b"N" + count + np.array(contents, ">i8").tobytes()).decode()
    lengths = np.array([len(one) for one in contents if isinstance(one, bytes)], ">i4").tobytes()
    return b64encode(b"B" + count + lengths + b"".join(one for one in contents if isinstance(one, bytes))).decode()


def literal_node(value: Any, type_name: str) -> dict[str, Any] | None:
    """The node of a literal of a type; None if it is of another type."""
    match value:
        case None:
            return literal(None, type_name)
        case bool() if type_name == "boolean":
            return literal(value, type_name)
        case bool():
            return None
        case int() if type_name in ("int", "long"):
            bits = 31 if type_name == "int" else 63
            fits = -(2**bits) <= value < 2**bits
            return literal(value, type_name) if fits else None
        case float() if type_name in ("float", "double"):
            number = float(np.float32(value)) if type_name == "float" else value
            return literal(int(np.float64(number).view(np.int64)), type_name)
        case datetime() if type_name in ("timestamp", "timestamptz"):
            since = value.astimezone(UTC).replace(tzinfo=None) - _EPOCH if value.tzinfo else value - _EPOCH
            micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
            return literal(micros, type_name)
        case date() if type_name == "date":
            return literal((value - _EPOCH.date()).days, type_name)
        case Decimal() if type_name.startswith("decimal"):
            precision, scale = map(int, type_name[8:-1].split(","))
            exponent = value.as_tuple().exponent
            fits = isinstance(exponent, int) and -exponent <= scale and abs(value) < Decimal(10) ** (precision - scale)
            return literal(str(value), type_name) if fits else None
        case str() if type_name == "string":
            return text(value.encode())
        case _:
            return None


def _contents_node(predicate: Contains | IsEmpty | IsNull, column: str, schema: Schema) -> dict[str, Any]:
    """The node of a test of the elements of an array."""
    found = schema.find_field(column)
    own = str(found.field_type).removeprefix("list<").removesuffix(">").replace(", ", ",")
    test = {Contains: "overlaps", IsEmpty: "is-empty", IsNull: "is-null"}[type(predicate)]
    members = [literal_node(value, own) for value in predicate.values] if isinstance(predicate, Contains) else []
    value = {"node": "column", "type": own, "field": found.field_id, "path": [column]}
    node = {"node": "contains", "test": test, "part": "elements", "value": value, "members": members}
    return _UNKNOWN if None in members else node


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
            right = literal_node(value, node["type"])
            return _UNKNOWN if right is None else comparison(node, operator, right)
        case Among(column, values):
            node = column_node(column, schema)
            members = [literal_node(value, node["type"]) for value in values]
            return _UNKNOWN if None in members else {"node": "in", "value": node, "members": members}
        case Between(column, low, high):
            return condition_node(And((Compare(column, ">=", low), Compare(column, "<=", high))), schema)
        case Contains(column) | IsEmpty(column):
            return _contents_node(predicate, column, schema)
        case IsNull(column) if column in LISTS:
            return _contents_node(predicate, column, schema)
        case IsNull(column):
            return {"node": "is-null", "value": column_node(column, schema)}
        case IsNan(column):
            return {"node": "is-nan", "value": column_node(column, schema)}
        case Like():
            return _UNKNOWN
