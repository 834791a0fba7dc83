"""A few seconds of the soak, and its parts alone."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.soak.proxy import FaultyProxy
from tests.soak.report import State
from tests.soak.started import ROOT, Started, survivors

SECONDS = 5


@pytest.mark.nightly
def test_a_few_seconds_leave_a_right_and_tidy_index(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.soak", "--seconds", str(SECONDS), "--no-store", "--state", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    state = json.loads((tmp_path / "state.json").read_text(encoding="utf-8"))
    assert state["failures"] == []
    assert state["parts"] == 1
    assert state["events"]["disk"]["verify done"] >= 1
    assert "failures: 0" in (tmp_path / "report.txt").read_text(encoding="utf-8")


@pytest.fixture
def echo() -> Iterator[tuple[int, list[bytes]]]:
    """The port of a server that sends back what it gets, and what it has got."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    while data := connection.recv(100):
                        heard.append(data)
                        connection.sendall(data)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(server.getsockname()[1]), heard
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def test_the_proxy_passes_stalls_answers_503_cuts_and_swallows_answers(echo: tuple[int, list[bytes]]) -> None:
    port, heard = echo
    proxy = FaultyProxy(port)
    try:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as connection:
            connection.sendall(b"one")
            assert connection.recv(100) == b"one"
            proxy.set_mode("stall")
            connection.sendall(b"two")
            connection.settimeout(0.3)
            with pytest.raises(TimeoutError):
                connection.recv(100)
            connection.settimeout(5)
            proxy.set_mode("pass")
            assert connection.recv(100) == b"two"
            proxy.set_mode("cut")
            with suppress(ConnectionResetError):
                assert connection.recv(100) == b""
        proxy.set_mode("busy")
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 503")
        proxy.set_mode("mute")
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as connection:
            connection.sendall(b"three")
            with suppress(ConnectionResetError):
                assert connection.recv(100) == b""
    finally:
        proxy.close()
    assert heard == [b"one", b"two", b"three"]
    assert set(proxy.spoilt) == {"stall", "cut", "busy", "mute"}


def test_processes_that_are_left_behind_are_found(tmp_path: Path) -> None:
    program = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
    started = Started(["-c", program], tmp_path / "log", lambda _: None)
    started.process.wait(30)

    ((pid, command),) = survivors(started.mark, patience_seconds=0.5).items()

    assert "time.sleep(60)" in command
    os.kill(pid, 9)
    started.wait(10)


def test_growing_memory_is_a_failure_and_a_new_part_adds_up(tmp_path: Path) -> None:
    state = State(seconds=10.0, parts=1)
    mib = 1 << 20
    state.judge_memory("steady", [(float(t), 200 * mib + t % 7 * mib) for t in range(0, 3600, 20)])
    state.judge_memory("short", [(float(t), t * mib) for t in range(0, 900, 5)])
    assert state.failures == []
    state.judge_memory("leak", [(float(t), 200 * mib + t * mib // 10) for t in range(0, 3600, 20)])
    assert len(state.failures) == 1
    state.count("disk", "query", 3)
    state.write(tmp_path / "state.json")

    again = State.read(tmp_path / "state.json")

    assert (again.seconds, again.total("query"), len(again.failures), len(again.memory)) == (10.0, 3, 1, 3)
    assert "leak" in again.text()
    assert again.memory[2]["each_twelfth_mib"] == [round(200 + 3580 * n / 120) for n in range(1, 13)]
