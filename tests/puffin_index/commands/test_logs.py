"""Log lines of the command line: JSON objects and times where a service or a collector reads them."""

import json

import pytest

from tests.processes import run_python

_PROGRAM = """
import logging
import planner.commands.main
from puffin_index.commands.logs import configure_logs, log_as_a_service
from puffin_index.jobs.log_lines import log_line
configure_logs({format!r}, verbose={verbose})
if {service}:
    log_as_a_service()
log = logging.getLogger("puffin_index.watch")
log.info("%s", log_line("lag", table="ns.t", files=2))
log.warning("not indexed: %s", "x")
logging.getLogger("planner.prune.state").warning("index not used")
"""


def _lines(log_format: str, *, verbose: bool = False, service: bool = False) -> list[str]:
    program = _PROGRAM.format(format=log_format, verbose=verbose, service=service)
    done = run_python(program)
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_a_command_warns_without_times_and_leaves_warnings_of_plans_to_the_plan() -> None:
    assert _lines("text") == ["WARNING puffin_index.watch: not indexed: x"]


def test_a_service_has_times_on_all_lines() -> None:
    first, second = _lines("text", service=True)
    assert first[10] == "T"
    assert first[23:] == "Z INFO puffin_index.watch: lag table=ns.t files=2"
    assert second[23:] == "Z WARNING puffin_index.watch: not indexed: x"
    assert len(_lines("text", verbose=True)) == 3


def test_json_lines_have_the_pairs_as_members() -> None:
    first, second = map(json.loads, _lines("json", service=True))
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "info",
        "logger": "puffin_index.watch",
        "message": "lag table=ns.t files=2",
        "event": "lag",
        "table": "ns.t",
        "files": 2,
    }
    assert (second["level"], second["message"]) == ("warning", "not indexed: x")


_FAILURE = """
import logging
import planner.commands.main
from puffin_index.commands.logs import configure_logs
configure_logs("text", verbose={verbose})
for name in ("pyiceberg.table", "planner.spark.callback"):
    try:
        raise OSError("the catalog is locked\\n[SQL: SELECT 1]")
    except OSError:
        logging.getLogger(name).warning("not deleted: %s", "x", exc_info=True)
"""


@pytest.mark.parametrize("verbose", [False, True])
def test_errors_that_others_log_are_a_line_and_ours_have_a_traceback(*, verbose: bool) -> None:
    program = _FAILURE.format(verbose=verbose)
    done = run_python(program)
    theirs, ours, *traceback = done.stderr.splitlines()
    assert theirs.endswith("WARNING pyiceberg.table: not deleted: x: the catalog is locked")
    assert ours.endswith("WARNING planner.spark.callback: not deleted: x")
    assert traceback[0] == "Traceback (most recent call last):"
