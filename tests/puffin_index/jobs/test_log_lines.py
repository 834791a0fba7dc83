"""Log lines for people and collectors."""

import shlex
import sqlite3

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from puffin_index.jobs.log_lines import log_line, reason_of


@pytest.mark.parametrize("text", ["two words", "a=b", 'a "quoted" one', "line\nbreak", ""])
def test_a_text_that_is_not_plain_stays_one_field(text: str) -> None:
    line = log_line("failed", error=text)

    assert "\n" not in line
    assert len(shlex.split(line)) == 2


def test_a_line_has_its_members() -> None:
    line = log_line("committed", segments=2, seconds=0.314, table="a b", snapshot=None)
    assert line == 'committed segments=2 seconds=0.31 table="a b"'
    assert line.members == {"event": "committed", "segments": 2, "seconds": 0.314, "table": "a b"}


def test_a_reason_has_no_sql_of_the_catalog() -> None:
    with sqlite3.connect(":memory:") as connection:
        engine = create_engine("sqlite://", creator=lambda: connection)
        with pytest.raises(SQLAlchemyError) as raised, engine.connect() as opened:
            opened.execute(text("SELECT secret FROM nowhere WHERE token = 'hidden'"))
    connection.close()
    engine.dispose()
    assert "hidden" in str(raised.value)
    assert reason_of(raised.value) == "(sqlite3.OperationalError) no such table: nowhere"
    assert reason_of(ValueError("two\nlines")) == "two\nlines"
