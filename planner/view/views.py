"""The views of this process: one for each version of an index table and what a scan finds its columns in."""

import threading

import xxhash
from cachetools import LRUCache
from pyiceberg.table import Table

from planner.view.index_view import IndexView
from puffin_index.data.column_source import Reading
from puffin_index.index_table.table import read_entries
from puffin_index.storage.caches import cleared_by

_views: LRUCache[str, IndexView] = LRUCache(maxsize=32)
_views_lock = threading.Lock()
cleared_by(_views.clear, _views_lock)


def view_of(index_table: Table, reading: Reading) -> IndexView:
    """The view of an index table's current version, kept, without indexes found in other columns than `reading`."""
    snapshot = index_table.current_snapshot()
    version = str(snapshot.snapshot_id) if snapshot else "empty"
    key = f"{index_table.metadata.table_uuid}/{version}"
    with _views_lock:
        view = _views.get(key)
        if view is None:
            view = IndexView(version, read_entries(index_table), index_table.io)
            _views[key] = view
        rejected = reading.rejects(view.sources)
        if not rejected:
            return view
        key = f"{key}/{xxhash.xxh64_hexdigest(repr(sorted(rejected)).encode())}"
        narrowed = _views.get(key)
        if narrowed is None:
            narrowed = _views[key] = view.without_sources(rejected)
    return narrowed
