"""Drop entries, segments and files of an index that nothing needs any more.

The index table changes before files are deleted, so that no entry ever names a deleted file. Files are listed before
the index table is read, so that every listed file of a commit made meanwhile counts as committed.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from puffin_index.display import Cell, Described, Report, format_bytes
from puffin_index.index_table import stored_files
from puffin_index.index_table.commit import commit
from puffin_index.index_table.entries import entry_segments, needed_entries, replace_entries
from puffin_index.index_table.table import read_entries, refresh_index_table
from puffin_index.jobs.compact import compact
from puffin_index.keys.map_key import FieldKind
from puffin_index.kinds.kind import Options

DEFAULT_GRACE = timedelta(days=3)
"""For this long, a file that no commit names may belong to a running build."""

SNAPSHOT_GRACE = timedelta(minutes=1)
"""A superseded snapshot of the index table stays this long: a running commit may build on it."""


@dataclass(frozen=True, slots=True)
class ExpireReport(Described):
    """The result of expiry, or for a dry run that which it would have: what was dropped or deleted, by sort.

    Directories are those of entries that stay, leftovers segments that were never committed.
    """

    entries: int
    directories: int
    snapshots: int
    segments: int
    leftovers: int
    table_files: int
    bytes: int
    files: tuple[str, ...]
    dry_run: bool
    seconds: float

    def describe(self) -> Report:
        """Describe the expiration; a dry run lists the files."""
        facts: dict[str, Cell] = {
            "entries": self.entries,
            "directories": self.directories,
            "snapshots of the index table": self.snapshots,
            "segments": self.segments,
            "segments never committed": self.leftovers,
            "files of the index table": self.table_files,
            "size": format_bytes(self.bytes),
        }
        return Report("would drop" if self.dry_run else "dropped", facts, (), self.files if self.dry_run else ())


def expire(
    data_table: Table,
    index_table: Table,
    wanted: Callable[[], Mapping[FieldKind, Options]],
    older_than: timedelta = DEFAULT_GRACE,
    *,
    dry_run: bool = False,
    for_readers: bool = False,
) -> ExpireReport:
    """Drop everything that nothing needs; rewrite segments with few live bytes.

    Committed segments without a live entry are deleted at once. Files that no commit names are deleted once they are
    older than `older_than`; with 0, no build may run at the same time. Snapshots of the index table expire, with their
    files, once they have been superseded for `SNAPSHOT_GRACE`: each load and commit takes all of them along. Commits
    delete old metadata files themselves. With `for_readers`, segments of other snapshots stay: queries may know them.
    `wanted` tells the definition's indexes and options. Raises NotFoundError if the data table is gone or replaced.
    """
    started = time.monotonic()
    now = datetime.now(UTC)
    listed = stored_files.own_files(index_table, stored_files.list_stored_files(index_table.io, index_table.location()))
    refresh_index_table(index_table)
    before = read_entries(index_table)
    change = partial(needed_entries, data_table, index_table, wanted)
    after = kept = change(before) if dry_run else replace_entries(index_table, change)
    if not dry_run:
        compact(data_table, index_table, wanted, most_bytes=0)
    committed = stored_files.committed_segments(index_table)
    expired, newest_old = _superseded(index_table, now - SNAPSHOT_GRACE)
    reached = stored_files.reachable_files(index_table) if expired else set()
    named = {location for location in reached if not location.endswith(".metadata.json")}
    if expired and not dry_run:
        commit(index_table, partial(_expire_snapshots, index_table, newest_old))
    if not dry_run:
        refresh_index_table(index_table)
        after = read_entries(index_table)
    spared = stored_files.committed_segments(index_table, expired) if for_readers else set()
    used = spared | set(after["segment"].to_pylist())
    garbage = [
        file
        for file in listed
        if file.is_segment
        and file.location not in used
        and (file.location in committed or file.modified < now - older_than)
    ]
    old = [one for one in listed if not one.is_segment and (one.location in named or one.modified < now - older_than)]
    reachable = stored_files.reachable_files(index_table, expired) if old else set()
    table_files = [file for file in old if file.location not in reachable]
    if not dry_run:
        stored_files.delete_files(index_table.io, [*garbage, *table_files])
    return ExpireReport(
        entries=max(0, len(before) - len(kept)),
        directories=max(0, _directory_count(before, kept) - _directory_count(kept, kept)),
        snapshots=len(expired),
        segments=len(garbage),
        leftovers=sum(file.location not in committed for file in garbage),
        table_files=len(table_files),
        bytes=sum(file.size for file in [*garbage, *table_files]),
        files=tuple(file.location for file in [*garbage, *table_files]),
        dry_run=dry_run,
        seconds=time.monotonic() - started,
    )


def _expire_snapshots(index_table: Table, older_than: datetime) -> None:
    try:
        # PyIceberg copies the metadata twice for each snapshot that is named.
        index_table.maintenance.expire_snapshots().older_than(older_than).commit()
    except ValueError as error:
        # PyIceberg's catalogs load the table once more, and another expiration may have been faster.
        raise CommitFailedException(str(error)) from error


def _directory_count(entries: pa.Table, of_entries: pa.Table) -> int:
    """Count the directories of those entries that another set of entries has as well."""
    kept, directories = set(entry_segments(of_entries)), entries["directories"].to_pylist()
    return sum(len(own) for pair, own in zip(entry_segments(entries), directories, strict=True) if pair in kept)


def _superseded(index_table: Table, before: datetime) -> tuple[list[int], datetime]:
    """Return the snapshots that the newest one from before a time supersedes, and when that one was made."""
    limit, snapshots = before.timestamp() * 1000, index_table.snapshots()
    newest = max((one.timestamp_ms for one in snapshots if one.timestamp_ms < limit), default=0)
    old = {one.snapshot_id for one in snapshots if one.timestamp_ms < newest}
    old -= {ref.snapshot_id for ref in index_table.metadata.refs.values()}
    return sorted(old), datetime.fromtimestamp(newest / 1000, UTC)
