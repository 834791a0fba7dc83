"""Rows of the index table: which of them are of use, and how they are changed by one commit, whoever else commits.

A row (entry) says which (field, kind) a segment has of a data file. An entry is live if a retained snapshot of the data
table holds that very file, the definition has one of its kinds, and no earlier entry has it already.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from puffin_index.data_table import DataFile, refresh_table, retained_files
from puffin_index.directory import STATISTICS, is_statistics
from puffin_index.errors import NotFoundError
from puffin_index.index_table import is_bound_to, note_commit, read_entries
from puffin_index.map_key import kind_beside

FieldKind = tuple[int, str]
_MOST_ATTEMPTS = 50
_LONGEST_WAIT_SECONDS = 5.0

_Outcome = TypeVar("_Outcome")


def statistics_key(key: FieldKind) -> FieldKind:
    """Return where the statistics are that belong to an index."""
    return key[0], kind_beside(STATISTICS, key[1])


def field_kinds(entries: pa.Table) -> list[set[FieldKind]]:
    """Return which (field, kind) each entry has, statistics left out."""
    return [
        {
            (directory["field_id"], directory["kind"])
            for directory in directories
            if not is_statistics(directory["kind"])
        }
        for directories in entries["directories"].to_pylist()
    ]


def live_entries(entries: pa.Table, retained: Mapping[str, DataFile], wanted: Collection[FieldKind]) -> pa.Table:
    """Leave out entries and directories that nothing needs.

    Args:
        entries: Rows of the index table, oldest first.
        retained: The data files that a snapshot of the data table holds, by location.
        wanted: What the definition has.
    """
    names = ("data_file", "file_size_in_bytes", "record_count")
    files = zip(*(entries[name].to_pylist() for name in names), strict=True)
    taken: dict[str, set[FieldKind]] = {}
    kept: list[set[FieldKind]] = []
    for (path, size, records), own in zip(files, field_kinds(entries), strict=True):
        here, file = taken.setdefault(path, set()), retained.get(path)
        is_same = file is not None and (file.file_size, file.record_count) == (size, records)
        kept.append({kind for kind in own if kind in wanted} - here if is_same else set())
        here |= kept[-1]
    return with_kinds(entries, kept)


def needed_entries(data_table: Table, index_table: Table, wanted: Collection[FieldKind], entries: pa.Table) -> pa.Table:
    """Leave out entries and directories that nothing needs.

    The data table is loaded after the entries were read: files that came in meanwhile are seen.

    Raises:
        NotFoundError: If the data table is not there or is another one by now.
    """
    refresh_table(data_table)
    if not is_bound_to(index_table, str(data_table.metadata.table_uuid)):
        raise NotFoundError(f"the index of {'.'.join(data_table.name())} belongs to an earlier table of that name")
    return live_entries(entries, retained_files(data_table), wanted)


def with_kinds(entries: pa.Table, kept: list[set[FieldKind]]) -> pa.Table:
    """Keep some (field, kind) of each entry, and the statistics of their fields; leave out entries of which none is."""
    directories: list[list[dict[str, int | str]]] = []
    for own, kinds in zip(entries["directories"].to_pylist(), kept, strict=True):
        # The statistics of a column tell the row groups of merged blobs: they stay as long as one of its kinds does.
        wanted = kinds | {statistics_key(key) for key in kinds}
        directories.append([one for one in own if (one["field_id"], one["kind"]) in wanted])
    place = entries.schema.get_field_index("directories")
    field = entries.schema.field(place)
    changed = entries.set_column(place, field, pa.array(directories, field.type))
    return changed.filter(pa.array([bool(kinds) for kinds in kept], pa.bool_()))


def append_entries(index_table: Table, new: pa.Table) -> pa.Table:
    """Add entries; what another builder has added meanwhile is not added again.

    Args:
        index_table: The index table; loaded anew.
        new: Entries as `puffin_index.index_table.entries_of` makes them.

    Returns:
        The entries that were added.
    """

    def attempt() -> pa.Table:
        entries = read_entries(index_table)
        found: dict[str, set[FieldKind]] = {}
        for path, kinds in zip(entries["data_file"].to_pylist(), field_kinds(entries), strict=True):
            found.setdefault(path, set()).update(kinds)
        paths = new["data_file"].to_pylist()
        added = with_kinds(
            new, [kinds - found.get(path, set()) for path, kinds in zip(paths, field_kinds(new), strict=True)]
        )
        if len(added):
            index_table.append(added)
        return added

    return _retried(index_table, attempt)


def replace_entries(index_table: Table, change: Callable[[pa.Table], pa.Table]) -> pa.Table:
    """Change the entries by one commit, on top of nothing but the entries that `change` saw.

    Args:
        index_table: The index table; loaded anew.
        change: Says from all entries, oldest first, what they are to become. Where somebody else's commit comes in
            between it is asked again.

    Returns:
        The entries as they are now.
    """

    def attempt() -> pa.Table:
        entries = read_entries(index_table)
        changed = change(entries)
        if changed.equals(entries):
            return entries
        with index_table.transaction() as transaction:
            if len(changed):
                transaction.overwrite(changed, AlwaysTrue())
            else:
                transaction.delete(AlwaysTrue())
        return changed

    return _retried(index_table, attempt)


def _retried(index_table: Table, attempt: Callable[[], _Outcome]) -> _Outcome:
    for one in Retrying(
        retry=retry_if_exception_type((CommitFailedException, ValidationException)),
        stop=stop_after_attempt(_MOST_ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.05, max=_LONGEST_WAIT_SECONDS),
        reraise=True,
    ):
        with one:
            index_table.refresh()
            outcome = attempt()
            note_commit(index_table)
            return outcome
    raise AssertionError("the last attempt returns or raises")
