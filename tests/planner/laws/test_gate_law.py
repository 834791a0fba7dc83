"""The laws of the cost gate, on rows in bursts and on rows in no order: look-ups of no use are bounded, and where fewer
than half of the row groups have a match, hardly any other is kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, note, settings, strategies as st

from planner.arrow.plan import plan_scan
from planner.prune.gate import Limits
from puffin_index import IndexDefinition, TableIndex
from puffin_index.data.data_table import list_data_files
from tests.conftest import amount, temporary_catalog

ROWS, FILES, OVERHEAD = 12_000, 2, 128 * 1024
LEAST_NEAR = 4
"""So many row groups more than a tenth may be kept: in a small scan, a look-up that seems of no use is not made."""


@dataclass(frozen=True)
class Layout:
    """How rows lie: bursts of keys, `repeats` of each, in the order `bursts`, `random`, `sorted` or `partly` sorted."""

    burst: int
    order: str
    repeats: int
    row_group_rows: int
    kind: str
    layout: str

    def keys(self, chance: np.random.Generator) -> np.ndarray:
        bursts = -(-ROWS // self.burst)
        keys = np.repeat(chance.integers(0, max(4, bursts // self.repeats), bursts), self.burst)[:ROWS]
        if self.order == "random":
            return chance.permutation(keys)
        if self.order == "sorted":
            return np.sort(keys)
        if self.order == "partly":
            some = chance.random(ROWS) < 0.5
            keys[some] = np.sort(keys[some])
        return keys

    def rows(self) -> pa.Table:
        chance = np.random.default_rng(self.burst * self.repeats)
        keys = self.keys(chance)
        # An incident hits neighbouring rows; a grade is everywhere.
        status = np.where((np.arange(ROWS) // 700) % 23 == 5, 500 + chance.integers(0, 2, ROWS), 200)
        return pa.table(
            {
                "s": pa.array(np.char.mod("u%06d", keys).astype(object), pa.string()),
                "l": pa.array(keys * 7_919, pa.int64()),
                "t": pa.array(keys * 1_000_000 + chance.integers(0, 999, ROWS), pa.timestamp("us")),
                "status": pa.array(status, pa.int32()),
                "grade": pa.array(chance.integers(0, 3, ROWS), pa.int32()),
                "n": pa.array(np.arange(ROWS), pa.int64()),
            }
        )


LAYOUTS = st.builds(
    Layout,
    st.sampled_from([1, 4, 12, 50, 500]),
    st.sampled_from(["bursts", "bursts", "random", "sorted", "partly"]),
    st.sampled_from([1, 3, 12]),
    st.sampled_from([200, 600, 3_000]),
    st.sampled_from(["bitmap", "bsi", "bloom", "both"]),
    st.sampled_from(["postings", "bitmaps"]),
)


@st.composite
def wheres(draw: st.DrawFn) -> str:
    key, other = draw(st.integers(0, 3_000)), draw(st.integers(0, 3_000))
    width = draw(st.sampled_from([0, 1, 10]))
    leaf = st.sampled_from(
        [
            f"s = 'u{key:06}'",
            f"l = {key * 7_919}",
            f"s IN ('u{key:06}', 'u{other:06}')",
            f"l IN ({key * 7_919}, {other * 7_919})",
            f"s LIKE 'u{key // 10:05}%'",
            f"l BETWEEN {key * 7_919} AND {(key + width) * 7_919}",
            f"t >= TIMESTAMP '1970-01-01 00:{key // 60:02}:{key % 60:02}' "
            f"AND t < TIMESTAMP '1970-01-01 00:{(key + 1) // 60:02}:{(key + 1) % 60:02}'",
            "status = 500",
        ]
    )
    wide = st.sampled_from(["grade = 1", "grade <> 0", "l >= 100", "status >= 200", "n % 2 = 0"])
    match draw(st.sampled_from(["leaf", "leaf", "wide", "and", "and", "or"])):
        case "leaf":
            return draw(leaf)
        case "wide":
            return f"{draw(wide)} AND {draw(wide)}"
        case "and":
            return f"{draw(leaf)} AND {draw(st.one_of(leaf, wide))}"
        case _:
            return f"({draw(leaf)}) OR ({draw(leaf)})"


@contextmanager
def indexed(layout: Layout) -> Iterator[tuple[TableIndex, list[str], pa.Table]]:
    rows = layout.rows()
    properties = {"write.parquet.row-group-limit": str(layout.row_group_rows), "write.metadata.metrics.default": "none"}
    columns, half = ["s", "l", "t", "status", "grade"], ROWS // FILES
    kinds = {"bitmap": columns, "bsi": columns} if layout.kind == "both" else {layout.kind: columns}
    options = {f"{column}.layout": layout.layout for column in columns} if "bitmap" in kinds else None
    with temporary_catalog() as catalog:
        table = catalog.create_table("ns.t", rows.schema, properties=properties)
        index = TableIndex.create(catalog, "ns.t", IndexDefinition.of(options=options, **kinds))
        paths: list[str] = []
        for first in range(0, ROWS, half):
            table.append(rows.slice(first, half))
            paths += [file.path for file in list_data_files(table) if file.path not in paths]
            index.build(workers=1)
        yield index, paths, rows


def matching(rows: pa.Table, where: str, row_group_rows: int) -> np.ndarray:
    """The rows that match by row group, as DuckDB finds them."""
    with duckdb.connect() as connection:
        connection.register("data", rows)
        found = connection.sql(f"SELECT n FROM data WHERE {where}").to_arrow_table()["n"].to_numpy()
    half = ROWS // FILES
    groups = found // half * -(-half // row_group_rows) + found % half // row_group_rows
    return np.bincount(groups, minlength=FILES * -(-half // row_group_rows))


@settings(max_examples=amount(2, 300), deadline=None, suppress_health_check=list(HealthCheck))
@given(layout=LAYOUTS, questions=st.lists(wheres(), min_size=6, max_size=12), share=st.sampled_from([0.02, 0.02, 0.2]))
def test_no_use_costs_little_and_what_is_in_bursts_is_found(layout: Layout, questions: list[str], share: float) -> None:
    with indexed(layout) as (index, paths, rows):
        size = sum(row["file_size_in_bytes"] for row in index.data_table.inspect.files().to_pylist())
        for where in questions:
            found = matching(rows, where, layout.row_group_rows)
            limits = Limits(strict=True, regret_share=share)
            # The first plan reads directories, which are not counted.
            plan_scan(index, where, None, limits)
            plan = plan_scan(index, where, None, limits).plan
            note(f"{layout} {where}: {plan.reason_counts()}, {plan.index_bytes_read} bytes, {(found > 0).sum()} match")
            splits = sorted(plan.splits, key=lambda split: (paths.index(split.data_file), split.row_group))
            kept = np.array([split.verdict == "kept" for split in splits])
            assert len(kept) == len(found)
            assert not (found[~kept]).any()
            stages = plan.funnel[2:]
            read, without = sum(stage.bytes_read for stage in stages), size / 4 + OVERHEAD * len(found)
            if not sum(stage.dropped for stage in stages):
                largest = without / len(found) * 2
                tests = 1 + sum(where.count(word) for word in (" AND ", " OR "))
                assert read <= max(share * without, largest) + tests * largest_look_up(index), where
            if is_answered(layout, where) and 2 * np.count_nonzero(found) < len(found):
                assert kept.sum() <= 1.1 * np.count_nonzero(found) + LEAST_NEAR, where


def largest_look_up(index: TableIndex) -> int:
    """What no look-up takes more than: the largest segment."""
    return int(max(row["segment_size_in_bytes"] for row in index.index_table.scan().to_arrow().to_pylist()))


def is_answered(layout: Layout, where: str) -> bool:
    """Whether the index has exact answers to all leaves, from payloads that know their keys."""
    return layout.kind in ("bitmap", "both") and layout.layout == "postings" and "%" not in where.replace("%'", "")
