"""Whether a scan finds a column where the index was built of."""

import pickle

import pytest
from hypothesis import given, strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import MapType, NestedField, StructType

from puffin_index.data.column_source import ColumnSource, Reading, parse_name_mapping
from puffin_index.data.file_fields import Rule
from puffin_index.errors import UnsupportedError

SCHEMA = Schema(
    NestedField(1, "id", "long"),
    NestedField(2, "s", StructType(NestedField(3, "a", "int"))),
    NestedField(4, "m", MapType(5, "string", 6, "long")),
)
NAMES = """[{"field-id": 1, "names": ["id", "key"]}, {"field-id": 2, "names": ["s"], "fields": [{"field-id": 3,
 "names": ["a"]}]}, {"field-id": 4, "names": ["m"], "fields": [{"field-id": 5, "names": ["key"]},
 {"field-id": 6, "names": ["value"]}]}]"""


def reading(mapping: str | None = None, schema: Schema = SCHEMA) -> Reading:
    return Reading(schema, parse_name_mapping(mapping))


@given(
    rule=st.sampled_from(list(Rule)),
    ids=st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=3).map(tuple),
    names=st.lists(st.lists(st.text()).map(tuple)).map(tuple),
    is_absent=st.booleans(),
)
def test_sources_as_text(rule: Rule, ids: tuple[int, ...], names: tuple[tuple[str, ...], ...], is_absent: bool) -> None:
    source = ColumnSource(rule, ids, names, is_absent)
    assert ColumnSource.of_text(source.to_text()) == source


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"by": "guess", "ids": [1]}', '{"by": "position"}', "null"])
def test_what_is_no_source_is_not_used(text: str) -> None:
    assert reading().rejects([(1, text)]) == {(1, text)}


def test_names_are_those_of_all_levels_and_of_keys_and_values() -> None:
    found = reading(NAMES)
    assert found.names(1) == (("id", "key"),)
    assert found.names(3) == (("s",), ("a",))
    assert found.names(4) == (("m",), ("key",), ("value",))
    assert found.ids(4) == (4, 5, 6)
    assert pickle.loads(pickle.dumps(found)).names(3) == found.names(3)


def test_columns_that_a_scan_does_not_ask_for_are_not_judged() -> None:
    assert reading().rejects([(77, "{}")]) == frozenset()


@pytest.mark.parametrize(
    ("source", "field_id", "mapping", "objection"),
    [
        (ColumnSource(Rule.FIELD_IDS, (1,)), 1, NAMES, None),
        (ColumnSource(Rule.FIELD_IDS, (2, 3)), 3, None, None),
        (ColumnSource(Rule.FIELD_IDS, (3,)), 3, None, "another place"),
        (ColumnSource(Rule.PARTITION, (1,)), 1, None, None),
        (ColumnSource(Rule.NAME_MAPPING, (1,), (("id", "key"),)), 1, NAMES, None),
        (ColumnSource(Rule.NAME_MAPPING, (1,), (("id",),)), 1, NAMES, "other names"),
        (ColumnSource(Rule.NAME_MAPPING, (1,), (("id", "key"),)), 1, None, "other names"),
        (ColumnSource(Rule.POSITION, (1,)), 1, None, None),
        (ColumnSource(Rule.POSITION, (1,)), 1, NAMES, "no name mapping"),
        (ColumnSource(Rule.FIELD_IDS, (1,), is_absent=True), 1, None, None),
    ],
)
def test_objections_to_sources(source: ColumnSource, field_id: int, mapping: str | None, objection: str | None) -> None:
    found = reading(mapping).objection(field_id, source.to_text())
    assert found is None if objection is None else objection in str(found)


def test_an_absent_column_with_a_default_is_not_null() -> None:
    schema = Schema(NestedField(1, "id", "long", initial_default=7))
    absent = ColumnSource(Rule.FIELD_IDS, (1,), is_absent=True)
    assert reading(schema=schema).objection(1, absent.to_text()) == "it had no default value"
    assert reading(schema=schema).objection(1, ColumnSource(Rule.FIELD_IDS, (1,)).to_text()) is None


def test_a_broken_name_mapping_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"schema\.name-mapping\.default is no name mapping"):
        parse_name_mapping("[")
