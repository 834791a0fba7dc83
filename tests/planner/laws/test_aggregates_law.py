"""The law of aggregates: what Spark's aggregates give for the live rows, looked at one after the other."""

import math
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cmp_to_key
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import HealthCheck, given, note, settings, strategies as st
from pyiceberg.catalog.sql import SqlCatalog

from planner.aggregates.partial import AggregateOverflowError
from planner.arrow.aggregate import Aggregated, aggregate_with_plan
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.data_table import list_data_files
from tests.conftest import amount, temporary_catalog
from tests.deletes_sample import commit_deletion_vectors, commit_positional_deletes
from tests.oracle import compare

Row = dict[str, Any]

SCHEMA = pa.schema(
    [
        ("g", pa.int32()),
        ("i", pa.int64()),
        ("j", pa.int32()),
        ("d", pa.decimal128(9, 2)),
        ("w", pa.decimal128(38, 4)),
        ("f", pa.float64()),
        ("e", pa.float32()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("dt", pa.date32()),
        ("nt", pa.timestamp("us")),
        ("x", pa.binary()),
    ]
)
_MOMENT = datetime(2024, 1, 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "g": st.integers(0, 2),
    "i": st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63), -(2**63) + 1, 2**53 + 1]),
    "j": st.integers(-3, 3) | st.sampled_from([2**31 - 1, -(2**31)]),
    "d": st.integers(-3, 3).map(lambda n: Decimal(n) / 4) | st.sampled_from([Decimal("9999999.99"), Decimal("-0.01")]),
    "w": st.sampled_from(
        [Decimal(n).scaleb(-4, Context(60)) for n in (0, 1, -1, 10**38 - 1, 1 - 10**38, 5 * 10**33, 7)]
    ),
    "f": st.sampled_from([0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 5e-324]),
    "e": st.sampled_from([0.0, -0.0, 0.5, -2.0, math.nan, math.inf]),
    "s": st.sampled_from(["", "a", "ab", "b", "ä", "a\0", "😀"]),
    "b": st.booleans(),
    "dt": st.integers(-2, 2).map(lambda n: date(1970, 1, 1) + timedelta(days=n)),
    "nt": st.integers(-2, 2).map(lambda n: _MOMENT + timedelta(microseconds=n)),
    "x": st.binary(max_size=2),
}
WHERES: dict[str | None, Callable[[Row], bool]] = {
    None: lambda _: True,
    "i > 0": lambda row: row["i"] is not None and row["i"] > 0,
    "j BETWEEN -1 AND 2": lambda row: row["j"] is not None and -1 <= row["j"] <= 2,
    "i IS NULL OR j = 1": lambda row: row["i"] is None or row["j"] == 1,
    "s <> 'a' AND g >= 1": lambda row: None not in (row["s"], row["g"]) and row["s"] != "a" and row["g"] >= 1,
    "NOT isnan(f)": lambda row: row["f"] is None or not math.isnan(row["f"]),
    "i = 77": lambda _: False,
    "b = true": lambda row: row["b"] is True,
}
FUNCTIONS = {
    "sum": ("i", "j", "d", "w", "f", "e"),
    "avg": ("i", "j", "d", "w", "f", "e"),
    "min": tuple(VALUES),
    "max": tuple(VALUES),
    "count": tuple(VALUES),
    "count distinct": tuple(VALUES),
    "bool_and": ("b",),
    "bool_or": ("b",),
}
Asked = tuple[str, str]


def text_of(asked: Asked) -> str:
    function, column = asked
    return f"count(DISTINCT {column})" if function == "count distinct" else f"{function}({column})"


