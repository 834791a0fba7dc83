"""What-if against the real build: row groups within the range, size within a quarter; and what cannot be asked."""

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.typedef import Record

import planner
from planner.advice.advised_table import LIMITS
from planner.advice.candidates import find_named
from planner.arrow.plan import plan_scan
from puffin_index import IndexDefinition, TableIndex
from puffin_index.errors import DefinitionError, NotFoundError, WhereSyntaxError
from tests.conftest import amount, built, create_table
from tests.planner.condition.where_text import Writer
from tests.planner.laws.imported_files import StoredField, commit_file, write_parquet
from tests.planner.laws.random_predicates import random_predicate
from tests.planner.laws.random_tables import INDEXED_NAMES, RandomTable

QUESTIONS = [
    ("bitmap", "lo_custkey", "lo_custkey = 77"),
    ("bsi", "lo_custkey", "lo_custkey BETWEEN 77 AND 80"),
    ("bloom", "lo_custkey", "lo_custkey IN (77, 78)"),
    ("bitmap", "lo_suppkey", "lo_suppkey = 12"),
    ("bitmap", "lo_orderkey", "lo_orderkey = 4711"),
    ("bsi", "lo_revenue", "lo_revenue > 9990000"),
    ("bsi", "lo_ordtotalprice", "lo_ordtotalprice = 1234567"),
    ("bitmap", "lo_shipmode", "lo_shipmode = 'AIR'"),
    ("bloom", "lo_partkey", "lo_partkey = 4000"),
    ("bitmap", "lo_partkey", "lo_partkey = 4000"),
    ("bsi", "lo_orderdate", "lo_orderdate = 19940107"),
    ("bitmap", "lo_quantity", "lo_quantity < 2"),
]


@pytest.mark.one_of(8)
@pytest.mark.parametrize(("kind", "column", "where"), QUESTIONS)
def test_the_real_build_keeps_what_was_said(lineorder: Table, kind: str, column: str, where: str) -> None:
    sampled = planner.what_if(lineorder, where, {kind: [column]}, sample=20)
    whole = planner.what_if(lineorder, where, {kind: [column]}, sample=None)

    index = TableIndex.create(lineorder.catalog, "ns.lineorder", IndexDefinition.of(options=None, **{kind: [column]}))
    built = index.build(workers=1)
    kept = planner.plan(index, where).kept

    assert whole.what_if.row_groups.is_exact
    assert whole.what_if.row_groups.estimate == kept
    assert sampled.what_if.row_groups.low <= kept <= sampled.what_if.row_groups.high
    for answer in (sampled, whole):
        assert answer.index_bytes == pytest.approx(built.index_bytes, rel=0.25)
        assert answer.today.row_groups == answer.without_index.row_groups
        assert answer.added == (f"{column}.{kind}",)


@pytest.mark.parametrize("seed", range(amount(1, 80)))
def test_random_tables(local_catalog: SqlCatalog, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Look-ups of so little data are hardly worth it, so that it depends on the bytes of a sample which are made.
    limits = replace(LIMITS, rows_wanted=True)
    monkeypatch.setattr("planner.advice.advised_table.LIMITS", limits)
    table = RandomTable.make(seed, local_catalog)
    random = Random(seed)
    table.index.drop()
    data_table = table.index.data_table
    definition = IndexDefinition.of(
        bitmap=random.sample(list(INDEXED_NAMES.values()), 4), bsi=["i", "d"], bloom=["s", "j"]
    )
    questions = [Writer(random.choice).predicate(random_predicate(random, table)) for _ in range(amount(2, 5))]
    answers = [planner.what_if(data_table, where, definition, sample=None) for where in questions]
    few = [planner.what_if(data_table, where, definition, sample=3) for where in questions]
    index = built(local_catalog, "ns.t", definition)
    for where, answer, sampled in zip(questions, answers, few, strict=True):
        plan = plan_scan(index, where, limits=limits).plan
        # What is deleted is no matter of the index.
        kept = plan.kept + plan.reason_counts().get("all-deleted", 0)
        assert answer.what_if.row_groups.estimate == kept, where
        assert sampled.what_if.row_groups.low <= sampled.what_if.row_groups.estimate
        assert sampled.what_if.row_groups.high <= sampled.without_index.row_groups.estimate


@pytest.fixture
def table(local_catalog: SqlCatalog) -> Table:
    """`ns.t`: 8 row groups; `k` is scattered, `id` sorted, `c` has few values."""
    rows = 4_000
    data = pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "k": pa.array([(i * 7919) % rows for i in range(rows)], pa.int32()),
            "c": pa.array([i % 3 for i in range(rows)], pa.int32()),
            "tags": pa.array([[i] for i in range(rows)], pa.list_(pa.int64())),
        }
    )
    return create_table(local_catalog, "t", data, 500)


