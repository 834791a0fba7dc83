"""An index definition in the data table's own properties, in Paimon's spelling, set from any engine.

| property | meaning |
| --- | --- |
| `file-index.<type>.columns` | columns by comma that have an index of this type: `bitmap`, `bsi` or `bloom-filter` |
| `file-index.<type>.<column>.<option>` | an option of one column's index: `fpp`, `items` of `bloom-filter` and so on |

Source: seed 001. Properties name columns as they are called now; a renamed column is one that is not there. Whatever
cannot be used is left out with a warning: another engine's property is no reason to stop a build.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.schema import Schema

from puffin_index.definition.index_definition import IndexDefinition, IndexedColumn, ResolvedColumn, resolve
from puffin_index.errors import DefinitionError
from puffin_index.kinds.kind import Options
from puffin_index.kinds.registry import KINDS

_PREFIX = "file-index."


@dataclass(frozen=True, slots=True)
class PropertyDefinition:
    """What table properties define.

    Attributes:
        columns: The columns and kinds, in the order of field ids.
        warnings: What of the properties cannot be used, and why.
    """

    columns: tuple[ResolvedColumn, ...]
    warnings: tuple[str, ...]


def read_properties(properties: Mapping[str, str], schema: Schema) -> PropertyDefinition:
    """Read what the properties of a table define, bound to its schema of today."""
    columns: tuple[ResolvedColumn, ...] = ()
    warnings: list[str] = []
    for kind, index_type in ((name, own.paimon_name) for name, own in KINDS.items() if own.paimon_name):
        key = f"{_PREFIX}{index_type}.columns"
        names = [name.strip() for name in properties.get(key, "").split(",") if name.strip()]
        for name in dict.fromkeys(names):
            options = _options_of(properties, f"{_PREFIX}{index_type}.{name}.")
            try:
                column = resolve(IndexDefinition((IndexedColumn(name, {kind: options}),)), schema)
            except DefinitionError as error:
                warnings.append(f"table property {key}: {error}")
            else:
                columns = unite(columns, column)
    return PropertyDefinition(columns, tuple(warnings))


def _options_of(properties: Mapping[str, str], prefix: str) -> Options:
    names = ((key, key.removeprefix(prefix)) for key in properties if key.startswith(prefix))
    # What still has a dot is an option of a column whose name begins like this one's.
    return {name: properties[key] for key, name in names if name and "." not in name}


def unite(first: Sequence[ResolvedColumn], second: Sequence[ResolvedColumn]) -> tuple[ResolvedColumn, ...]:
    """Unite two definitions; where both have a kind of a column, the options are those of the first."""
    united = {_place(column): column for column in second}
    for column in first:
        other = united.get(_place(column))
        united[_place(column)] = replace(column, kinds={**(other.kinds if other else {}), **column.kinds})
    return tuple(united[place] for place in sorted(united))


def _place(column: ResolvedColumn) -> tuple[int, str]:
    return column.field_id, column.map_key or ""
