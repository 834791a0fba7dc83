"""Objects are read as PyIceberg would read them, or not at all; ranges of many of them by one event loop."""

import asyncio
import io
import threading
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_index.errors import CorruptFileError, NotFoundError
from puffin_index.storage.files import FileReader, NewFile
from puffin_index.storage.object_stream import ObjectStream
from puffin_index.storage.objects import StoredObject, find_object, read_many
from ssb_bench.stores.server import BUCKET, Distance, StoreServer, run_store
from tests.conftest import amount
from tests.processes import run_forked
from tests.stores import FAR, SomebodysFileIO

CONTENT = bytes(range(256)) * 40
LOCATION = f"s3://{BUCKET}/folder/a file=1%20*é{{x}}+&.bin"
CONTENTS = [bytes([number]) * 50 + bytes(range(200)) for number in range(4)]
"""Those of other objects, which are read together."""


def location_of(number: int) -> str:
    return f"s3://{BUCKET}/many/{number}.bin"


@pytest.fixture(scope="module")
def server() -> Iterator[StoreServer]:
    with run_store() as running:
        contents = {LOCATION: CONTENT} | {location_of(number): content for number, content in enumerate(CONTENTS)}
        for location, content in contents.items():
            with NewFile(PyArrowFileIO(running.properties), location) as stream:
                stream.write(content)
        yield running


def opened(properties: Mapping[str, str], location: str = LOCATION) -> StoredObject:
    found = find_object(PyArrowFileIO(dict(properties)), location)
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def no_keys_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)


def test_a_file_of_known_size_costs_one_request(server: StoreServer) -> None:
    server.traffic()
    with FileReader(PyArrowFileIO(server.properties), LOCATION, len(CONTENT)) as reader:
        assert bytes(reader.read(100, 300)) == CONTENT[100:400]
        assert bytes(reader.read(5, 0)) == b""
    assert server.traffic().by_kind == {"RANGE": 1}


def test_a_file_of_unknown_size_is_asked_for_its_size(server: StoreServer) -> None:
    server.traffic()
    with FileReader(PyArrowFileIO(server.properties), LOCATION) as reader:
        assert bytes(reader.read(100, 300)) == CONTENT[100:400]
    assert server.traffic().by_kind["HEAD"] >= 1


def test_what_is_not_there_is_said(server: StoreServer) -> None:
    files = PyArrowFileIO(server.properties)
    with FileReader(files, LOCATION + "x", 10) as reader, pytest.raises(NotFoundError, match=r"\.binx"):
        reader.read(0, 10)
    with FileReader(files, LOCATION, len(CONTENT) + 9) as reader, pytest.raises(CorruptFileError, match="ends early"):
        reader.read(len(CONTENT) - 5, 10)
    with FileReader(files, "s3://no-such-bucket/a", 10) as reader, pytest.raises(NotFoundError):
        reader.read(0, 10)


@pytest.mark.parametrize(
    "properties",
    [
        {"s3.access-key-id": "", "s3.secret-access-key": ""},
        {"s3.region": ""},
        {"s3.role-arn": "arn:aws:iam::1:role/r"},
        {"client.role-arn": "arn:aws:iam::1:role/r"},
        {"s3.profile-name": "somebody"},
        {"s3.retry-strategy-impl": "some.module.Retry"},
        {"s3.resolve-region": "true"},
        {"s3.force-virtual-addressing": "true"},
    ],
    ids=str,
)
def test_what_cannot_be_carried_over_is_left_to_pyiceberg(server: StoreServer, properties: dict[str, str]) -> None:
    assert find_object(PyArrowFileIO(server.properties | properties), LOCATION) is None


def test_other_files_are_left_to_pyiceberg(server: StoreServer) -> None:
    assert find_object(PyArrowFileIO(server.properties), "file:///tmp/a") is None
    assert find_object(PyArrowFileIO(server.properties), "gs://house/a") is None
    for odd in ("/a", "a//b", "a/", "a/./b", "a/../b", ""):
        assert find_object(PyArrowFileIO(server.properties), f"s3://{BUCKET}/{odd}") is None
    assert find_object(FsspecFileIO(server.properties), LOCATION) is None
    assert find_object(SomebodysFileIO(server.properties), LOCATION) is None


@pytest.mark.parametrize(
    "properties",
    [
        {"s3.session-token": "token"},
        {"s3.access-key-id": "", "s3.secret-access-key": "", "s3.anonymous": "true"},
        {"s3.request-timeout": "5", "s3.connect-timeout": "2.5"},
        {"s3.path-style-access": "true", "s3.role-session-name": "unused"},
    ],
    ids=str,
)
def test_other_properties_are_carried_over(server: StoreServer, properties: dict[str, str]) -> None:
    stored = opened(server.properties | properties)
    assert bytes(stored.read(7, 3)) == CONTENT[7:10]
    assert bytes(stored.read_all()) == CONTENT


