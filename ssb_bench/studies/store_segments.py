"""Plans over very many small segments in a store: copies of a few real ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO

from planner.condition.tree.nodes import Conjunction, Leaf, Predicate
from planner.prune.distributed import prune_row_groups
from planner.prune.gate import Limits
from planner.view.cache import new_cache
from planner.view.index_view import IndexView
from puffin_index import IndexDefinition, TableIndex
from puffin_index.index_table.table import read_entries
from puffin_index.keys.leaf import SetTest
from ssb_bench.data.layout import NAMESPACE
from ssb_bench.stores.server import Meter

_TABLE: Final = f"{NAMESPACE}.small"
_DIFFERENT: Final = 10
_ROWS: Final = 2_000
_COLUMNS: Final = ("lo_revenue", "lo_ordtotalprice")
_LIMITS: Final = Limits(strict=True, seconds=600)


@dataclass(frozen=True, slots=True)
class SmallSegments:
    """A few segments of one row group each.

    Attributes:
        entries: The rows of their index table.
        io: The FileIO of it.
        leaves: An equality for each of two columns, with a key between those of all segments.
    """

    entries: pa.Table
    io: FileIO
    leaves: tuple[Leaf, Leaf]


def small_segments(catalog: SqlCatalog, source: Path) -> SmallSegments:
    """Write a few rows of lineorder into a table of its own, and index each append in a segment of its own."""
    rows = pq.read_table(source).slice(0, _DIFFERENT * _ROWS)
    table = catalog.create_table(_TABLE, rows.schema)
    index = TableIndex.create(catalog, _TABLE, IndexDefinition.of(bitmap=list(_COLUMNS)))
    for start in range(0, len(rows), _ROWS):
        table.append(rows.slice(start, _ROWS))
        index.build(workers=1)
    index.refresh()

    def leaf(name: str) -> Leaf:
        field = table.schema().find_field(name)
        key = int(np.median(rows[name].to_numpy()))
        return Leaf(field.field_id, SetTest((key,)), str(field.field_type))

    first, second = (leaf(name) for name in _COLUMNS)
    return SmallSegments(read_entries(index.index_table), index.index_table.io, (first, second))


def measure_segments(meter: Meter, small: SmallSegments, count: int, repeats: int) -> None:
    """Plan over `wanted` segments, first with nothing in memory."""
    entries = _copies(small, count)
    one, two = small.leaves[0], Conjunction(small.leaves)
    for name, predicate in (("one column", one), ("two columns", two)):
        view = IndexView("copies", entries, small.io, new_cache())
        work = partial(_kept, view, predicate)
        meter.measure(f"{count:,} segments, {name}: first plan", work)
        meter.measure(f"{count:,} segments, {name}: plan", work, repeats=repeats)


def _kept(view: IndexView, predicate: Predicate) -> int:
    return int(prune_row_groups(view, predicate, np.arange(view.row_group_count), _LIMITS).kept.sum())


def _copies(small: SmallSegments, count: int) -> pa.Table:
    """Copy the segments in the store; give the rows that an index table of all copies would have."""
    tables = []
    contents = {name: small.io.new_input(name).open().read() for name in small.entries["segment"].to_pylist()}
    for number in range(-(-count // len(small.entries))):
        ending = f".copy-{number}.puffin"
        for name, content in contents.items():
            with small.io.new_output(name + ending).create(overwrite=True) as stream:
                stream.write(content)
        tables.append(_renamed(_renamed(small.entries, "segment", ending), "data_file", ending))
    return pa.concat_tables(tables).slice(0, count)


def _renamed(entries: pa.Table, column: str, ending: str) -> pa.Table:
    place = entries.schema.get_field_index(column)
    texts = pc.binary_join_element_wise(entries[column], ending, "")
    return entries.set_column(place, entries.schema.field(place), texts)
