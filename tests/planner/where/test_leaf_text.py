"""The text of a leaf is SQL that says the same."""

from __future__ import annotations

import pytest

from planner.where.leaf_text import leaf_text
from planner.where.parser import parse_where


@pytest.mark.parametrize(
    "text",
    [
        "a = 5",
        "a <> 1.50",
        "a < 1.5F",
        "s >= 'it\\'s \\\\'",
        "b = X'1f00'",
        "t = TRUE",
        "d > DATE '2020-01-31'",
        "ts <= TIMESTAMP '2020-01-31 01:02:03.000004'",
        "ts = TIMESTAMP_NTZ '2020-01-31 01:02:03'",
        "ts = TIMESTAMP '2020-01-31 00:00:00Z'",
        "s.t IN ('a', 'b')",
        "a NOT IN (1, 2)",
        "m['k'] = 3",
        "startswith(s, 'ab')",
        "NOT startswith(s, 'ab')",
        "a IS NULL",
        "a IS NOT NULL",
        "isnan(a)",
        "upper(a) = b",
        "TRUE",
        "FALSE",
    ],
)
def test_leaves_read_as_they_were_written(text: str) -> None:
    assert leaf_text(parse_where(text)) == text


def test_long_lists_are_cut_short() -> None:
    assert leaf_text(parse_where(f"a IN ({', '.join(map(str, range(100)))})")).endswith(", ... 50 more)")
