"""Whatever byte of a segment is damaged, no row is lost: the planner keeps the row group and says why."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from planner.arrow.plan import plan_files
from planner.condition.sql.parser import read_where
from planner.condition.tree.simplify import simplified
from planner.prune.gate import Limits
from planner.view.cache import new_cache
from planner.view.index_view import IndexView
from puffin_index import IndexDefinition
from puffin_index.data.data_table import list_data_files
from puffin_index.errors import PuffinIndexError
from puffin_index.index_table.table import read_entries
from tests.conftest import amount
from tests.planner.ten_rows import build_index

ROWS, ROW_GROUP_ROWS = 1_200, 100
PREDICATES = {
    "k = 77": lambda row: row["k"] == 77,
    "k BETWEEN 100 AND 103": lambda row: (row["k"] >= 100) & (row["k"] <= 103),
    "s = 'value-7' AND k > 10": lambda row: (row["s"] == "value-7") & (row["k"] > 10),
    "k <> 77 AND s IN ('value-1', 'nowhere')": lambda row: (row["k"] != 77) & (row["s"] == "value-1"),
    "s < 'value-1'": lambda row: row["s"] < "value-1",
}


@pytest.fixture(scope="module")
def data() -> pa.Table:
    chooser = np.random.default_rng(7)
    return pa.table(
        {
            "k": pa.array(chooser.permutation(ROWS), pa.int64()),
            "s": pa.array([f"value-{n}" for n in chooser.integers(0, 300, ROWS)], pa.string()),
        }
    )


@pytest.mark.parametrize(
    "kinds", [{"bitmap": ["k", "s"]}, {"bsi": ["k", "s"]}, {"bloom": ["k", "s"], "bsi": ["k"]}], ids=str
)
def test_a_flipped_byte_never_drops_a_match_or_miscounts(
    local_catalog: SqlCatalog, data: pa.Table, kinds: dict[str, list[str]]
) -> None:
    index = build_index(local_catalog, data, ROW_GROUP_ROWS, IndexDefinition.of(**kinds))
    table = index.data_table
    index.refresh()
    segment = next(Path(index.index_table.location().removeprefix("file://")).glob("_segments/*.puffin"))
    original = segment.read_bytes()
    files, entries = list_data_files(table), read_entries(index.index_table)
    rows = {"k": data["k"].to_numpy(), "s": data["s"].to_numpy()}
    truths = {where: test(rows).reshape(-1, ROW_GROUP_ROWS).sum(axis=1) for where, test in PREDICATES.items()}
    chooser = random.Random(11)
    warned = 0
    for _ in range(amount(8, 600)):
        position = chooser.randrange(len(original))
        damaged = bytearray(original)
        damaged[position] ^= 1 << chooser.randrange(8)
        segment.write_bytes(damaged)
        for where, truth in truths.items():
            view = IndexView("damaged", entries, index.index_table.io, new_cache())
            scan_plan = plan_files(view, simplified(read_where(where, table.schema())), files)
            assert not truth[~scan_plan.kept_mask].any(), (where, position)
            counted = scan_plan.matches >= 0
            assert (scan_plan.matches[counted] == truth[counted]).all(), (where, position)
            warned += bool(scan_plan.warnings)
    assert warned > 0
    # Directories may lie in the first half: a footer can be longer than all indexes of so few rows.
    segment.write_bytes(original[: len(original) // 8])
    view = IndexView("cut", entries, index.index_table.io, new_cache())
    scan_plan = plan_files(view, simplified(read_where("k = 77", table.schema())), files)
    assert scan_plan.kept == scan_plan.row_groups
    assert scan_plan.warnings
    with pytest.raises((PuffinIndexError, OSError)):
        plan_files(
            IndexView("strict", entries, index.index_table.io, new_cache()),
            simplified(read_where("k = 77", table.schema())),
            files,
            Limits(strict=True),
        )
