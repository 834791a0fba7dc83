"""Tables of studies: what is over its limit stands out."""

from __future__ import annotations

from dataclasses import replace

from ssb_bench.report.document import Marked, Table
from ssb_bench.report.study_reports import kernel_parts, paired_parts
from ssb_bench.results.statistics import Paired
from ssb_bench.studies.kernels import Kernel

KERNEL = Kernel("long, 26 bits", "bsi", 10, 100, 30, (1.0, 1.0), (2.0, 2.0), (0.5, 0.5), 200)


def kernel_cells(kernel: Kernel) -> list[object]:
    table = next(part for part in kernel_parts([kernel]) if isinstance(part, Table))
    return [*table.rows[0]]


def test_a_build_over_its_limit_of_time_or_memory_is_marked() -> None:
    assert not any(isinstance(cell, Marked) for cell in kernel_cells(KERNEL))
    assert Marked("4.00", "bad") in kernel_cells(replace(KERNEL, build_seconds=(4.0, 4.0)))
    assert Marked("5.0", "bad") in kernel_cells(replace(KERNEL, peak_bytes=500))
    assert "4.00" in kernel_cells(replace(KERNEL, kind="bloom", build_seconds=(4.0, 4.0))), "nothing is promised of it"


def test_pairs_are_told_in_milliseconds_and_a_ratio_over_the_limit_is_marked() -> None:
    pairs = [Paired("a", (0.1, 0.3, 0.2), (0.2, 0.4, 0.3), 0.001), Paired("b", (0.1, 0.1, 0.1), (0.1, 0.1, 0.1))]
    (table,) = paired_parts(pairs, "title", 1.3)

    assert isinstance(table, Table)
    first, second, mean = table.rows
    assert list(first) == [
        *("a", "200.0 (100.0 to 300.0)", "300.0 (200.0 to 400.0)", "100.0 (100.0 to 100.0)", "1.0"),
        Marked("1.50", "bad"),
    ]
    assert second[-1] == "1.00"
    assert mean[-1] == "1.22"
