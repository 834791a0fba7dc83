"""Workers of systems as real processes, and what becomes of those that cannot run."""

from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from ssb_bench.data.layout import BenchError, Layout
from ssb_bench.studies.systems import WorkerProcess, drop_caches


@pytest.fixture
def duck(layout: Layout, tmp_path: Path) -> Iterator[WorkerProcess]:
    worker = WorkerProcess("duckdb", tmp_path / "duckdb.log")
    worker.ask({"open": {"files": str(layout.ssb / "lineorder")}})
    yield worker
    worker.close()


def test_a_worker_counts_and_reads_rows(duck: WorkerProcess) -> None:
    count = duck.ask({"query": {"kind": "count", "where": "lo_quantity >= 1"}})
    rows = duck.ask({"query": {"kind": "rows", "where": "lo_quantity = 7"}})

    assert count["answer"] == 60_175
    assert count["seconds"] > 0
    assert 0 < rows["answer"][0] < count["answer"]
    assert rows["answer"][1] > rows["answer"][0]
    looked_up = duck.ask({"query": {"kind": "get", "column": "lo_quantity", "keys": [7]}})
    assert looked_up["answer"] == [rows["answer"]]


def test_a_query_that_fails_is_an_error_with_its_reason_and_the_worker_lives_on(duck: WorkerProcess) -> None:
    with pytest.raises(BenchError, match="nothing_of_that_name"):
        duck.ask({"query": {"kind": "count", "where": "nothing_of_that_name = 1"}})

    assert duck.ask({"query": {"kind": "count", "where": "lo_quantity < 0"}})["answer"] == 0


def test_a_worker_that_cannot_start_says_why(tmp_path: Path) -> None:
    worker = WorkerProcess("no_such_worker", tmp_path / "log")

    with pytest.raises(BenchError, match="no_such_worker"):
        worker.ask({"open": {}})
    worker.close()


def test_a_system_that_cannot_be_installed_says_why(tmp_path: Path) -> None:
    worker = WorkerProcess("lance", tmp_path / "log", [str(tmp_path / "no-such-package")])

    with pytest.raises(BenchError, match="Distribution not found"):
        worker.ask({"open": {}})
    worker.close()


def test_a_worker_has_the_packages_it_asks_for_and_no_others(tmp_path: Path) -> None:
    wheel, facts = tmp_path / "datafusion-1.2-py3-none-any.whl", "datafusion-1.2.dist-info"
    with ZipFile(wheel, "w") as content:
        content.writestr("datafusion.py", "raise RuntimeError('the one of the wheel')")
        content.writestr(f"{facts}/METADATA", "Metadata-Version: 2.1\nName: datafusion\nVersion: 1.2\n")
        content.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        content.writestr(f"{facts}/RECORD", "")
    for worker, reason in (("datafusion", "the one of the wheel"), ("duckdb", "No module named 'duckdb'")):
        process = WorkerProcess(worker, tmp_path / "log", [str(wheel)])
        with pytest.raises(BenchError, match=reason):
            process.ask({"open": {"files": ""}})
        process.close()


def test_dropping_caches_leaves_files_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"bytes")

    drop_caches([tmp_path])

    assert (tmp_path / "file").read_bytes() == b"bytes"
