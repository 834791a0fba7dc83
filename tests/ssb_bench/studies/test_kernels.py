"""What `ssb-bench kernels` measures, by counts and shapes: never by how long something takes."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from puffin_index.kinds.registry import KINDS
from ssb_bench.commands.main import cli
from ssb_bench.data.records import read_record
from ssb_bench.studies.kernels import COLUMNS, Kernel, Kernels, measure_kernels

SOME = ("long, 100 distinct", "long, all distinct", "int, 32 bits, both signs", "uuid")
KERNEL = Kernel(
    *("long, 26 bits", "bsi", 10, 200, 30, (1.0, 2.0, 4.0), (3.0, 8.0, 2.0), (1.0, 1.0, 1.0)),
    peak_bytes=500,
)


def test_ratios_are_of_medians_and_to_the_arrow_column() -> None:
    assert KERNEL.ratio == 1.5
    assert KERNEL.memory_ratio == 2.5
    assert replace(KERNEL, peak_bytes=None).memory_ratio is None


@pytest.fixture(scope="module")
def kernels() -> list[Kernel]:
    return measure_kernels(SOME, 300_000, repeats=2)


def test_every_kind_of_a_column_is_timed_built_and_found(kernels: list[Kernel]) -> None:
    assert [(kernel.column, kernel.kind) for kernel in kernels] == [(name, kind) for name in SOME for kind in KINDS]
    for kernel in kernels:
        assert len(kernel.reference_seconds) == len(kernel.build_seconds) == len(kernel.look_up_seconds) == 2
        assert kernel.index_bytes > 0
    limits = {(kernel.column, kernel.kind): kernel.limit for kernel in kernels}
    assert limits["long, all distinct", "bitmap"] == 6
    assert limits["uuid", "bsi"] is None
    sizes = {(kernel.column, kernel.kind): kernel.index_bytes for kernel in kernels}
    assert sizes["long, 100 distinct", "bitmap"] < sizes["long, all distinct", "bitmap"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process its peak")
def test_memory_is_measured_of_every_kind(kernels: list[Kernel]) -> None:
    assert all(kernel.peak_bytes is not None for kernel in kernels)
    wide = {kernel.kind: kernel for kernel in kernels if kernel.column == "int, 32 bits, both signs"}
    assert wide["bsi"].arrow_bytes == 1_200_000
    # An index of random numbers is as large as they are, and not much is known to be less than four times as much.
    for kind in ("bsi", "bitmap"):
        memory = wide[kind].memory_ratio
        assert memory is not None
        assert 1 < memory < 8


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system cannot pin a process to a core")
def test_this_process_keeps_its_cores_and_arrow_threads() -> None:
    before = os.sched_getaffinity(0), pa.cpu_count()
    measure_kernels(SOME[:1], 1_000, repeats=1)

    assert (os.sched_getaffinity(0), pa.cpu_count()) == before


def test_the_command_prints_a_table_and_writes_json(tmp_path: Path) -> None:
    output = tmp_path / "kernels.json"
    result = CliRunner().invoke(cli, ["kernels", "--values", "2000", "--repeats", "1", "--output", str(output)])

    assert result.exit_code == 0, result.output
    assert "int, 32 bits, both signs" in result.output
    assert {kernel.column for kernel in read_record(output, Kernels).kernels} == {*COLUMNS}
