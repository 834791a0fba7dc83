"""Ask the planner's side of the hook as the JVM does, without a JVM: requests about tables that PyIceberg made."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, cast

import numpy as np
from pyiceberg.schema import Schema
from pyroaring import BitMap

from planner.arrow.plan import view_of
from planner.clock import Clock
from planner.condition.tree.nodes import UNKNOWN
from planner.report.scan_plan import ScanPlan
from planner.snapshot.snapshot_files import list_scan_files
from planner.spark.callback import PlannerCallback
from planner.view.index_view import IndexView
from puffin_index import TableIndex
from puffin_index.data.column_source import reading_of
from tests import oracle
from tests.oracle import Among, And, Between, Compare, IsNan, IsNull, Like, Not, Or

SESSION = "session"
_EPOCH = datetime(1970, 1, 1)
_UNKNOWN = {"node": "unknown", "name": "Anything"}

_OFTEN = {"added_doubles": [], "declined": False}
"""What a question of aggregates says mostly."""


@dataclass
class Asked:
    """What the hook answered.

    Attributes:
        answer: Its bytes.
        plan: The scan plan, if the hook reports one.
    """

    answer: bytes
    plan: ScanPlan | None


@dataclass
class AskedHook:
    """A hook that is asked about one table.

    Attributes:
        index: The table's index.
        settings: The settings of the session, without prefix.
        strict: As of `planner.enable`.
    """

    index: TableIndex
    settings: Mapping[str, str] = field(default_factory=dict)
    strict: bool = True
    callback: PlannerCallback = field(init=False)

    def __post_init__(self) -> None:
        # Only planning on executors would need a Spark context.
        context = cast(Any, None)
        self.callback = PlannerCallback({"lake": self.index.catalog}, context, SESSION, strict=self.strict)

    @property
    def schema(self) -> Schema:
        return self.index.data_table.schema()

    @property
    def view(self) -> IndexView:
        self.index.refresh()
        return view_of(self.index.index_table, reading_of(self.index.data_table, self.schema))

    def ask(
        self,
        conditions: Sequence[dict[str, Any]] = (),
        *,
        filters: Sequence[str] = (),
        snapshot: int | None = None,
        wanted: dict[str, Any] | None = None,
        aggregates: dict[str, Any] | None = None,
        keys: Sequence[dict[str, Any]] = (),
        session: str = SESSION,
    ) -> Asked:
        """Ask about all data files of a snapshot."""
        view, table = self.view, self.index.data_table
        chosen = table.current_snapshot() if snapshot is None else table.snapshot_by_id(snapshot)
        assert chosen is not None
        files = list_scan_files(table, chosen, self.schema, UNKNOWN, Clock(np.inf))
        numbers, deleted, deletes = BitMap(), BitMap(), []
        unindexed = unindexed_files = 0
        for file in files:
            own = view.row_groups_of(file.file)
            if own is None:
                unindexed += max(1, len(file.file.split_offsets))
                unindexed_files += 1
                continue
            numbers |= BitMap(own)
            if file.deletes or file.has_equality_deletes:
                deleted |= BitMap(own)
                listed = [[one.path, one.file_size, one.record_count, one.format] for one in file.deletes]
                deletes.append({"first": own.start, "files": listed, "others": file.has_equality_deletes})
        request = {
            "table": "lake.ns.t",
            "uuid": str(table.metadata.table_uuid),
            "snapshot": chosen.snapshot_id,
            "filters": list(filters),
            "conditions": list(conditions),
            "runtime_fields": {},
            "runtime_keys": list(keys),
            "wanted": None if wanted is None else wanted | {"deleted": b64encode(deleted.serialize()).decode()},
            "aggregates": None if aggregates is None else aggregates | {"deletes": deletes, **_OFTEN},
            "sql": None,
            "columns": self.schema.model_dump_json(),
            "name_mapping": None,
            "catalog": {},
            "settings": {f"spark.puffin-index.{key}": value for key, value in self.settings.items()},
            "session": session,
            "thread": 1,
            "version": view.version,
            "unindexed": unindexed,
            "unindexed_files": unindexed_files,
        }
        before = self.callback.reports.of(session)
        answer = self.callback.apply(json.dumps(request), numbers.serialize())
        after = self.callback.reports.of(session)
        return Asked(bytes(answer), after[-1] if len(after) > len(before) else None)

    def wait(self) -> None:
        assert self.callback.observers.wait(60)


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
