"""Tests that are decided value by value, such as `upper(name) LIKE '%X%'`: tried on the values that columns have."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from pyiceberg.schema import Schema

from planner.clock import Clock
from planner.condition.as_sql import as_sql, column_text
from planner.condition.implied import Implied, costs
from planner.condition.tree.key_lists import chosen
from planner.condition.tree.nodes import UNKNOWN, ByValue, Predicate, ValueTest
from planner.condition.tree.simplify import conjunction
from planner.condition.value_tests import verdicts
from planner.view.column_values import ColumnValues, KeyBounds, values_to_try
from planner.view.index_view import IndexView
from puffin_index.keys.columns import Column
from puffin_index.keys.map_key import ColumnId
from puffin_index.keys.value_types import value_type_named
from puffin_index.storage.arrays import Ints

_VALUES_BETWEEN_LOOKS = 65_536
"""The clock is asked after this many values. Arrow takes time by the length of pattern and text alone."""


@dataclass(slots=True)
class TriedValues:
    """The values of columns in an index view, and what tests say of them.

    Attributes:
        schema: The schema of the scan.
        view: The index.
        row_groups: The row groups of the view that the scan has.
        byte_budget: How many bytes of payloads may be read for the values of a column.
        clock: The time that planning may take.
        implied: What is known of columns by tests; complete once all tests are decided.
    """

    schema: Schema
    view: IndexView
    row_groups: Ints
    byte_budget: int
    clock: Clock
    implied: tuple[Implied, ...] = ()
    _values: dict[ColumnId, ColumnValues | KeyBounds | str] = field(init=False, default_factory=dict)

    def decide(self, leaf: ByValue) -> Predicate:
        """Say which values satisfy a test: exact if that is certain for all values of the column."""
        if not isinstance(leaf.test, ValueTest):
            return UNKNOWN
        with costs() as cost:
            predicate, text = self._try(leaf, leaf.test)
        text = f"{as_sql(leaf, self.schema)}: {text}"
        self.implied += (Implied("function", text, seconds=cost.seconds, bytes_read=cost.bytes_read),)
        return predicate

    def _try(self, leaf: ByValue, test: ValueTest) -> tuple[Predicate, str]:
        values = self._values_of(leaf)
        if isinstance(values, ColumnValues):
            return self._matching(leaf, test, values)
        return UNKNOWN, f"not used, {'the column has too many values' if isinstance(values, KeyBounds) else values}"

    def _values_of(self, leaf: ByValue) -> ColumnValues | KeyBounds | str:
        if self.clock.is_over:
            return "the time that planning may take was over"
        values = self._values.get(leaf.field_id)
        if values is None:
            values = values_to_try(self.view, leaf.field_id, leaf.value_type, self.row_groups, self.byte_budget)
            self._values[leaf.field_id] = values
        return values

    def _matching(self, leaf: ByValue, test: ValueTest, values: ColumnValues) -> tuple[Predicate, str]:
        value_type = value_type_named(leaf.value_type)
        matching, certain = np.ones(len(values), np.bool_), np.zeros(len(values), np.bool_)
        for first in range(0, len(values), _VALUES_BETWEEN_LOOKS):
            if self.clock.is_over:
                break
            some = slice(first, first + _VALUES_BETWEEN_LOOKS)
            keys = values.keys[some]
            decided = verdicts(test, Column(value_type, len(keys), keys, None))
            matching[some], certain[some] = decided.matching, decided.certain
        places = np.flatnonzero(matching)
        predicate = chosen(leaf.field_id, values.keys, places, value_type)
        uncertain = int(np.count_nonzero(~certain))
        note = f", {uncertain} of which only Spark can decide" if uncertain else ""
        text = f"{column_text(leaf.field_id, self.schema)} in {len(places)} of {len(values)} values{note}"
        return conjunction([predicate, UNKNOWN]) if uncertain else predicate, text
