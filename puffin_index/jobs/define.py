"""Add named indexes to a definition, and take indexes out of it, while others do the same."""

from collections.abc import Callable

import pyarrow as pa
from pyiceberg.table import Table

from puffin_index.definition.index_definition import read_properties, stored_kinds
from puffin_index.definition.names import StoredDefinition
from puffin_index.index_table.commit import commit
from puffin_index.index_table.entries import field_kinds, with_kinds, write_entries
from puffin_index.index_table.table import PROPERTY_DEFINITION, PROPERTY_NAMES, read_entries
from puffin_index.keys.map_key import FieldKind


def stored_definition(data_table: Table, index_table: Table) -> StoredDefinition:
    """Return the definition of an index with its names."""
    return StoredDefinition(
        index_table.properties[PROPERTY_DEFINITION],
        index_table.properties.get(PROPERTY_NAMES),
        read_properties(data_table.properties, data_table.schema()).columns,
    )


def change_definition(
    data_table: Table, index_table: Table, change: Callable[[StoredDefinition], StoredDefinition]
) -> frozenset[FieldKind]:
    """Change a definition by one commit that succeeds only on top of the definition that `change` saw.

    The indexes that the definition loses leave all entries by the same commit, so that no query uses them from now on;
    they are returned, and `expire` deletes their bytes. `change` is called again if another commit comes in between.
    """

    def attempt() -> frozenset[FieldKind]:
        stored = stored_definition(data_table, index_table)
        changed = change(stored)
        gone = frozenset(stored_kinds(stored.definition).keys() - stored_kinds(changed.definition).keys())
        left: pa.Table | None = None
        if gone:
            entries = read_entries(index_table)
            kinds = field_kinds(entries)
            if any(own & gone for own in kinds):
                left = with_kinds(entries, [own - gone for own in kinds])
        properties = {PROPERTY_DEFINITION: changed.definition}
        if changed.names is not None:
            properties[PROPERTY_NAMES] = changed.names
        # Catalogs merge changes of properties made at the same time, and reject only snapshots on top of another than
        # the current one. So each change of the definition makes a snapshot, be it of the same entries.
        with index_table.transaction() as transaction:
            transaction.set_properties(properties)
            if left is None:
                with transaction.update_snapshot().fast_append():
                    pass
            else:
                write_entries(index_table, transaction, left)
        return gone

    return commit(index_table, attempt)
