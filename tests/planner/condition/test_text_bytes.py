"""Text that is not UTF-8, in data and in predicates: never a wrong answer, and no error but those that say so."""

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import (
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    In,
    LessThan,
    NotEqualTo,
    NotStartsWith,
    StartsWith,
)
from pyiceberg.expressions.literals import StringLiteral

import planner
from planner.condition.tree.nodes import UNKNOWN
from planner.condition.tree.simplify import simplified
from puffin_index import IndexDefinition, TableIndex
from puffin_index.errors import UnsupportedError, WhereSyntaxError
from tests.planner.condition.iceberg_json import read_expression

VALUES = [b"a\xff", b"word", b"\xed\xa0\x80", "ü".encode(), None, "a\ufffd".encode()]
HALF = StringLiteral("\ud800")


@pytest.fixture
def index(local_catalog: SqlCatalog) -> TableIndex:
    """Six row groups of ten rows, each with all values of one of `VALUES` but one row."""
    data = [VALUES[(row // 10 + (row % 10 == 0)) % len(VALUES)] for row in range(60)]
    raw = pa.array(data, pa.binary())
    texts = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    table = pa.table({"id": pa.array(range(60), pa.int64()), "s": texts})
    # PyIceberg reads the statistics of what it has written as Python's strings.
    properties = {"write.metadata.metrics.default": "none", "write.parquet.row-group-limit": "10"}
    local_catalog.create_table("ns.t", table.schema, properties=properties).append(table)
    table_index = TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=["s"], bloom=["s"]))
    table_index.build(workers=1)
    return table_index


def test_raw_bytes_are_indexed_verified_and_counted(index: TableIndex) -> None:
    assert index.verify().findings == ()
    for where, rows in (
        ("s = 'word'", 10),
        ("s = 'a\ufffd'", 10),
        ("s > 'a' AND s < 'b'", 20),
        ("s LIKE 'a%'", 20),
        ("s >= 'w'", 30),
        ("s <> 'word'", 40),
    ):
        assert planner.count(index, where).rows == rows, where
        assert planner.scan(index, where, ["id"]).read_all().num_rows == rows, where
        assert planner.plan(index, where, strict=True).kept_rows >= rows


@pytest.mark.parametrize("where", ["s LIKE 'a_'", "s LIKE '%d'", "s NOT LIKE '%d'"])
def test_patterns_over_such_text_are_refused(index: TableIndex, where: str) -> None:
    with pytest.raises(UnsupportedError, match="not UTF-8"):
        planner.count(index, where)
    with pytest.raises(UnsupportedError, match="not UTF-8"):
        planner.scan(index, where, ["id"]).read_all()


@pytest.mark.parametrize(
    ("where", "position"),
    [("s = '\ud800'", 5), ("s LIKE 'x\udcff%'", 9), ("s IN ('word', '\udcff')", 15), ("`\ud800` = 5", 1)],
)
def test_half_characters_in_text_are_an_error_that_prints(index: TableIndex, where: str, position: int) -> None:
    for ask in (planner.plan, planner.count, planner.scan):
        with pytest.raises(WhereSyntaxError, match="UTF-8") as raised:
            ask(index, where)
        assert raised.value.position == position
        assert str(raised.value).encode()


@pytest.mark.parametrize(
    "expression",
    [
        EqualTo("s", HALF),
        NotEqualTo("s", HALF),
        LessThan("s", HALF),
        GreaterThanOrEqual("s", HALF),
        StartsWith("s", HALF),
        NotStartsWith("s", HALF),
        In("s", {HALF, StringLiteral("word")}),
    ],
)
def test_half_characters_in_expressions_are_unknown(index: TableIndex, expression: BooleanExpression) -> None:
    assert simplified(read_expression(expression, index.data_table.schema())) == UNKNOWN
