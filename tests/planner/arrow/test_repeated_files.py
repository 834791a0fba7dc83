"""A data file that a snapshot has twice, as a repeated import leaves it: each of its rows is there twice."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField

import planner
from puffin_index import IndexDefinition, TableIndex
from tests.conftest import built
from tests.deletes_sample import commit_equality_deletes
from tests.planner.laws.imported_files import StoredField, commit_file, write_parquet

ROWS = 10
SCHEMA = Schema(*(NestedField(at, name, kind) for at, (name, kind) in enumerate((("k", "long"), ("s", "string")), 1)))


def write_rows(folder: Path, *names: str) -> str:
    """Write a file of ten rows in row groups of four, with some of the columns."""
    stored = {
        "k": StoredField("k", [row % 3 for row in range(ROWS)], pa.int64(), 1),
        "s": StoredField("s", ["ab"[row % 2] for row in range(ROWS)], pa.string(), 2),
    }
    write_parquet(folder / "f.parquet", [stored[name] for name in names], 4, statistics=True)
    return (folder / "f.parquet").as_uri()


@pytest.mark.parametrize("deleted", [None, 1])
def test_aggregates_count_both(local_catalog: SqlCatalog, tmp_path: Path, deleted: int | None) -> None:
    table, path = local_catalog.create_table("ns.t", SCHEMA), write_rows(tmp_path, "k", "s")
    commit_file(table, path, Record(), 0, with_offsets=True)
    if deleted is not None:
        # Of the rows that are there by then.
        commit_equality_deletes(table, pa.table({"k": [deleted]}))
    commit_file(table, path, Record(), 0, with_offsets=True)
    index = built(local_catalog, "ns.t", bitmap=["k", "s"], bsi=["k"])

    assert index.verify(None).findings == ()
    once = [(row % 3, "ab"[row % 2]) for row in range(ROWS)]
    rows = [*(row for row in once if row[0] != deleted), *once]
    numbers = [k for k, _ in rows]
    sums = planner.aggregate(index, None, "count(*) AS n, sum(k) AS s, count(k) AS c")
    assert sums.to_pylist() == [{"n": len(rows), "s": sum(numbers), "c": len(rows)}]
    groups = planner.aggregate(index, "k <> 2", "count(*) AS n", "s").to_pylist()
    assert {group["s"]: group["n"] for group in groups} == {
        letter: sum(k != 2 and s == letter for k, s in rows) for letter in "ab"
    }
    for k in range(3):
        assert planner.count(index, f"k = {k}").rows == numbers.count(k)
        assert planner.scan(index, f"k = {k}").read_all().num_rows == numbers.count(k)
        assert planner.locate(index, {"k": [k]}).num_rows == numbers.count(k)
        assert planner.get(index, {"k": [k]}).num_rows == numbers.count(k)


@pytest.mark.parametrize("is_indexed", [False, True])
def test_each_has_the_values_of_its_partition(local_catalog: SqlCatalog, tmp_path: Path, is_indexed: bool) -> None:
    spec, path = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "by_s")), write_rows(tmp_path, "k")
    table = local_catalog.create_table("ns.t", SCHEMA, partition_spec=spec)
    for value in ("x", "y"):
        commit_file(table, path, Record(value), 0, with_offsets=True)
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=["k"]))
    if is_indexed:
        index.build(workers=1)

    for where, count in ((None, 10), ("k = 1", 3), ("k >= 0", 10)):
        values = planner.scan(index, where, ["s"]).read_all()["s"].to_pylist()
        assert sorted(values) == ["x"] * count + ["y"] * count, where
    assert sorted(planner.get(index, {"k": [2]})["s"].to_pylist()) == ["x"] * 3 + ["y"] * 3
    assert planner.count(index, "s = 'x'").rows == planner.scan(index, "s = 'x'").read_all().num_rows == ROWS
