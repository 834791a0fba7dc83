"""What planning keeps in memory stays within its bound and is of files as they are; what was dropped is read again."""

import weakref

import numpy as np
import pyarrow as pa
from hypothesis import given, strategies as st
from pyiceberg.catalog.sql import SqlCatalog

from planner.condition.sql.parser import read_where
from planner.condition.tree.simplify import simplified
from planner.view.cache import BoundedCache, new_cache
from planner.view.index_view import IndexView
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.data_table import DataFile, list_data_files
from puffin_index.index_table.table import read_entries
from tests.planner.plan_files import plan_files
from tests.planner.ten_rows import build_index, view_of_ten_rows


@given(
    st.lists(st.tuples(st.sampled_from(["put", "put", "get", "resize"]), st.sampled_from("abcd"), st.integers(0, 12)))
)
def test_the_least_used_values_go_when_space_runs_out(steps: list[tuple[str, str, int]]) -> None:
    """Values may have grown or shrunk when they are put again; one larger than the bound is not kept and drops none."""
    sizes, limit, kept = dict.fromkeys("abcd", 0), 10, dict[str, int]()
    cache: BoundedCache[str, str] = BoundedCache(limit, lambda value: sizes[value])
    for step, key, number in steps:
        if step == "get":
            assert cache.get(key) == (key if key in kept else None)
            kept |= {key: kept.pop(key)} if key in kept else {}
        elif step == "resize":
            cache.resize(number)
            limit, kept = number, {}
        else:
            sizes[key] = number
            cache.put(key, key)
            kept.pop(key, None)
            kept |= {key: number} if number <= limit else {}
            while sum(kept.values()) > limit:
                kept.pop(next(iter(kept)))
        assert cache.used_bytes == sum(kept.values())


def test_values_may_be_forgotten_in_the_midst_of_keeping_one() -> None:
    """As by the garbage collector, which may run whenever something is made."""

    def size_of(value: str) -> int:
        if value == "b":
            cache.forget(["a", "b", "none"])
        return 4

    cache: BoundedCache[str, str] = BoundedCache(10, size_of)
    cache.put("a", "a")
    cache.put("b", "b")
    cache.put("c", "c")
    assert (cache.get("a"), cache.get("b"), cache.get("c"), cache.used_bytes) == (None, None, "c", 4)


def _indexed(catalog: SqlCatalog, definition: IndexDefinition) -> TableIndex:
    values = np.random.default_rng(5).permutation(2_000)
    index = build_index(catalog, pa.table({"k": pa.array(values, pa.int64())}), 100, definition)
    index.refresh()
    return index


def test_a_new_view_opens_no_payload_of_a_segment_again(local_catalog: SqlCatalog) -> None:
    index = _indexed(local_catalog, IndexDefinition.of(bitmap=["k"]))
    predicate = simplified(read_where("k = 77", index.data_table.schema()))
    cache = new_cache()

    def reads_of_look_ups() -> int:
        index.refresh()
        view = IndexView("v", read_entries(index.index_table), index.index_table.io, cache)
        stages = {stage.name: stage for stage in plan_files(view, predicate, list_data_files(index.data_table)).funnel}
        return stages["postings"].reads

    # The kind's directory, the payload's own directory, one block; then the block alone, whoever opened the payload.
    assert [reads_of_look_ups() for _ in range(3)] == [3, 1, 1]
    index.data_table.append(pa.table({"k": pa.array(range(2_000, 2_100), pa.int64())}))
    index.build(workers=1)
    # The kind's directory in the new segment, and the block.
    assert reads_of_look_ups() == 2


def test_opened_payloads_take_no_more_memory_than_there_is_for_all(local_catalog: SqlCatalog) -> None:
    index = _indexed(local_catalog, IndexDefinition.of(bitmap=["k"]))
    entries, files = read_entries(index.index_table), list_data_files(index.data_table)
    predicate = simplified(read_where("k IN (3, 500, 1999)", index.data_table.schema()))

    def used_and_kept(limit: int) -> tuple[int, int]:
        cache = new_cache(limit)
        view = IndexView("v", entries, index.index_table.io, cache)
        kept = [plan_files(view, predicate, files).kept for _ in range(2)]
        assert kept[0] == kept[1]
        return cache.used_bytes, kept[0]

    used, kept = used_and_kept(1 << 20)
    assert used > 4_096
    for limit in (0, 1_000, 5_000, used - 1):
        assert used_and_kept(limit)[0] <= limit
        assert used_and_kept(limit)[1] == kept


def test_what_is_of_one_view_goes_with_it_and_what_is_of_segments_stays(local_catalog: SqlCatalog) -> None:
    """A long-lived process sees many versions of an index, and each had arrays of its own."""
    index = _indexed(local_catalog, IndexDefinition.of(bsi=["k"]))
    predicate = simplified(read_where("k BETWEEN 500 AND 503", index.data_table.schema()))
    cache = new_cache()

    def used_while_and_after() -> tuple[int, int]:
        view = IndexView("v", read_entries(index.index_table), index.index_table.io, cache)
        assert plan_files(view, predicate, list_data_files(index.data_table)).kept
        used = cache.used_bytes
        alive = weakref.ref(view)
        del view
        assert alive() is None
        return used, cache.used_bytes

    first = used_while_and_after()
    assert first[0] > first[1] > 0
    assert [used_while_and_after() for _ in range(3)] == [first] * 3


def test_a_file_that_is_not_the_one_that_was_indexed_has_no_row_groups(local_catalog: SqlCatalog) -> None:
    view = view_of_ten_rows(local_catalog)
    (file,) = list_data_files(local_catalog.load_table("ns.t"))

    def numbers(**changes: object) -> range | None:
        own = {name: getattr(file, name) for name in DataFile.__dataclass_fields__}
        return view.row_groups_of(DataFile(**(own | changes)))

    assert numbers() == range(5)
    assert numbers(file_size=file.file_size + 1) is None
    assert numbers(record_count=11) is None
    assert numbers(path="s3://elsewhere/file.parquet") is None
