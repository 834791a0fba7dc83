"""The Arrow scan and the count give exactly the rows of a plain scan, whatever is indexed, deleted or evolved."""

import math
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StringType

import planner
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.data_table import list_data_files
from puffin_index.errors import NotFoundError, UnsupportedError
from tests.conftest import built, create_table
from tests.deletes_sample import commit_deletion_vectors, commit_positional_deletes
from tests.planner.laws.imported_files import StoredField, commit_file, write_parquet


def items(count: int = 2_000) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(count), pa.int32()),
            "k": pa.array([(i * 7919) % count for i in range(count)], pa.int32()),
            "name": pa.array([None if i % 9 == 0 else f"name-{i % 100}" for i in range(count)], pa.string()),
            "place": pa.array([{"x": i % 10, "y": i} if i % 4 else None for i in range(count)]),
        }
    )


@pytest.fixture
def index(local_catalog: SqlCatalog) -> TableIndex:
    """`ns.t` with 8 row groups in 2 files, `k` and `name` indexed."""
    create_table(local_catalog, "t", items(), 500).append(items())
    return built(local_catalog, "ns.t", bitmap=["name"], bsi=["k"])


def read(index: TableIndex, *arguments: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = planner.scan(index, *arguments).read_all().to_pylist()
    return rows


def test_columns_come_in_the_order_asked_for_and_nested_ones_alone(index: TableIndex) -> None:
    found = planner.scan(index, "k = 11", ["place.x", "name", "ID"]).read_all()

    place = pa.struct([pa.field("x", pa.int64())])
    assert found.schema == pa.schema([("place", place), ("name", pa.large_string()), ("id", pa.int32())])
    assert [row["id"] for row in found.to_pylist()] == [i for i in range(2000) if (i * 7919) % 2000 == 11] * 2


def test_batches_are_read_as_they_are_asked_for(index: TableIndex) -> None:
    reader = planner.scan(index, None, ["id"])

    assert reader.read_next_batch().num_rows == 500
    reader.close()


def test_what_only_spark_can_decide_is_refused_by_name(index: TableIndex) -> None:
    with pytest.raises(UnsupportedError, match="without Spark: name = 5: the literal is of another kind"):
        planner.scan(index, "name = 5")
    with pytest.raises(UnsupportedError, match=r"without Spark: .*reverse"):
        planner.scan(index, "k = 3 AND reverse(name) = 'X'")
    with pytest.raises(UnsupportedError, match=r"without Spark: year\(name\) = 3: Spark would convert name first"):
        planner.scan(index, "year(name) = 3")


def test_unknown_columns_and_snapshots_are_named(index: TableIndex) -> None:
    with pytest.raises(NotFoundError, match="nope"):
        planner.scan(index, None, ["id", "nope"])
    for call in (planner.plan, planner.count, planner.scan):
        with pytest.raises(NotFoundError, match="nope"):
            call(index, "upper(nope) = 'X'")
    with pytest.raises(NotFoundError, match="snapshot 5"):
        planner.scan(index, None, None, 5)
    with pytest.raises(UnsupportedError, match="without columns"):
        planner.scan(index, None, [])


def test_a_damaged_data_file_raises_from_the_reader(index: TableIndex) -> None:
    path = list_data_files(index.data_table)[0].path.removeprefix("file://")
    Path(path).write_bytes(b"PAR1" + bytes(Path(path).stat().st_size - 8) + b"PAR1")

    with pytest.raises((ValueError, OSError)):
        planner.scan(index, "k = 11").read_all()


@pytest.mark.parametrize("commit", [commit_positional_deletes, commit_deletion_vectors])
def test_a_row_group_whose_matches_are_all_deleted_is_dropped(index: TableIndex, commit: Any) -> None:
    table, where = index.data_table, "k = 11"
    row = next(i for i in range(2000) if (i * 7919) % 2000 == 11)
    first, second = (file.path for file in list_data_files(table))
    commit(table, {first: {row}})

    plan = planner.plan(index, where, strict=True)

    reasons = {(split.data_file, split.reason) for split in plan.splits if split.row_group == row // 500}
    assert reasons == {(first, "all-deleted"), (second, "rows-match")}
    assert (plan.kept, [split.rows for split in plan.splits if split.verdict == "kept"]) == (1, [1])
    assert plan.funnel[-1].name == "deletes"
    assert plan.funnel[-1].dropped == 1
    assert planner.count(index, where).rows == len(read(index, where)) == 1
    assert planner.count(index, where).row_groups_read == 0


def test_a_delete_file_that_cannot_be_read_keeps_its_row_groups_but_fails_a_scan(index: TableIndex) -> None:
    first = list_data_files(index.data_table)[0].path
    location = commit_deletion_vectors(index.data_table, {first: {0}})
    path = Path(location.removeprefix("file://"))
    path.write_bytes(b"PFA1" + bytes(path.stat().st_size - 4))

    plan = planner.plan(index, "k = 0")

    assert plan.kept == 2
    assert len(plan.warnings) == 1
    with pytest.raises(ValueError, match="Puffin"):
        planner.scan(index, "k = 0").read_all()


def test_positional_deletes_apply_to_the_partition_of_nan(local_catalog: SqlCatalog, tmp_path: Path) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "f"))
    schema = Schema(NestedField(1, "f", "double"), NestedField(2, "n", "long"))
    table = local_catalog.create_table("ns.t", schema, partition_spec=spec)
    for first in (0, 3):
        path = tmp_path / f"{first}.parquet"
        write_parquet(path, [StoredField("n", [*range(first, first + 3)], pa.int64(), 2)], 10, statistics=True)
        commit_file(table, path.as_uri(), Record(math.nan), 0, with_offsets=True)
    files = [task.file for task in table.scan().plan_files()]
    commit_positional_deletes(table, {file.file_path: [1] for file in files}, files[0])
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=["n"]))

    assert sorted(row["n"] for row in read(index, None, ["n"])) == [0, 2, 3, 5]


