"""Constants of identity partitions: their text, and the keys that are made of it."""

from datetime import date, datetime, time
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given, strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record

from puffin_index.data.constants import constant_column, constants_text, parse_constants
from puffin_index.errors import UnsupportedError
from puffin_index.keys.value_types import value_type_named
from puffin_index.keys.values import key_of

SPEC = PartitionSpec(
    PartitionField(9, 1000, IdentityTransform(), "nine"),
    PartitionField(2, 1001, BucketTransform(4), "bucket"),
    PartitionField(3, 1002, IdentityTransform(), "three"),
)

values = st.one_of(
    st.tuples(st.just("boolean"), st.booleans()),
    st.tuples(st.just("int"), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just("long"), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("double"), st.floats()),
    st.tuples(st.just("float"), st.floats(width=32)),
    st.tuples(st.just("string"), st.text()),
    st.tuples(st.just("binary"), st.binary()),
    st.tuples(st.just("uuid"), st.uuids()),
    st.tuples(st.just("date"), st.dates()),
    st.tuples(st.just("timestamp"), st.datetimes()),
    st.tuples(st.just("time"), st.times()),
    st.tuples(st.just("decimal(9,2)"), st.decimals(-9_999_999, 9_999_999, places=2)),
    st.tuples(st.just("decimal(38,4)"), st.decimals(-(10**33), 10**33, places=4)),
)


@given(value=values, row_count=st.integers(1, 5))
def test_the_key_of_a_constant_is_that_of_its_value(value: tuple[str, object], row_count: int) -> None:
    name, constant = value
    value_type = value_type_named(name)
    text = constants_text(Record(constant, 0, None), SPEC)

    column = constant_column(parse_constants(text)[9], value_type, row_count)

    keys = column.int_keys.tolist() if value_type.domain == "int64" else column.bytes_keys.to_pylist()
    assert keys == [key_of(constant, value_type)] * row_count
    assert column.valid_count == row_count
    assert parse_constants(text)[3] == "null"


@pytest.mark.parametrize("name", ["int", "string", "decimal(38,4)"])
def test_a_null_partition_is_null_in_all_rows(name: str) -> None:
    column = constant_column("null", value_type_named(name), 3)
    assert (column.row_count, column.valid_count) == (3, 0)


def test_the_text_has_identity_partitions_alone_in_the_order_of_their_ids() -> None:
    assert constants_text(Record("é", 3, -0.0), SPEC) == "3=0;9=xc3a9"
    assert constants_text(Record(True, 3, Decimal("-1.50")), SPEC) == "3=-150;9=1"
    moments = [datetime(1970, 1, 2), date(1970, 1, 2), time(0, 0, 1), UUID(int=5)]
    texts = [constants_text(Record(one, 0, None), SPEC) for one in moments]
    assert texts == [f"3=null;9={text}" for text in ("86400000000", "1", "1000000", f"x{5:032x}")]
    assert constants_text(Record(), PartitionSpec()) == ""
    assert parse_constants("") == {}


@pytest.mark.parametrize(("text", "name"), [("x61", "int"), ("7", "string"), ("x61", "decimal(38,2)"), ("q", "long")])
def test_a_constant_of_another_type_is_refused(text: str, name: str) -> None:
    with pytest.raises(UnsupportedError, match="cannot hold the partition value"):
        constant_column(text, value_type_named(name), 1)
