"""Work in parallel gives results in order, keeps context variables and never waits for itself."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_index.errors import DefinitionError
from puffin_index.storage import parallel
from puffin_index.storage.files import most_open_files
from puffin_index.storage.parallel import PROPERTY_AT_ONCE, in_parallel, requests_at_once
from tests.processes import run_forked
from tests.soak.started import resident_bytes

NAME: ContextVar[str] = ContextVar("NAME", default="none")


def test_results_come_in_the_order_of_the_items() -> None:
    assert in_parallel(lambda item: item * 2, range(100)) == [item * 2 for item in range(100)]
    assert in_parallel(lambda item: item, []) == []


def test_workers_see_the_callers_context() -> None:
    token = NAME.set("caller")
    try:
        assert in_parallel(lambda _: NAME.get(), range(8)) == ["caller"] * 8
    finally:
        NAME.reset(token)


def test_threads_keep_no_memory_for_later() -> None:
    """Sizes vary, so that an allocator that keeps pages of each size for each thread keeps many."""
    chooser = np.random.default_rng(0)
    sizes = (10 ** chooser.uniform(2, 5.5, (20, 256, 8))).astype(np.int64).tolist()

    def use(some: list[int]) -> int:
        buffers = [pa.allocate_buffer(size) for size in some]
        for buffer in buffers:
            np.frombuffer(buffer, np.uint8)[::4096] = 1
        time.sleep(0.001)
        return sum(some)

    before = resident_bytes(os.getpid())
    for some in sizes:
        assert in_parallel(use, some, at_once=128) == [sum(one) for one in some]
    assert resident_bytes(os.getpid()) - before < 100 << 20


def test_threads_keep_no_memory_of_results_that_are_freed_elsewhere() -> None:
    lengths = np.random.default_rng(0).integers(50, 3000, (128, 40)).tolist()
    together = threading.Barrier(len(lengths), timeout=60)

    def make(some: list[int]) -> list[pa.Array]:
        together.wait()
        return [pa.nulls(length, pa.int64()) for length in some]

    before = resident_bytes(os.getpid())
    for _ in range(3):
        results = in_parallel(make, lengths)
        assert [len(array) for array in results[-1]] == lengths[-1]
        del results
    in_parallel(str, range(2))
    assert resident_bytes(os.getpid()) - before < 64 << 20


def test_nested_work_ends() -> None:
    nested = in_parallel(lambda item: sum(in_parallel(lambda other: item * other, range(10))), range(64))
    assert nested == [item * 45 for item in range(64)]


def test_a_process_that_was_forked_has_threads_of_its_own() -> None:
    run_forked(
        "import sys\n"
        "import pyarrow as pa\n"
        "from puffin_index.storage.object_stream import ObjectStream\n"
        "from puffin_index.storage.parallel import in_parallel\n"
        "def read():\n"
        "    assert in_parallel(abs, [-1, -2, -3], 2) == [1, 2, 3]\n"
        "    file = pa.OSFile(sys.executable)\n"
        "    stream = ObjectStream('f', lambda offset, length: memoryview(file.read_at(length, offset)), 1000)\n"
        "    stream.fetch([(0, 1000)])\n"
        "    assert bytes(stream.read(4)) == open(sys.executable, 'rb').read(4)\n"
        "read()\n",
        "read()\n",
    )


def test_the_first_error_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        in_parallel(lambda item: 1 // item, [1, 0, 2])
    # A worker that failed is free again.
    assert in_parallel(lambda item: len(in_parallel(str, range(item))), [3, 4]) == [3, 4]


def test_so_many_requests_are_under_way_as_a_property_says() -> None:
    keys = {"s3.access-key-id": "k", "s3.secret-access-key": "s", "s3.region": "us-east-1"}
    assert requests_at_once(PyArrowFileIO(keys), "file:///tmp/a") == 1
    assert requests_at_once(PyArrowFileIO(keys), "s3://house/a") == min(1024, most_open_files())
    assert requests_at_once(PyArrowFileIO(), "s3://house/a") == 32, "PyArrow's files share 25 connections"
    assert requests_at_once(PyArrowFileIO(keys | {PROPERTY_AT_ONCE: "7"}), "s3://house/a") == 7
    for wrong in ("0", "-3", "many", "1.5"):
        with pytest.raises(DefinitionError, match="requests-at-once"):
            requests_at_once(PyArrowFileIO({PROPERTY_AT_ONCE: wrong}), "s3://house/a")


@dataclass
class Workers:
    seconds: float
    now: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def work(self, _: int) -> None:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(self.seconds)
        with self.lock:
            self.now -= 1


def test_no_more_items_are_worked_on_than_asked_for() -> None:
    workers = Workers(0.01)
    in_parallel(workers.work, range(30), 3)
    in_parallel(workers.work, range(4), 1)
    assert workers.most <= 3


def test_callers_share_threads_and_each_gets_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_left", [40])
    together, alone = Workers(0.02), Workers(0.02)
    with ThreadPoolExecutor(3) as callers:
        for _ in callers.map(lambda _: in_parallel(together.work, range(200)), range(3)):
            pass
    assert 40 <= together.most <= 40 + 2 * 16
    in_parallel(alone.work, range(200))
    assert 16 < alone.most <= 40, "what was taken has been given back"


def test_a_system_without_more_threads_is_made_do_with(monkeypatch: pytest.MonkeyPatch) -> None:
    start, left = threading.Thread.start, [3]

    def start_if_any_is_left(thread: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_if_any_is_left)

    def work(item: int) -> int:
        time.sleep(0.01)
        return item * 2

    assert in_parallel(work, range(20), 19) == [item * 2 for item in range(20)]
    assert not left[0]
