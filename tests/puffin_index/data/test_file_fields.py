"""Which column each field of a data file is, by Iceberg's rule for the whole file."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st
from pyiceberg.table.name_mapping import NameMapping, parse_mapping_from_json

from puffin_index.data.file_fields import FileFields, Rule, identify_fields


def field(name: str, arrow_type: pa.DataType, field_id: int | None = None) -> pa.Field:
    return pa.field(name, arrow_type, metadata=None if field_id is None else {"PARQUET:field_id": str(field_id)})


def identified(fields: list[pa.Field], mapping: str | None = None, file_format: str = "PARQUET") -> FileFields:
    name_mapping: NameMapping | None = None if mapping is None else parse_mapping_from_json(mapping)
    found = identify_fields(pa.schema(fields), file_format, name_mapping)
    assert found is not None
    return found


MAPPING = """[{"field-id": 1, "names": ["id", "key"]},
 {"field-id": 2, "names": ["s"], "fields": [{"field-id": 3, "names": ["a"]}, {"names": ["nameless"]}]},
 {"field-id": 4, "names": ["m"], "fields": [{"field-id": 5, "names": ["key"]}, {"field-id": 6, "names": ["value"]}]}]"""


def test_one_id_anywhere_makes_ids_the_only_rule() -> None:
    nested = pa.struct([field("a", pa.int32(), 3), field("b", pa.int32())])

    found = identified([field("id", pa.int64()), field("s", nested, 2)], MAPPING)

    assert found.rule is Rule.FIELD_IDS
    assert found.find((1,)) == ()
    assert [one.field.name for one in found.find((2, 3))] == ["s", "a"]
    only_nested = identified([field("id", pa.int64()), field("s", nested)], MAPPING)
    assert only_nested.rule is Rule.FIELD_IDS
    with pytest.raises(LookupError, match="lies elsewhere"):
        only_nested.find((2, 3))


def test_without_ids_names_count_and_aliases_too() -> None:
    fields = [field("key", pa.int64()), field("s", pa.struct([field("a", pa.int32()), field("nameless", pa.int8())]))]

    found = identified(fields, MAPPING)

    assert found.rule is Rule.NAME_MAPPING
    assert [one.field.name for one in found.find((1,))] == ["key"]
    assert [one.field.name for one in found.find((2, 3))] == ["s", "a"]
    assert found.find((4,)) == ()
    with pytest.raises(LookupError, match="2 of its fields"):
        identified([field("key", pa.int64()), field("id", pa.int64())], MAPPING).find((1,))


def test_keys_and_values_of_maps_have_names_of_their_own() -> None:
    maps = pa.map_(pa.field("k", pa.string(), nullable=False), pa.field("v", pa.int64()))

    (found,) = identified([field("m", maps)], MAPPING).find((4,))

    assert [child.field_id for child in found.children] == [5, 6]
    assert found.leaves == range(2)


def test_without_a_mapping_top_level_fields_are_counted() -> None:
    fields = [field("x", pa.struct([field("a", pa.int32()), field("b", pa.int32())])), field("y", pa.int32())]

    found = identified(fields)

    assert found.rule is Rule.POSITION
    assert found.find((2,))[0].leaves == range(2, 3)
    assert found.find((1, 9)) == ()
    assert found.find((3,)) == ()
    assert identify_fields(pa.schema(fields), "ORC", None) is None


arrow_types = st.recursive(
    st.sampled_from([pa.int32(), pa.string(), pa.decimal128(9, 2)]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(
            lambda types: pa.struct([pa.field(f"f{at}", one) for at, one in enumerate(types)])
        ),
        inner.map(pa.list_),
        inner.map(lambda one: pa.map_(pa.string(), one)),
    ),
    max_leaves=6,
)


@given(types=st.lists(arrow_types, min_size=1, max_size=5))
def test_leaves_are_counted_as_parquet_counts_them(types: list[pa.DataType]) -> None:
    schema = pa.schema([pa.field(f"c{at}", one) for at, one in enumerate(types)])
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    stored = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema

    found = identified(list(schema))

    assert found.fields[-1].leaves.stop == len(stored)
    for one in found.fields:
        assert {stored.column(leaf).path.split(".")[0] for leaf in one.leaves} == {one.field.name}
