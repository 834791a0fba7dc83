"""The files of an index table's newest snapshot, named in its metadata: a reader gets all of them from a store at once.

Without the names, each of the manifest list, the manifests and the data files is a round of requests that tells the
next. The names are a hint: what a snapshot consists of is still read from its manifest list.
"""

from __future__ import annotations

import json
import logging
from typing import Final

from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot

from puffin_index.storage.files import is_local
from puffin_index.storage.whole_files import held_in_memory

_log = logging.getLogger(__name__)

PROPERTY: Final = "puffin-index.read-ahead"
_MOST_FILES = 128
_SNAPSHOT, _FILES = "snapshot-id", "files"


def name_files(index_table: Table, transaction: Transaction) -> None:
    """Name the files of the snapshot that a transaction is about to commit, if they lie in a store and are few.

    Args:
        index_table: The index table.
        transaction: Has made the snapshot.
    """
    if is_local(index_table.location()):
        return
    snapshot = transaction.table_metadata.current_snapshot()
    folder = _folder(index_table)
    try:
        files = [] if snapshot is None else _files_of(snapshot, index_table)
    except OSError as error:
        # The names of the last snapshot stay, which nobody uses for this one.
        _log.info("the new files of %s are not named: %s", ".".join(index_table.name()), error)
        return
    if snapshot is not None and len(files) <= _MOST_FILES and all(file.startswith(folder) for file in files):
        names = {_SNAPSHOT: snapshot.snapshot_id, _FILES: [file.removeprefix(folder) for file in files]}
        transaction.set_properties({PROPERTY: json.dumps(names)})
    elif PROPERTY in index_table.properties:
        transaction.remove_properties(PROPERTY)


def _files_of(snapshot: Snapshot, index_table: Table) -> list[str]:
    manifests = snapshot.manifests(index_table.io)
    files = [manifest.manifest_path for manifest in manifests]
    with held_in_memory(index_table.io, files):
        every = [manifest.fetch_manifest_entry(index_table.io) for manifest in manifests]
    return files + [entry.data_file.file_path for entries in every for entry in entries]


def named_files(index_table: Table, snapshot: Snapshot) -> list[str]:
    """Return the manifests and data files of a snapshot, as far as the metadata of the index table names them."""
    try:
        names = json.loads(index_table.properties.get(PROPERTY, "{}"))
        is_current = isinstance(names, dict) and names.get(_SNAPSHOT) == snapshot.snapshot_id
        return [_folder(index_table) + file for file in names[_FILES]] if is_current else []
    except (ValueError, TypeError, LookupError):
        # Somebody has changed the hint, which costs a reader two rounds and nothing else.
        return []


def _folder(index_table: Table) -> str:
    return index_table.location().rstrip("/") + "/"