def test_keys_of_the_environment_stand_in_for_properties(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    none = server.properties | {"s3.access-key-id": "", "s3.secret-access-key": ""}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert len(opened(none).read_all()) == len(CONTENT)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    assert find_object(PyArrowFileIO({"s3.region": "us-east-1"}), LOCATION) is None
    monkeypatch.setenv("AWS_PROFILE", "somebody")
    assert find_object(PyArrowFileIO(none), LOCATION) is None


def test_what_was_fetched_is_not_asked_for_again(server: StoreServer) -> None:
    stored = opened(server.properties)
    server.traffic()
    with ObjectStream(stored.location, stored.read, len(CONTENT)) as stream:
        stream.fetch([(0, 100), (500, 100)], [(2000, 50)])
        # A request that has not ended is not counted.
        assert bytes(stream.read(100)) == CONTENT[:100]
        stream.fetch([], [(2000, 50)])
        stream.fetch([(500, 100)], [(2000, 50)])
        stream.seek(500)
        assert bytes(stream.read(30)) + bytes(stream.read(70)) == CONTENT[500:600]
        stream.seek(2010)
        assert bytes(stream.read(40)) == CONTENT[2010:2050]
    assert server.traffic().requests == 3


def test_a_process_that_was_forked_reads_as_pyiceberg_does(server: StoreServer) -> None:
    run_forked(
        "import pytest\n"
        "from pyiceberg.io.pyarrow import PyArrowFileIO\n"
        "from puffin_index.storage.objects import find_object\n"
        f"files, location = PyArrowFileIO({server.properties!r}), {LOCATION!r}\n"
        "opened = find_object(files, location)\n"
        f"assert len(opened.read_all()) == {len(CONTENT)}\n",
        "assert find_object(files, location) is None\n"
        "with pytest.raises(OSError, match='forked'):\n"
        "    opened.read(0, 1)\n",
    )


SPANS_OF_MANY = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 300), st.integers(0, 300)), max_size=40)


@settings(max_examples=amount(8, 150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spans=SPANS_OF_MANY, at_once=st.integers(1, 50))
def test_ranges_are_those_of_the_objects(server: StoreServer, spans: list[tuple[int, int, int]], at_once: int) -> None:
    found = read_many(
        [(opened(server.properties, location_of(number)), offset, length) for number, offset, length in spans], at_once
    )

    for (number, offset, length), data in zip(spans, found, strict=True):
        content = CONTENTS[number][offset : offset + length] if number < len(CONTENTS) else b""
        assert (None if data is None else bytes(data)) == (content if len(content) == length else None)


def test_so_many_are_under_way_at_one_time(server: StoreServer) -> None:
    spans = [(opened(server.properties, location_of(number % 4)), number, 5) for number in range(30)]
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
        return read_many([(opened(server.properties, location_of(2)), 0, 3)], 8)

    assert asyncio.run(in_a_notebook()) == [memoryview(bytes([2, 2, 2]))]


def test_a_system_without_more_threads_gives_none(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    spans = [(opened(server.properties, location_of(1)), 0, 3)] * 4
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        assert read_many(spans, 8) == [None] * 4
    assert None not in read_many(spans, 8)


SPANS = st.lists(st.tuples(st.integers(0, len(CONTENT) - 1), st.integers(1, 400)), max_size=4).map(
    lambda spans: [(offset, min(length, len(CONTENT) - offset)) for offset, length in spans]
)
READS = st.lists(st.tuples(st.integers(0, len(CONTENT) + 10), st.integers(-1, 500)), min_size=1, max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=amount(12, 300))
@given(now=SPANS, later=SPANS, reads=READS)
def test_a_stream_has_the_bytes_of_the_object(
    server: StoreServer, now: list[tuple[int, int]], later: list[tuple[int, int]], reads: list[tuple[int, int]]
) -> None:
    # The last test of this module: what a stream still fetches when it is closed would count as requests of others.
    due, stored = io.BytesIO(CONTENT), opened(server.properties)
    with ObjectStream(stored.location, stored.read, len(CONTENT)) as stream:
        stream.fetch(now, later)
        for offset, length in reads:
            assert stream.seek(offset) == due.seek(offset)
            assert bytes(stream.read(length)) == due.read(length)
            assert stream.tell() == due.tell()