def same_key(value: Any) -> Any:
    """Equal for values that are equal to Spark."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def ordered(values: Sequence[Any]) -> list[Any]:
    return sorted(values, key=cmp_to_key(lambda a, b: -1 if compare(a, "<", b) else int(not compare(a, "=", b))))


class OverflowedError(Exception):
    """The answer does not fit its type."""


def expected(asked: Asked, rows: Sequence[Row]) -> Any:
    function, column = asked
    values = [row[column] for row in rows if row[column] is not None]
    match function:
        case "count":
            return len(values)
        case "count distinct":
            return len({same_key(value) for value in values})
        case _ if not values:
            return None
        case "min":
            return ordered(values)[0]
        case "max":
            return ordered(values)[-1]
        case "bool_and":
            return all(values)
        case "bool_or":
            return any(values)
        case "sum":
            return _sum(column, values)
        case _:
            return _average(column, values)


def _sum(column: str, values: Sequence[Any]) -> Any:
    if column in "fe":
        return math.fsum(values) if all(map(math.isfinite, values)) else sum(values)
    if column in "ij":
        if not -(2**63) <= sum(values) < 2**63:
            raise OverflowedError
        return sum(values)
    return _fitting(_exact_sum(values), min(38, SCHEMA.field(column).type.precision + 10))


def _exact_sum(values: Sequence[Decimal]) -> Decimal:
    total = Decimal(0)
    for value in values:
        total = Context(100).add(total, value)
    return total


def _fitting(number: Decimal, precision: int) -> Decimal:
    if len(number.as_tuple().digits) > precision:
        raise OverflowedError
    return number


def _average(column: str, values: Sequence[Any]) -> Any:
    if column in "fe":
        return _sum(column, values) / len(values)
    if column in "ij":
        return sum(values) / len(values)
    arrow = SCHEMA.field(column).type
    long = Context(200)
    total = _fitting(_exact_sum(values), min(38, arrow.precision + 10))
    if arrow.precision + 4 <= 15:
        # Spark divides few digits as doubles.
        quotient = Decimal(repr(float(total.scaleb(arrow.scale)) / len(values) / 10.0**arrow.scale))
    else:
        quotient = long.divide(total, Decimal(len(values)))
    scale = min(38, arrow.scale + 4)
    return _fitting(quotient.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, long), min(38, arrow.precision + 4))


def agrees(found: Any, wanted: Any, function: str, zeros: set[float]) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        if math.isnan(wanted) or math.isnan(found):
            return math.isnan(wanted) and math.isnan(found)
        if wanted == 0 and function in ("min", "max"):
            # Any of the zeros that are there: which one Spark meets first is not said.
            return found == 0 and math.copysign(1, found) in zeros
        return math.isclose(found, wanted, rel_tol=1e-12)
    return type(found) is type(wanted) and bool(found == wanted)


@st.composite
def tables(draw: st.DrawFn) -> list[list[Row]]:
    """Appends of rows, each column of which may be all NULL, of one value, or of many."""

    def append() -> list[Row]:
        count = draw(st.integers(1, 14))
        columns = {}
        for name, values in VALUES.items():
            one = {"nulls": st.none(), "one": st.just(draw(values)), "many": values, "some": st.none() | values}
            columns[name] = draw(st.lists(one[draw(st.sampled_from(list(one)))], min_size=count, max_size=count))
        return [{name: values[at] for name, values in columns.items()} for at in range(count)]

    return [append() for _ in range(draw(st.integers(1, 2)))]


@st.composite
def definitions(draw: st.DrawFn) -> IndexDefinition:
    """All columns, each with a kind that holds keys; some with none."""
    kinds: dict[str, list[str]] = {"bitmap": [], "bsi": [], "bloom": []}
    options = {}
    for column in VALUES:
        for kind in draw(
            st.sampled_from([["bsi"], ["bitmap"], ["bitmap", "bsi"], ["bsi"], ["bitmap"]] * 4 + [["bloom"]])
        ):
            kinds[kind].append(column)
            if kind == "bitmap":
                options[f"{column}.layout"] = draw(st.sampled_from(["bitmaps", "postings"]))
            if kind == "bsi":
                options[f"{column}.compression"] = draw(st.sampled_from(["auto", "none"]))
    return IndexDefinition.of(**kinds, options=options)


asked_lists = st.lists(
    st.sampled_from(sorted(FUNCTIONS)).flatmap(lambda f: st.tuples(st.just(f), st.sampled_from(FUNCTIONS[f]))),
    min_size=0,
    max_size=4,
    unique=True,
)


def build(
    appends: list[list[Row]], row_group_rows: int, data: st.DataObject, catalog: SqlCatalog
) -> tuple[TableIndex, list[Row]]:
    """Make the table with an index of all or some of its files; delete rows after that. Return the live rows."""
    table = catalog.create_table("ns.t", SCHEMA, properties={"write.parquet.row-group-limit": str(row_group_rows)})
    index = TableIndex.create(catalog, "ns.t", data.draw(definitions()))
    paths: list[str] = []
    indexed = data.draw(st.integers(1, len(appends)))
    for number, append in enumerate(appends, 1):
        table.append(pa.Table.from_pylist(append, SCHEMA))
        paths += [file.path for file in list_data_files(table) if file.path not in paths]
        if number == indexed or data.draw(st.booleans()):
            index.build(workers=1)
    if data.draw(st.booleans()):
        index.compact()
    live = []
    positions: dict[str, set[int]] = {}
    for path, append in zip(paths, appends, strict=True):
        deleted = data.draw(st.just(set()) | st.sets(st.integers(0, len(append) - 1)))
        live += [row for at, row in enumerate(append) if at not in deleted]
        positions |= {path: deleted} if deleted else {}
    if positions:
        data.draw(st.sampled_from([commit_positional_deletes, commit_deletion_vectors]))(table, positions)
    return index, live


@settings(max_examples=amount(5, 1_600), deadline=None, suppress_health_check=list(HealthCheck))
@given(appends=tables(), row_group_rows=st.integers(1, 6), data=st.data())
def test_aggregates_are_of_the_live_rows(appends: list[list[Row]], row_group_rows: int, data: st.DataObject) -> None:
    with temporary_catalog() as catalog:
        index, live = build(appends, row_group_rows, data, catalog)
        for _ in range(8):
            asked = data.draw(asked_lists)
            by = data.draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=2, unique=True))
            where = data.draw(st.sampled_from(list(WHERES)))
            note(f"{asked} where {where} by {by}")
            few_keys = data.draw(st.sampled_from([0, 2, 8]))
            few_rows = data.draw(st.sampled_from([0, 64]))
            with (
                patch("puffin_index.kinds.held_keys._FEW_KEYS", few_keys),
                patch("planner.aggregates.payloads._FEW_ROWS", few_rows),
            ):
                check(index, [row for row in live if WHERES[where](row)], where, asked, by)


def check(index: TableIndex, rows: Sequence[Row], where: str | None, asked: list[Asked], by: list[str]) -> None:
    groups: dict[tuple[Any, ...], list[Row]] = {} if by else {(): []}
    for row in rows:
        groups.setdefault(tuple(same_key(row[name]) for name in by), []).append(row)
    texts = ["count(*)", *map(text_of, asked)]
    try:
        wanted = {key: [len(own), *(expected(one, own) for one in asked)] for key, own in groups.items()}
    except OverflowedError:
        try:
            aggregate_with_plan(index, where, texts, by)
        except AggregateOverflowError:
            return
        raise AssertionError("a result that does not fit its type") from None
    found = aggregate_with_plan(index, where, texts, by)
    assert not found.plan.warnings
    answers = answers_of(found, len(by))
    assert set(answers) == set(wanted)
    for key, values in answers.items():
        for (function, column), value, right in zip([("count", "g"), *asked], values, wanted[key], strict=True):
            zeros = {math.copysign(1, row[column]) for row in groups[key] if column in "fe" and row[column] == 0}
            assert agrees(value, right, function, zeros), f"{function}({column}) of {key}: {value!r}, not {right!r}"


def answers_of(found: Aggregated, group_columns: int) -> dict[tuple[Any, ...], list[Any]]:
    rows = [list(row.values()) for row in found.table.to_pylist()]
    answers = {tuple(same_key(value) for value in row[:group_columns]): row[group_columns:] for row in rows}
    assert len(answers) == len(rows)
    return answers
