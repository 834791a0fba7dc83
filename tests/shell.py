"""`puffin-index` on the catalog of a folder: in the test's own process, or what a process of its own is told."""

import json
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner, Result

from planner.commands.main import main

PROGRAM: Final = (sys.executable, "-c", "from planner.commands.main import main; main()")


def catalog_options(folder: Path, uri_ending: str = "") -> list[str]:
    properties = (f"uri=sqlite:///{folder / 'catalog.db'}{uri_ending}", f"warehouse={folder.as_uri()}")
    return [part for one in properties for part in ("--catalog-property", one)]


class Shell:
    def __init__(self, folder: Path, table: str = "local.ns.t", uri_ending: str = "") -> None:
        self._table = table
        self._options = catalog_options(folder, uri_ending)

    def __call__(self, command: str, *arguments: str) -> Result:
        return CliRunner().invoke(main, [command, self._table, *self._options, *arguments])

    def json(self, command: str, *arguments: str) -> dict[str, Any]:
        """Give the document that a command prints, which succeeds."""
        result = self(command, *arguments, "--json")
        assert result.exit_code == 0, result.output
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    def on_a_terminal(self, command: str, *arguments: str) -> str:
        """Give what a process whose standard error is a terminal writes there."""
        terminal, stderr = pty.openpty()
        with open(terminal, "rb", buffering=0) as screen:
            # A terminal that nobody has open any more ends, instead of waiting.
            with open(stderr, "wb") as end:
                line = [*PROGRAM, command, self._table, *self._options, *arguments]
                subprocess.run(line, stdout=subprocess.DEVNULL, stderr=end, check=True)
            return screen.read(1 << 16).decode()
