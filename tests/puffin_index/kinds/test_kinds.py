"""What holds for every kind, of every type: the law of evaluation, and what is refused."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from pyroaring import BitMap

from puffin_index.errors import DefinitionError, UnsupportedError
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import SortedColumn
from puffin_index.keys.leaf import NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import value_type_named
from puffin_index.keys.values import key_of
from puffin_index.kinds.bloom.filter import grid_bits
from puffin_index.kinds.registry import KINDS, kind_named
from puffin_index.kinds.statistics import statistics_of
from tests.conftest import amount
from tests.puffin_index.kinds.columns import VALUES, Sample, leaf_tests, rows_of, sample_of, samples
from tests.puffin_index.kinds.counting import open_payload

EXACT_BUILDS = [("bitmap", {}), ("bitmap", {"index-block-size": "64"}), ("bsi", {}), ("bsi", {"compression": "none"})]


@pytest.mark.parametrize(("kind", "options"), EXACT_BUILDS)
@settings(max_examples=amount(16, 400), deadline=None)
@given(st.data())
def test_the_answer_is_that_of_every_row_looked_at(kind: str, options: dict[str, str], data: st.DataObject) -> None:
    sample = data.draw(samples())
    payload = KINDS[kind].build(SortedColumn(sample.column), options)
    index, _ = open_payload(kind, payload, sample.value_type, len(sample.values))
    for _ in range(4):
        test = data.draw(leaf_tests(sample))
        expected = rows_of(sample, test)
        found = index.evaluate(test)
        assert found.exact
        assert found.rows == expected
        candidates = BitMap(data.draw(st.sets(st.integers(0, len(sample.values) - 1), max_size=9)))
        assert index.evaluate(test, candidates).rows == expected & candidates


@settings(max_examples=amount(16, 400), deadline=None)
@given(st.data())
def test_a_bloom_filter_never_misses_a_row_and_is_exact_only_when_it_finds_none(data: st.DataObject) -> None:
    sample = data.draw(samples())
    options = data.draw(
        st.sampled_from(({}, {"fpp": "0.5"}, {"items": "3"}, {"items": "70000", "fpp": "0.001"}, {"fpp": "1e-20"}))
    )
    index, _ = open_payload(
        "bloom", KINDS["bloom"].build(SortedColumn(sample.column), options), sample.value_type, len(sample.values)
    )
    for _ in range(4):
        test = data.draw(leaf_tests(sample))
        found = index.evaluate(test)
        assert found.rows >= rows_of(sample, test)
        assert not found.exact or not found.rows
        candidates = BitMap(data.draw(st.sets(st.integers(0, len(sample.values) - 1), max_size=9)))
        among = index.evaluate(test, candidates)
        assert rows_of(sample, test) & candidates <= among.rows <= candidates


@pytest.mark.parametrize("bits", [1, 64, 65, 256, 257, 320, 321, 12_464, 2**20, 2**20 + 1, 2**31 - 9])
def test_a_filter_takes_the_next_of_four_sizes_between_powers_of_two(bits: int) -> None:
    found = grid_bits(bits)
    assert bits <= found <= max(64, 1.25 * bits + 64)
    assert found % 64 == 0 or found == 2**31 - 8
    assert grid_bits(found) == found
    assert f"{found:b}".rstrip("0") in ("1", "11", "101", "111") or found == 2**31 - 8


@pytest.mark.parametrize(("old", "new"), [("int", "long"), ("float", "double")])
@pytest.mark.parametrize("kind", KINDS)
def test_a_blob_built_before_a_promotion_answers_tests_of_the_wider_type(old: str, new: str, kind: str) -> None:
    values = [1, -2, None, 0, 7, 7] if old == "int" else [1.5, -2.25, None, 0.0, 7.0, 7.0]
    before, after = sample_of(values, old), sample_of(values, new)
    payload = KINDS[kind].build(SortedColumn(before.column), {})
    index, _ = open_payload(kind, payload, after.value_type, len(values))
    for key in (key for key in after.keys if isinstance(key, int)):
        test = SetTest((key,))
        assert index.evaluate(test).rows >= rows_of(after, test)
        if kind != "bloom":
            assert index.evaluate(test).rows == rows_of(after, test)
    absent = 2**40 if old == "int" else sample_of([0.1], "double").keys[0]
    assert isinstance(absent, int)
    assert index.evaluate(SetTest((absent,))).rows == BitMap()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("built", "asked", "key"), [("double", "string", b"x"), ("string", "double", 1)])
def test_a_blob_is_not_asked_for_keys_of_another_domain(kind: str, built: str, asked: str, key: Any) -> None:
    sample = sample_of([1.5, 2.5] if built == "double" else ["a", "b"], built)
    payload = KINDS[kind].build(SortedColumn(sample.column), {})
    with pytest.raises(UnsupportedError, match="form"):
        open_payload(kind, payload, value_type_named(asked), 2)[0].evaluate(SetTest((key,)))


@pytest.mark.parametrize(
    ("type_name", "values", "blob_type"),
    [
        ("boolean", [True, None], "paimon-bsi-v1"),
        ("long", [-(2**63) + 1, None], "paimon-bsi-v1"),
        ("long", [-(2**63), None], "puffin-index-bsi-v1"),
        ("timestamp_ns", [7], "paimon-bsi-v1"),
        ("decimal(18,0)", [Decimal(7)], "paimon-bsi-v1"),
        ("decimal(38,10)", [Decimal(7)], "puffin-index-bsi-v1"),
        ("double", [7.0], "puffin-index-bsi-v1"),
        ("string", ["7"], "puffin-index-bsi-v1"),
    ],
)
def test_numbers_that_fit_are_sliced_and_others_by_code(type_name: str, values: list[object], blob_type: str) -> None:
    column = SortedColumn(sample_of(values, type_name).column)
    assert KINDS["bsi"].build(column, {"compression": "none"}).blob_type == blob_type


@pytest.mark.parametrize("type_name", VALUES)
def test_paimon_reads_bitmaps_of_the_types_that_its_own_support(type_name: str) -> None:
    is_read = KINDS["bitmap"].paimon_reads("paimon-bitmap-v2", value_type_named(type_name))
    assert is_read is (type_name not in {"binary", "uuid", "fixed[5]", "decimal(38,10)"})


@pytest.mark.parametrize("kind", ["bitmap", "bsi"])
@pytest.mark.parametrize("type_name", VALUES)
@pytest.mark.parametrize("count", [0, 70_000])
def test_a_column_of_only_nulls_has_only_null_rows(kind: str, type_name: str, count: int) -> None:
    value_type = value_type_named(type_name)
    column = column_of(pa.nulls(count), value_type)
    index, _ = open_payload(kind, KINDS[kind].build(SortedColumn(column), {}), value_type, count)
    assert index.evaluate(NullTest(True)).rows == BitMap(range(count))
    assert index.evaluate(NullTest(False)).rows == BitMap()
    assert index.evaluate(RangeTest(None, None)).rows == BitMap()
    assert index.evaluate(SetTest((), negated=True)).rows == BitMap()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("values", [[], [1, 2, 3]])
def test_without_rows_or_candidates_nothing_is_found_or_read(kind: str, values: list[int]) -> None:
    sample = sample_of(values, "long")
    payload = KINDS[kind].build(SortedColumn(sample.column), {})
    index, reader = open_payload(kind, payload, sample.value_type, len(values))
    assert index.evaluate(SetTest((2,)), BitMap()).rows == BitMap()
    assert reader.requests == 0
    assert values or index.evaluate(SetTest((1,))).rows == index.evaluate(NullTest(True)).rows == BitMap()


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_option_is_refused_by_name(kind: str) -> None:
    with pytest.raises(DefinitionError, match=rf"{kind}.*decimal\(9,2\).*'colour'"):
        KINDS[kind].check(value_type_named("decimal(9,2)"), {"colour": "red"})


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("bitmap", {"index-block-size": "63"}),
        ("bitmap", {"index-block-size": "16 parsecs"}),
        ("bitmap", {"layout": "roaring"}),
        ("bsi", {"compression": "lz4"}),
        ("bloom", {"fpp": "0"}),
        ("bloom", {"fpp": "1"}),
        ("bloom", {"fpp": "nan"}),
        ("bloom", {"fpp": "much"}),
        ("bloom", {"items": "0"}),
        ("bloom", {"items": "-1"}),
        ("bloom", {"items": str(2**31)}),
    ],
)
def test_an_option_out_of_range_is_refused_by_name_and_value(kind: str, options: dict[str, str]) -> None:
    ((name, value),) = options.items()
    with pytest.raises(DefinitionError, match=f"{kind}.*{name}={value} of a string"):
        KINDS[kind].check(value_type_named("string"), options)


def test_postings_have_no_blocks_of_bitmaps() -> None:
    with pytest.raises(DefinitionError, match="layout=postings of a int column goes with no index-block-size"):
        KINDS["bitmap"].check(value_type_named("int"), {"layout": "postings", "index-block-size": "16kb"})


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(DefinitionError, match="'range'"):
        kind_named("range")


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
