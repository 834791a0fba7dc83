"""The law of counting among candidates: the same counts and verdicts as for the whole predicate."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from planner.clock import Clock
from planner.condition.tree.nodes import Leaf, Predicate
from planner.condition.tree.simplify import conjunction, disjunction
from planner.first_rows.counting import Counting
from planner.prune.gate import Limits
from puffin_index import IndexDefinition
from puffin_index.keys.leaf import NullTest, RangeTest, SetTest
from tests.conftest import amount
from tests.planner.ten_rows import build_index, view_of_index

ROWS, GROUP_ROWS = 3_000, 50
KINDS = [
    IndexDefinition.of(bitmap=["f", "c"]),
    IndexDefinition.of(bsi=["f", "c"]),
    IndexDefinition.of(bitmap=["c"], bsi=["f"]),
    IndexDefinition.of(bitmap=["f", "c"], bsi=["f"], options={"f.layout": "bitmaps"}),
]


@pytest.mark.parametrize("definition", KINDS, ids=["postings", "slices", "both", "bitmaps"])
@pytest.mark.parametrize("seed", range(amount(2, 40)))
def test_candidates_change_no_count(local_catalog: SqlCatalog, definition: IndexDefinition, seed: int) -> None:
    random = Random(seed)
    f = [None if random.random() < 0.05 else random.randrange(2_000) for _ in range(ROWS)]
    c = [None if random.random() < 0.05 else random.randrange(100) for _ in range(ROWS)]
    data = pa.table({"f": pa.array(f, pa.int64()), "c": pa.array(c, pa.int64())})
    index = build_index(local_catalog, data, GROUP_ROWS, definition)
    view = view_of_index(index)
    at = np.arange(view.row_group_count)
    counting = Counting(view, at, np.ones(len(at), np.bool_), Clock(60), Limits(strict=True, rows_wanted=True), None)
    low, width = random.randrange(100), random.choice([0, 3, 60])
    wheres: list[Predicate] = [
        Leaf(2, SetTest((low,)), "long"),
        Leaf(2, RangeTest(low, low + width), "long"),
        disjunction([Leaf(2, NullTest(is_null=True), "long"), Leaf(1, SetTest((low, low + 1)), "long")]),
    ]

    nulls = Leaf(1, NullTest(is_null=True), "long")
    for where in wheres:
        counting.candidates, counting.keys = None, None
        counting.narrow(counting.of(where, at))
        assert counting.candidates is not None
        nulls_first = random.random() < 0.5
        for least in sorted(random.sample(range(2_000), 6)):
            keys = Leaf(1, RangeTest(least, None), "long")
            first = disjunction([nulls, keys]) if nulls_first else keys
            counted = counting.first(where, first, at, (nulls.field_id, nulls.value_type))
            plain = counting.of(conjunction([where, first]), at)

            assert counted.counts.tolist() == plain.counts.tolist()
            assert counted.pruned.kept.tolist() == (plain.counts > 0).tolist()
            # A greater key is reached by rows that reach this one.
            counting.narrow(counted)
            among = counting.candidates
            counting.narrow(plain)
            assert counting.candidates == among
