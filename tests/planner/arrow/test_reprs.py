"""What a notebook shows of an index, its builds and its scans, and what `repr` says of them."""

import re

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import planner
from planner.report.scan_plan import ScanPlans
from puffin_index import IndexDefinition, TableIndex
from tests.conftest import create_table
from tests.planner.ten_rows import ROWS


@pytest.fixture
def index(local_catalog: SqlCatalog) -> TableIndex:
    """Ten rows in five row groups, indexed."""
    create_table(local_catalog, "t", ROWS, 2)
    definition = IndexDefinition.of(bitmap=["k"], bsi=["c"], options={"k.layout": "bitmaps"})
    return TableIndex.create(local_catalog, "ns.t", definition)


def _text(html: str) -> str:
    """The text of HTML, with a bar between cells."""
    return re.sub(r"\|+", "|", re.sub(r"<[^>]*>", "|", html)).replace("&lt;", "<")


def test_an_index_and_its_status(index: TableIndex) -> None:
    assert repr(index) == "TableIndex(ns.t: k: bitmap; c: bsi)"
    shown = _text(index._repr_html_())
    assert shown.startswith("|index of ns.t|index table|ns.t__puffin_index|snapshot|")
    assert "|k|long|bitmap|layout = bitmaps|c|long|bsi|" in shown
    index.build(workers=1)
    status = _text(index.status()._repr_html_())
    assert "|data files|1 of 1|row groups|5 of 5|segments|1|" in status
    assert "|k|bitmap|" in status


def test_builds_print_nothing_to_pipes(index: TableIndex, capfd: pytest.CaptureFixture[str]) -> None:
    handle = index.build_async(workers=1)
    report = handle.wait(60)
    assert re.fullmatch(r"BuildHandle\(done, 1 of 1 files, 10 of 10 rows, [\d.]+ \w+ of index\)", repr(handle))
    assert "|build: done|files|1 of 1|rows|10 of 10|" in _text(handle._repr_html_())
    assert "|indexing|done|" in _text(handle.progress()._repr_html_())
    assert "|data files|1|row groups|5|rows|10|" in _text(report._repr_html_())
    assert index.build(workers=1).files == 0
    assert capfd.readouterr() == ("", "")


def test_plans_and_counts_have_a_funnel(index: TableIndex) -> None:
    index.build(workers=1)
    plan = planner.plan(index, "k < 3 AND c = 0")
    assert repr(plan) == "ScanPlan(ns.t where k < 3 AND c = 0: 2 of 5 row groups kept, 0 not indexed)"
    shown = _text(plan._repr_html_())
    assert "|where|k < 3 AND c = 0|row groups kept|2 of 5|" in shown
    # The zone maps leave what a range cannot be told from.
    zone_map = next(stage for stage in plan.funnel if stage.name == "zone-map")
    assert f"|zone-map|{5 - zone_map.dropped}|{zone_map.dropped}|" in shown
    rows = int(plan.row_counts[plan.kept_mask].sum())
    assert f"|rows kept|{rows}|" in shown

    plans = _text(ScanPlans([plan, plan])._repr_html_())
    assert plans.startswith("|2 scans, oldest first|table|where|row groups kept|")
    assert plans.count("|ns.t|k < 3 AND c = 0|2 of 5|") == 2
    assert len(repr(planner.plan(index, f"k IN ({', '.join(map(str, range(1_000)))})"))) < 300

    counted = planner.count(index, "k < 3")
    assert re.fullmatch(r"RowCount\(2 rows, 0 of 5 row groups read, \d+ ms\)", repr(counted))
    shown = _text(counted._repr_html_())
    assert shown.startswith("|2 rows|row groups read|0 of 5|")
    assert "|where|k < 3|" in shown
