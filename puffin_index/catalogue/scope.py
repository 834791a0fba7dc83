"""The scope of a build: the snapshot to index, and the data files of the snapshot."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from puffin_index.data.data_table import DataFile, find_snapshot, list_data_files
from puffin_index.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class BuildScope:
    """The data files to index; by default all data files of the current snapshot.

    An index belongs to a data file, so files that other snapshots, branches and tags share are indexed once.

    Attributes:
        snapshot_id: The snapshot to index.
        ref: The branch or tag to index, in place of a snapshot.
        row_filter: A filter; only data files that may have matching rows, by Iceberg's own metadata, are indexed.
        max_files: The most data files to index; the next build continues.
    """

    snapshot_id: int | None = None
    ref: str | None = None
    row_filter: BooleanExpression | None = None
    max_files: int | None = None

    def find_snapshot(self, table: Table) -> Snapshot | None:
        """Return the snapshot to index in the table's present state; None while the table is empty.

        Raises:
            NotFoundError: If the table lacks the snapshot, branch or tag.
        """
        return find_snapshot(table, self.snapshot_id, self.ref)

    def list_data_files(self, table: Table) -> tuple[DataFile, ...]:
        """Return the data files in the scope in the table's present state, with or without an index.

        Raises:
            NotFoundError: If the table lacks the snapshot, branch or tag.
            DefinitionError: If the filter does not fit the table.
        """
        snapshot = self.find_snapshot(table)
        if snapshot is None:
            return ()
        try:
            return list_data_files(table, snapshot.snapshot_id, self.row_filter)
        except (ValueError, TypeError, NotImplementedError) as error:
            raise DefinitionError(f"Iceberg cannot choose data files by this predicate: {error}") from error


WHOLE_TABLE = BuildScope()
