"""Run blocks of code from documents in one process, one after the other, with a Python that knows nothing of the tests.

Standard input has a JSON list of blocks, each a page, a language and a text.
"""

import json
import shlex
import signal
import subprocess
import sys
import threading
import time
from itertools import takewhile
from pathlib import Path
from typing import Any

_WATCHED_SECONDS = 1
_BACKGROUND_SECONDS = 30


def _run_shell(text: str) -> None:
    from planner.commands.main import main

    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if "--watch" in words:
            _run_service(words)
        elif words[0] == "puffin-index" and not {"|", ">"} & {*words}:
            code = main(words[1:], standalone_mode=False)
            assert not code, f"{line} ends with {code}"
        else:
            subprocess.run(["bash", "-ec", line], check=True)


def _run_service(words: list[str]) -> None:
    """Let a service start and work for a while, then end it as an operator does."""
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr is not None
        started = list(takewhile(lambda line: "watch started" not in line, service.stderr))
        time.sleep(_WATCHED_SECONDS)
        service.send_signal(signal.SIGTERM)
        _, logged = service.communicate()
    assert service.returncode == 0, f"{words} ended with {service.returncode}: {''.join(started)}{logged}"


def _run(language: str, text: str, names: dict[str, Any]) -> None:
    match language:
        case "python":
            exec(compile(text, "block", "exec"), names)
        case "yaml":
            (Path.home() / ".pyiceberg.yaml").write_text(text)
        case "sql":
            names["spark"].sql(text).collect()
        case "sh":
            _run_shell(text)


def _finish_background() -> None:
    """Let logs and audits be written, as they are when a reader goes on with the next block."""
    for thread in threading.enumerate():
        if thread.name.startswith("puffin-index: "):
            thread.join(_BACKGROUND_SECONDS)


if __name__ == "__main__":
    shared: dict[str, Any] = {"__name__": "__main__"}
    for page, language, text in json.load(sys.stdin):
        started = time.monotonic()
        try:
            _run(language, text, shared)
            _finish_background()
        except BaseException as error:
            error.add_note(f"{page} has this block:\n{text}")
            raise
        sys.stdout.write(f"{time.monotonic() - started:6.1f} s  {page}: {text.splitlines()[0]}\n")
        sys.stdout.flush()