def test_verdicts(table: Table) -> None:
    build = planner.what_if(table, "k = 5", {"bitmap": ["k"]})
    assert (build.verdict.text, build.what_if.row_groups.estimate, build.today.row_groups.estimate) == ("build", 1, 8)
    assert build.source == "measured on 8 of 8 row groups"
    assert build.bytes_saved > 0
    assert build.seconds_saved > 0

    untested = planner.what_if(table, "k = 5", {"bitmap": ["c"]})
    assert untested.verdict.text == "do not build"
    assert "does not test c" in untested.verdict.reason

    everywhere = planner.what_if(table, "c = 1", {"bitmap": ["c"]})
    assert everywhere.verdict.text == "do not build"
    assert "no row group would be saved" in everywhere.verdict.reason

    nowhere = planner.what_if(table, "id = -1", {"bitmap": ["id"]})
    assert nowhere.verdict.text == "do not build"
    assert "Iceberg's own pruning" in nowhere.verdict.reason


def test_row_groups_of_which_few_pages_are_read_count_as_saved(local_catalog: SqlCatalog) -> None:
    """Each key has a row in one of the ten pages of either row group, so that no index drops a row group."""
    keys = np.arange(200_000)
    data = pa.table({"k": np.tile(keys, 2), "n": np.tile(keys * 7919 % 199_999, 2)})
    large = create_table(local_catalog, "large", data, len(keys), write_page_index=True)
    whole = create_table(local_catalog, "whole", data, len(keys))
    assert planner.what_if(whole, "k = 5", {"bitmap": ["k"]}).verdict.text == "do not build"
    answer = planner.what_if(large, "k = 5", {"bitmap": ["k"]})

    assert (answer.verdict.text, answer.verdict.reason) == ("build", "it would save 2 of 2 row groups")
    assert answer.what_if.row_groups.estimate == 2
    assert answer.what_if.bytes == pytest.approx(answer.today.bytes / 10, rel=0.01)
    for kind, where in (("bloom", "k = 5"), ("bitmap", "k > 5"), ("bitmap", "k % 20000 = 5")):
        assert planner.what_if(large, where, {kind: ["k"]}).verdict.text == "do not build", (kind, where)

    index = built(local_catalog, "ns.large", bitmap=["k"])
    hidden = planner.what_if(index, "k = 5", without=["k.bitmap"])
    assert (hidden.verdict.text, hidden.today.bytes) == ("keep", answer.what_if.bytes)
    assert planner.what_if(index, "k > 5", without=["k.bitmap"]).verdict.text == "can be dropped"