@pytest.mark.parametrize("is_indexed", [False, True])
def test_doubles_of_partitions_keep_all_their_bits(local_catalog: SqlCatalog, is_indexed: bool) -> None:
    values = [-0.1, 5e-324, 0.1, 0.1 + 2**-56, 1 / 3, 16_777_217.0, 1e300]
    table = local_catalog.create_table("ns.t", pa.schema([("f", pa.float64()), ("n", pa.int64())]))
    table.update_spec().add_field("f", IdentityTransform(), "by_f").commit()
    table.append(pa.table({"f": values, "n": range(len(values))}, table.schema().as_arrow()))
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=["f"], bsi=["n"]))
    if is_indexed:
        index.build(workers=1)

    for n, value in enumerate(values):
        assert read(index, f"f = {value!r}D", ["f", "n"]) == [{"f": value, "n": n}]
        assert read(index, f"n = {n}", ["f"]) == [{"f": value}]
        assert planner.count(index, f"f <= {value!r}D").rows == n + 1
    assert planner.aggregate(index, None, "max(f) AS f").to_pylist() == [{"f": 1e300}]


def test_a_count_reads_only_what_no_index_answers(index: TableIndex) -> None:
    index.data_table.append(items(500))

    counted = planner.count(index, "k >= 100 AND k < 110")

    assert counted.rows == 2 * 10 + sum(100 <= (i * 7919) % 500 < 110 for i in range(500))
    assert (counted.row_groups, counted.row_groups_read) == (9, 1)
    assert planner.count(index).rows == 4500
    late = TableIndex.open(index.catalog, index.name)
    index.data_table.append(items(7))
    assert planner.count(late, refresh=False).rows == 4500
    assert planner.scan(late, columns=["id"], refresh=False).read_all().num_rows == 4500
    assert len(planner.plan(late, refresh=False).data_files) == 3
    assert planner.count(late).rows == 4507
    assert planner.count(index).row_groups_read == 0


def test_a_partition_constant_that_is_null_wins_over_a_default(local_catalog: SqlCatalog) -> None:
    table = create_table(local_catalog, "nulls", items(10), 5)
    table.update_schema().add_column("c", StringType(), default_value="new").commit()
    table.update_spec().add_field("c", IdentityTransform(), "by_c").commit()
    table.append(pa.Table.from_pylist([{"id": 50, "c": None}, {"id": 51, "c": "x"}], table.schema().as_arrow()))
    index = built(local_catalog, "ns.nulls", bitmap=["id"])

    assert sorted((row["id"], row["c"]) for row in read(index, "id >= 9", ["id", "c"])) == [
        (9, "new"),
        (50, None),
        (51, "x"),
    ]


