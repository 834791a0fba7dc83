"""The law of the planner for every type, judged row by row by an oracle: NULL, NaN, -0.0, extremes, one-row groups.

`make nightly` runs it on some hundred thousand pairs of a table and a predicate.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

from planner.predicate.bind import bind
from planner.prune.gate import Limits
from planner.scans.plan import plan_files, view_of
from planner.where.parser import parse_where
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.column_source import reading_of
from puffin_index.data.data_table import list_data_files
from tests import oracle
from tests.conftest import amount
from tests.planner.where.where_text import COLUMNS, predicates, render, rows

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
    """A table as appends of rows, each a file, and after how many of them it is indexed as what."""

    appends: list[list[dict[str, Any]]]
    row_group_rows: int
    builds: dict[int, IndexDefinition]


@st.composite
def definitions(draw: st.DrawFn) -> IndexDefinition:
    columns = st.lists(st.sampled_from(COLUMNS), unique=True, max_size=6)
    kinds = {kind: draw(columns) for kind in ("bitmap", "bsi", "bloom")}
    if not any(kinds.values()):
        kinds["bitmap"] = list(COLUMNS)
    layouts = {f"{column}.layout": draw(st.sampled_from(["auto", "bitmaps", "postings"])) for column in kinds["bitmap"]}
    return IndexDefinition.of(**kinds, options=layouts)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    appends = draw(st.lists(st.lists(rows, min_size=1, max_size=16), min_size=1, max_size=3))
    builds = draw(st.dictionaries(st.integers(1, len(appends)), definitions(), min_size=1))
    return Case(appends, draw(st.integers(1, 6)), builds)


def build_case(case: Case, directory: Path) -> tuple[TableIndex, list[str]]:
    """Make the table with PyIceberg; return its index and the location of each append's file."""
    catalog = SqlCatalog("local", uri=f"sqlite:///{directory / 'catalog.db'}", warehouse=directory.as_uri())
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", SCHEMA, properties={"write.parquet.row-group-limit": str(case.row_group_rows)})
    paths: list[str] = []
    for number, append in enumerate(case.appends, 1):
        table.append(pa.Table.from_pylist(append, SCHEMA))
        paths += [file.path for file in list_data_files(table) if file.path not in paths]
        if number in case.builds:
            index = TableIndex.create(catalog, "ns.t", case.builds[number])
            index.build(workers=1)
    index.refresh()
    return index, paths


@settings(max_examples=amount(8, 1_600), deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(), few_rows=st.sampled_from([0, 2, 1000]), rows_wanted=st.booleans(), data=st.data())
def test_no_matching_row_of_any_type_lies_in_a_dropped_row_group(
    case: Case, few_rows: int, rows_wanted: bool, data: st.DataObject
) -> None:
    directory = Path(tempfile.mkdtemp())
    try:
        index, paths = build_case(case, directory)
        view, files, schema = (
            view_of(index.index_table, reading_of(index.data_table)),
            list_data_files(index.data_table),
            index.data_table.schema(),
        )
        # If rows are wanted, indexes are asked that would not be worth it for the little data here.
        limits = Limits(rows_wanted=rows_wanted)
        for _ in range(PREDICATES_A_TABLE):
            predicate = data.draw(predicates)
            where = data.draw(render(predicate))
            note(where)
            # Wide tests are looked up among the rows of others, as where their rows are many.
            with patch("planner.prune.lookups._FEW_ROWS", few_rows):
                scan_plan = plan_files(view, bind(parse_where(where), schema), files, limits)
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
