"""The columns that the golden files of Paimon's index blobs were made from."""

from typing import Any

ROWS = 300

GOLDEN_KINDS: dict[str, tuple[str, dict[str, str]]] = {
    "bitmap-v1": ("bitmap", {"version": "1"}),
    "bitmap-v2": ("bitmap", {"version": "2", "index-block-size": "256 b"}),
    "bsi": ("bsi", {}),
    "bloom": ("bloom", {"items": "100", "fpp": "0.02"}),
}
"""Column name in a golden container -> kind and Paimon's options."""

GOLDEN_TYPES: dict[str, tuple[str, ...]] = {
    "boolean": ("bitmap-v1", "bitmap-v2"),
    "int": ("bitmap-v1", "bitmap-v2", "bsi", "bloom"),
    "long": ("bitmap-v1", "bitmap-v2", "bsi", "bloom"),
    "double": ("bitmap-v1", "bitmap-v2", "bloom"),
    "date": ("bitmap-v1", "bitmap-v2", "bsi", "bloom"),
    "timestamptz": ("bitmap-v1", "bitmap-v2", "bsi", "bloom"),
    "string": ("bitmap-v1", "bitmap-v2", "bloom"),
}
"""Type -> what its golden container holds."""


def golden_values(type_name: str) -> list[Any]:
    """Runs, duplicates, single rows, negatives and NULLs."""
    return [None if row % 13 == 5 else _value(type_name, _number(row)) for row in range(ROWS)]


def _number(row: int) -> int:
    if row < 100:
        return row // 25 - 2
    return row * 7919 % 101 - 50 if row < 200 else row * row - 60_000


def _value(type_name: str, number: int) -> Any:
    match type_name:
        case "boolean":
            return number % 2 == 0
        case "double":
            return number / 8
        case "timestamptz":
            return number * 1_000_003
        case "string":
            return f"{number} é" * (1 + number % 3)
        case _:
            return number
