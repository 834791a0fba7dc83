"""Add named indexes to a definition, and take indexes out of it, while others do the same."""

from collections.abc import Callable

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table

from puffin_index.definition.index_definition import Index
from puffin_index.definition.names import StoredDefinition
from puffin_index.definition.table_properties import read_properties
from puffin_index.index_table.commit import commit
from puffin_index.index_table.entries import field_kinds, with_kinds
from puffin_index.index_table.table import PROPERTY_DEFINITION, PROPERTY_NAMES, read_entries


def stored_definition(data_table: Table, index_table: Table) -> StoredDefinition:
    """Return the definition of an index with its names."""
    return StoredDefinition(
        index_table.properties[PROPERTY_DEFINITION],
        index_table.properties.get(PROPERTY_NAMES),
        read_properties(data_table.properties, data_table.schema()).columns,
    )


def change_definition(
    data_table: Table, index_table: Table, change: Callable[[StoredDefinition], StoredDefinition]
) -> None:
    """Change a definition by one commit that succeeds only on top of the definition that `change` saw.

    The index table is loaded anew, and `change` called again, if another commit comes in between.
    """

    def attempt() -> None:
        changed = change(stored_definition(data_table, index_table))
        _commit(index_table, changed, None)

    commit(index_table, attempt)


def take_out(
    data_table: Table,
    index_table: Table,
    change: Callable[[StoredDefinition], tuple[StoredDefinition, frozenset[Index]]],
) -> frozenset[Index]:
    """Take indexes out of the definition and of all entries, so that no query uses them from now on; return them.

    `change` returns the new definition and what it no longer has; it is called again if another commit comes in
    between. `expire` deletes the bytes.
    """

    def attempt() -> frozenset[Index]:
        changed, gone = change(stored_definition(data_table, index_table))
        entries = read_entries(index_table)
        kinds = field_kinds(entries)
        holds = any(own & gone for own in kinds)
        left = with_kinds(entries, [own - gone for own in kinds]) if holds else None
        _commit(index_table, changed, left)
        return gone

    return commit(index_table, attempt)


def _commit(index_table: Table, stored: StoredDefinition, entries: pa.Table | None) -> None:
    """Set the properties and, unless None, all entries.

    Catalogs merge changes of properties made at the same time, and reject only snapshots on top of another than the
    current one. So each change of the definition makes a snapshot, be it of the same entries.
    """
    properties = {PROPERTY_DEFINITION: stored.definition}
    if stored.names is not None:
        properties[PROPERTY_NAMES] = stored.names
    with index_table.transaction() as transaction:
        transaction.set_properties(properties)
        if entries is None:
            with transaction.update_snapshot().fast_append():
                pass
        elif len(entries):
            transaction.overwrite(entries, AlwaysTrue())
        else:
            transaction.delete(AlwaysTrue())
