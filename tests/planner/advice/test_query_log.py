"""The hook's query log as a workload."""

from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from planner.advice.workload import read_query_log
from puffin_index.errors import PuffinIndexError
from tests.planner.query_log_sample import logged_scan

TABLE = ("ns", "t")


def test_the_query_log(tmp_path: Path) -> None:
    lines = [
        logged_scan("lake.ns.t", "i = 5", 100),
        logged_scan("ns.t", "i = 5", 300),
        logged_scan("ns.t", "i = 5 AND i IN (?)", 300, continues=True, sources=("join",), columns=(("i", "bloom"),)),
        logged_scan("ns.t", "i = ?", 300),
        logged_scan("ns.t", "s = 'why?'", 30),
        logged_scan("ns.u", "i = 5", 10),
    ]
    (tmp_path / "2026-01-01-x.jsonl").write_text("\n".join([*lines, "", "{broken", '{"table": 5}']))
    (tmp_path / "notes.txt").write_text("no log")

    workload = read_query_log(PyArrowFileIO(), tmp_path.as_uri(), TABLE)

    assert [(query.where, query.times, query.bytes_read) for query in workload.queries] == [
        ("i = 5", 2, 200),
        ("s = 'why?'", 1, 30),
    ]
    assert workload.used == {"i.bloom": 1}
    assert workload.of_other_tables == 1
    (skipped,) = workload.skipped
    assert "1 queries without their literals" in skipped


@pytest.mark.parametrize("content", ["", "\n\n", "[]", "x"])
def test_query_logs_without_queries(tmp_path: Path, content: str) -> None:
    (tmp_path / "log.jsonl").write_text(content)
    with pytest.raises(PuffinIndexError, match="no query log"):
        read_query_log(PyArrowFileIO(), tmp_path.as_uri(), TABLE)
