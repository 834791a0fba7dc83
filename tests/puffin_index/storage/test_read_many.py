"""Ranges of many objects, read by one event loop: the right bytes, or none."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_index.storage.files import NewFile
from puffin_index.storage.objects import StoredObject, find_object, read_many
from ssb_bench.stores.server import BUCKET, Distance, StoreServer, run_store
from tests.conftest import amount
from tests.stores import FAR

CONTENTS = [bytes([number]) * 50 + bytes(range(200)) for number in range(4)]


@pytest.fixture(scope="module")
def server() -> Iterator[StoreServer]:
    with run_store() as running:
        for number, content in enumerate(CONTENTS):
            with NewFile(PyArrowFileIO(running.properties), location(number)) as stream:
                stream.write(content)
        yield running


def location(number: int) -> str:
    return f"s3://{BUCKET}/many/{number}.bin"


def stored(server: StoreServer, number: int) -> StoredObject:
    found = find_object(PyArrowFileIO(server.properties), location(number))
    assert found is not None
    return found


SPANS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 300), st.integers(0, 300)), max_size=40)


@settings(max_examples=amount(8, 150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spans=SPANS, at_once=st.integers(1, 50))
def test_ranges_are_those_of_the_objects(server: StoreServer, spans: list[tuple[int, int, int]], at_once: int) -> None:
    found = read_many([(stored(server, number), offset, length) for number, offset, length in spans], at_once)

    for (number, offset, length), data in zip(spans, found, strict=True):
        content = CONTENTS[number][offset : offset + length] if number < len(CONTENTS) else b""
        assert (None if data is None else bytes(data)) == (content if len(content) == length else None)


def test_so_many_are_under_way_at_one_time(server: StoreServer) -> None:
    spans = [(stored(server, number % 4), number, 5) for number in range(30)]
    server.move(FAR)
    try:
        for at_once, rounds in ((30, 1), (100, 1), (10, 3)):
            server.traffic()
            assert None not in read_many(spans, at_once)
            traffic = server.traffic()
            assert (traffic.rounds, traffic.most_at_once) == (rounds, min(at_once, 30))
    finally:
        server.move(Distance())


def test_callers_may_have_an_event_loop_of_their_own(server: StoreServer) -> None:
    async def in_a_notebook() -> list[memoryview | None]:
        return read_many([(stored(server, 2), 0, 3)], 8)

    assert asyncio.run(in_a_notebook()) == [memoryview(bytes([2, 2, 2]))]


def test_a_system_without_more_threads_gives_none(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    spans = [(stored(server, 1), 0, 3)] * 4
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        assert read_many(spans, 8) == [None] * 4
    assert None not in read_many(spans, 8)
