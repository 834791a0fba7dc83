"""The law of the planner for text of any bytes: what is no UTF-8 in data, and odd characters in literals.

Spark compares strings by their bytes, whatever those are.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, note, settings, strategies as st
from pyiceberg.catalog.sql import SqlCatalog

import planner
from planner.report.scan_plan import ScanPlan
from puffin_index import TableIndex
from tests.conftest import amount, built, temporary_catalog
from tests.oracle import Among, And, Compare, IsNull, Like, Not, Operator, Predicate, evaluate
from tests.planner.condition.where_text import Writer

ROW_GROUP_ROWS = 3
KEYS = ("a", "\ufffd", "e\u0301", "a\0", "😀")
PIECES = ["a", "b", "?", "\0", "\ufffd", "\u0301", "é", "e", "\uffff", "😀", "\x7f", "\u0800"]

sayable = st.lists(st.sampled_from(PIECES), max_size=3).map("".join)
stored = st.none() | st.one_of(
    st.sampled_from([b"\xff", b"a\xff", b"\xed\xa0\x80", b"\xc3", b"\xf0\x9f\x98", b"a\x80b", b"\xfe\xff"]),
    sayable.map(str.encode),
    st.binary(max_size=2),
)
maps = st.none() | st.dictionaries(
    st.sampled_from([*(key.encode() for key in KEYS), b"\xff", b"a\xff", b""]), stored, max_size=3
)
Row = tuple[bytes | None, dict[bytes, bytes | None] | None]
Asked = tuple[Predicate, Predicate]
"""A predicate as it is written, and the same over texts of one character a byte."""


def by_bytes(raw: bytes | None) -> str | None:
    """A text of one character a byte, which sorts as the bytes do."""
    return None if raw is None else raw.decode("latin-1")


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


COLUMNS = {f"m[{quoted(key)}]": key.encode() for key in KEYS}


def judged(row: Row) -> dict[str, str | None]:
    text, entries = row
    return {"s": by_bytes(text)} | {column: by_bytes((entries or {}).get(key)) for column, key in COLUMNS.items()}


@st.composite
def leaves(draw: st.DrawFn) -> Asked:
    """A test of the column or of a key of the map."""
    column = draw(st.sampled_from(["s", *COLUMNS]))
    literals = draw(st.lists(sayable, min_size=1, max_size=3))
    operators: list[Operator] = ["=", "<>", "<", "<=", ">", ">=", "<=>"]
    operator = draw(st.sampled_from(operators))
    kinds: list[Callable[[list[Any]], Predicate]] = [
        lambda texts: Compare(column, operator, texts[0]),
        lambda texts: Among(column, tuple(texts)),
        lambda texts: Like(column, (texts[0], None)),
        lambda _: IsNull(column),
    ]
    make = draw(st.sampled_from(kinds))
    return make(literals), make([by_bytes(text.encode()) for text in literals])


def combined(parts: st.SearchStrategy[Asked]) -> st.SearchStrategy[Asked]:
    return st.one_of(
        parts.map(lambda part: (Not(part[0]), Not(part[1]))),
        st.tuples(parts, parts).map(lambda two: (And((two[0][0], two[1][0])), And((two[0][1], two[1][1])))),
    )


def texts_of(values: Sequence[bytes | None]) -> pa.Array:
    """Strings of these bytes, which nobody has looked at."""
    raw = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def maps_of(values: Sequence[dict[bytes, bytes | None] | None]) -> pa.Array:
    entries = [list(one.items()) if one else [] for one in values]
    offsets = [None if one is None else sum(map(len, entries[:at])) for at, one in enumerate(values)]
    flat = [entry for one in entries for entry in one]
    return pa.MapArray.from_arrays(
        pa.array([*offsets, len(flat)], pa.int32()),
        texts_of([key for key, _ in flat]),
        texts_of([value for _, value in flat]),
    )


def indexed(catalog: SqlCatalog, rows: list[Row], layout: str) -> TableIndex:
    data = pa.table({"s": texts_of([text for text, _ in rows]), "m": maps_of([entries for _, entries in rows])})
    # PyIceberg reads the statistics of what it has written as Python's strings.
    properties = {"write.metadata.metrics.default": "none", "write.parquet.row-group-limit": str(ROW_GROUP_ROWS)}
    catalog.create_table("ns.t", data.schema, properties=properties).append(data)
    names = ["s", *(f"m#k#{key}" for key in KEYS[:4])]
    return built(catalog, "ns.t", bitmap=names, bloom=names[:3], options={f"{name}.layout": layout for name in names})


def check_plan(found: ScanPlan, matching: list[bool], what: object) -> None:
    for split in found.splits:
        count = sum(matching[split.row_group * ROW_GROUP_ROWS :][:ROW_GROUP_ROWS])
        assert split.verdict == "kept" or not count, f"{what}: {split} drops {count} rows"
        assert split.rows is None or split.rows == count, f"{what}: {split}, not {count} rows"


@settings(max_examples=amount(4, 330), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(st.tuples(stored, maps), min_size=1, max_size=14),
    layout=st.sampled_from(["bitmaps", "postings"]),
    asked=st.lists(st.recursive(leaves(), combined, max_leaves=3), min_size=12, max_size=12),
    choices=st.randoms(use_true_random=False),
)
def test_bytes_of_any_kind_are_compared_as_spark_compares_them(
    rows: list[Row], layout: str, asked: list[Asked], choices: Random
) -> None:
    with temporary_catalog() as catalog:
        index = indexed(catalog, rows, layout)
        assert index.verify(None).findings == ()
        for written, predicate in asked:
            where = Writer(choices.choice).predicate(written)
            note(where)
            matching = [evaluate(predicate, judged(row)) is True for row in rows]
            check_plan(planner.plan(index, where, strict=True), matching, where)
            assert planner.count(index, where).rows == sum(matching), where
            assert planner.scan(index, where, ["s"]).read_all().num_rows == sum(matching), where
