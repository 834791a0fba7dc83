"""Change a stored definition: add kinds of columns, take kinds away, and say what a new definition takes away."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from puffin_index.definition.index_definition import ResolvedColumn, stored_kinds, to_json
from puffin_index.errors import DefinitionError
from puffin_index.keys.map_key import SEPARATOR


def losses(stored: str, new: Sequence[ResolvedColumn]) -> list[str]:
    """Return what a new definition takes away from a stored one, kind by kind, for people."""
    names = {_place(item): _name(item) for item in json.loads(stored)}
    wanted = stored_kinds(to_json(tuple(new)))
    lost: list[str] = []
    for (field_id, kind), options in stored_kinds(stored).items():
        plain, _, key = kind.partition(SEPARATOR)
        name = names[field_id, key]
        if (field_id, kind) not in wanted:
            lost.append(f"{plain} of {name}")
        elif wanted[field_id, kind] != options:
            before, after = _described(options), _described(wanted[field_id, kind])
            lost.append(f"the options of {plain} of {name} ({before}; now {after})")
    return lost


def with_kinds(stored: str, columns: Sequence[ResolvedColumn]) -> str:
    """Add kinds to a stored definition; the options of a kind that is there already are replaced."""
    items = {_place(item): item for item in json.loads(stored)}
    for item in json.loads(to_json(tuple(columns))):
        known = items.setdefault(_place(item), {**item, "kinds": {}})
        known["kinds"] |= item["kinds"]
    return json.dumps([items[place] for place in sorted(items)], sort_keys=True)


def without_kinds(stored: str, columns: Sequence[ResolvedColumn]) -> str:
    """Take kinds out of a stored definition.

    Raises:
        DefinitionError: If the definition lacks one of the kinds.
    """
    items = {_place(item): item for item in json.loads(stored)}
    for column in columns:
        item = items.get((column.field_id, column.map_key or ""), {"kinds": {}})
        for kind in column.kinds:
            if kind not in item["kinds"]:
                there = "; ".join(f"{_name(one)}: {', '.join(sorted(one['kinds']))}" for one in items.values())
                raise DefinitionError(f"column {column.name!r} has no {kind} to remove; the definition has {there}")
            del item["kinds"][kind]
    return json.dumps([items[place] for place in sorted(items) if items[place]["kinds"]], sort_keys=True)


def _place(item: Any) -> tuple[int, str]:
    return item["field-id"], item.get("map-key") or ""


def _name(item: Any) -> str:
    return str(item["name"])


def _described(options: Any) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(options.items())) or "none"
