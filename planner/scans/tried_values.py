"""Tests that are decided value by value, such as `upper(name) LIKE '%X%'`, as predicates over a column's keys."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema

from planner.clock import Clock
from planner.predicate.found_column import FoundColumn
from planner.predicate.implied import Implied, costs
from planner.predicate.key_lists import chosen
from planner.predicate.nodes import UNKNOWN, Leaf, Predicate
from planner.predicate.simplify import conjunction
from planner.predicate.value_tests import column_of_test, verdicts, year_range
from planner.view.column_values import ColumnValues, KeyBounds, values_to_try
from planner.view.index_view import IndexView
from planner.where.unknown import Unknown, ValueTest
from puffin_index.keys.columns import Column
from puffin_index.keys.leaf import NullTest
from puffin_index.keys.map_key import ColumnId
from puffin_index.keys.value_types import ValueType
from puffin_index.storage.arrays import Ints

_VALUES_BETWEEN_LOOKS = 65_536
"""After so many values the clock is asked. Arrow takes time in the length of pattern and text, whatever they say."""


@dataclass(slots=True)
class TriedValues:
    """The values of columns in an index view, and what tests say of them.

    Attributes:
        schema: The schema of the scan.
        view: The index.
        row_groups: The row groups of the view that the scan has.
        byte_budget: How many bytes of payloads may be read for the values of a column.
        clock: The time that planning may take.
        implied: What is known of columns by tests; complete once all tests are bound.
        unused: Leaves that nothing is known of; complete likewise.
    """

    schema: Schema
    view: IndexView
    row_groups: Ints
    byte_budget: int
    clock: Clock
    implied: tuple[Implied, ...] = ()
    unused: list[BooleanExpression] = field(init=False, default_factory=list)
    _values: dict[ColumnId, ColumnValues | KeyBounds | str] = field(init=False, default_factory=dict)

    def predicate(self, leaf: Unknown) -> Predicate:
        """Bind a leaf: exact if the test is certain for all values of the column.

        Raises:
            NotFoundError: If the schema has no such column.
        """
        found = column_of_test(leaf, self.schema) if isinstance(leaf, ValueTest) else None
        if not isinstance(leaf, ValueTest) or found is None or found.value_type is None:
            self.unused.append(leaf)
            return UNKNOWN
        if leaf.operator == "IS NULL":
            return Leaf(found.column, NullTest(is_null=not leaf.negated), found.value_type.name)
        if (years := year_range(leaf, found.value_type)) is not None:
            return Leaf(found.column, years, found.value_type.name)
        with costs() as cost:
            predicate, text = self._try(leaf, found, found.value_type)
        self.implied += (Implied("function", text, seconds=cost.seconds, bytes_read=cost.bytes_read),)
        return predicate

    def _try(self, test: ValueTest, found: FoundColumn, value_type: ValueType) -> tuple[Predicate, str]:
        values = self._values_of(found)
        if isinstance(values, ColumnValues):
            return self._matching(test, found, value_type, values)
        reason = "the column has too many values" if isinstance(values, KeyBounds) else values
        return UNKNOWN, f"{test}: not used, {reason}"

    def _values_of(self, found: FoundColumn) -> ColumnValues | KeyBounds | str:
        if self.clock.is_over:
            return "the time that planning may take was over"
        values = self._values.get(found.column)
        if values is None:
            values = values_to_try(self.view, found, self.row_groups, self.byte_budget)
            self._values[found.column] = values
        return values

    def _matching(
        self, test: ValueTest, found: FoundColumn, value_type: ValueType, values: ColumnValues
    ) -> tuple[Predicate, str]:
        matching, certain = np.ones(len(values), np.bool_), np.zeros(len(values), np.bool_)
        for first in range(0, len(values), _VALUES_BETWEEN_LOOKS):
            if self.clock.is_over:
                break
            some = slice(first, first + _VALUES_BETWEEN_LOOKS)
            keys = values.keys[some]
            decided = verdicts(test, Column(value_type, len(keys), keys, None))
            matching[some], certain[some] = decided.matching, decided.certain
        places = np.flatnonzero(matching)
        predicate = chosen(found.column, values.keys, places, value_type)
        uncertain = int(np.count_nonzero(~certain))
        note = f", {uncertain} of which only Spark can decide" if uncertain else ""
        text = f"{test}: {test.column} in {len(places)} of {len(values)} values{note}"
        return conjunction([predicate, UNKNOWN]) if uncertain else predicate, text
