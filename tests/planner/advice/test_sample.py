"""A sample's verdict on each row group is that of the whole index, whichever row groups are sampled."""

import numpy as np
import pytest
from pyiceberg.table import Table

from planner.advice.advised_table import AdvisedTable
from planner.advice.candidates import names_of
from planner.advice.sample import built_sample, choose
from planner.condition.sql.parser import read_where
from planner.condition.tree.nodes import EVERY_ROW
from planner.prune.verdicts import kept_mask
from puffin_index import IndexDefinition, TableIndex
from puffin_index.definition.index_definition import resolve

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
        found = [kept_mask(sample.reasons(condition)) for condition in conditions]
        bloom = [key for key in names_of(columns) if key[1] == "bloom"]
        only_bloom, nothing = (kept_mask(sample.reasons(conditions[0], chosen)) for chosen in (bloom, []))
        assert sample.rows * sample.growth == pytest.approx(advised.record_count)
        assert sample.table_bytes(names_of(columns)) > 0
    TableIndex.create(lineorder.catalog, "ns.lineorder", definition).build(workers=1)
    whole = AdvisedTable.of(lineorder)
    for condition, kept in zip(conditions, found, strict=True):
        real = whole.plan(whole.view, condition, everything.data_files).kept_mask
        assert kept.tolist() == real[positions].tolist(), condition
    assert np.all(only_bloom | ~found[0])
    assert nothing.all()
