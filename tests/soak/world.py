"""A table under soak: its catalog, how it is made, and questions whose answers DuckDB knows as well."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import duckdb
import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ValidationException
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from puffin_index import IndexDefinition, TableIndex
from puffin_index.index_table.open_catalog import PASSING_ERRORS
from puffin_index.storage.caches import clear_caches
from tests.soak.started import resident_bytes

TABLE = "soak.t"
CATALOG = "lake"
TROUBLE = (*PASSING_ERRORS, ValidationException, pa.ArrowException)
"""What a store, a catalog or another writer may do to whoever works on a table."""

DEFINITION = IndexDefinition.of(
    bitmap=["k", "word"], bsi=["k", "id"], bloom=["word"], options={"word.layout": "bitmaps"}
)
COLUMNS = ("id", "k", "n", "word")
"""The columns of the beginning; their field ids are 1 to 4, whatever they are called by now."""

EMPTY_CACHES_SECONDS = 20.0
"""Caches grow up to their bounds, so leaks are looked for beyond them."""

EMPTIED = "caches are empty"
"""A line of the log of a process that has emptied its caches."""

_VALUES = 4_000
_WORDS = 150


@dataclass(frozen=True, slots=True)
class World:
    """Where a table lies, with a folder for what processes write down and a catalog in SQLite."""

    name: str
    folder: str
    uri: str
    warehouse: str
    store: Mapping[str, str]

    @property
    def properties(self) -> dict[str, str]:
        return {"uri": self.uri, "warehouse": self.warehouse, **self.store}

    @property
    def database(self) -> Path:
        return Path(self.uri.removeprefix("sqlite:///"))

    def open(self) -> SqlCatalog:
        return SqlCatalog(CATALOG, **self.properties)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: str) -> World:
        return cls(**json.loads(Path(path).read_text(encoding="utf-8")))

    def make_table(self) -> None:
        """Make the table and define its index, unless an earlier part did and has renamed the columns since."""
        with_catalog = self.open()
        with_catalog.create_namespace_if_not_exists("soak")
        if not with_catalog.table_exists(TABLE):
            properties = {
                "write.parquet.row-group-limit": "200",
                "write.metadata.delete-after-commit.enabled": "true",
                "write.metadata.previous-versions-max": "10",
            }
            table = with_catalog.create_table(TABLE, rows(0, 0, 500).schema, properties=properties)
            table.append(rows(0, 0, 500))
            TableIndex.create(with_catalog, TABLE, DEFINITION)
        with_catalog.close()


def rows(seed: int, first_id: int, count: int) -> pa.Table:
    chooser = np.random.default_rng(seed)
    return pa.table(
        {
            "id": pa.array(range(first_id, first_id + count), pa.int64()),
            "k": pa.array(chooser.integers(0, _VALUES, count), pa.int64(), mask=chooser.random(count) < 0.1),
            "n": pa.array(chooser.integers(-50, 50, count), pa.int32()),
            "word": pa.array([f"w{n}" for n in chooser.integers(0, _WORDS, count)], pa.string()),
        }
    )


def names_now(schema: Schema) -> dict[str, str]:
    """Return what the columns of the beginning are called in a schema."""
    return {name: schema.find_column_name(field_id) or "" for field_id, name in enumerate(COLUMNS, 1)}


def ask(random: Random, names: Mapping[str, str], most_id: int) -> str:
    """Make up a condition: one to three tests under AND, OR and NOT."""
    first, *others = [_test(random, names, most_id) for _ in range(random.choice((1, 1, 2, 3)))]
    where = first
    for other in others:
        where = f"({where}) {random.choice(('AND', 'OR'))} ({other})"
    return f"NOT ({where})" if random.random() < 0.2 else where


def _test(random: Random, names: Mapping[str, str], most_id: int) -> str:
    word, k, n, key = names["word"], names["k"], names["n"], names["id"]
    low = random.randrange(_VALUES)
    text, start = f"w{random.randrange(_WORDS + 5)}", random.randrange(most_id + 1)
    texts = ", ".join(f"'w{random.randrange(_WORDS)}'" for _ in range(3))
    return random.choice(
        (
            f"{k} = {low}",
            f"{k} BETWEEN {low} AND {low + random.choice((0, 3, 40, 900))}",
            f"{k} IS NULL",
            f"{word} = '{text}'",
            f"{word} IN ({texts})",
            f"{word} LIKE '{text}%'",
            f"{n} < {random.randrange(-52, 52)}",
            f"{key} >= {start} AND {key} < {start + 300}",
        )
    )


def matching(where: str, data: pa.Table) -> pa.Table:
    """Return the rows that DuckDB finds to satisfy a condition."""
    with duckdb.connect() as connection:
        return connection.from_arrow(data).filter(where).to_arrow_table()


def read_plainly(table: Table, snapshot_id: int | None) -> pa.Table:
    return table.scan(snapshot_id=snapshot_id).to_arrow()


def empty_caches() -> None:
    """Empty all caches, which have bounds of their own, and tell how much memory the process has beyond them."""
    trim_memory()
    tell("memory", resident_bytes=resident_bytes(os.getpid()))


def trim_memory() -> None:
    """Empty all caches, give what they had back to the system, and say so in the log."""
    clear_caches()
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    # The log may speak of each damaged segment again.
    print(EMPTIED, file=sys.stderr, flush=True)  # noqa: T201


def tell_trouble(event: str, error: Exception) -> None:
    """Tell the program of an error that a store, a catalog or another writer may cause."""
    said = next(iter(str(error).splitlines()), "")
    tell(event, error=type(error).__name__, said=said[:200])


def tell(event: str, **fields: object) -> None:
    """Tell the program what has happened: a JSON object a line."""
    print(json.dumps({"event": event, **fields}), flush=True)  # noqa: T201
