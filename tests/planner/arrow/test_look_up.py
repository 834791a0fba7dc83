"""Looking rows up by key gives the rows of a join with the whole table, in the order of the keys."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import planner
from planner.arrow.wanted_keys import KeysError
from puffin_index import TableIndex
from puffin_index.data.data_table import list_data_files
from puffin_index.errors import NotFoundError, UnsupportedError
from tests.conftest import amount, built, create_table
from tests.deletes_sample import commit_deletion_vectors, commit_positional_deletes
from tests.oracle import compare

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string()), ("d", pa.float64()), ("n", pa.int64())])


def some_rows(first: int, seed: int, count: int = 1_500) -> pa.Table:
    random = Random(seed)
    return pa.table(
        {
            "id": [random.choice([None, *range(400)]) for _ in range(count)],
            "s": [random.choice([None, "", "ä", "b", "cc"]) for _ in range(count)],
            "d": [random.choice([None, math.nan, 0.0, -0.0, 1.5, math.inf]) for _ in range(count)],
            "n": range(first, first + count),
        },
        schema=SCHEMA,
    )


def make(catalog: SqlCatalog, **kinds: Any) -> TableIndex:
    table = create_table(catalog, "t", some_rows(0, 1), 200)
    table.append(some_rows(1_500, 2))
    index = built(catalog, "ns.t", **kinds)
    table.append(some_rows(3_000, 3))
    newest, _, oldest = (file.path for file in list_data_files(index.data_table.refresh()))
    commit_positional_deletes(index.data_table, {oldest: range(0, 1_500, 3)})
    commit_deletion_vectors(index.data_table, {newest: range(0, 1_500, 5)})
    return index


def expected(rows: Sequence[dict[str, Any]], keys: dict[str, Sequence[Any]]) -> list[tuple[int, int]]:
    """The pairs of a key's place and a row's number, row by row."""
    asked = list(zip(*keys.values(), strict=True))
    return [
        (place, row["n"])
        for place, key in enumerate(asked)
        for row in rows
        if all(compare(value, "=", row[name]) for name, value in zip(keys, key, strict=True))
    ]


@pytest.mark.parametrize("kinds", [{"bitmap": ["id", "s", "d"]}, {"bloom": ["id", "s"]}, {"bsi": ["id", "d"]}])
def test_look_ups_are_joins_in_the_order_of_the_keys(local_catalog: SqlCatalog, kinds: dict[str, list[str]]) -> None:
    index = make(local_catalog, **kinds)
    random = Random(7)
    by_columns = {
        names: planner.prepare(index, names, ["n"]) for names in (("id",), ("s", "id"), ("d", "id"), ("id", "s", "d"))
    }
    domains = {"id": [None, *range(0, 420, 7)], "s": [None, "", "ä", "cc", "zz"], "d": [None, math.nan, 0.0, -0.0, 1.5]}
    rows = planner.scan(index).read_all().to_pylist()
    for trial in range(amount(8, 200)):
        names = list(by_columns)[trial % 4]
        count = random.choice([1, 1, 2, 30])
        keys = {name: [random.choice(domains[name]) for _ in range(count)] for name in names}
        typed = {name: pa.array(values, SCHEMA.field(name).type) for name, values in keys.items()}

        found = by_columns[names].get(typed)

        assert list(zip(*found.to_pydict().values(), strict=True)) == expected(rows, keys), keys


def test_a_table_comes_with_all_columns_or_those_asked_for(local_catalog: SqlCatalog) -> None:
    index = make(local_catalog, bitmap=["id"])

    every = planner.get(index, {"id": [3, 999, 3]})
    one = planner.get(index, {"id": pa.array([7], pa.int64())}, ["d", "n"])

    assert every.schema.names == ["_key", "id", "s", "d", "n"]
    assert set(every["_key"].to_pylist()) == {0, 2}
    assert set(every["id"].to_pylist()) == {3}
    assert one.schema.names == ["_key", "d", "n"]
    assert planner.get(index, {"id": pa.array([], pa.int64())}).num_rows == 0
    first = index.data_table.snapshots()[0].snapshot_id
    assert max(planner.get(index, {"id": list(range(400))}, ["n"], first)["n"].to_pylist()) < 1_500


def test_wrong_keys_are_refused(local_catalog: SqlCatalog) -> None:
    index = make(local_catalog, bitmap=["id"])
    prepared = planner.prepare(index, ["id", "s"])

    for keys, message in (({"id": [1]}, "values of id, s, and not of id"), ({"id": [1], "s": []}, "equally many")):
        with pytest.raises(ValueError, match=message):
            prepared.get(keys)
    with pytest.raises(ValueError, match="none is named"):
        planner.prepare(index, [])
    with pytest.raises(ValueError, match="a list of names"):
        planner.prepare(index, "id")
    with pytest.raises(UnsupportedError, match="a list of names"):
        planner.prepare(index, ["id"], "n")
    with pytest.raises(UnsupportedError, match="keys of id: a long column cannot hold"):
        prepared.get({"id": ["one"], "s": ["a"]})
    with pytest.raises(NotFoundError, match="no column 'nothing'"):
        planner.prepare(index, ["nothing"])


def test_a_prepared_look_up_sees_new_rows_once_it_is_old(local_catalog: SqlCatalog) -> None:
    index = make(local_catalog, bitmap=["id"])
    still, fresh = planner.prepare(index, ["n"]), planner.prepare(index, ["n"], refresh_seconds=0)
    local_catalog.load_table("ns.t").append(some_rows(9_000, 4, 10))

    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda n: fresh.get({"n": [n]}).num_rows, [9_003] * 8)]

    assert max(found) == 1
    assert fresh.get({"n": [9_003]}).num_rows == 1
    assert still.get({"n": [9_003]}).num_rows == 0


def test_a_column_without_a_name_is_read(local_catalog: SqlCatalog) -> None:
    table = pa.table({"": pa.array(range(100), pa.int64()), "b": pa.array([n % 7 for n in range(100)], pa.int64())})
    create_table(local_catalog, "t", table, 30, compression="none")
    index = built(local_catalog, "ns.t", bitmap=["b"])

    assert planner.scan(index).read_all()[""].to_pylist() == [*range(100)]
    assert planner.scan(index, "b = 3").read_all()[""].to_pylist() == [*range(3, 100, 7)]
    assert planner.get(index, {"b": [3]})[""].to_pylist() == [*range(3, 100, 7)]


def test_a_column_that_has_the_name_of_the_place_is_left_out_or_an_error(local_catalog: SqlCatalog) -> None:
    create_table(local_catalog, "t", pa.table({"id": [3, 4], "_key": ["a", "b"]}), 30)
    index = built(local_catalog, "ns.t", bitmap=["id"])

    assert planner.get(index, {"id": [4, 3]}, ["id"]).to_pylist() == [{"_key": 0, "id": 4}, {"_key": 1, "id": 3}]
    with pytest.raises(KeysError, match="_key is the place"):
        planner.get(index, {"id": [4]})
