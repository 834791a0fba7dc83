"""What `ssb-bench kernels` measures, by counts and shapes: never by how long something takes."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from ssb_bench.commands.main import cli
from ssb_bench.data.layout import Layout
from ssb_bench.errors import BenchError
from ssb_bench.studies.kernel_memory import MemoryResult, measure_memory
from ssb_bench.studies.kernel_sizes import measure_sizes
from ssb_bench.studies.kernels import KernelResult, kernel_cases, measure_kernels

RESULT = KernelResult("c", "bsi", "", True, "np.sort", (1.0, 2.0, 4.0), (3.0, 8.0, 2.0), (1.0, 1.0, 1.0), 3.0, 1.0)


def test_ratio_is_of_medians_and_its_range_of_pairs() -> None:
    assert RESULT.ratio == 1.5
    assert RESULT.shared_ratio == 0.5
    assert (RESULT.least_ratio, RESULT.greatest_ratio) == (0.5, 4.0)


def test_a_ratio_at_its_limit_is_within_and_one_above_is_not() -> None:
    assert dataclasses.replace(RESULT, limit=1.5).within_limits
    assert not dataclasses.replace(RESULT, limit=1.49).within_limits
    assert dataclasses.replace(RESULT, limit=None).within_limits


def test_every_kind_is_measured_and_one_layout_of_each_bitmap_has_the_limit() -> None:
    steps: list[str] = []
    results = measure_kernels(kernel_cases(5_000), repeats=2, on_step=steps.append)

    assert {(result.kind, result.layout) for result in results} == {
        ("bsi", ""),
        ("bitmap", "bitmaps"),
        ("bitmap", "postings"),
        ("bloom", ""),
    }
    assert len(steps) == len(results)
    for result in results:
        assert len(result.reference_seconds) == len(result.build_seconds) == len(result.shared_seconds) == 2
        assert (result.limit is not None) == result.chosen
        assert result.bytes_per_value > 0
    for column in {result.column for result in results if result.kind == "bitmap"}:
        layouts = [result for result in results if (result.column, result.kind) == (column, "bitmap")]
        assert sorted(result.chosen for result in layouts) == [False, True]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system cannot pin a process to a core")
def test_this_process_keeps_its_cores_and_arrow_threads() -> None:
    before = os.sched_getaffinity(0), pa.cpu_count()
    measure_kernels(kernel_cases(1_000)[:1], repeats=1)

    assert (os.sched_getaffinity(0), pa.cpu_count()) == before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process its peak")
def test_memory_is_measured_of_every_column_and_kind() -> None:
    steps: list[str] = []
    results = measure_memory(300_000, steps.append)

    assert len(steps) == len(results) == len({result.column for result in results}) > 10
    for result in results:
        assert set(result.peak_bytes) == {"bsi", "bitmap", "bloom"}
    ratios = {result.column: result for result in results}
    wide = ratios["int, 32 bits, both signs"]
    assert wide.arrow_bytes == 1_200_000
    # An index of random numbers is as large as they are, and not much is known to be less than four times as much.
    assert 1 < wide.ratio("bsi") < 8
    assert 1 < wide.ratio("bitmap") < 8


def test_a_ratio_of_memory_is_to_the_arrow_column() -> None:
    assert MemoryResult("c", 200, {"bsi": 500}).ratio("bsi") == 2.5


def test_sizes_are_those_of_the_files_columns(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    table = pa.table({"few": pa.array([1, 2] * 1000, pa.int32()), "all": [f"{number:06d}" for number in range(2000)]})
    pq.write_table(table, file, row_group_size=500)
    few, every = measure_sizes([file])

    assert (few.column, few.row_count, few.distinct_count) == ("few", 2000, 2)
    assert (every.column, every.row_count, every.distinct_count) == ("all", 2000, 500)
    metadata = pq.read_metadata(file)
    assert few.parquet * 2000 == sum(metadata.row_group(group).column(0).total_compressed_size for group in range(4))
    assert every.bitmaps > few.bitmaps


def test_a_column_of_a_type_without_sizes_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    pq.write_table(pa.table({"lists": [[1]]}), file)

    with pytest.raises(BenchError, match="column lists has the type list"):
        measure_sizes([file])


def test_the_command_prints_tables_and_writes_json(layout: Layout, tmp_path: Path) -> None:
    output = tmp_path / "kernels.json"
    arguments = ["--sf", "0.01", "--data", str(layout.root.parent), "--values", "2000", "--repeats", "1"]
    result = CliRunner().invoke(cli, ["kernels", *arguments, "--output", str(output)])

    assert result.exit_code == 0, result.output
    assert "lo_revenue" in result.output
    written = json.loads(output.read_text(encoding="utf-8"))
    assert written["format"] == "ssb-bench/kernels/2"
    assert {column["column"] for column in written["sizes"]} >= {"lo_revenue", "lo_shipmode"}
    assert all(kernel["ratio"] > 0 for kernel in written["kernels"])


def test_without_data_only_kernels_are_measured(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["kernels", "--data", str(tmp_path), "--values", "1000", "--repeats", "1"])

    assert result.exit_code == 0, result.output
    assert "run `ssb-bench generate` first" in result.output
    assert json.loads((tmp_path / "sf1" / "kernels.json").read_text(encoding="utf-8"))["sizes"] == []
