"""Paimon as a system of the benchmark: its table is made in a process of its own and answers by value."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ssb_bench.systems.peers import PeerError, WorkerProcess, paimon_classpath

pytestmark = pytest.mark.paimon

ROWS = 20_000
PRICES = np.random.default_rng(1).permutation(ROWS).astype(np.int32)
REVENUES = (PRICES[::-1] * 2).astype(np.int32)


@pytest.fixture(scope="module")
def paimon_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    folder = tmp_path_factory.mktemp("paimon")
    data = {
        "lo_orderkey": pa.array(np.arange(ROWS, dtype=np.int64)),
        "lo_ordtotalprice": pa.array(PRICES),
        "lo_revenue": pa.array(REVENUES),
        "lo_shipmode": pa.array(["AIR", "MAIL"] * (ROWS // 2)),
    }
    (folder / "files").mkdir()
    for number in range(2):
        half = pa.table(data).slice(number * ROWS // 2, ROWS // 2)
        pq.write_table(half, folder / "files" / f"{number}.parquet")
    worker = WorkerProcess(Path(sys.executable), "paimon_worker", folder / "log")
    config: dict[str, Any] = {"files": str(folder / "files"), "folder": str(folder / "own"), "memory": "512m"}
    columns = ["lo_ordtotalprice", "lo_revenue"]
    facts = worker.ask({"open": config | {"classpath": paimon_classpath(), "columns": columns}})["facts"]
    assert facts["index_bytes"] > 0
    yield worker
    worker.close()


@pytest.mark.parametrize(
    ("where", "matches"),
    [
        ("lo_ordtotalprice = 77", PRICES == 77),
        ("lo_ordtotalprice = -1", PRICES < 0),
        ("lo_ordtotalprice >= 100 AND lo_ordtotalprice < 120", (PRICES >= 100) & (PRICES < 120)),
        ("lo_ordtotalprice > 19000\n  AND lo_revenue <= 5000", (PRICES > 19_000) & (REVENUES <= 5_000)),
    ],
)
def test_paimon_answers_and_reads_no_more_rows_than_its_index_finds(
    paimon_worker: WorkerProcess, where: str, matches: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> None:
    count = paimon_worker.ask({"query": {"kind": "count", "where": where}})
    rows = paimon_worker.ask({"query": {"kind": "rows", "where": where}})

    assert count["answer"] == matches.sum()
    assert rows["answer"] == [matches.sum(), REVENUES[matches].sum()]
    assert count["read"]["rows"] == matches.sum(), "bitmaps and bit slices say exactly which rows match"
    assert count["read"]["files"] <= 2


def test_a_predicate_that_the_worker_does_not_know_is_refused(paimon_worker: WorkerProcess) -> None:
    with pytest.raises(PeerError, match="no conjunction of comparisons"):
        paimon_worker.ask({"query": {"kind": "count", "where": "lo_shipmode LIKE 'A%'"}})
