"""Processes that the soak starts: marked in their environment, so that whatever they leave behind is found."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_MARK = "PUFFIN_INDEX_SOAK"
_ABORT_SECONDS = 20.0
ROOT = Path(__file__).parents[2]
Event = Mapping[str, object]


class Started:
    """A process of its own; its standard output has an event a line, as JSON, which a thread calls `on_event` with."""

    def __init__(self, arguments: Sequence[str], log: Path, on_event: Callable[[Event], None]) -> None:
        self.mark = uuid.uuid4().hex
        self._on_event = on_event
        self._log = log
        self._log_from = log.stat().st_size if log.exists() else 0
        environment = {
            **os.environ,
            _MARK: self.mark,
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "ignore",
            "PYTHONFAULTHANDLER": "1",
            # Arrow's own allocator keeps what its threads once needed, so that a leak cannot be told from it.
            "ARROW_DEFAULT_MEMORY_POOL": "system",
        }
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=stderr, env=environment, text=True
            )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # a killed process may leave half a line
            if isinstance(event, dict):
                self._on_event(event)

    @property
    def said(self) -> str:
        """What the process has written to its log; no other process may write to the log meanwhile."""
        with self._log.open("rb") as file:
            file.seek(self._log_from)
            return file.read().decode(errors="replace")

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def end(self, number: signal.Signals, patience_seconds: float = 300.0) -> int:
        self.process.send_signal(number)
        return self.wait(patience_seconds)

    def wait(self, patience_seconds: float) -> int:
        """Wait for the end; return the exit code.

        A process that does not end in time writes down where its threads are, and is ended by SIGABRT.
        """
        try:
            code = self.process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            try:
                code = self.process.wait(_ABORT_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                code = self.process.wait()
        self._thread.join(5)
        if self.process.stdout is not None and not self._thread.is_alive():
            self.process.stdout.close()
        return code


def resident_bytes(pid: int) -> int:
    """Return the memory of a process without its children; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def survivors(mark: str, patience_seconds: float = 15.0) -> dict[int, str]:
    """Return the numbers and commands of processes that still run with a mark after some time."""
    end = time.monotonic() + patience_seconds
    while (found := _marked(mark)) and time.monotonic() < end:
        time.sleep(0.5)
    return found


def _marked(mark: str) -> dict[int, str]:
    wanted = f"{_MARK}={mark}".encode()
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(folder.name)] = command.decode(errors="replace")
        except OSError:
            continue
    return found
