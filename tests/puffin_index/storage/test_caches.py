"""Whatever a process keeps, one call empties: no module has a cache that it does not register."""

import importlib
import pkgutil
import threading
from collections.abc import Iterator
from functools import _lru_cache_wrapper
from types import ModuleType

import pyarrow as pa
from cachetools import Cache
from pyiceberg.catalog.sql import SqlCatalog

import planner
import puffin_index
from planner.view.cache import BoundedCache
from puffin_index import IndexDefinition
from puffin_index.storage import caches
from puffin_index.storage.caches import clear_caches, cleared_by
from tests.planner.ten_rows import build_index

LEFT_ALONE = {
    "planner.spark.requests.hook_filters.schema_of",
    "puffin_index.storage.caches._pool",
}
"""They hold no data of a table: schemas by text, threads."""


def test_a_cache_is_emptied_under_its_lock() -> None:
    lock, kept = threading.Lock(), {"k": 1}
    held: list[bool] = []

    def clear() -> None:
        held.append(lock.locked())
        kept.clear()

    cleared_by(clear, lock)
    clear_caches()

    assert kept == {}
    assert held == [True]
    assert not lock.locked()


def modules() -> Iterator[ModuleType]:
    for package in (puffin_index, planner):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(found.name)


def process_caches() -> dict[str, object]:
    """Each cache of the process, by module and name."""
    found: dict[str, object] = {}
    for module in modules():
        for name, value in vars(module).items():
            match value:
                case _lru_cache_wrapper():
                    found[f"{value.__module__}.{value.__qualname__}"] = value
                case Cache() | BoundedCache():
                    found[f"{module.__name__}.{name}"] = value
    return found


def sizes() -> dict[str, int]:
    """How much each cache holds, unless it holds no data of a table."""
    held: dict[str, int] = {}
    for name, value in process_caches().items():
        match value:
            case _ if name in LEFT_ALONE:
                continue
            case _lru_cache_wrapper():
                held[name] = value.cache_info().currsize
            case Cache():
                held[name] = len(value)
            case BoundedCache():
                held[name] = value.used_bytes
    return held


def test_each_cache_with_data_of_a_table_is_registered() -> None:
    found = process_caches()  # imports all modules, which register their caches
    registered = {id(getattr(clear, "__self__", None)) for clear, _ in caches._caches}

    assert {name for name, value in found.items() if id(value) not in registered} == LEFT_ALONE


def test_no_cache_holds_anything_after_it(local_catalog: SqlCatalog) -> None:
    data = pa.table({"k": pa.array(range(1_000), pa.int64())})
    index = build_index(local_catalog, data, 100, IndexDefinition.of(bitmap=["k"]))

    def directory_reads() -> int:
        return planner.plan(index, "k = 77").funnel[0].reads

    clear_caches()
    assert [directory_reads() for _ in range(3)] == [1, 0, 0]
    assert planner.scan(index, "k = 77").read_all().to_pydict() == {"k": [77]}
    held = sizes()
    assert {
        "planner.view.index_view.CACHE",
        "planner.view.views._views",
        "planner.snapshot.files._snapshots",
        "puffin_index.data.parquet._footers",
    } <= {name for name, size in held.items() if size}

    clear_caches()
    assert {name: size for name, size in sizes().items() if size} == {}
    assert directory_reads() == 1
