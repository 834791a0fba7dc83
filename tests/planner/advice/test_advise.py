"""The advisor against exhaustive trial on the real table; what it says of existing indexes; and its errors."""

import json
import re
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import planner
from planner.advice.advice_answer import Advice
from planner.advice.advised_table import AdvisedTable
from planner.advice.sample import AdviceProgress
from planner.condition.sql.parser import read_where
from puffin_index import IndexDefinition, TableIndex
from puffin_index.errors import DefinitionError, PuffinIndexError
from puffin_index.keys.map_key import FieldKind
from tests.conftest import built, create_table

WORKLOAD = {
    "lo_custkey = 77": 30,
    "lo_custkey = 155": 10,
    "lo_ordtotalprice BETWEEN 1000000 AND 1000400": 20,
    "lo_suppkey = 12 AND lo_partkey < 40": 15,
    "lo_suppkey = 44 AND lo_partkey = 400": 15,
    "lo_shipmode = 'AIR'": 50,
}
COLUMNS = ("lo_custkey", "lo_ordtotalprice", "lo_suppkey", "lo_partkey")
KINDS = dict.fromkeys(("bitmap", "bsi", "bloom"), COLUMNS)


def statements() -> list[str]:
    return [f"SELECT * FROM ns.lineorder WHERE {where}" for where, times in WORKLOAD.items() for _ in range(times)]


class Trial:
    """What sets of indexes really save, by plans of the whole table, and what each takes when it is built alone."""

    def __init__(self, table: Table) -> None:
        self.sizes: dict[FieldKind, int] = {}
        for kind, column in product(KINDS, COLUMNS):
            index = TableIndex.create(
                table.catalog, "ns.lineorder", IndexDefinition.of(options=None, **{kind: [column]})
            )
            (own,) = index.columns
            self.sizes[own.field_id, kind] = index.build(workers=1).index_bytes
            index.drop()
        index = built(table.catalog, "ns.lineorder", options=None, **KINDS)
        self.advised = AdvisedTable.of(index)
        self.queries = []
        for where, times in WORKLOAD.items():
            condition = read_where(where, self.advised.schema)
            names = set(re.findall(r"lo_\w+", where))
            own = frozenset(key for key in self.sizes if self.advised.schema.find_column_name(key[0]) in names)
            self.queries.append((times, condition, own, self.advised.scanned(condition)))
        self._saved: dict[tuple[int, frozenset[FieldKind]], float] = {}

    def gain(self, chosen: frozenset[FieldKind]) -> float:
        return sum(self._of_query(number, chosen & own) for number, (_, _, own, _) in enumerate(self.queries))

    def _of_query(self, number: int, chosen: frozenset[FieldKind]) -> float:
        if (number, chosen) not in self._saved:
            times, condition, _, scanned = self.queries[number]
            view = self.advised.view.only(chosen)
            kept = self.advised.plan(view, condition, scanned.data_files).kept_mask
            self._saved[number, chosen] = times * float(np.sum(scanned.row_group_bytes[~kept])) if len(kept) else 0.0
        return self._saved[number, chosen]

    def best(self, budget: float) -> float:
        every = (frozenset(some) for n in range(len(self.sizes) + 1) for some in combinations(self.sizes, n))
        return max(self.gain(some) for some in every if self.size(some) <= budget)

    def size(self, chosen: frozenset[FieldKind]) -> int:
        return sum(self.sizes[key] for key in chosen)


@pytest.mark.nightly
def test_within_a_tenth_of_exhaustive_trial(lineorder: Table) -> None:
    trial = Trial(lineorder)
    data_bytes = trial.advised.data_bytes
    # All sets are tried before the index is gone.
    best = {share: trial.best(share * data_bytes) for share in (0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.6)}
    TableIndex.open(lineorder.catalog, "ns.lineorder").drop()
    field_of = {field.name: field.field_id for field in lineorder.schema().fields}
    for share in best:
        advice = planner.advise(lineorder, statements(), max_share=share, sample=24)
        # No index of the ship mode saves a row group, so these are not tried.
        chosen = frozenset((field_of[own.column], own.kind) for own in advice.proposals if own.column in COLUMNS)
        assert trial.gain(chosen) >= 0.9 * best[share], (share, str(advice))
        assert trial.size(chosen) <= share * data_bytes * 1.1
        assert advice.index_bytes <= advice.budget_bytes


