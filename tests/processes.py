"""Python programs in processes of their own, and processes of the system as Linux tells of them."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent


@dataclass(frozen=True, slots=True)
class Process:
    """A process, and when it was started in ticks since the system was: its number is another one's some time later."""

    pid: int
    started: int
    command: str


def run_python(program: str, *arguments: str | Path, seconds: float = 300) -> subprocess.CompletedProcess[str]:
    """Run a program, which must end well, and return what it printed."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    said = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("\tat "))
    assert done.returncode == 0, said
    return done


def run_forked(parent: str, child: str) -> None:
    """Run a program, and then another one in a process that is forked from it; both must end well."""
    program = (
        f"{parent}\n"
        "import os, signal, sys\n"
        "if not (forked := os.fork()):\n"
        "    signal.alarm(60)\n"
        f"{indent(child, '    ')}\n"
        "    os._exit(0)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]))\n"
    )
    run_python(program)


def descendants(pid: int) -> list[Process]:
    """The children of a process, their children, and so on."""
    children: dict[int, list[Process]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        fields = _fields(int(folder.name))
        if fields:
            children.setdefault(int(fields[1]), []).append(_process(int(folder.name), fields))
    found = list(children.get(pid, []))
    for process in found:
        # What is appended is looked at as well.
        found += children.get(process.pid, [])
    return found


def is_alive(process: Process) -> bool:
    """Whether a process has not ended yet; one that has, but that nobody has asked for its exit code, has ended."""
    fields = _fields(process.pid)
    return bool(fields) and int(fields[19]) == process.started and fields[0] != "Z"


def _process(pid: int, fields: list[str]) -> Process:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        command = ""
    return Process(pid, int(fields[19]), command)


def _fields(pid: int) -> list[str]:
    """What `/proc/PID/stat` says from the state on; nothing of a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def wait_for(condition: Callable[[], bool], seconds: float, pause: float = 0.05) -> bool:
    """Wait until a condition holds, at most so long; return whether it does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True
