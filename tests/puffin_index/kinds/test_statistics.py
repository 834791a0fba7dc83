"""Statistics of a column: counts, bounds and quantiles, NULL and NaN."""

import numpy as np
from hypothesis import given, settings

from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.value_types import value_type_named
from puffin_index.keys.values import key_of
from puffin_index.kinds.statistics import statistics_of
from tests.conftest import amount
from tests.puffin_index.kinds.columns import Sample, sample_of, samples


@settings(max_examples=amount(20, 500), deadline=None)
@given(samples())
def test_statistics_are_those_of_the_sorted_keys(sample: Sample) -> None:
    known = sorted(key for key in sample.keys if key is not None)
    found = statistics_of(SortedColumn(sample.column))
    assert found.row_count == len(sample.keys)
    assert found.null_count == len(sample.keys) - len(known)
    assert found.distinct_count == len(set(known))
    assert (found.minimum, found.maximum) == ((known[0], known[-1]) if known else (None, None))
    ranks = np.linspace(0, len(known) - 1, 32).round().astype(int).tolist() if known else []
    assert list(found.quantiles) == [known[rank] for rank in ranks]


def test_nan_is_counted_and_is_the_maximum() -> None:
    nan, double = float("nan"), value_type_named("double")
    found = statistics_of(SortedColumn(sample_of([nan, 1.0, None, nan, float("inf")], "double").column))
    assert (found.nan_count, found.null_count, found.distinct_count) == (2, 1, 3)
    assert (found.minimum, found.maximum) == (key_of(1.0, double), key_of(nan, double))
    assert statistics_of(SortedColumn(sample_of([1.0], "double").column)).nan_count == 0


def test_a_long_that_looks_like_the_key_of_nan_is_not_nan() -> None:
    assert statistics_of(SortedColumn(sample_of([0x7FF8_0000_0000_0000], "long").column)).nan_count == 0