@pytest.fixture
def table(local_catalog: SqlCatalog) -> Table:
    """`ns.t`: 40 row groups; `k` is scattered, `c` has few values, `a` and `b` prune only together."""
    rows = np.random.default_rng(5)
    count = 20_000
    data = pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "k": pa.array(rows.integers(0, 1_000_000, count)),
            "c": pa.array(rows.integers(0, 4, count)),
            "a": pa.array(rows.integers(0, 60, count)),
            "b": pa.array(rows.integers(0, 60, count)),
            "m": pa.array([[("x", str(i))] for i in range(count)], pa.map_(pa.string(), pa.string())),
        }
    )
    return create_table(local_catalog, "t", data, 500)


def proposed(advice: Advice) -> dict[str, str]:
    return {own.column: own.action for own in advice.proposals}


def test_what_helps_only_together(table: Table) -> None:
    advice = planner.advise(
        table, "SELECT * FROM ns.t WHERE a = 3 AND b = 7; SELECT * FROM ns.t WHERE c = 1", max_share=2
    )
    assert proposed(advice) == {"a": "create", "b": "create"}
    assert all("only together with" in own.reason for own in advice.proposals)
    assert advice.bytes_saved > 0
    assert {own.column for own in advice.indexes if own.action == "do not build"} >= {"c"}
    cannot = planner.advise(table, "SELECT * FROM ns.t WHERE a = 3 AND b = 7", max_share=0.0001)
    assert cannot.proposals == ()
    assert "create nothing" in str(cannot)
    assert cannot.statements == ()


def test_statements(table: Table) -> None:
    advice = planner.advise(
        table, ["SELECT * FROM t WHERE k = 5", "SELECT 1 FROM ns.t WHERE m['x'] = '77'"], max_share=5
    )
    assert proposed(advice) == {"k": "create", "m#k#x": "create"}
    kinds = {own.column: own.kind for own in advice.proposals}
    assert sorted(advice.statements) == [
        f"CREATE INDEX k_{kinds['k']} ON local.ns.t USING {kinds['k']} (k)",
        f"CREATE INDEX m_k_x_{kinds['m#k#x']} ON local.ns.t USING {kinds['m#k#x']} (m OPTIONS (key = 'x'))",
    ]
    indexes = json.loads(json.dumps(advice.to_json()))["indexes"]
    assert indexes[0]["reason"].startswith("1 x WHERE")
    assert {own["action"] for own in indexes} >= {"create", "do not build"}


def test_existing_indexes(table: Table) -> None:
    catalog = table.catalog
    index = built(catalog, "ns.t", bitmap=["c", "b"], bsi=["k"])
    queries = "SELECT * FROM ns.t WHERE k = 5; SELECT * FROM ns.t WHERE c = 1; SELECT id FROM ns.t"
    advice = planner.advise(index, queries, max_share=3)
    assert proposed(advice) == {"k": "keep"}
    assert advice.statements == ()
    reasons = {f"{own.column}.{own.kind}": own.reason for own in advice.indexes if own.action == "unused"}
    assert reasons.keys() == {"b.bitmap", "c.bitmap"}
    assert reasons["b.bitmap"] == "no query has a condition or aggregate that it could answer"
    assert "1 scans have no condition" in " ".join(advice.warnings)

    created = planner.advise(table, f"{queries}; SELECT * FROM ns.t WHERE a = 3 AND b = 7", max_share=3, create=True)
    assert created.created
    # Nothing that exists is ever dropped.
    defined = {(c.name, kind) for c in TableIndex.open(catalog, "ns.t").columns for kind in c.kinds}
    assert defined >= {("c", "bitmap"), ("b", "bitmap"), ("k", "bsi")}
    assert "a" in {column for column, _ in defined}


