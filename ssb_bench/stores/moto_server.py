"""A server that speaks the S3 protocol (moto), as a process of its own on a free port."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from ssb_bench.errors import BenchError

_PATIENCE_SECONDS: Final = 60.0
_LAST_SECONDS: Final = 30.0


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def wait_for(port: int) -> None:
    """Wait until somebody listens on a port.

    Raises:
        BenchError: If nobody does in time.
    """
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise BenchError(f"nothing listens on port {port} after {_PATIENCE_SECONDS:g} s")


@contextmanager
def moto_server() -> Iterator[int]:
    """Run the server; gives its port.

    Raises:
        BenchError: If moto is not installed, or its server does not start.
    """
    if find_spec("moto") is None:
        raise BenchError("the store is served by moto: pip install 'moto[server]'")
    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield port
    finally:
        server.terminate()
        server.wait(_LAST_SECONDS)
