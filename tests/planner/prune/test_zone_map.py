"""What minimum, maximum and NULL count of a row group say about a test: impossible, certain, or neither."""

import numpy as np
import pyarrow as pa
import pytest

from planner.prune.zone_map import Verdicts, judge_by_zone_map
from planner.view.directories import FieldStatistics
from puffin_index.keys.leaf import LeafTest, NullTest, RangeTest, SetTest
from puffin_index.keys.value_types import value_type_named

# One column in six row groups of ten rows: five that differ, and one without statistics.
STATISTICS = FieldStatistics(
    value_type=value_type_named("long"),
    known=np.array([True, True, True, True, True, False]),
    row_count=np.array([10, 10, 10, 10, 10, 0]),
    null_count=np.array([0, 0, 3, 10, 0, 0]),
    distinct_count=np.array([10, 1, 7, 0, 10, 0]),
    minimum=np.array([0, 5, 5, 0, 20, 0]),
    maximum=np.array([9, 5, 5, 0, 29, 0]),
    quantiles=None,
)
ROW_GROUPS = "[0, 9]   [5, 5]   [5, 5] and NULLs   NULLs only   [20, 29]   no statistics"


def told(verdicts: Verdicts) -> str:
    """One character a row group: `-` no row can match, `+` every row matches, `?` neither is known."""
    pairs = zip(verdicts.possible.tolist(), verdicts.certain.tolist(), strict=True)
    return "".join("-" if not possible else "+" if certain else "?" for possible, certain in pairs)


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        # = 5: row group 1 has nothing else; in 2 the NULL rows do not match.
        (SetTest((5,)), "?+?--?"),
        (SetTest((5, 25)), "?+?-??"),
        (SetTest(()), "-----?"),
        # <> 5: NULL rows match no more than they match `= 5`.
        (SetTest((5,), negated=True), "?---+?"),
        (RangeTest(0, 9), "++?--?"),
        (RangeTest(5, None), "?+?-+?"),
        (RangeTest(5, None, low_inclusive=False), "?---+?"),
        (RangeTest(None, 0, high_inclusive=False), "-----?"),
        (RangeTest(0, 9, negated=True), "----+?"),
        (NullTest(is_null=True), "--?+-?"),
        (NullTest(is_null=False), "++?-+?"),
    ],
)
def test_a_leaf_is_judged_by_statistics(test: LeafTest, expected: str) -> None:
    assert told(judge_by_zone_map(test, STATISTICS, np.arange(6))) == expected, ROW_GROUPS
    # The verdicts stand in the order in which row groups are asked.
    assert told(judge_by_zone_map(test, STATISTICS, np.array([4, 0]))) == expected[4] + expected[0]


def test_bytes_are_compared_as_bytes_and_long_lists_as_one_range() -> None:
    words = FieldStatistics(
        value_type=value_type_named("string"),
        known=np.ones(2, np.bool_),
        row_count=np.array([10, 10]),
        null_count=np.array([0, 0]),
        distinct_count=np.array([10, 1]),
        minimum=pa.array([b"ant", b"fox"], pa.large_binary()),
        maximum=pa.array([b"cow", b"fox"], pa.large_binary()),
        quantiles=None,
    )

    def judged(test: LeafTest) -> str:
        return told(judge_by_zone_map(test, words, np.arange(2)))

    assert judged(SetTest((b"fox",))) == "-+"
    assert judged(SetTest((b"bee", b"fox"))) == "?+"
    assert judged(RangeTest(b"a", b"d", high_inclusive=False)) == "+-"
    # None of 100 keys is `fox`, but the range from `d00` to `z49` contains it.
    many = tuple(f"{letter}{number:02}".encode() for letter in "dz" for number in range(50))
    assert judged(SetTest(many)) == "-?"
