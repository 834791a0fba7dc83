"""The work of a build: find the data files that lack indexes, and cut them into segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from puffin_index.catalogue.entries import entry_files
from puffin_index.data.data_table import DataFile, FileIdentity
from puffin_index.data.row_groups import INDEXED_FORMATS
from puffin_index.definition.index_definition import ResolvedColumn
from puffin_index.kinds.registry import kind_named
from puffin_index.segments.segment import ROW_SPACE_ALIGNMENT

TARGET_SEGMENT_BYTES = 256 * 1024 * 1024
_ROW_SPACE = 2**32
"""Rows of a segment are numbered in 32 bits, the gaps between row groups included."""


@dataclass(frozen=True, slots=True)
class FileBatch:
    """Data files for one segment, and the columns and kinds to build."""

    files: tuple[DataFile, ...]
    columns: tuple[ResolvedColumn, ...]

    @property
    def row_count(self) -> int:
        """The number of rows of all files."""
        return sum(file.record_count for file in self.files)

    @property
    def data_bytes(self) -> int:
        """The size of all files in bytes."""
        return sum(file.file_size for file in self.files)


@dataclass(frozen=True, slots=True)
class Missing:
    """The data files that lack indexes.

    Attributes:
        batches: The files to index, one batch per segment.
        unsupported: Data files whose format cannot be indexed.
        left: The number of data files beyond the limit of the build.
    """

    batches: tuple[FileBatch, ...]
    unsupported: tuple[DataFile, ...]
    left: int


def indexed_kinds(entries: pa.Table, live: Sequence[DataFile]) -> dict[FileIdentity, set[tuple[int, str]]]:
    """Return the (field id, stored kind) pairs that the index table has for each live data file.

    Args:
        entries: The rows of the index table that a scan of the snapshot can use.
        live: The data files of a snapshot.
    """
    identities = {file.identity for file in live}
    found: dict[FileIdentity, set[tuple[int, str]]] = {}
    for file, directories in zip(entry_files(entries), entries["directories"].to_pylist(), strict=True):
        if file in identities:
            found.setdefault(file, set()).update((d["field_id"], d["kind"]) for d in directories)
    return found


def find_missing(
    live: Sequence[DataFile],
    columns: tuple[ResolvedColumn, ...],
    entries: pa.Table,
    parallelism: int,
    *,
    max_files: int | None = None,
    target_bytes: int = TARGET_SEGMENT_BYTES,
) -> Missing:
    """Find the data files that lack indexes, and cut them into batches, one per segment.

    Args:
        live: The data files of the snapshot to index.
        columns: The definition.
        entries: The rows of the index table.
        parallelism: The number of tasks that can run at a time; a large build has at least as many batches.
        max_files: The most data files to take, in the order of their locations.
        target_bytes: The approximate size of segments.
    """
    found = indexed_kinds(entries, live)
    needs: list[tuple[DataFile, tuple[ResolvedColumn, ...]]] = []
    unsupported: list[DataFile] = []
    for file in sorted(live, key=lambda file: file.path):
        need = lacking_columns(columns, found.get(file.identity, set()))
        if not need or not file.record_count:
            continue
        if file.format in INDEXED_FORMATS:
            needs.append((file, need))
        else:
            unsupported.append(file)
    by_need: dict[tuple[ResolvedColumn, ...], list[DataFile]] = {}
    for file, need in needs[:max_files]:
        by_need.setdefault(need, []).append(file)
    batches = (batch for need, files in by_need.items() for batch in _cut(files, need, parallelism, target_bytes))
    return Missing(tuple(batches), tuple(unsupported), max(0, len(needs) - (max_files or len(needs))))


def lacking_columns(columns: Sequence[ResolvedColumn], found: set[tuple[int, str]]) -> tuple[ResolvedColumn, ...]:
    """Return the part of a definition that a data file lacks, given the pairs that the file has."""
    return tuple(column for column in (_lacking(column, found) for column in columns) if column.kinds)


def _lacking(column: ResolvedColumn, found: set[tuple[int, str]]) -> ResolvedColumn:
    kinds = {
        kind: options
        for kind, options in column.kinds.items()
        if (column.field_id, column.stored_kind(kind)) not in found
    }
    return replace(column, kinds=kinds)


def _cut(
    files: Sequence[DataFile], columns: tuple[ResolvedColumn, ...], parallelism: int, target_bytes: int
) -> list[FileBatch]:
    bytes_per_row = sum(kind_named(kind).bytes_per_row for column in columns for kind in column.kinds)
    rows = sum(file.record_count for file in files)
    # Two rounds of tasks keep cores from idling behind the largest task; the minimum prevents tiny segments.
    rows_for_parallelism = max(1_000_000, rows // max(1, 2 * parallelism))
    rows_per_batch = min(target_bytes // bytes_per_row, rows_for_parallelism)
    batches: list[FileBatch] = []
    current: list[DataFile] = []
    current_rows = current_space = 0
    for file in files:
        space = file.record_count + ROW_SPACE_ALIGNMENT * max(1, len(file.split_offsets))
        full = current_rows + file.record_count > rows_per_batch or current_space + space > _ROW_SPACE
        if current and full:
            batches.append(FileBatch(tuple(current), columns))
            current, current_rows, current_space = [], 0, 0
        current.append(file)
        current_rows += file.record_count
        current_space += space
    if current:
        batches.append(FileBatch(tuple(current), columns))
    return batches
