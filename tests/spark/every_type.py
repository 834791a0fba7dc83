"""A table with every type that Spark reads, written by PyIceberg: values of each that are rare, edges, NaN and NULL."""

import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from puffin_index import TableIndex
from tests.conftest import built

ROWS = 3_000
ROW_GROUP_ROWS = 250
_NOON = datetime(1970, 1, 1, 12)
_LONG_EDGES = {1: 2**63 - 1, 2: -(2**63)}
_FLOAT_EDGES = {1: float("nan"), 2: -0.0, 3: 0.0, 4: float("inf"), 5: float("-inf")}
_BYTES = ("word", "bytes", "code", "key")
_WORDS = {1: "", 2: "ÄÖ\U0001f600", 3: "it's"}

_TYPES: dict[str, str | IcebergType] = {
    "k": "long",
    "flag": "boolean",
    "small": "int",
    "large": "long",
    "single": "float",
    "double": "double",
    "money": "decimal(9,2)",
    "middle": "decimal(18,4)",
    "wide": "decimal(38,5)",
    "day": "date",
    "local": "timestamp",
    "moment": "timestamptz",
    "word": "string",
    "bytes": "binary",
    "code": "fixed[4]",
    "key": "uuid",
    "inner": StructType(
        NestedField(101, "leaf", "int"),
        NestedField(102, "deep", StructType(NestedField(103, "word", "string"))),
    ),
    "items": ListType(104, "int", element_required=False),
    "tags": MapType(105, "string", 106, "string", value_required=False),
}


def _row(i: int) -> dict[str, object]:
    """A row; every seventh value of a column is NULL, those of two columns in different rows."""
    spread = (i * 7_919) % ROWS
    moment = _NOON + timedelta(seconds=spread * 3_607, microseconds=spread)
    values: dict[str, object] = {
        "flag": i % 3 == 0,
        "small": spread % 1_000 - 500,
        "large": _LONG_EDGES.get(i % 500, spread * 31),
        "single": _FLOAT_EDGES.get(i % 300, spread / 8),
        "double": _FLOAT_EDGES.get(i % 400, spread / 7),
        "money": Decimal(spread * 7) / 100,
        "middle": Decimal(spread * 104_729) / 10_000,
        "wide": Decimal(spread) * 10**20,
        "day": date(1969, 1, 1) + timedelta(days=spread),
        "local": moment,
        "moment": moment.replace(tzinfo=UTC),
        "word": _WORDS.get(i % 600, f"{spread * 2_654_435_761 % 2**32:08x}"),
        "bytes": spread.to_bytes(3, "big"),
        "code": (spread + 2**24).to_bytes(4, "big"),
        "key": uuid.UUID(int=spread * 2**90).bytes,
        "inner": {"leaf": spread % 900, "deep": {"word": f"deep-{spread}"}},
        "items": [spread, None, i],
        "tags": [("color", f"c{spread % 700}"), ("size", None)],
    }
    nulled = {name: None if (i + at) % 7 == 0 else value for at, (name, value) in enumerate(values.items())}
    return {"k": spread, **nulled}


def rows(start: int = 0, end: int = ROWS) -> pa.Table:
    schema = Schema(*(NestedField(at, column, kind) for at, (column, kind) in enumerate(_TYPES.items(), 1)))
    return pa.Table.from_pylist(
        [_row(i) for i in range(start, end)], schema=schema_to_pyarrow(schema, include_field_ids=False)
    )


def create(catalog: Catalog, name: str) -> TableIndex:
    """Create the table in two files of six row groups each, and an index of every column that can have one."""
    properties = {"write.parquet.row-group-limit": str(ROW_GROUP_ROWS)}
    table = catalog.create_table(name, rows(0, 0).schema, properties=properties)
    for start in (0, ROWS // 2):
        table.append(rows(start, start + ROWS // 2))
    scalars = [column for column, kind in _TYPES.items() if isinstance(kind, str) and column != "k"]
    nested = ["inner.leaf", "inner.deep.word", "tags#k#color"]
    return built(
        catalog,
        name,
        bitmap=["flag", "small", "day", "code", *nested],
        bsi=["k", "inner.leaf", *(column for column in scalars if column not in ("flag", *_BYTES))],
        bloom=[*_BYTES, "large", "wide", "moment"],
    )
