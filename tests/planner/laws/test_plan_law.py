"""The law of the planner: no row that a plain scan returns lies in a dropped row group. DuckDB is the plain scan."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import duckdb
import pyarrow as pa
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

import planner
from planner.scans.plan import plan
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.data_table import list_data_files
from tests.conftest import amount

INTS = st.one_of(
    st.none(),
    st.integers(-3, 12),
    st.sampled_from([2**63 - 1, -(2**63), -(2**63) + 1, 2**31 - 1, 2**31, 0]),
)
STRINGS = st.one_of(
    st.none(), st.sampled_from(["", "a", "ab", "b", "ÄÖ", "zz", "a\u0000", "😀", "it's"]), st.text(max_size=3)
)
COMPARISONS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


@dataclass(frozen=True)
class Case:
    """A table as appends of (i, s) rows, what is indexed, and predicates."""

    appends: list[list[tuple[int | None, str | None]]]
    row_group_rows: int
    indexed_appends: int
    kinds: dict[str, list[str]]
    postings: list[str]
    unmerged: list[str]

    @property
    def definition(self) -> IndexDefinition:
        """The index: bitmaps of some columns are sorted postings, bit slices of some are those of each row group."""
        options = {f"{column}.layout": "postings" for column in self.postings if column in self.kinds["bitmap"]}
        options |= {f"{column}.compression": "none" for column in self.unmerged if column in self.kinds["bsi"]}
        return IndexDefinition.of(**self.kinds, options=options)


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@st.composite
def leaf(draw: st.DrawFn) -> tuple[str, str]:
    """A leaf as (our text, DuckDB's text)."""
    column = draw(st.sampled_from(["i", "s"]))
    values = INTS.filter(lambda v: v is not None) if column == "i" else STRINGS.filter(lambda v: v is not None)

    def both(value: object) -> tuple[str, str]:
        if isinstance(value, int):
            return str(value), str(value)
        assert isinstance(value, str)
        return quoted(value), f"decode('{''.join(f'{chr(92)}x{b:02X}' for b in value.encode())}'::BLOB)"

    match draw(st.sampled_from(["compare", "in", "between", "null"])):
        case "compare":
            operator = draw(COMPARISONS)
            ours, theirs = both(draw(values))
            return f"{column} {operator} {ours}", f"{column} {operator} {theirs}"
        case "in":
            pairs = [both(value) for value in draw(st.lists(values, min_size=1, max_size=4))]
            negation = draw(st.sampled_from(["", "NOT "]))
            return (
                f"{column} {negation}IN ({', '.join(p[0] for p in pairs)})",
                f"{column} {negation}IN ({', '.join(p[1] for p in pairs)})",
            )
        case "between":
            (low, low_theirs), (high, high_theirs) = both(draw(values)), both(draw(values))
            negation = draw(st.sampled_from(["", "NOT "]))
            return (
                f"{column} {negation}BETWEEN {low} AND {high}",
                f"{column} {negation}BETWEEN {low_theirs} AND {high_theirs}",
            )
        case _:
            negation = draw(st.sampled_from(["", "NOT "]))
            return f"{column} IS {negation}NULL", f"{column} IS {negation}NULL"


def combine(children: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[tuple[str, str]]:
    pair = st.tuples(children, st.sampled_from(["AND", "OR"]), children)
    joined = pair.map(lambda p: (f"({p[0][0]} {p[1]} {p[2][0]})", f"({p[0][1]} {p[1]} {p[2][1]})"))
    return st.one_of(joined, children.map(lambda c: (f"NOT ({c[0]})", f"NOT ({c[1]})")))


PREDICATES = st.recursive(leaf(), combine, max_leaves=5)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    appends = draw(st.lists(st.lists(st.tuples(INTS, STRINGS), min_size=1, max_size=24), min_size=1, max_size=3))
    kinds = {kind: draw(st.lists(st.sampled_from(["i", "s"]), unique=True)) for kind in ("bitmap", "bsi", "bloom")}
    if not any(kinds.values()):
        kinds["bsi"] = ["i"]
    postings, unmerged = (draw(st.lists(st.sampled_from(["i", "s"]), unique=True)) for _ in range(2))
    return Case(appends, draw(st.integers(1, 8)), draw(st.integers(0, len(appends))), kinds, postings, unmerged)


SCHEMA = pa.schema([("i", pa.int64()), ("s", pa.large_string())])


def build_case(case: Case, directory: Path) -> tuple[TableIndex, list[str]]:
    """Make the table with PyIceberg; return its index and the location of each append's file."""
    catalog = SqlCatalog("local", uri=f"sqlite:///{directory / 'catalog.db'}", warehouse=directory.as_uri())
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", SCHEMA, properties={"write.parquet.row-group-limit": str(case.row_group_rows)})
    index: TableIndex | None = None
    paths: list[str] = []
    for number, rows in enumerate(case.appends):
        if number == case.indexed_appends:
            index = TableIndex.create(catalog, "ns.t", case.definition)
            index.build(workers=1)
        table.append(pa.Table.from_pylist([{"i": i, "s": s} for i, s in rows], SCHEMA))
        paths += [file.path for file in list_data_files(table) if file.path not in paths]
    if index is None:
        index = TableIndex.create(catalog, "ns.t", case.definition)
        index.build(workers=1)
    return index, paths


def matching_rows(case: Case, where: str) -> list[set[int]]:
    """For each append, the rows that DuckDB finds."""
    found: list[set[int]] = []
    for rows in case.appends:
        data = pa.table(
            {
                "i": pa.array([r[0] for r in rows], pa.int64()),
                "s": pa.array([r[1] for r in rows], pa.string()),
                "n": pa.array(range(len(rows)), pa.int64()),
            }
        )
        with duckdb.connect() as connection:
            connection.register("data", data)
            found.append({row[0] for row in connection.execute(f"SELECT n FROM data WHERE {where}").fetchall()})
    return found


@settings(max_examples=amount(8, 800), deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(), predicates=st.lists(PREDICATES, min_size=4, max_size=8), few_rows=st.sampled_from([0, 2, 1000]))
def test_no_matching_row_lies_in_a_dropped_row_group_and_exact_counts_are_right(
    case: Case, predicates: list[tuple[str, str]], few_rows: int
) -> None:
    directory = Path(tempfile.mkdtemp())
    try:
        index, paths = build_case(case, directory)
        for ours, theirs in predicates:
            note(ours)
            found = matching_rows(case, theirs)
            scan_plan = plan(index, ours, strict=True)
            seen = 0
            for split in scan_plan.splits:
                append = paths.index(split.data_file)
                first = split.row_group * case.row_group_rows
                rows = {n for n in found[append] if first <= n < first + case.row_group_rows}
                seen += len(rows)
                assert split.verdict == "kept" or not rows, f"{ours}: {split} drops rows {rows}"
                assert split.rows is None or split.rows == len(rows), f"{ours}: {split} but {rows}"
            # What is looked up of wide tests too, as where their rows are many.
            with patch("planner.prune.lookups._FEW_ROWS", few_rows):
                assert planner.count(index, ours).rows == seen, ours
            # Files that Iceberg's own statistics rule out are not in the plan and must hold no match.
            assert seen == sum(map(len, found))
            # Row groups of appends after the build are not indexed, and never dropped.
            late = [s for s in scan_plan.splits if paths.index(s.data_file) >= case.indexed_appends > 0]
            assert all(split.reason == "unindexed" for split in late) or case.indexed_appends == len(case.appends)
    finally:
        index.catalog.close()
        shutil.rmtree(directory)
