"""The columns that a WHERE text names, found in a schema."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import tzinfo

from pyiceberg.schema import Schema
from pyiceberg.types import UnknownType

from planner.condition.columns import FoundColumn, find_column
from planner.condition.comparisons import Value, nan_test, null_test, prefix_test
from planner.condition.operands import Applied, Column
from planner.condition.sql.tokens import Called, Named, Operand
from planner.condition.truth import negate
from puffin_index.errors import NotFoundError


@dataclass(slots=True)
class NamedColumns:
    """Finds columns.

    Attributes:
        schema: The schema that has the columns.
        zone: The time zone of the session.
        missing: Why there are no columns of some names. First the text has to be a condition.
    """

    schema: Schema
    zone: tzinfo
    missing: dict[str, NotFoundError] = field(default_factory=dict)

    def find(self, operand: Operand) -> Value:
        """Return what an operand means."""
        match operand:
            case Named(name, key):
                try:
                    return Column(find_column(self.schema, name, key), self.zone)
                except NotFoundError as error:
                    self.missing.setdefault(name, error)
                    return Column(FoundColumn(name, 0, UnknownType(), None), self.zone)
            case Called():
                return self._call(operand, self.find(operand.column))
            case _:
                return operand

    def _call(self, call: Called, column: Value) -> Value:
        match call.function:
            case "isnan":
                return nan_test(column, call.text)
            case "isnull":
                return null_test(column, call.text)
            case "isnotnull":
                return negate(null_test(column, call.text))
            case "startswith":
                return prefix_test(column, call.prefix, call.text)
            case function:
                return Applied(function, column) if isinstance(column, Column) else column

    def hint_at_text(self, left: Value, right: Value) -> None:
        """Say of a missing name beside a column that it may be meant as a text."""
        if not isinstance(left, Column) or not isinstance(right, Column):
            return
        missing = [side.found.name for side in (left, right) if side.found.name in self.missing]
        if len(missing) == 1:
            (name,) = missing
            columns = ", ".join(column.name for column in self.schema.fields)
            hint = f"did you mean the text '{name}'?"
            self.missing[name] = NotFoundError(f"there is no column {name!r}; the table has: {columns}; {hint}")

    def check(self) -> None:
        """Refuse a name that no column has.

        Raises:
            NotFoundError: If there is such a name.
        """
        for error in self.missing.values():
            raise error
