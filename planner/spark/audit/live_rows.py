"""The rows of one row group as a scan of a snapshot sees them: values by field id, and which rows are not deleted."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table
from pyroaring import BitMap

from planner.clock import Clock
from planner.condition.rows import ReadColumn
from planner.condition.tree.nodes import UNKNOWN
from planner.scans.file_columns import FileColumns, constants_of
from planner.snapshot.snapshot_files import ScanFile, list_scan_files
from planner.view.index_view import IndexView
from puffin_index.data.column_source import Reading
from puffin_index.data.deletes import deleted_positions
from puffin_index.data.parquet import open_parquet
from puffin_index.data.row_groups import open_data_file
from puffin_index.errors import CorruptFileError, NotFoundError, UnsupportedError
from puffin_index.storage.arrays import Flags


@dataclass(frozen=True, slots=True, eq=False)
class LiveRows:
    """The rows of a row group.

    Attributes:
        row_count: The number of rows, deleted ones included.
        live: Which of them are not deleted.
        read_column: Gives the values of a column. A single value stands for all rows.
    """

    row_count: int
    live: Flags
    read_column: ReadColumn


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The data files of a snapshot, for reading row groups of an index view.

    Attributes:
        table: The data table.
        reading: How the scan finds columns.
        files: The data files by location and partition constants.
    """

    table: Table
    reading: Reading
    files: dict[tuple[str, str], ScanFile]

    @classmethod
    def of(cls, table: Table, snapshot_id: int | None, reading: Reading) -> Snapshot:
        """List the files of a snapshot.

        Args:
            table: The data table.
            snapshot_id: The snapshot; None for the current one.
            reading: How the scan finds columns.

        Raises:
            NotFoundError: If the table no longer has the snapshot.
        """
        snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
        if snapshot is None:
            raise NotFoundError(f"table {'.'.join(table.name())} has no snapshot {snapshot_id}")
        files = list_scan_files(table, snapshot, reading.schema, UNKNOWN, Clock(np.inf))
        return cls(table, reading, {(one.file.path, one.file.constants_text): one for one in files})

    @contextmanager
    def rows(self, view: IndexView, number: int, field_ids: Collection[int]) -> Iterator[LiveRows]:
        """Read some columns of a row group.

        Args:
            view: An index of the table.
            number: The row group's number in the view.
            field_ids: The columns.

        Raises:
            UnsupportedError: If only a JVM engine can read the rows, or knows which are deleted.
            NotFoundError: If the snapshot has no such data file, or the file is gone.
            CorruptFileError: If the data file is not what its manifest says.
        """
        file = self._file(view, int(view.file_of[number]))
        ordinal, row_count = int(view.ordinals_in_file[number]), int(view.row_counts[number])
        live = np.ones(row_count, np.bool_)
        if file.deletes:
            first = int(view.first_rows[number])
            deleted = deleted_positions(self.table.io, file.file.path, file.deletes)
            here = deleted & BitMap(range(first, first + row_count))
            live[np.frombuffer(here.to_array(), np.uint32).astype(np.int64) - first] = False
        if file.file.format == "ORC":
            with open_data_file(self.table.io, file.file, self.reading) as orc:

                def read_stripe(field_id: int) -> pa.Array:
                    if not orc.locate(field_id).path:
                        raise UnsupportedError(f"data file {file.file.path} lacks column {field_id}")
                    orc.check_type(field_id)
                    return pa.concat_arrays(list(orc.read_column(ordinal, field_id)))

                yield LiveRows(row_count, live, read_stripe)
            return
        with open_parquet(self.table.io, file.file.path, file.file.file_size) as parquet:
            constants = constants_of(file.entry.partition, self.table.specs()[file.entry.spec_id])
            columns = FileColumns.of(self.reading, parquet, constants, file.file.path)
            table = _read(parquet, columns, ordinal, field_ids, file.file.path)
            if table.num_rows != row_count:
                reason = f"row group {ordinal} has {table.num_rows} rows, the index says {row_count}"
                raise CorruptFileError(reason, location=file.file.path)
            yield LiveRows(row_count, live, lambda field_id: columns.values(table, field_id))

    def _file(self, view: IndexView, number: int) -> ScanFile:
        path, constants = view.paths[number], view.constants[number]
        file = self.files.get((path, constants))
        if file is None:
            raise NotFoundError(f"the snapshot has no data file {path}")
        if file.has_equality_deletes:
            raise UnsupportedError(f"equality deletes apply to data file {path}")
        if file.file.format not in ("PARQUET", "ORC"):
            raise UnsupportedError(f"data file {path} is {file.file.format}")
        return file


def _read(
    parquet: pq.ParquetFile, columns: FileColumns, ordinal: int, field_ids: Collection[int], location: str
) -> pa.Table:
    # A table without columns has no length; a column of NULLs gives one.
    empty = pa.table({"": pa.nulls(parquet.metadata.row_group(ordinal).num_rows)})
    leaves = [leaf for field in columns.fields_of(field_ids) for leaf in field.leaves]
    try:
        return parquet.reader.read_row_group(ordinal, column_indices=leaves, use_threads=False) if leaves else empty
    except pa.ArrowInvalid as error:
        raise CorruptFileError(f"row group {ordinal}: {error}", location=location) from error
