"""Long lists that cross as bytes mean what the same lists mean in JSON, value for value."""

import json
from base64 import b64encode

import pytest
from hypothesis import given, strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from planner.condition.spark.nodes import Membership, unpacked
from planner.condition.spark.read import read_node
from tests.planner.spark.requests.jvm_messages import column, literal, packed, text

TYPES = ("int", "long", "date", "timestamp", "timestamptz", "string", "binary", "uuid", "decimal(9,2)", "double")
SCHEMA = Schema(*(NestedField(number, f"c{number}", name) for number, name in enumerate(TYPES)))
NUMBERS = st.lists(st.integers(-(2**63), 2**63 - 1))
UUIDS = st.uuids().map(str)


@given(NUMBERS, st.lists(st.binary()))
def test_law_values_come_back(numbers: list[int], contents: list[bytes]) -> None:
    assert unpacked(packed(numbers, "N")) == tuple(numbers)
    assert unpacked(packed(contents, "B")) == tuple(contents)


@given(st.sampled_from([b"", b"N", b"B", b"R"]), st.integers(0, 3), st.binary(max_size=30))
def test_law_a_list_that_does_not_fit_is_refused(form: bytes, count: int, rest: bytes) -> None:
    sent = b64encode(form + count.to_bytes(4) + rest).decode()
    try:
        contents = unpacked(sent)
    except ValueError:
        return
    assert packed(list(contents), form.decode()) == sent


@pytest.mark.parametrize("name", ["int", "long", "date", "timestamp", "timestamptz", "string", "binary", "uuid"])
@given(data=st.data())
def test_law_a_membership_means_the_same(name: str, data: st.DataObject) -> None:
    of_spark = "string" if name == "uuid" else name
    is_bytes = name in ("string", "binary", "uuid")
    least = 31 if name in ("int", "date") else 63
    value = (st.binary() | UUIDS.map(str.encode)) if is_bytes else st.integers(-(2**least), 2**least - 1)
    values = data.draw(st.lists(value, min_size=1))
    members = [{**text(one), "type": of_spark} if isinstance(one, bytes) else literal(one, of_spark) for one in values]
    node = {"node": "in", "value": column(TYPES.index(name), of_spark)}
    sent = packed(values, "B" if is_bytes else "N")
    in_json, as_bytes = (
        read_node(Membership.model_validate_json(json.dumps(node | {"members": one})), SCHEMA)
        for one in (members, sent)
    )
    assert as_bytes == in_json
