"""Which column a name means: the one that is spelled so, or else the only one whose name differs in case."""

from collections.abc import Collection
from contextlib import suppress

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from puffin_index.errors import NotFoundError, did_you_mean


def spelled_like(name: str, known: Collection[str]) -> list[str]:
    """Return the names that a name may mean: itself, or else all that differ in case only."""
    return [name] if name in known else [one for one in known if one.lower() == name.lower()]


def fields_named(schema: Schema, name: str) -> list[NestedField]:
    """Return the columns that a name may mean. Dots join the names of structs and leaf; names may contain dots, too."""
    with suppress(ValueError):
        return [schema.find_field(name)]
    with suppress(ValueError):
        found = schema.find_field(name, case_sensitive=False)
        # The full names of what lies in lists say so; other names need not.
        return [schema.find_field(one) for one in spelled_like(name, schema.column_names)] or [found]
    return []


def field_named(schema: Schema, name: str) -> NestedField:
    """Find a column, or raise NotFoundError if there is none, or none is spelled so and several differ in case only."""
    found = fields_named(schema, name)
    if len(found) == 1:
        return found[0]
    if found:
        alike = " or ".join(spelled_like(name, schema.column_names))
        raise NotFoundError(f"column {name!r} may be {alike}: write it as the table does")
    columns = ", ".join(field.name for field in schema.fields)
    near = did_you_mean(name, schema.column_names)
    raise NotFoundError(f"there is no column {name!r}; the table has: {columns}{near}")
