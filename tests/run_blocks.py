"""Run blocks of code from documents in one process, one after the other, with a Python that knows nothing of the tests.

Standard input has a JSON list of blocks, each a language and a text.
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any


def _run_shell(text: str) -> None:
    from planner.commands.main import main

    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] != "puffin-index":
            subprocess.run(["bash", "-ec", line], check=True)
            continue
        main(words[1:], standalone_mode=False)


def _run(language: str, text: str, names: dict[str, Any]) -> None:
    match language:
        case "python":
            exec(compile(text, "block", "exec"), names)
        case "yaml":
            (Path.home() / ".pyiceberg.yaml").write_text(text)
        case "sql":
            names["spark"].sql(text)
        case "":
            _run_shell(text)


if __name__ == "__main__":
    shared: dict[str, Any] = {"__name__": "__main__"}
    for language, text in json.load(sys.stdin):
        _run(language, text, shared)
