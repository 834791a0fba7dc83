"""`m['key']` as a term of PyIceberg's expressions, which know whole columns and leaves of structs only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from pyiceberg.expressions import BoundReference, UnboundTerm
from pyiceberg.schema import Schema
from pyiceberg.typedef import LiteralValue


@dataclass(frozen=True)
class MapElement(UnboundTerm):
    """What a map column holds for a key. Only `planner.bind` can bind it; whoever else meets it knows nothing.

    Attributes:
        name: The map's name as written, dotted.
        key: The key as written.
    """

    name: str
    key: LiteralValue

    def bind(self, schema: Schema, case_sensitive: bool = True) -> NoReturn:  # noqa: ARG002 # PyIceberg's signature
        """Refuse: Iceberg has no such term."""
        raise ValueError(f"Iceberg cannot evaluate {self.name}[{self.key}]")

    @property
    def as_bound(self) -> type[BoundReference]:
        """What Iceberg's own terms become."""
        return BoundReference
