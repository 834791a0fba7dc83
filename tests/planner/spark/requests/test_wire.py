"""A request is closed: what the planner does not expect is refused, not ignored."""

from decimal import Decimal

import pyarrow as pa
import pytest
from pydantic import ValidationError

from planner.spark.requests.wire import serialized_keys, serialized_note
from puffin_index.keys.arrow_keys import column_of
from puffin_index.keys.columns import plain_keys
from puffin_index.keys.value_types import value_type_named
from tests.planner.spark.requests.jvm_messages import request_of


@pytest.mark.parametrize("changes", [{"limit": 5}, {"unindexed": "many"}, {"filters": "i = 5"}, {"settings": None}])
def test_another_request_than_the_rules_is_refused(changes: dict[str, object]) -> None:
    assert request_of(snapshot=2**63 - 1).snapshot == 2**63 - 1
    with pytest.raises(ValidationError):
        request_of(**changes)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"type": "int", "operator": "=", "keys": [3, 5]}, "c in 2 keys"),
        ({"type": "int", "operator": "=", "keys": [3]}, "c = 3"),
        ({"type": "int", "operator": "=", "keys": []}, "c in 0 keys"),
        ({"type": "long", "operator": ">", "keys": []}, "c > NULL"),
        ({"type": "double", "operator": "<=", "keys": [4612811918334230528]}, "c <= 2.5"),
        ({"type": "string", "operator": "<", "keys": ["w6k="]}, "c < 'é'"),
    ],
)
def test_what_is_known_at_run_time_reads_well(keys: dict[str, object], said: str) -> None:
    request = request_of(runtime_keys=[{"field": 1, "name": "c", "source": "join", **keys}])

    assert [str(known) for known in request.runtime_keys] == [said]
    assert request.asks_for_rows


@pytest.mark.parametrize(
    ("type_name", "values", "content"),
    [
        ("long", [7], b"\0\0\0\0\0\0\0\7"),
        ("double", [-0.0], bytes(8)),
        ("string", ["", "ab"], b"\0\0\0\0\0\0\0\2ab"),
        ("decimal(20,0)", [Decimal(-1)], b"\0\0\0\x10" + b"\xff" * 16),
    ],
)
def test_lists_of_values_may_be_empty(type_name: str, values: list[object], content: bytes) -> None:
    value_type, arrow_type = value_type_named(type_name), pa.decimal128(20) if "decimal" in type_name else None
    every = pa.array(values, arrow_type)
    for some, expected in ((every, content), (every[:0], b"")):
        column = column_of(some, value_type)
        keys = column.keys if value_type.domain == "int64" else plain_keys(column)
        form, count, *parts = serialized_keys(keys, value_type)

        assert (form, count) == (b"B" if value_type.domain == "bytes" else b"N", len(some).to_bytes(4))
        assert b"".join(parts) == expected


def test_only_the_beginning_of_a_long_note_is_sent() -> None:
    assert serialized_note("ä" * 70_000) == (2_000).to_bytes(2) + "ä".encode() * 1_000
