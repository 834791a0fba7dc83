"""Paimon answers tests from containers that were exported from a real segment."""

from typing import Any

import pytest

from puffin_index.jobs.export import fill_container
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from tests.conftest import some
from tests.paimon.referee import Paimon
from tests.puffin_index.kinds.columns import rows_of, sample_of
from tests.puffin_index.segments.segment_sample import FIELD_IDS, TYPES, SegmentSample

pytestmark = pytest.mark.paimon

NAMES = {field_id: name for name, field_id in FIELD_IDS.items()}
EXACT = ("status", "day", "id", "price")
"""The columns that have a bitmap or bit slices in the container, besides what else they have."""


@pytest.mark.parametrize("row_group", [0, 3])
@pytest.mark.parametrize("name", EXACT)
def test_paimon_reads_an_exported_row_group(paimon: Paimon, sample: SegmentSample, name: str, row_group: int) -> None:
    container = fill_container([(sample.reader, row_group, NAMES)]).data
    column = sample_of(sample.values[name][row_group], TYPES[name])
    known: list[Any] = sorted({key for key in column.keys if key is not None})
    tests: list[LeafTest] = [NullTest(True), NullTest(False), SetTest((known[0], known[-1]))]
    tests += [SetTest((key,)) for key in some(known, 8)]
    if name != "status":
        tests += [RangeTest(known[2], None), RangeTest(None, known[-2], high_inclusive=False)]
    for test in tests:
        expected = rows_of(column, test)
        assert paimon.rows_in(container, name, TYPES[name], test) in (expected, bool(expected))
        assert expected or test == NullTest(True)


def test_paimon_takes_a_value_that_no_exported_filter_has_for_absent(paimon: Paimon, sample: SegmentSample) -> None:
    container = fill_container([(sample.reader, 1, {FIELD_IDS["id"]: "id"})]).data
    assert not paimon.rows_in(container, "id", "long", SetTest((12_345,)))
