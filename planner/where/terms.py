"""Terms that PyIceberg lacks and `planner.predicate.bind` binds. PyIceberg's own are columns and leaves of structs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from pyiceberg.expressions import BoundReference, UnboundTerm
from pyiceberg.schema import Schema
from pyiceberg.typedef import LiteralValue


class _OurTerm(UnboundTerm):
    """A term that only `planner.predicate.bind` can bind; all other code takes it as unknown."""

    def bind(self, schema: Schema, case_sensitive: bool = True) -> NoReturn:  # noqa: ARG002 # PyIceberg's signature
        """Refuse: Iceberg has no such term."""
        raise ValueError(f"Iceberg cannot evaluate {self}")

    @property
    def as_bound(self) -> type[BoundReference]:
        """What Iceberg's own terms become."""
        return BoundReference


@dataclass(frozen=True)
class MapElement(_OurTerm):
    """`m['key']`: the value that a map column holds for a key.

    Attributes:
        name: The map's name as written, dotted.
        key: The key as written.
    """

    name: str
    key: LiteralValue


@dataclass(frozen=True)
class FieldTerm(_OurTerm):
    """A column by its id in the schema, whatever characters its name has.

    Attributes:
        field_id: The column.
        key: Where the column is a map: the key whose value is meant.
    """

    field_id: int
    key: LiteralValue | None = None
