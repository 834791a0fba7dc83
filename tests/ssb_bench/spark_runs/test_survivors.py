"""The oracle of perfect pruning against the rows themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ssb_bench.errors import BenchError
from ssb_bench.spark_runs.perfect import count_survivors, find_survivors, row_group_rows


def write(path: Path, values: list[int], row_group_size: int) -> str:
    pq.write_table(pa.table({"v": values}), path, row_group_size=row_group_size)
    return path.as_uri()


def test_survivors_are_the_row_groups_that_hold_a_match(tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(0, 50, 95).tolist()
    one, other = write(tmp_path / "a b.parquet", values, 10), write(tmp_path / "b.parquet", values[::-1], 10)

    survivors = find_survivors([one, other], "v = 7")

    for location, rows in ((one, values), (other, values[::-1])):
        due = [at for at in range(10) if 7 in rows[at * 10 : at * 10 + 10]]
        assert survivors[location] == due
    assert count_survivors(find_survivors([one, other], "v < 0")) == 0
    assert count_survivors(find_survivors([one, other], "v >= 0")) == 20


def test_row_groups_of_different_sizes_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [*range(40)], 10)
    write(tmp_path / "b.parquet", [*range(40)], 15)

    with pytest.raises(BenchError, match="different sizes"):
        row_group_rows([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    assert row_group_rows([tmp_path / "a.parquet"]) == 10
