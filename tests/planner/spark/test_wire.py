"""A request is closed: what the planner does not expect is refused, not ignored."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from planner.spark.wire import Request
from tests.planner.spark.test_hook_filters import REQUEST, S, comparison, text


def request_of(**changes: object) -> Request:
    return Request.model_validate_json(json.dumps(REQUEST | {"filters": [], "conditions": []} | changes))


@pytest.mark.parametrize("changes", [{"limit": 5}, {"unindexed": "many"}, {"filters": "i = 5"}, {"settings": None}])
def test_another_request_than_the_rules_is_refused(changes: dict[str, object]) -> None:
    assert request_of(snapshot=2**63 - 1).snapshot == 2**63 - 1
    with pytest.raises(ValidationError):
        request_of(**changes)


def test_a_request_says_its_filters_as_text() -> None:
    request = request_of(filters=['{"type":"is-null","term":"v"}'], conditions=[comparison(S, "=", text(b"a\xff"))])

    assert request.where == '{"type":"is-null","term":"v"} AND a.b.c = \'a\ufffd\''
