"""A sample's verdicts are those of the whole index; sets of indexes that are taken for alike have the same verdicts."""

from itertools import chain, combinations

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from planner.advice.advised_table import AdvisedTable
from planner.advice.candidates import find_candidates, names_of
from planner.advice.sample import built_sample, choose
from planner.advice.workload import Query
from planner.condition.sql.parser import read_where
from planner.condition.tree.nodes import EVERY_ROW
from planner.prune.verdicts import kept_mask
from puffin_index import IndexDefinition, TableIndex
from puffin_index.definition.index_definition import resolve
from puffin_index.keys.map_key import FieldKind
from tests.conftest import create_table

WHERES = [
    "lo_custkey = 77",
    "lo_custkey IN (155, 3) AND lo_revenue > 5000000",
    "lo_revenue = 1234567",
    "lo_orderkey = 9",
]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("most", [20, 7, 1000])
def test_verdicts_are_those_of_the_whole_index(lineorder: Table, most: int) -> None:
    definition = IndexDefinition.of(bitmap=["lo_custkey", "lo_orderkey"], bsi=["lo_revenue"], bloom=["lo_custkey"])
    advised = AdvisedTable.of(lineorder)
    everything = advised.scanned(EVERY_ROW)
    columns = resolve(definition, advised.schema)
    positions = choose(len(everything), most)
    assert len(positions) == min(most, len(everything))
    with built_sample(advised, everything, positions, columns) as sample:
        conditions = [read_where(where, advised.schema) for where in WHERES]
        found = [kept_mask(sample.plan(condition)[0]) for condition in conditions]
        bloom = [key for key in names_of(columns) if key[1] == "bloom"]
        only_bloom, nothing = (kept_mask(sample.plan(conditions[0], chosen)[0]) for chosen in (bloom, []))
        assert sample.rows * sample.growth == pytest.approx(sum(own.file.record_count for own in advised.files))
        assert sample.table_bytes(names_of(columns)) > 0
    TableIndex.create(lineorder.catalog, "ns.lineorder", definition).build(workers=1)
    whole = AdvisedTable.of(lineorder)
    for condition, kept in zip(conditions, found, strict=True):
        real = whole.plan(whole.view, condition, everything.data_files).kept_mask
        assert kept.tolist() == real[positions].tolist(), condition
    assert np.all(only_bloom | ~found[0])
    assert nothing.all()


# Conditions, and how many of the sets of their candidates differ.
ALIKE = {
    "k = 77": 3,
    "k IN (155, 3) AND n > 99": 6,
    "k = 77 OR k > 9990 AND n < 1": 6,
    "k <> 77 AND s BETWEEN 'v9' AND 'v91'": 4,
    "s LIKE '%77'": 8,
    "k = 77 AND s LIKE '%7' AND s <> 'v7'": 24,
}


@pytest.fixture
def table(local_catalog: SqlCatalog) -> Table:
    """`ns.t`: 20 row groups; all rows lie scattered."""
    rows = np.random.default_rng(3)
    numbers = rows.integers(0, 10_000, 2_000)
    data = pa.table(
        {
            "k": pa.array(numbers, mask=numbers < 500),
            "n": pa.array(rows.integers(0, 101, len(numbers))),
            "s": pa.array([f"v{number}" for number in numbers]),
        }
    )
    return create_table(local_catalog, "t", data, 100)


def every_set(candidates: frozenset[FieldKind]) -> list[frozenset[FieldKind]]:
    ordered = sorted(candidates)
    return [*map(frozenset, chain.from_iterable(combinations(ordered, n) for n in range(len(ordered) + 1)))]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("where", ALIKE)
def test_sets_that_are_alike_drop_the_same(table: Table, where: str) -> None:
    advised = AdvisedTable.of(table)
    everything = advised.scanned(EVERY_ROW)
    candidates = find_candidates([Query(where)], advised.schema)
    (query,) = candidates.queries
    with built_sample(advised, everything, np.arange(len(everything)), candidates.columns) as sample:
        kept = {some: kept_mask(sample.plan(query.condition, some)[0]).tolist() for some in every_set(query.candidates)}

    assert not all(kept[query.candidates])
    assert len({query.with_idle(some) for some in kept}) == ALIKE[where]
    for some, own in kept.items():
        assert some <= query.with_idle(some)
        assert own == kept[query.with_idle(some)], some