def test_needles_in_bursts_are_measured(local_catalog: SqlCatalog) -> None:
    """Users come in sessions of 12 lines, in two row groups each."""
    numbers = [(row // 1_000 * 40 + row // 12 % 40) * 7_919 % 800 for row in range(20_000)]
    users = [f"user {number:05}" for number in numbers]
    table = create_table(local_catalog, "t", pa.table({"user": users, "n": range(20_000)}), 500)
    where = f"user = '{users[19_000]}'"
    matching = len({row // 500 for row, user in enumerate(users) if user == users[19_000]})
    answer = planner.what_if(table, where, {"bitmap": ["user"]}, sample=None)
    assert (answer.what_if.row_groups.estimate, answer.verdict.text) == (matching, "build")


def test_an_existing_index_is_hidden(table: Table) -> None:
    index = built(table.catalog, "ns.t", bitmap=["k", "c"], bloom=["k"])
    answer = planner.what_if(index, "k = 5", without=["k.bitmap", "K.BLOOM"])
    assert (answer.today.row_groups.estimate, answer.what_if.row_groups.estimate) == (1, 8)
    assert answer.verdict.text == "keep"
    assert answer.index_bytes < 0
    assert planner.what_if(index, "k = 5", without=["k.bloom"]).verdict.text == "can be dropped"
    assert planner.what_if(index, "k = 5", without=["c.bitmap"]).what_if.row_groups.estimate == 1
    assert planner.what_if(table, "k = 5", without=["k.bloom", "k.bitmap"]).what_if.row_groups.estimate == 8
    # An index that is there already is not built again.
    again = planner.what_if(index, "k = 5", {"bitmap": ["k"]})
    assert again.verdict.text == "do not build"
    assert "has it already: k.bitmap" in again.verdict.reason
    swapped = planner.what_if(index, "k = 5", {"bsi": ["k"]}, without=["k.bloom", "k.bitmap"])
    assert swapped.what_if.row_groups.estimate == 1


def test_an_index_helps_together_with_one_that_is_there(local_catalog: SqlCatalog) -> None:
    rows = 4_000
    columns = {"a": [i % 40 for i in range(rows)], "b": [(i * i) // 7 % 40 for i in range(rows)]}
    table = create_table(local_catalog, "t", pa.table(columns), 100)
    where = "a = 3 AND b = 11"
    alone = planner.what_if(table, where, {"bitmap": ["a"]})
    index = built(local_catalog, "ns.t", bitmap=["b"])
    beside = planner.what_if(index, where, {"bitmap": ["a"]})
    assert beside.what_if.row_groups.estimate < beside.today.row_groups.estimate
    assert beside.what_if.row_groups.estimate < alone.what_if.row_groups.estimate
    assert beside.added == ("a.bitmap",)


def test_files_that_list_no_row_groups_count_alike_with_and_without_an_index(
    local_catalog: SqlCatalog, tmp_path: Path
) -> None:
    values = StoredField("k", [(row * 7919) % 800 for row in range(800)], pa.int32(), 1)
    table = local_catalog.create_table("ns.t", pa.schema([("k", pa.int32())]))
    for number, with_offsets in enumerate((True, False)):
        path = tmp_path / f"{number}.parquet"
        write_parquet(path, [values], 200, statistics=True)
        commit_file(table, path.as_uri(), Record(), 0, with_offsets=with_offsets)
    added = planner.what_if(table, "k = 5", {"bitmap": ["k"]})
    assert (added.today.row_groups.estimate, added.what_if.row_groups.estimate) == (5, 2)
    index = built(local_catalog, "ns.t", bitmap=["k"])
    hidden = planner.what_if(index, "k = 5", without=["k.bitmap"])
    assert (hidden.today.row_groups.estimate, hidden.what_if.row_groups.estimate) == (2, 8)
    assert hidden.bytes_saved < 0


def test_nothing_is_changed(table: Table, tmp_path: Path) -> None:
    before = {file: file.stat().st_size for file in tmp_path.rglob("*") if file.is_file() and file.name != "catalog.db"}
    planner.what_if(table, "k = 5", {"bitmap": ["k"]})
    after = {file: file.stat().st_size for file in tmp_path.rglob("*") if file.is_file() and file.name != "catalog.db"}
    assert before == after
    assert table.catalog.list_tables("ns") == [("ns", "t")]


def test_an_empty_table(local_catalog: SqlCatalog) -> None:
    table = local_catalog.create_table("ns.empty", pa.schema([("k", pa.int32())]))
    answer = planner.what_if(table, "k = 5", {"bitmap": ["k"]})
    assert (answer.row_groups, answer.verdict.text) == (0, "do not build")
    assert "snapshot None" in str(answer)
    assert "0 of 0" in answer._repr_html_()


def test_what_cannot_be_asked(table: Table) -> None:
    with pytest.raises(NotFoundError, match="no column 'nope'"):
        planner.what_if(table, "nope = 5", {"bitmap": ["k"]})
    with pytest.raises(DefinitionError, match="no column 'nope'"):
        planner.what_if(table, "k = 5", {"bitmap": ["nope"]})
    with pytest.raises(DefinitionError, match="tags"):
        planner.what_if(table, "k = 5", {"bitmap": ["tags"]})
    with pytest.raises(DefinitionError, match="unknown index kind 'btree'"):
        planner.what_if(table, "k = 5", {"btree": ["k"]})
    with pytest.raises(DefinitionError, match=r"'k.bitmap' is no index of the table"):
        planner.what_if(table, "k = 5", without=["k.bitmap"])
    with pytest.raises(DefinitionError, match="name the indexes"):
        planner.what_if(table, "k = 5")
    with pytest.raises(WhereSyntaxError):
        planner.what_if(table, "k =", {"bitmap": ["k"]})
    with pytest.raises(NotFoundError, match="no snapshot 1"):
        planner.what_if(table, "k = 5", {"bitmap": ["k"]}, snapshot_id=1)
    assert find_named([], ()) == frozenset()


def test_text_and_rows(table: Table) -> None:
    answer = planner.what_if(table, "k = 5", {"bitmap": ["k"]}, sample=4)
    assert "what if +k.bitmap: build, because" in str(answer)
    assert "measured on 4 of 8 row groups; ranges hold with 99% confidence" in str(answer)
    assert "measured on 4 of 8 row groups" in answer._repr_html_()
    assert [row["state"] for row in answer.rows()] == ["without index", "today", "what if"]
    assert answer.rows()[2]["verdict"] == "build"
    assert answer.to_json()["verdict"] == {"text": "build", "reason": answer.verdict.reason}


@pytest.mark.parametrize(
    ("where", "columns"),
    [
        ("message LIKE '%panic%'", ["message#c#words"]),
        ("array_contains(tags, 't77')", ["tags#c#elements"]),
        ("m['k3'] = 6500", ["m#c#keys", "m#c#values"]),
    ],
)
def test_indexes_of_contents_take_what_was_said(local_catalog: SqlCatalog, where: str, columns: list[str]) -> None:
    rows = {
        "message": [f"request {number * 7919:x} {'panic' if number == 777 else 'is well'}" for number in range(20_000)],
        "tags": [[f"t{number}", "all"] for number in range(20_000)],
        "m": pa.array([{f"k{number // 2000}": number} for number in range(20_000)], pa.map_(pa.string(), pa.int64())),
    }
    table = create_table(local_catalog, "t", pa.table(rows), 2000)

    answer = planner.what_if(table, where, {"bitmap": columns}, sample=None)

    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=columns))
    assert answer.index_bytes == pytest.approx(index.build(workers=1).index_bytes, rel=0.25)
    assert answer.verdict.text == "build"
    assert answer.what_if.row_groups.estimate == planner.plan(index, where).kept == 1
