"""Random predicates about the values of a random table, from a seed and without Hypothesis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from random import Random
from typing import Any

from tests.oracle import (
    Among,
    And,
    Between,
    Beyond,
    Compare,
    Contains,
    IsEmpty,
    IsNan,
    IsNull,
    Like,
    Not,
    Operator,
    Or,
    Predicate,
)
from tests.planner.laws.random_tables import COLUMNS, LISTS, RandomTable, plain_value, sayable

# What a literal can say but no column can hold, whatever Spark rounds.
_FAR: dict[str, list[Any]] = {
    "i": [Beyond(2**63), Beyond(-(2**63) - 1), 9.3e18, -1e20],
    "j": [Beyond(10**20 - 1), Beyond(-(2**63) - 1), 2**31 + 1, -1e10],
    "d": [Decimal(2**63), Decimal("-" + "9" * 38), 1e9, -1e20],
    "w": [Decimal("-" + "9" * 38), Decimal("9" * 37 + ".9"), 1.01e26, -1e300],
}


def random_predicate(random: Random, table: RandomTable) -> Predicate:
    return _combined(random, table, random.choice([1, 1, 2, 3, 5]))


def _combined(random: Random, table: RandomTable, leaves: int) -> Predicate:
    if random.random() < 0.2:
        return Not(_combined(random, table, leaves))
    if leaves == 1:
        return _leaf(random, table)
    left = random.randrange(1, leaves)
    parts = (_combined(random, table, left), _combined(random, table, leaves - left))
    return And(parts) if random.random() < 0.6 else Or(parts)


def _leaf(random: Random, table: RandomTable) -> Predicate:
    column = random.choice(COLUMNS)
    if random.random() < 0.15:
        return _leaf_of_lists(random, table)

    def literal() -> Any:
        return _literal(random, table, column)

    def far() -> Any:
        return random.choice(_FAR.get("i" if column == "u.v" else column) or [literal()])

    operators: Sequence[Operator] = ("=", "=", "<>", "<", "<=", ">", ">=", "<=>")
    kinds: list[Callable[[], Predicate]] = [
        lambda: Compare(column, random.choice(operators), literal()),
        lambda: Compare(column, random.choice(operators), far() if random.random() < 0.2 else literal()),
        lambda: Among(column, tuple(literal() for _ in range(random.choice([1, 2, 4, 20])))),
        lambda: Between(column, literal(), far() if random.random() < 0.2 else literal()),
        lambda: IsNull(column),
        lambda: IsNan(random.choice("fg")),
        lambda: Like(
            "s", tuple(random.choice([None, ..., plain_value("s", random), _literal_text(random, table)]) for _ in "12")
        ),
    ]
    return random.choice(kinds)()


def _leaf_of_lists(random: Random, table: RandomTable) -> Predicate:
    name, column = random.choice([*LISTS.items()])
    if random.random() < 0.2:
        return random.choice([IsNull, IsEmpty])(name)
    held = [one for one in random.choice([*table.appends.values()]).columns[name].distinct if one]
    values = [*(random.choice(held) if held else []), *(sayable(column, random) for _ in "12")]
    sayables = [one for one in values if one is not None and not (isinstance(one, float) and not math.isfinite(one))]
    return Contains(name, tuple(random.sample(sayables, random.choice([1, 1, min(3, len(sayables))]))))


def _literal_text(random: Random, table: RandomTable) -> str:
    found = _literal(random, table, "s")
    return found if isinstance(found, str) else ""


def _literal(random: Random, table: RandomTable, column: str) -> Any:
    """A value of the table's, or near to one, or of another type of number; seldom NULL."""
    kind = random.random()
    if kind < 0.04:
        return None
    if kind < 0.6:
        held = random.choice(random.choice(list(table.appends.values())).columns[column].distinct)
        if held is not None and not (isinstance(held, float) and not math.isfinite(held)):
            return held
    if kind < 0.7 and column in ("i", "j", "u.v"):
        return Decimal(random.randrange(-45, 45)) / 2
    if kind < 0.7 and column in ("d", "w", "f", "g"):
        return random.randrange(-5, 6)
    return sayable(column, random)
