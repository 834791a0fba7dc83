"""What the study of writes says: targets that are missed stand out, and so do results that differ."""

from dataclasses import replace

from ssb_bench.report.document import Line, Marked, Table
from ssb_bench.report.reports import writes_parts
from ssb_bench.results.studies import WritesRun, WriteStep

FAST = WriteStep("MERGE", "recent", (20.0, 30.0, 10.0), (1.0, 2.0, 2.0), kept=11, holding=10, least_ratio=10.0)


def test_missed_targets_are_known() -> None:
    assert FAST.ratio == 10
    assert not FAST.is_slow
    assert not FAST.is_missed
    assert replace(FAST, with_index=(2.1,)).is_slow
    assert replace(FAST, kept=12).is_missed
    within = replace(FAST, least_ratio=None, most_seconds=2.0)
    assert not within.is_slow
    assert replace(within, most_seconds=1.9).is_slow
    assert not replace(within, kept=None).is_missed


def test_the_report_marks_what_is_missed() -> None:
    steps = (FAST, replace(FAST, with_index=(10.0,), kept=12))
    line, table, failure = writes_parts(WritesRun(0.1, {}, 1_000, 2, 40, 10**6, 10**5, steps, ("1 row and 2 rows",)))

    assert isinstance(line, Line)
    assert "1,000 rows in 2 data files of 1 MB, 40 row groups" in str(line.text)
    assert isinstance(table, Table)
    assert table.rows[0] == ["MERGE", "recent", "10", "11", "20.00\n10.00 to 30.00", "2.00\n1.00 to 2.00", "10.0"]
    assert table.rows[1][3] == Marked("12", "bad")
    assert table.rows[1][-1] == Marked("2.0", "bad")
    assert failure == Line(Marked("FAILED  1 row and 2 rows", "bad"))
