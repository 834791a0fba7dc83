"""The query files, and the rule that fits their literals to the data."""

from collections.abc import Sequence
from dataclasses import replace

import duckdb
import pytest
from hypothesis import given, strategies as st

from ssb_bench.data.layout import BenchError, Layout
from ssb_bench.data.workload import (
    ALL_QUERIES,
    QUERIES_OF,
    SSB_QUERIES,
    VOLCANO_QUERIES,
    Query,
    fit,
    load_query,
    parse_query,
)
from ssb_bench.studies.run import fit_queries

SEED_LITERALS = {
    "q1": [19665277],
    "q2": [19665277, 2141624],
    "q3": [19665277, 10304000],
    "q4": [21877827, 83800, 103800],
    "q5": [21877827, 83800, 93800],
    "q6": [93565, 93909],
    "q7": [93565, 91003562, 904300, 9904300],
}


def query_text(*parameters: str, where: str) -> str:
    header = ["-- title: t", "-- note: n", *(f"-- param: {p}" for p in parameters)]
    return "\n".join([*header, f"SELECT count(*) FROM lineorder WHERE {where}"])


def fit_to(values: Sequence[int], text: str) -> Query:
    """Fit a query to a lineorder of one column `c`."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE lineorder AS SELECT unnest($1::BIGINT[]) AS c", [values])
        return fit(parse_query("x", text), connection)


def used(parameters: Sequence[str], values: Sequence[int]) -> list[int]:
    where = " AND ".join(f"c > ${parameter.split()[0]}" for parameter in parameters)
    fitted = fit_to(values, query_text(*parameters, where=where))
    return [literal.used for literal in fitted.parameters]


@pytest.mark.parametrize("name", VOLCANO_QUERIES)
def test_each_query_has_the_literals_of_its_source(name: str) -> None:
    query = load_query(name)

    assert query.name == name
    assert [parameter.literal for parameter in query.parameters] == SEED_LITERALS[name]


def test_the_sql_of_q7_is_the_sources(layout: Layout) -> None:
    """At any scale its ranges hold values, so that the literals stay."""
    (q7,) = fit_queries(layout, ["q7"])

    assert " ".join(q7.sql.split()) == (
        "SELECT count(*) FROM lineorder WHERE lo_ordtotalprice >= 93565 AND lo_ordtotalprice < 91003562 "
        "AND lo_revenue >= 904300 AND lo_revenue <= 9904300"
    )


@pytest.mark.parametrize(
    ("parameters", "fitted"),
    [
        pytest.param(["a c >= 4", "b c <= 6"], [4, 6], id="a range with values stays"),
        pytest.param(["a c >= 6", "b c < 8"], [5, 7], id="a range without values moves to the one before, as wide"),
        pytest.param(["a c > 5", "b c < 8"], [4, 7], id="an open lower bound moves to just below the value before"),
        pytest.param(["a c >= 20", "b c <= 30"], [9, 19], id="a range above all values moves to the greatest"),
        pytest.param(["b c < 0"], [2], id="an upper bound below all values moves to the least"),
    ],
)
def test_literals_are_fitted_to_the_data(parameters: list[str], fitted: list[int]) -> None:
    assert used(parameters, [1, 5, 9]) == fitted


@given(
    st.lists(st.integers(-50, 50), min_size=1),
    st.integers(-60, 60),
    st.integers(0, 20),
    st.sampled_from([">", ">="]),
    st.sampled_from(["<", "<="]),
)
def test_fitted_ranges_have_values_and_width(values: list[int], low: int, width: int, lower: str, upper: str) -> None:
    high = low + width + 2  # wide enough for an integer between two open bounds
    fitted_low, fitted_high = used([f"a c {lower} {low}", f"b c {upper} {high}"], values)

    inside = [v for v in values if (v > fitted_low or (lower == ">=" and v == fitted_low))]
    inside = [v for v in inside if v < fitted_high or (upper == "<=" and v == fitted_high)]
    assert inside
    assert fitted_high - fitted_low == high - low


@given(st.lists(st.integers(-50, 50), min_size=1), st.integers(-60, 60))
def test_a_fitted_equality_has_the_rank_of_its_literal(values: list[int], literal: int) -> None:
    (fitted,) = used([f"v c = {literal}"], values)

    assert fitted in values
    at_or_below = sum(v <= literal for v in values)
    assert sum(v <= fitted for v in values) == (at_or_below or values.count(min(values)))


def test_a_mapping_is_printed_with_both_literals_and_the_reason() -> None:
    fitted = fit_to([1, 5, 9], query_text("v c = 8", where="c = $v"))

    assert str(fitted.parameters[0]) == "c = 8 -> 5: value at the same rank"


def test_a_column_without_values_is_refused() -> None:
    with pytest.raises(BenchError, match="c has no values"):
        used(["v c = 8"], [])


@pytest.mark.parametrize("name", SSB_QUERIES)
def test_the_standard_queries_answer_something_on_generated_data(ssb: duckdb.DuckDBPyConnection, name: str) -> None:
    """The narrowest ones may have no row at this scale, but all name columns and values that there are."""
    query = fit(load_query(name), ssb)
    rows = ssb.execute(query.sql).fetchall()

    assert query.workload == "ssb"
    with pytest.raises(BenchError, match="not a query of lineorder alone"):
        _ = query.where
    if name in ("q1.1", "q2.1", "q3.1", "q4.1"):
        assert rows
        assert rows[0][0] is not None


@pytest.mark.parametrize("variant", ["rows", "aggregate"])
@pytest.mark.parametrize("name", VOLCANO_QUERIES)
def test_a_variant_has_the_predicate_of_a_query(ssb: duckdb.DuckDBPyConnection, name: str, variant: str) -> None:
    plain, other = (fit(load_query(each), ssb) for each in (name, f"{name}-{variant}"))

    assert other.where == plain.where
    assert other.name == f"{name}-{variant}"
    (count,) = ssb.execute(plain.sql).fetchall()[0]
    if variant == "rows":
        assert len(ssb.execute(other.sql).fetchall()) == count
    else:
        assert (ssb.execute(other.sql).fetchall()[0][0] is None) == (count == 0)


def test_every_query_belongs_to_one_workload() -> None:
    assert len(set(ALL_QUERIES)) == len(ALL_QUERIES) == 3 * 7 + 13 + 11
    assert {load_query(name).workload for name in ALL_QUERIES} == {*QUERIES_OF}


@pytest.mark.parametrize("sql", ["SELECT count(*) FROM supplier WHERE s_suppkey < 9", "SELECT count(*) FROM lineorder"])
def test_a_predicate_of_another_table_is_not_one_of_lineorder(sql: str) -> None:
    with pytest.raises(BenchError, match="not a query of lineorder alone"):
        _ = replace(load_query("q1"), sql=sql).where
