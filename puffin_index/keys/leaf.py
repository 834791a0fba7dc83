"""Leaf tests: questions to an index about one column, in the column's key domain.

Once the planner has pushed NOT down, the leaves of a predicate tree are leaf tests. Their values are *keys* (see
`puffin_index.keys.values`): ints for all types that map to 64 bits in order, bytes for the rest. An index kind needs no
knowledge of SQL types, of NaN or of -0.0: the key of NaN is simply the greatest key, and both zeros have one key.

All tests follow SQL: a NULL row satisfies `NullTest(is_null=True)` and nothing else, negated tests included.
"""

from dataclasses import dataclass
from typing import TypeAlias

Key: TypeAlias = int | bytes


@dataclass(frozen=True, slots=True)
class NullTest:
    """`IS NULL`, or `IS NOT NULL` where `is_null` is false."""

    is_null: bool


@dataclass(frozen=True, slots=True)
class SetTest:
    """`IN (keys)`, or `NOT IN (keys)` where `negated`; one key stands for `=` and `<>`.

    Keys ascend without duplicates; without any, no row matches, or (`negated`) every non-NULL row.
    """

    keys: tuple[int, ...] | tuple[bytes, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class RangeTest:
    """Non-NULL rows whose key lies between the bounds (None: unbounded), or (`negated`) outside them."""

    low: Key | None
    high: Key | None
    low_inclusive: bool = True
    high_inclusive: bool = True
    negated: bool = False


LeafTest: TypeAlias = NullTest | SetTest | RangeTest
