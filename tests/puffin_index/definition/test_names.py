"""Names of indexes against a model: each name a set of (column, kind), an index there as long as a name holds it."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import MapType, NestedField

from puffin_index import TableIndex
from puffin_index.definition.index_definition import (
    IndexDefinition,
    IndexedColumn,
    ResolvedColumn,
    from_json,
    indexes_of,
    resolve,
    stored_kinds,
)
from puffin_index.definition.names import StoredDefinition, derived_name
from puffin_index.errors import DefinitionError, IndexExistsError, NotFoundError
from puffin_index.index_table.table import PROPERTY_DEFINITION, PROPERTY_NAMES, read_entries
from puffin_index.keys.map_key import FieldKind
from tests.puffin_index.indexed_table import check_queries, indexed, make_table, rows

SCHEMA = Schema(
    NestedField(1, "a", "long"),
    NestedField(2, "b c", "string"),
    NestedField(3, "m", MapType(4, "string", 5, "long")),
)
COLUMNS = ("a", "b c", "m#k#x", "m#k#y")
KINDS = ("bitmap", "bsi", "bloom")


def columns_of(names: list[str], kind: str, **options: str) -> tuple[ResolvedColumn, ...]:
    return resolve(IndexDefinition(tuple(IndexedColumn(name, {kind: options}) for name in names)), SCHEMA)


def pairs(columns: tuple[ResolvedColumn, ...]) -> frozenset[FieldKind]:
    return frozenset(indexes_of(columns))


ACTIONS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["i", "J", "k", "a_bsi"]),
            st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=4, unique=True),
            st.sampled_from(KINDS),
        ),
        st.sampled_from(["I", "j", "k", "a_bsi", "b_c_bitmap", "m_x_bloom"]),
    ),
    max_size=12,
)


@given(
    st.sets(st.tuples(st.sampled_from(COLUMNS), st.sampled_from(KINDS)), max_size=4),
    st.sets(st.sampled_from(["a", "b c"]), max_size=1),
    ACTIONS,
)
def test_an_index_is_there_as_long_as_a_name_holds_it(
    created: set[tuple[str, str]], fixed: set[str], actions: list[tuple[str, list[str], str] | str]
) -> None:
    """The model: given names with their indexes, and the indexes without a name."""
    items = [column for name, kind in sorted(created) for column in columns_of([name], kind)]
    stored = StoredDefinition("[]", None, columns_of(sorted(fixed), "bitmap") if fixed else ())
    for number, column in enumerate(items):
        stored = stored.with_index(f"t{number}", (column,))
    # As `create` does, which gives no names.
    stored = StoredDefinition(stored.definition, None, stored.from_properties)
    given: dict[str, frozenset[FieldKind]] = {}
    defined: set[FieldKind] = {index for column in items for index in pairs((column,))}
    fixed_pairs = pairs(stored.from_properties)

    for action in actions:
        names = {one.name.casefold(): one.indexes for one in stored.all_names}
        if isinstance(action, tuple):
            name, columns, kind = action
            if name.casefold() in names:
                with pytest.raises(IndexExistsError):
                    stored.with_index(name, columns_of(columns, kind))
            else:
                stored = stored.with_index(name, columns_of(columns, kind))
                given[name.casefold()] = pairs(columns_of(columns, kind))
                defined |= given[name.casefold()]
        elif action.casefold() not in names:
            with pytest.raises(NotFoundError):
                stored.without_index(action)
        else:
            held = {index for name, own in given.items() if name != action.casefold() for index in own}
            expected = names[action.casefold()] - held
            if expected & fixed_pairs:
                with pytest.raises(DefinitionError, match="take the column out of these properties first"):
                    stored.without_index(action)
            else:
                stored = stored.without_index(action)
                given.pop(action.casefold(), None)
                defined -= expected
        names = {one.name.casefold(): one.indexes for one in stored.all_names}
        assert stored_kinds(stored.definition).keys() == defined
        assert {name: own for name, own in names.items() if name in given} == given
        assert {index for own in names.values() for index in own} == defined | fixed_pairs
        assert len(names) == len(stored.all_names)
        unnamed = [one for one in stored.all_names if not one.is_given]
        assert [len(one.indexes) for one in unnamed] == [1] * len(unnamed)
        # Readers without names read the same definition.
        assert pairs(from_json(stored.definition, SCHEMA).columns) == defined


@pytest.mark.parametrize(
    ("column", "name"), [("a", "a_bsi"), ("s.x", "s_x_bsi"), ("m#k#färbe 1", "m_färbe_1_bsi"), ("..", "__bsi")]
)
def test_derived_names_need_no_quotes(column: str, name: str) -> None:
    assert derived_name(column, "bsi") == name


def test_derived_names_that_meet_are_numbered() -> None:
    schema = Schema(NestedField(1, "a b", "long"), NestedField(2, "a_b", "long"))
    stored = StoredDefinition("[]", None, resolve(IndexDefinition.of(bsi=["a b", "a_b"]), schema))
    assert [one.name for one in stored.all_names] == ["a_b_bsi", "a_b_bsi_2"]


def test_an_index_keeps_its_options() -> None:
    stored = StoredDefinition("[]").with_index("i", columns_of(["a"], "bloom", fpp="0.05"))
    assert stored.with_index("j", columns_of(["a"], "bloom")).definition == stored.definition
    assert stored.with_index("j", columns_of(["a"], "bloom", fpp="0.05")).definition == stored.definition
    with pytest.raises(DefinitionError, match=r"fpp=0\.05 already \(i\)"):
        stored.with_index("j", columns_of(["a"], "bloom", fpp="0.01"))
    renamed = resolve(
        IndexDefinition.of(bloom=["now"], options={"now.fpp": "0.01"}), Schema(NestedField(1, "now", "long"))
    )
    with pytest.raises(DefinitionError, match=r"column 'now' has a bloom index with fpp=0\.05 already \(i\)"):
        stored.with_index("j", renamed)


def test_kinds_that_are_added_again_keep_their_options_if_none_are_given() -> None:
    stored = StoredDefinition("[]").with_kinds(columns_of(["a"], "bloom", fpp="0.05"))

    assert stored.with_kinds(columns_of(["a"], "bloom")) == stored
    changed = stored.with_kinds(columns_of(["a"], "bloom", fpp="0.01"))
    assert list(stored_kinds(changed.definition).values()) == [{"fpp": "0.01"}]


def test_the_first_missing_kind_is_named() -> None:
    stored = StoredDefinition("[]").with_kinds(columns_of(["a"], "bloom"))
    asked = resolve(IndexDefinition((IndexedColumn("a", {"bloom": {}, "bsi": {}, "bitmap": {}}),)), SCHEMA)
    with pytest.raises(DefinitionError, match="column 'a' has no bsi to remove; the definition has a: bloom"):
        stored.without_kinds(asked)


def kinds_in(index: TableIndex) -> set[FieldKind]:
    found = read_entries(index.index_table)["directories"].to_pylist()
    return {(one["field_id"], one["kind"]) for own in found for one in own}


def test_a_dropped_index_is_gone_from_entries_and_queries(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 3)
    kinds = kinds_in(index)
    k = index.data_table.schema().find_field("k").field_id
    assert {(k, "bitmap"), (k, "bsi")} <= kinds

    assert index.remove("K_bitmap") == {(k, "bitmap")}

    assert kinds_in(index) == kinds - {(k, "bitmap")}
    check_queries(index)
    assert index.build(workers=1).files == 0
    for named in index.names:
        index.remove(named.name)
    assert len(read_entries(index.index_table)) == 0
    check_queries(index)
    assert index.build(workers=1).files == 0
    assert index.status().columns == ()
    TableIndex.add(local_catalog, "ns.t", "new", IndexDefinition.of(bsi=["k"]))
    index.refresh()
    assert index.build(workers=1).files == 3
    check_queries(index)


def test_indexes_that_are_added_and_dropped_at_once_are_all_there(local_catalog: SqlCatalog) -> None:
    make_table(local_catalog).append(rows(0))
    names = [f"i{number}" for number in range(6)]

    def at_once(action: Callable[[str], object], over: list[str]) -> None:
        with ThreadPoolExecutor(len(over)) as threads:
            for done in [threads.submit(action, name) for name in over]:
                done.result()

    def add(name: str) -> None:
        column, kind = ("k", "s", "b")[int(name[1:]) % 3], ("bitmap", "bloom")[int(name[1:]) // 3]
        TableIndex.add(local_catalog, "ns.t", name, IndexDefinition((IndexedColumn(column, {kind: {}}),)))

    TableIndex.add(local_catalog, "ns.t", "first", IndexDefinition.of(bsi=["k"]))
    at_once(add, names)
    index = TableIndex.open(local_catalog, "ns.t")
    assert sorted(one.name for one in index.names) == ["first", *names]
    assert len(stored_kinds(index.index_table.properties[PROPERTY_DEFINITION])) == 7

    at_once(lambda name: TableIndex.open(local_catalog, "ns.t").remove(name), names)
    index.refresh()
    assert json.loads(index.index_table.properties[PROPERTY_NAMES])[0]["name"] == "first"
    assert [one.name for one in index.names] == ["first"]


def test_queries_no_longer_use_what_was_removed(local_catalog: SqlCatalog) -> None:
    index = indexed(local_catalog, 2, IndexDefinition.of(bitmap=["k", "s"], bsi=["k"]))
    TableIndex.add(local_catalog, "ns.t", "both", IndexDefinition.of(bitmap=["k"], bsi=["k"]))

    index.remove_kinds(IndexDefinition.of(bitmap=["k"]))

    index.refresh()
    left = kinds_in(index)
    k = index.data_table.schema().find_field("k").field_id
    assert (k, "bitmap") not in left
    assert (k, "bsi") in left
    assert {one.name: len(one.indexes) for one in index.names} == {"both": 1, "s_bitmap": 1}
    check_queries(index)
