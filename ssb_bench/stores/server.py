"""An S3 server (moto) behind the proxy, both as processes of their own, and what the store was asked for."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import IO, Final, TypeAlias
from urllib.request import Request as PutRequest, urlopen

from pydantic import TypeAdapter

from ssb_bench.data.layout import BenchError

_PATIENCE_SECONDS: Final = 60.0


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def wait_for(port: int) -> None:
    """Wait until somebody listens on a port, or raise BenchError if nobody does in time."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise BenchError(f"nothing listens on port {port} after {_PATIENCE_SECONDS:g} s")


def tell(process: subprocess.Popen[str], line: str) -> IO[str]:
    """Write a line to a process; give what it writes, or raise BrokenPipeError if it has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    return process.stdout


@contextmanager
def moto_server() -> Iterator[int]:
    """Run the server; gives its port. Raises BenchError if moto is not installed, or its server does not start."""
    if find_spec("moto") is None:
        raise BenchError("the store is served by moto: pip install 'moto[server]'")
    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(port)
            yield port
        finally:
            server.terminate()


Span: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Request:
    """One request, from its head to the last byte of its answer, in seconds, of a kind such as `RANGE`."""

    began: float
    ended: float
    kind: str
    key: str
    bytes_in: int
    bytes_out: int
    status: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a piece of work asked of the store."""

    rounds: int
    requests: int
    by_kind: dict[str, int]
    most_at_once: int
    bytes_in: int
    bytes_out: int

    @classmethod
    def of(cls, requests: Sequence[Request]) -> Traffic:
        """Sum requests up."""
        spans = [(one.began, one.ended) for one in requests]
        return cls(
            rounds_of(spans),
            len(requests),
            dict(sorted(Counter(one.kind for one in requests).items())),
            most_at_once(spans),
            sum(one.bytes_in for one in requests),
            sum(one.bytes_out for one in requests),
        )


def rounds_of(spans: Sequence[Span]) -> int:
    """Return the sequential rounds: the length of the longest chain in which each request begins after the last's end.

    Requests that wait for each other are in different rounds, however many others are under way meanwhile.
    """
    rounds, end = 0, float("-inf")
    # The chain that always takes the request that ends first is a longest one.
    for began, ended in sorted(spans, key=lambda span: span[1]):
        if began >= end:
            rounds, end = rounds + 1, ended
    return rounds


def most_at_once(spans: Sequence[Span]) -> int:
    """Return the greatest number of requests that are under way at one time."""
    most = now = 0
    # At the same time, an end comes before a beginning.
    for _, step in sorted([(began, 1) for began, _ in spans] + [(ended, -1) for _, ended in spans]):
        now += step
        most = max(most, now)
    return most


BUCKET: Final = "house"
KEY: Final = "some-key"
SECRET: Final = "some-secret"
REGION: Final = "us-east-1"
_REQUESTS: Final = TypeAdapter(list[Request])


@dataclass(frozen=True, slots=True)
class Distance:
    """How far a store is: from a request to its first byte, and all connections' bandwidth each way, if bounded."""

    milliseconds: float = 0.0
    megabytes_a_second: float | None = None


@dataclass(slots=True)
class StoreServer:
    """A running store with one bucket."""

    endpoint: str
    _proxy: subprocess.Popen[str]
    last_requests: list[Request] = field(default_factory=list)
    """Those of the last `traffic`."""

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a PyIceberg catalog whose tables are in the store."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
            "s3.region": REGION,
        }

    def move(self, distance: Distance) -> None:
        """Put the store so far away."""
        bandwidth = None if distance.megabytes_a_second is None else distance.megabytes_a_second * 1e6
        tell(self._proxy, json.dumps({"latency": distance.milliseconds / 1000, "bandwidth": bandwidth})).readline()

    def traffic(self) -> Traffic:
        """Sum up the requests since the last time."""
        self.last_requests = _REQUESTS.validate_json(tell(self._proxy, "{}").readline())
        return Traffic.of(self.last_requests)


@contextmanager
def run_store() -> Iterator[StoreServer]:
    """Run an S3 server (moto) behind the proxy, near at first."""
    with moto_server() as origin:
        command = [sys.executable, "-m", "ssb_bench.stores.proxy", str(origin)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as proxy:
            assert proxy.stdout is not None
            try:
                server = StoreServer(f"http://127.0.0.1:{int(proxy.stdout.readline())}", proxy)
                urlopen(PutRequest(f"{server.endpoint}/{BUCKET}", method="PUT")).close()
                server.traffic()
                yield server
            finally:
                proxy.terminate()
