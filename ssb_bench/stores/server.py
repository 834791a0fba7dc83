"""An S3 server behind the proxy, both as processes of their own, and the settings that reach them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import pyarrow.fs
from pydantic import TypeAdapter

from ssb_bench.stores.moto_server import moto_server
from ssb_bench.stores.traffic import Request, Taken, Traffic

BUCKET: Final = "house"
KEY: Final = "some-key"
SECRET: Final = "some-secret"
REGION: Final = "us-east-1"
_TAKEN: Final = TypeAdapter(Taken)


@dataclass(frozen=True, slots=True)
class Distance:
    """How far away a store is.

    Attributes:
        milliseconds: From a request to the first byte of its answer.
        megabytes_a_second: Bandwidth each way, of all connections together; None for no bound.
    """

    milliseconds: float = 0.0
    megabytes_a_second: float | None = None


@dataclass(slots=True)
class StoreServer:
    """A running store with one bucket.

    Attributes:
        endpoint: The address of the proxy.
    """

    endpoint: str
    _proxy: subprocess.Popen[str]
    _taken: list[Request] = field(default_factory=list)

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
        self._ask({"latency": distance.milliseconds / 1000, "bandwidth": bandwidth})

    def requests(self) -> list[Request]:
        """Give the requests of the last `traffic`."""
        return self._taken

    def traffic(self) -> Traffic:
        """Sum up the requests since the last time."""
        taken = _TAKEN.validate_json(self._ask({"take": True}))
        self._taken = taken.requests
        return Traffic.of(taken.requests, taken.connections)

    def filesystem(self) -> pyarrow.fs.S3FileSystem:
        """Look into the store."""
        return pyarrow.fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            endpoint_override=self.endpoint,
            region=REGION,
            allow_bucket_creation=True,
        )

    def _ask(self, command: dict[str, object]) -> str:
        assert self._proxy.stdin is not None and self._proxy.stdout is not None  # noqa: PT018
        self._proxy.stdin.write(json.dumps(command) + "\n")
        self._proxy.stdin.flush()
        return self._proxy.stdout.readline()


@contextmanager
def run_store() -> Iterator[StoreServer]:
    """Run an S3 server (moto) behind the proxy, near at first.

    Raises:
        BenchError: If moto is not installed, or its server does not start.
    """
    with moto_server() as port, _run_proxy(port) as server:
        server.filesystem().create_dir(BUCKET)
        server.traffic()
        yield server


@contextmanager
def _run_proxy(origin: int) -> Iterator[StoreServer]:
    command = [sys.executable, "-m", "ssb_bench.stores.proxy", str(origin)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        try:
            yield StoreServer(f"http://127.0.0.1:{int(proxy.stdout.readline())}", proxy)
        finally:
            proxy.terminate()
