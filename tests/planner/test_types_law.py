"""The law of the planner for every type, judged row by row by an oracle: NULL, NaN, -0.0, extremes, one-row groups.

`make nightly` runs it on some hundred thousand pairs of a table and a predicate.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

from planner.bind import bind
from planner.parser import parse_where
from planner.plan import plan_files, view_of
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data_table import list_data_files
from tests import oracle
from tests.planner.where_text import COLUMNS, predicates, render, rows

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("d", pa.decimal128(10, 2)),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("dt", pa.date32()),
        ("nt", pa.timestamp("us")),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)
PREDICATES_A_TABLE = 30


@dataclass(frozen=True)
class Case:
    """A table as appends of rows, each a file, and what is indexed."""

    appends: list[list[dict[str, Any]]]
    row_group_rows: int
    indexed_appends: int
    kinds: dict[str, list[str]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    appends = draw(st.lists(st.lists(rows, min_size=1, max_size=16), min_size=1, max_size=3))
    columns = st.lists(st.sampled_from(COLUMNS), unique=True, max_size=6)
    kinds = {kind: draw(columns) for kind in ("bitmap", "bsi", "bloom")}
    if not any(kinds.values()):
        kinds["bitmap"] = list(COLUMNS)
    return Case(appends, draw(st.integers(1, 6)), draw(st.integers(1, len(appends))), kinds)


def build_case(case: Case, directory: Path) -> tuple[TableIndex, list[str]]:
    """Make the table with PyIceberg; return its index and the location of each append's file."""
    catalog = SqlCatalog("local", uri=f"sqlite:///{directory / 'catalog.db'}", warehouse=directory.as_uri())
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", SCHEMA, properties={"write.parquet.row-group-limit": str(case.row_group_rows)})
    paths: list[str] = []
    for number, append in enumerate(case.appends):
        table.append(pa.Table.from_pylist(append, SCHEMA))
        paths += [file.path for file in list_data_files(table) if file.path not in paths]
        if number + 1 == case.indexed_appends:
            index = TableIndex.create(catalog, "ns.t", IndexDefinition.of(**case.kinds))
            index.build(workers=1)
    index.refresh()
    return index, paths


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(), data=st.data())
def test_no_matching_row_of_any_type_lies_in_a_dropped_row_group(case: Case, data: st.DataObject) -> None:
    directory = Path(tempfile.mkdtemp())
    try:
        index, paths = build_case(case, directory)
        view, files, schema = view_of(index.index_table), list_data_files(index.data_table), index.data_table.schema()
        for _ in range(PREDICATES_A_TABLE):
            predicate = data.draw(predicates)
            where = data.draw(render(predicate))
            note(where)
            scan_plan = plan_files(view, bind(parse_where(where), schema), files)
            assert not scan_plan.warnings
            for split in scan_plan.splits:
                append = case.appends[paths.index(split.data_file)]
                first = split.row_group * case.row_group_rows
                group = append[first : first + case.row_group_rows]
                matching = sum(oracle.evaluate(predicate, row) is True for row in group)
                assert split.verdict == "kept" or not matching, f"{where}: {split} drops {matching} of {group}"
                assert split.rows is None or split.rows == matching, f"{where}: {split}, not {matching} of {group}"
    finally:
        index.catalog.close()
        shutil.rmtree(directory)
