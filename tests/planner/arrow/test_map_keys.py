"""Keys of maps: no row that a predicate on `m['key']` finds lies in a dropped row group, and exact counts are right."""

from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, note, settings, strategies as st
from pyiceberg.catalog.sql import SqlCatalog

from planner.arrow.plan import plan
from puffin_index import IndexDefinition
from tests.conftest import amount, built, create_table, temporary_catalog
from tests.oracle import Compare, IsNull, Not, Operator, Predicate, evaluate
from tests.planner.condition.where_text import predicates_of, render
from tests.planner.ten_rows import build_index

ROW_GROUP_ROWS = 4
WORDS = st.sampled_from(["red", "blue", "rot", "", "é"])
MAP_TYPES = {"m": pa.map_(pa.string(), pa.string()), "n": pa.map_(pa.int32(), pa.int64())}
SCHEMA = pa.schema([*MAP_TYPES.items(), ("s", pa.struct([("m", MAP_TYPES["n"])]))])
ENTRIES = {
    "m": st.lists(st.tuples(st.sampled_from(["color", "size", "a.b"]), st.none() | WORDS), max_size=3),
    "n": st.lists(st.tuples(st.integers(-1, 2), st.none() | st.integers(-3, 30)), max_size=3),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | maps for name, maps in ENTRIES.items()}), min_size=1, max_size=30
)
KINDS = st.fixed_dictionaries(
    {
        kind: st.lists(st.sampled_from(["m#k#color", "m#k#size", "m#k#a.b", "n#k#1", "n#k#-1", "s.m#k#1"]), unique=True)
        for kind in ("bitmap", "bsi", "bloom")
    }
)

# How a key is read, as text: the column of the row and the key.
ACCESSES: dict[str, tuple[str, Any]] = {
    **{
        text: ("m", key) for key in ("color", "size") for text in (f"m['{key}']", f"element_at(m, '{key}')", f"m.{key}")
    },
    **{text: ("m", key) for key in ("a.b", "none") for text in (f"m['{key}']", f"element_at(m, '{key}')")},
    **{
        text: ("n", key)
        for name in ("n", "s.m")
        for key in (1, -1, 2)
        for text in (f"{name}[{key}]", f"element_at({name}, {key})")
    },
}


def values_of(row: dict[str, Any]) -> dict[str, Any]:
    """The values of the first entries of keys, by how they are read."""
    return {
        text: next((value for name, value in row[column] or () if name == key), None)
        for text, (column, key) in ACCESSES.items()
    }


@st.composite
def leaf(draw: st.DrawFn) -> Predicate:
    access = draw(st.sampled_from(sorted(ACCESSES)))
    literals = WORDS if ACCESSES[access][0] == "m" else st.integers(-3, 30)
    operators: list[Operator] = ["=", "<>", "<", ">="]
    return draw(
        st.one_of(
            st.builds(Compare, st.just(access), st.sampled_from(operators), literals),
            st.sampled_from([IsNull(access), Not(IsNull(access))]),
        )
    )


@settings(max_examples=amount(8, 125), deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=ROWS, kinds=KINDS, asked=st.lists(predicates_of(leaf(), 4), min_size=4, max_size=8), data=st.data())
def test_no_matching_row_lies_in_a_dropped_row_group(
    rows: list[dict[str, Any]], kinds: dict[str, list[str]], asked: list[Predicate], data: st.DataObject
) -> None:
    if not any(kinds.values()):
        kinds = {"bitmap": ["m#k#color"]}
    with temporary_catalog() as catalog:
        stored = pa.Table.from_pylist([row | {"s": {"m": row["n"]}} for row in rows], SCHEMA)
        index = build_index(catalog, stored, ROW_GROUP_ROWS, IndexDefinition.of(**kinds))
        for predicate in asked:
            where = data.draw(render(predicate))
            note(where)
            found = [number for number, row in enumerate(rows) if evaluate(predicate, values_of(row)) is True]
            splits = list(plan(index, where, strict=True).splits)
            # A plan leaves no file out, unless the WHERE contradicts itself: Iceberg's statistics know nothing of keys.
            assert len(splits) == -(-len(rows) // ROW_GROUP_ROWS) or not (splits or found), where
            for split in splits:
                matches = [number for number in found if number // ROW_GROUP_ROWS == split.row_group]
                assert split.verdict == "kept" or not matches, f"{split} drops rows {matches}"
                assert split.rows is None or split.rows == len(matches), f"{split} but {matches}"


def colors(count: int) -> pa.Table:
    maps = [[("color", f"c{row % 90:02}"), ("size", f"s{row % 7}")] for row in range(count)]
    return pa.table({"m": pa.array(maps, MAP_TYPES["m"])})


def test_keys_of_one_map_have_indexes_of_their_own_also_after_a_rename(local_catalog: SqlCatalog) -> None:
    definition = IndexDefinition.of(bitmap=["m#k#color", "m#k#size"], bloom=["m#k#color"])
    index = build_index(local_catalog, colors(900), 10, definition)
    assert index.status().indexed_row_groups == 90

    by_color, by_size = plan(index, "m['color'] = 'c17'", strict=True), plan(index, "m['size'] = 's1'", strict=True)
    other, swapped = plan(index, "m['colour'] = 'c17'", strict=True), plan(index, "m['size'] = 'c17'", strict=True)

    assert [split.row_group for split in by_color.splits if split.verdict == "kept"] == list(range(1, 90, 9))
    assert by_size.dropped == 0
    assert other.dropped == 0
    assert swapped.kept == 0
    index.data_table.update_schema().rename_column("m", "attributes").commit()
    assert plan(index, "attributes['color'] = 'c17'", strict=True).dropped == 80
    assert index.columns[0].name == "attributes#k#color"


def test_files_from_before_the_map_was_added_hold_no_key(local_catalog: SqlCatalog) -> None:
    table = create_table(local_catalog, "t", pa.table({"id": pa.array(range(20), pa.int64())}), 10)
    table.update_schema().union_by_name(pa.schema([("m", MAP_TYPES["m"])])).commit()
    index = built(local_catalog, "ns.t", bitmap=["m#k#color"])

    assert plan(index, "m['color'] = 'c1'", strict=True).kept == 0
    assert plan(index, "m['color'] IS NULL", strict=True).kept_rows == 20
