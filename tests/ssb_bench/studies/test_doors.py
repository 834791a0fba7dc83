"""What the study of doors says: targets that are missed stand out, and so does what it is held against."""

from dataclasses import replace
from pathlib import Path

from ssb_bench.data.layout import read_record, write_record
from ssb_bench.report.document import Line, Marked, Table
from ssb_bench.report.reports import doors_parts
from ssb_bench.results.studies import DoorsRun, DoorStep

FAST = DoorStep("q1, Connect", "PySpark", (0.1, 0.2, 0.3), (0.2, 0.22, 0.1), 0.22)
ALONE = DoorStep("look-up", "not run: Lance", (), (0.002, 0.004), 0.003)


def test_missed_targets_are_known() -> None:
    assert not FAST.is_slow
    assert replace(FAST, most_seconds=0.19).is_slow
    assert not replace(FAST, most_seconds=None).is_slow
    assert not ALONE.is_slow
    assert replace(ALONE, seconds=(0.002, 0.0041)).is_slow


def test_the_report_of_what_was_read_back_marks_what_is_missed(tmp_path: Path) -> None:
    run = DoorsRun(0.1, {}, 1_000, 40, (FAST, replace(ALONE, seconds=(0.002, 0.005))), ("Connect, q1: 1 and 2",))
    write_record(tmp_path / "doors.json", run)
    assert read_record(tmp_path / "doors.json", DoorsRun) == run

    line, table, failure = doors_parts(read_record(tmp_path / "doors.json", DoorsRun))

    assert isinstance(line, Line)
    assert "1,000 rows in 40 row groups" in str(line.text)
    assert isinstance(table, Table)
    spreads = ("0.2000\n0.1000 to 0.3000", "0.2000\n0.1000 to 0.2200")
    assert table.rows[0] == ["q1, Connect", "PySpark", *spreads, "0.2200", "1.00"]
    slow = Marked("0.0035\n0.0020 to 0.0050", "bad")
    assert table.rows[1] == ["look-up", "not run: Lance", "", slow, "0.0030", ""]
    assert failure == Line(Marked("FAILED  Connect, q1: 1 and 2", "bad"))
