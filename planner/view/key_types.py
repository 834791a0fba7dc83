"""Whether the keys of two types mean the same: Iceberg promotes types, indexes of older data keep the older one."""

from __future__ import annotations

from puffin_index.keys.value_types import INT64_DECIMAL_PRECISION


def comparable(index_type: str, leaf_type: str) -> bool:
    """Whether keys of two types mean the same: a type and what Iceberg promotes it to, as long as the domain stays."""
    if index_type == leaf_type or {index_type, leaf_type} in ({"int", "long"}, {"float", "double"}):
        return True
    index_decimal, leaf_decimal = _decimal(index_type), _decimal(leaf_type)
    if index_decimal is None or leaf_decimal is None:
        return False
    (index_precision, index_scale), (leaf_precision, leaf_scale) = index_decimal, leaf_decimal
    narrow = index_precision <= INT64_DECIMAL_PRECISION
    return index_scale == leaf_scale and narrow == (leaf_precision <= INT64_DECIMAL_PRECISION)


def _decimal(name: str) -> tuple[int, int] | None:
    if not name.startswith("decimal("):
        return None
    precision, scale = name.removeprefix("decimal(").removesuffix(")").split(",")
    return int(precision), int(scale)
