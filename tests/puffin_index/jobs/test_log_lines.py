"""Log lines for people and collectors."""

from __future__ import annotations

import shlex

import pytest

from puffin_index.jobs.log_lines import log_line


def test_a_line_is_an_event_and_its_fields() -> None:
    assert (
        log_line("committed", segments=2, seconds=0.314, table="ns.t") == "committed segments=2 seconds=0.31 table=ns.t"
    )


def test_what_is_not_known_is_left_out() -> None:
    assert log_line("build started", snapshot=None, files=0) == "build started files=0"


@pytest.mark.parametrize("text", ["two words", "a=b", 'a "quoted" one', "line\nbreak", ""])
def test_a_text_that_is_not_plain_stays_one_field(text: str) -> None:
    line = log_line("failed", error=text)

    assert "\n" not in line
    assert len(shlex.split(line)) == 2
