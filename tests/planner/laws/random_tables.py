"""Random tables with an index, from a seed and without Hypothesis.

For runs of very many pairs, where Hypothesis takes longer than planning does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.data_table import list_data_files
from puffin_index.storage.arrays import Flags, Ints
from tests import oracle
from tests.deletes_sample import commit_deletion_vectors, commit_equality_deletes, commit_positional_deletes
from tests.oracle import (
    And,
    Not,
    Or,
    Predicate,
)

T = TypeVar("T")
Truths = npt.NDArray[np.int8]
"""One of each row: 1 true, 0 false, -1 NULL."""

MAP_KEYS = ("a", "é")
TYPES: dict[str, pa.DataType] = {
    "i": pa.int64(),
    "j": pa.int32(),
    "d": pa.decimal128(10, 2),
    "w": pa.decimal128(30, 4),
    "f": pa.float64(),
    "g": pa.float32(),
    "s": pa.string(),
    "b": pa.bool_(),
    "dt": pa.date32(),
    "nt": pa.timestamp("us"),
    "ts": pa.timestamp("us", "UTC"),
}
LISTS = {"ls": "s", "li": "i", "lf": "f", "lw": "w", "lt": "ts"}
"""Columns of arrays, by the column whose values they have."""

SCHEMA = pa.schema(
    [
        *TYPES.items(),
        *((name, pa.list_(TYPES[column])) for name, column in LISTS.items()),
        ("u", pa.struct([("v", pa.int64())])),
        ("m", pa.map_(pa.string(), pa.string())),
        # The number of each row in its table, which has no index.
        ("n", pa.int64()),
    ]
)
KEY_COLUMNS = {f"m['{key}']": key for key in MAP_KEYS}
COLUMNS = (*TYPES, "u.v", *KEY_COLUMNS)
INDEXED_NAMES = {column: column for column in (*TYPES, "u.v")} | {
    column: f"m#k#{key}" for column, key in KEY_COLUMNS.items()
}

_EDGES: dict[str, list[Any]] = {
    "i": [2**63 - 1, -(2**63), 2**53, 2**53 + 1, 2**31],
    "j": [2**31 - 1, -(2**31)],
    "d": [Decimal("99999999.99"), Decimal("-99999999.99")],
    "w": [Decimal("99999999999999999999999999.9999"), Decimal("-0.0001")],
    "f": [0.0, -0.0, 5e-324, 1.7976931348623157e308],
    "g": [0.0, -0.0, float(np.float32(0.1)), float(np.float32(3.4e38))],
    "s": [
        "",
        "a",
        "ab",
        "abc",
        "a%",
        "%",
        "_",
        "it's",
        "\\",
        "\\%",
        "a\nb",
        "a\0",
        "ä",
        "a\u0308",
        "\ufffd",
        "😀",
        "\uffff",
    ],
    "b": [],
    "dt": [date(1, 1, 1), date.max],
    "nt": [datetime(1, 1, 2), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(9999, 12, 30)],
}
# What a column can hold but no literal can say.
_UNSAYABLE = [math.nan, math.inf, -math.inf]
_MOMENT = datetime(2024, 1, 1)


def plain_value(column: str, random: Random) -> Any:
    """A value of which a table has many."""
    number = random.randrange(-20, 21)
    match column:
        case "i" | "j" | "u.v":
            return number
        case "d":
            return Decimal(number * 25) / 100
        case "w":
            return Decimal(number * 12_501) / 10_000
        case "f" | "g":
            return number / 4
        case "b":
            return number > 0
        case "dt":
            return date(2024, 1, 1) + timedelta(days=number)
        case "nt":
            return _MOMENT + timedelta(seconds=number * 1_800)
        case "ts":
            return plain_value("nt", random).replace(tzinfo=UTC)
        case _:
            return "".join(random.choices("abü%_'", k=random.randrange(4)))


def _edges(column: str) -> list[Any]:
    match column:
        case "ts":
            return [moment.replace(tzinfo=UTC) for moment in _EDGES["nt"]]
        case "u.v":
            return _EDGES["i"]
        case _:
            return _EDGES.get(column, _EDGES["s"])


def sayable(column: str, random: Random) -> Any:
    """A value that a literal can say."""
    edges = _edges(column)
    return random.choice(edges) if edges and random.random() < 0.2 else plain_value(column, random)


@dataclass(frozen=True)
class Values:
    """The values of a column: the distinct ones, NULL among them or not, and which of them each row has."""

    distinct: list[Any]
    codes: Ints

    @property
    def rows(self) -> list[Any]:
        return [self.distinct[code] for code in self.codes.tolist()]


def _values(column: str, count: int, random: Random) -> Values:
    distinct = [sayable(column, random) for _ in range(random.choice([1, 2, 4, 8, 30]))]
    if column in "fg" and random.random() < 0.5:
        distinct += random.sample(_UNSAYABLE, 2)
    if random.random() < 0.6:
        distinct.append(None)
    codes = [random.randrange(len(distinct)) for _ in range(count)]
    # Sorted, partly sorted or in bursts, so that some row groups have few values and narrow bounds.
    match random.randrange(4):
        case 0:
            codes.sort()
        case 1:
            burst = random.choice([2, 5, 12])
            codes = [codes[row - row % burst] for row in range(count)]
        case 2:
            codes[::2] = sorted(codes[::2])
    return Values(distinct, np.array(codes, np.int64))


def _lists(column: str, count: int, random: Random) -> Values:
    """Values of arrays: of few or many elements, NULL among them, some of them twice."""
    elements = [*_values(column, 12, random).distinct, None][: random.choice([2, 5, 40])]
    distinct = [[random.choice(elements) for _ in range(random.choice([0, 1, 1, 3, 9]))] for _ in range(8)]
    codes = np.array([random.randrange(9) for _ in range(count)], np.int64)
    return Values([*distinct, None], np.sort(codes) if random.random() < 0.3 else codes)


@dataclass(frozen=True)
class Append:
    """The rows of one data file; `first` is the number of the first."""

    first: int
    count: int
    columns: dict[str, Values]

    @classmethod
    def random(cls, random: Random, first: int) -> Append:
        count = random.choice([1, 3, 20, 60])
        columns = {column: _values(column, count, random) for column in COLUMNS}
        return cls(first, count, columns | {name: _lists(own, count, random) for name, own in LISTS.items()})

    def to_arrow(self, random: Random) -> pa.Table:
        rows = {column: values.rows for column, values in self.columns.items()}
        arrays = [pa.array(rows[column], arrow_type) for column, arrow_type in TYPES.items()]
        arrays += [pa.array(rows[name], SCHEMA.field(name).type) for name in LISTS]
        # Where the leaf is NULL, the struct is or is not.
        structs = [None if value is None and random.random() < 0.5 else {"v": value} for value in rows["u.v"]]
        found = zip(*(rows[column] for column in KEY_COLUMNS), strict=True)
        maps = [
            [
                (key, value)
                for key, value in zip(MAP_KEYS, pair, strict=True)
                if value is not None or random.random() < 0.5
            ]
            for pair in found
        ]
        arrays += [pa.array(structs, SCHEMA.field("u").type), pa.array(maps, SCHEMA.field("m").type)]
        numbers = pa.array(np.arange(self.first, self.first + self.count))
        return pa.Table.from_arrays([*arrays, numbers], schema=SCHEMA)

    def truths(self, predicate: Predicate) -> Truths:
        """What a predicate says of each row; a leaf is asked of each distinct value, combinations of whole columns."""
        match predicate:
            case Not(part):
                found = self.truths(part)
                return np.where(found < 0, found, 1 - found).astype(np.int8)
            case And(parts) | Or(parts):
                decisive = int(isinstance(predicate, Or))
                sides = np.stack([self.truths(part) for part in parts])
                undecided = np.where((sides < 0).any(axis=0), -1, 1 - decisive)
                return np.where((sides == decisive).any(axis=0), decisive, undecided).astype(np.int8)
            case leaf:
                values = self.columns[leaf.column]
                found = [oracle.evaluate(leaf, {leaf.column: value}) for value in values.distinct]
                return np.array([-1 if truth is None else int(truth) for truth in found], np.int8)[values.codes]


def _definition(random: Random) -> IndexDefinition:
    def some() -> list[str]:
        return [INDEXED_NAMES[column] for column in COLUMNS if random.random() < 0.5]

    bitmap = some() or ["i"]
    bsi = [name for name in some() if name not in ("s", "b") and "#" not in name]
    contents = [*(f"{name}#c#elements" for name in LISTS), "m#c#keys", "m#c#values", "m#c#values", "s#c#words"]
    lists = [*dict.fromkeys(name for name in contents if random.random() < 0.5)]
    options = {f"{name}.layout": random.choice(["bitmaps", "postings"]) for name in bitmap}
    options |= {f"{name}.compression": random.choice(["auto", "auto", "none"]) for name in bsi}
    bloom = [*some(), *random.sample(lists, len(lists) // 2)]
    return IndexDefinition.of(bitmap=[*bitmap, *lists], bsi=bsi, bloom=bloom, options=options)


@dataclass(frozen=True)
class RandomTable:
    """A table, its index, its rows by data file, and which of these are deleted."""

    index: TableIndex
    row_group_rows: int
    appends: dict[str, Append]
    deleted: dict[str, Flags]

    @classmethod
    def make(cls, seed: int, catalog: SqlCatalog) -> RandomTable:
        """Make the table of a seed in an empty catalog."""
        random = Random(seed)
        row_group_rows = random.choice([1, 2, 5, 16])
        properties = {"write.parquet.row-group-limit": str(row_group_rows)}
        if random.random() < 0.5:
            # Else Iceberg's own pruning by bounds takes much away from the index.
            properties["write.metadata.metrics.default"] = "none"
        table = catalog.create_table("ns.t", SCHEMA, properties=properties)
        appends: dict[str, Append] = {}
        # Drawn apart, so that a seed has the rows and indexes that it had before there were equality deletes.
        apart = Random(-1 - seed)
        by_equality = apart.random() < 0.3
        deleted: dict[str, Flags] = {}
        files = random.randrange(1, 4)
        built = random.randrange(files)
        for number in range(files):
            append = Append.random(random, sum(earlier.count for earlier in appends.values()))
            table.append(append.to_arrow(random))
            (path,) = {file.path for file in list_data_files(table)} - appends.keys()
            appends[path] = append
            deleted[path] = np.zeros(append.count, np.bool_)
            if by_equality and apart.random() < 0.7:
                _delete_by_equality(apart, table, appends, deleted)
            if number == built or random.random() < 0.5:
                index = TableIndex.create(catalog, "ns.t", _definition(random))
                index.build(workers=1)
        if random.random() < 0.3:
            index.compact()
        if random.random() < 0.3:
            chosen = {path: np.array([random.random() < 0.2 for _ in flags]) for path, flags in deleted.items()}
            for path, flags in chosen.items():
                deleted[path] |= flags
            positions = {path: np.flatnonzero(flags).tolist() for path, flags in chosen.items() if flags.any()}
            commit = random.choice([commit_positional_deletes, commit_deletion_vectors])
            if positions:
                commit(table, positions)
        index.refresh()
        return cls(index, row_group_rows, appends, deleted)


def _delete_by_equality(random: Random, table: Table, appends: dict[str, Append], deleted: dict[str, Flags]) -> None:
    """Commit an equality delete file; say which rows of each data file it deletes, row by row."""
    columns = random.sample([*TYPES], random.choice([1, 1, 1, 2, 3]))
    keys = []
    for _ in range(random.choice([1, 2, 5, 100])):
        append = random.choice([*appends.values()])
        at = random.randrange(append.count)
        row = [append.columns[column].rows[at] for column in columns]
        keys.append(
            [
                sayable(column, random) if random.random() < 0.2 else own
                for column, own in zip(columns, row, strict=True)
            ]
        )
    arrays = {column: pa.array([key[at] for key in keys], TYPES[column]) for at, column in enumerate(columns)}
    commit_equality_deletes(table, pa.table(arrays))
    for path, append in appends.items():
        rows = zip(*(append.columns[column].rows for column in columns), strict=True)
        deleted[path] |= [any(all(map(_are_same, row, key)) for key in keys) for row in rows]


def _are_same(value: Any, key: Any) -> bool:
    """Whether two values are equal as Iceberg's equality deletes compare: NULL and NaN equal themselves."""
    if isinstance(value, float) and isinstance(key, float):
        return str(value) == str(key)
    return bool(value == key)
