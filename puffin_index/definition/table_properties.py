"""An index definition in the data table's own properties, in Paimon's spelling; any engine can set the properties.

| property | meaning |
| --- | --- |
| `file-index.<type>.columns` | columns, separated by commas, to index by `bitmap`, `bsi` or `bloom-filter` |
| `file-index.<type>.<column>.<option>` | an option of one column's index: `fpp`, `items` of `bloom-filter` and so on |

Source: seed 001. Properties name columns by their current names; the old name of a renamed column is unknown. Unusable
properties are left out with a warning: another engine's property is no reason to stop a build.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyiceberg.schema import Schema

from puffin_index.definition.index_definition import (
    BoundDefinition,
    IndexDefinition,
    IndexedColumn,
    ResolvedColumn,
    place_of,
    resolve,
)
from puffin_index.errors import DefinitionError
from puffin_index.kinds.kind import Options
from puffin_index.kinds.registry import KINDS

_PREFIX = "file-index."


def read_properties(properties: Mapping[str, str], schema: Schema) -> BoundDefinition:
    """Read the definition in table properties, and bind it to the current schema."""
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
    return BoundDefinition(columns, tuple(warnings))


def _options_of(properties: Mapping[str, str], prefix: str) -> Options:
    names = ((key, key.removeprefix(prefix)) for key in properties if key.startswith(prefix))
    # A remaining dot means an option of a column whose name begins like this column's name.
    return {name: properties[key] for key, name in names if name and "." not in name}


def unite(first: Sequence[ResolvedColumn], second: Sequence[ResolvedColumn]) -> tuple[ResolvedColumn, ...]:
    """Unite two definitions; if both have a kind of a column, the options of the first count."""
    united = {column.column_id: column for column in second}
    for column in first:
        other = united.get(column.column_id)
        united[column.column_id] = replace(column, kinds={**(other.kinds if other else {}), **column.kinds})
    return tuple(united[column_id] for column_id in sorted(united, key=place_of))