def with_file(table: Table, path: Path, fields: list[StoredField], kinds: dict[str, list[str]]) -> TableIndex:
    """Add a file that another writer made to a table, and index the table."""
    write_parquet(path, fields, 1, statistics=False)
    commit_file(table, path.as_uri(), Record(), 0, with_offsets=True)
    return built(table.catalog, ".".join(table.name()), **kinds)


def test_file_columns_of_other_types_are_refused(local_catalog: SqlCatalog, tmp_path: Path) -> None:
    table = create_table(local_catalog, "odd", items(10), 5)
    texts = StoredField("id", ["a", "b"], pa.string())
    index = with_file(table, tmp_path / "odd.parquet", [texts], {"bsi": ["k"]})
    with pytest.raises(UnsupportedError, match=r"odd\.parquet: column 'id' is stored as BYTE_ARRAY STRING"):
        read(index, None, ["id"])

    table = create_table(local_catalog, "structs", items(10), 5)
    structs = StoredField("name", [{"x": 1}], pa.struct([("x", pa.int64())]), 3)
    index = with_file(table, tmp_path / "structs.parquet", [structs], {"bsi": ["k"]})
    with pytest.raises(UnsupportedError, match="a string column cannot hold Arrow struct"):
        planner.count(index, "name NOT LIKE '_a'")


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        (pa.timestamp("ms"), r"INT64 TIMESTAMP\(MILLIS\)"),
        (pa.timestamp("ms", "UTC"), r"INT64 TIMESTAMP\(MILLIS\)"),
        (pa.timestamp("ns"), r"INT64 TIMESTAMP\(NANOS\)"),
    ],
)
def test_a_column_that_iceberg_reads_as_other_values_is_neither_indexed_nor_scanned(
    local_catalog: SqlCatalog, tmp_path: Path, stored: pa.DataType, reason: str
) -> None:
    table = create_table(local_catalog, "old", pa.table({"id": [0], "at": pa.array([None], pa.timestamp("us"))}), 5)
    path = tmp_path / "old.parquet"
    moments = [datetime(2023, 1, day) for day in range(1, 9)]
    fields = [StoredField("id", list(range(1, 9)), pa.int64(), 1), StoredField("at", moments, stored, 2)]
    write_parquet(path, fields, 4, statistics=True)
    commit_file(table, path.as_uri(), Record(), 0, with_offsets=True)

    index = TableIndex.create(local_catalog, "ns.old", IndexDefinition.of(bsi=["id", "at"]))
    report = index.build(workers=1)
    [skipped] = report.skipped
    assert re.search(f"column 'at' is stored as {reason}", skipped.reason)
    assert index.status().left_out == (skipped.reason,)
    # The other column of the file is indexed, and is found so by the next build and by plans.
    assert (report.files, [column.name for column in skipped.others]) == (2, ["id"])
    assert (index.build(workers=1).segments, len(index.verify().findings)) == (0, 0)
    assert [split.verdict for split in planner.plan(index, "id = 7").splits][-1] == "kept"
    assert planner.plan(index, "id = 7").kept == 1
    assert planner.count(index, "id > 5").rows == 3

    where = "at > TIMESTAMP_NTZ '2000-01-01'"
    for refused in (
        lambda: read(index, where, ["id"]),
        lambda: read(index, "id < 3"),
        lambda: planner.count(index, where),
        lambda: planner.aggregate(index, None, "max(at)"),
    ):
        with pytest.raises(UnsupportedError, match=reason):
            refused()
    assert sorted(row["id"] for row in read(index, "id < 3", ["id"])) == [0, 1, 2]

    # Without the column, the file is indexed.
    index = TableIndex.create(local_catalog, "ns.old", IndexDefinition.of(bsi=["id"]))
    assert index.build(workers=1).skipped == ()
    assert index.status().left_out == ()


def test_the_position_of_a_column_is_not_the_number_of_a_nested_one(local_catalog: SqlCatalog, tmp_path: Path) -> None:
    place = pa.struct([("x", pa.int64())])
    schema = pa.schema([("id", pa.int64()), ("place", place)])
    table = local_catalog.create_table("ns.nested", schema)
    assert table.schema().find_field("place.x").field_id == 3
    fields = [
        StoredField("id", [1, 2], pa.int64()),
        StoredField("place", [{"x": 5}, None], place),
        StoredField("other", [7, 8], pa.int64()),
    ]
    index = with_file(table, tmp_path / "positions.parquet", fields, {"bsi": ["id"]})

    assert [row["id"] for row in read(index, "id >= 1", ["id", "place"])] == [1, 2]
