"""Queues of work that nobody waits for: in order, bounded, and quiet about trouble that comes again."""

import logging
import threading

import pytest
from sqlalchemy.exc import OperationalError

from planner.spark.background import BackgroundQueue
from tests.processes import run_python


def test_items_are_handled_in_their_order() -> None:
    handled: list[int] = []
    queue: BackgroundQueue[int] = BackgroundQueue(handled.extend, "counting", 1_000)
    assert all(queue.put(number) for number in range(500))
    assert queue.wait(10)
    assert handled == list(range(500))


def test_a_full_queue_refuses() -> None:
    go = threading.Event()
    queue: BackgroundQueue[int] = BackgroundQueue(lambda _: go.wait(10), "waiting", 2, delay_seconds=0)
    queue.put(0)
    accepted = [queue.put(number) for number in range(10)]
    assert accepted.count(False) >= 7
    assert not queue.wait(0.01)
    go.set()
    assert queue.wait(10)


@pytest.mark.parametrize(
    ("error", "is_traced"),
    [
        (OSError("no space left"), False),
        (OperationalError("SELECT 1", (), Exception("database is locked")), False),
        (KeyError("a mistake of ours"), True),
    ],
)
def test_trouble_is_told_once_in_a_line(caplog: pytest.LogCaptureFixture, error: Exception, is_traced: bool) -> None:
    def fail(_: list[int]) -> None:
        raise error

    queue: BackgroundQueue[int] = BackgroundQueue(fail, f"writing to {type(error).__name__}", 10)
    for number in range(3):
        queue.put(number)
        assert queue.wait(10)
    warned = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 1
    assert f"writing to {type(error).__name__} failed" in warned[0].message
    assert "\n" not in warned[0].message
    assert (warned[0].exc_info is not None) == is_traced


@pytest.mark.parametrize(("handle", "expected"), [("print('done')", "done"), ("time.sleep(60)", "")])
def test_the_end_of_the_process_waits_a_little(handle: str, expected: str) -> None:
    program = (
        "import time\nfrom planner.spark.background import BackgroundQueue\n"
        f"queue = BackgroundQueue(lambda items: {handle}, 'x', 10, delay_seconds=30)\nqueue.put(1)\n"
    )
    assert expected in run_python(program, seconds=30).stdout


def test_the_end_of_the_process_waits_for_audits() -> None:
    program = (
        "import time\nfrom planner.spark.observers import Observers\n"
        "class Audits(Observers):\n    def _audit(self, _): time.sleep(0.5) or print('done')\n"
        "audits = Audits(None)\naudits._queue.put(1)\n"
    )
    assert run_python(program, seconds=30).stdout == "done\n"


def test_work_that_takes_long_does_not_keep_other_work_from_being_finished() -> None:
    program = (
        "import time\nfrom planner.spark.background import BackgroundQueue\n"
        "works = [lambda _: time.sleep(60)] * 5 + [lambda _: print('done')]\n"
        "queues = [BackgroundQueue(work, 'x', 10, delay_seconds=30) for work in works]\n"
        "for queue in queues: queue.put(1)\n"
    )
    assert run_python(program, seconds=30).stdout == "done\n"