def test_answers_and_joins_are_uses(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.advice.gains.MOST_GROUPS", 10_000)
    index = built(table.catalog, "ns.t", bitmap=["c", "b"], bsi=["k", "a"], bloom=["k"])
    queries = (
        "SELECT c, count(*), sum(k) FROM ns.t GROUP BY c; SELECT c, count(*) FROM ns.t WHERE k < 500 GROUP BY 1;"
        "SELECT id, count(*) FROM ns.t GROUP BY id; SELECT 1 FROM ns.t JOIN d ON t.b = d.b"
    )
    advice = planner.advise(index, queries, max_share=3, sample=20)

    assert proposed(advice) == {"c": "keep", "k": "keep"}
    assert {f"{own.column}.{own.kind}" for own in advice.indexes if own.action == "unused"} == {"a.bsi", "k.bloom"}
    assert "b.bitmap: joins, aggregates or first rows of 1 scans" in " ".join(advice.warnings)
    # A group for each row is more than the index answers.
    assert "id" not in {own.column for own in advice.proposals}
    assert advice.source.startswith("measured on 20 of 40 row groups for 4 scans; by this sample ")


def test_progress_is_told(table: Table) -> None:
    told: list[AdviceProgress] = []
    planner.advise(table, "WHERE k = 5; WHERE a = 3 AND b = 7; WHERE k IN (5, 6) AND c = 1", progress=told.append)
    tried = [now.plans for now in told if now.plans]
    assert told[: len(told) - len(tried)] == [AdviceProgress(), *(AdviceProgress(n, 4) for n in range(1, 5))]
    # One of each query, and only those that other plans do not decide.
    assert tried == [*range(1, len(tried) + 1)]
    assert 3 <= len(tried) <= 20
    assert str(told[-1]) == f"trying sets of indexes: {len(tried)} plans"


def test_what_cannot_be_advised(table: Table, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="one source"):
        planner.advise(table)
    with pytest.raises(DefinitionError, match="one source"):
        planner.advise(table, "WHERE k = 5", query_log=tmp_path.as_uri())
    with pytest.raises(DefinitionError, match="budget"):
        planner.advise(table, "WHERE k = 5", max_share=0)
    with pytest.raises(PuffinIndexError, match="no SQL statement"):
        planner.advise(table, "")
    advice = planner.advise(table, "WHERE nope = 5; WHERE k =; WHERE k + 1 = 6; SELECT 1 FROM ns.t WHERE id = -1")
    assert advice.proposals == ()
    text = " ".join(advice.warnings)
    assert "no column 'nope'" in text
    assert "WHERE k =: expected" in text


def test_an_empty_table(local_catalog: SqlCatalog) -> None:
    table = local_catalog.create_table("ns.empty", pa.schema([("k", pa.int32())]))
    advice = planner.advise(table, "SELECT * FROM ns.empty WHERE k = 5")
    assert (advice.proposals, advice.row_groups) == ((), 0)
    assert "create nothing" in str(advice)
    assert "create nothing" in advice._repr_html_()


def test_words_are_advised_for_searches_of_texts(local_catalog: SqlCatalog) -> None:
    lines = [f"request {number * 7919:x} {'panic' if number == 777 else 'is well'}" for number in range(20_000)]
    table = create_table(local_catalog, "t", pa.table({"message": lines, "id": [*range(20_000)]}), 2000)

    advice = planner.advise(table, ["SELECT id FROM ns.t WHERE message LIKE '%el pani%'"] * 9, max_share=1.0)

    (words,) = (one for one in advice.indexes if one.action == "create")
    assert (words.column, words.kind) == ("message#c#words", "bitmap")
    index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=["message#c#words"]))
    assert words.index_bytes == pytest.approx(index.build(workers=1).index_bytes, rel=0.25)
