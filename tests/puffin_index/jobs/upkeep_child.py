"""A process that looks after an index, and may kill itself at the n-th thing it does to files or catalog.

Run as `python -m tests.puffin_index.jobs.upkeep_child FOLDER ACTION KILL_AT [REPEAT]`; KILL_AT 0 lets it live.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import ParamSpec, TypeVar

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from puffin_index import TableIndex
from puffin_index.jobs.drop import drop_index
from tests.puffin_index.indexed_table import DEFINITION, rows

_P = ParamSpec("_P")
_R = TypeVar("_R")
ROOT = Path(__file__).parents[3]


def start(folder: Path, action: str, kill_at: int = 0, repeat: int = 1) -> subprocess.Popen[bytes]:
    """Run this module in a process of its own."""
    arguments = [str(folder), action, str(kill_at), str(repeat)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.puffin_index.jobs.upkeep_child", *arguments],
        env=environment,
        stderr=subprocess.PIPE,
    )


def open_catalog(folder: Path) -> SqlCatalog:
    """The catalog that the fixture `local_catalog` makes in a folder."""
    return SqlCatalog("local", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=folder.as_uri())


def _counted(function: Callable[_P, _R], event: Callable[[], None]) -> Callable[_P, _R]:
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        event()
        result = function(*args, **kwargs)
        event()
        return result

    return wrapped


def _kill_at(number: int) -> None:
    seen = 0

    def event() -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    steps = [(PyArrowFile, "create"), (PyArrowFileIO, "delete"), (SqlCatalog, "commit_table")]
    steps += [(SqlCatalog, name) for name in ("create_table", "drop_table", "rename_table")]
    for owner, name in steps:
        setattr(owner, name, _counted(getattr(owner, name), event))


_ON_THE_CATALOG: dict[str, Callable[[SqlCatalog], object]] = {
    "create": lambda catalog: TableIndex.create(catalog, "ns.t", DEFINITION),
    "drop": lambda catalog: drop_index(catalog, "ns.t"),
    "follow": lambda catalog: TableIndex.follow(catalog, "ns.h"),
    "adopt": lambda catalog: TableIndex.create(catalog, "ns.h", DEFINITION),
}
"""What is done where the index may not be there."""


def main(folder: Path, action: str, kill_at: int, repeat: int) -> None:
    catalog = open_catalog(folder)
    if action in _ON_THE_CATALOG:
        if kill_at:
            _kill_at(kill_at)
        for _ in range(repeat):
            _ON_THE_CATALOG[action](catalog)
        return
    index = TableIndex.open(catalog, "ns.t")
    if kill_at:
        _kill_at(kill_at)
    for _ in range(repeat):
        match action:
            case "append-and-build":
                index.data_table.append(rows(uuid.uuid4().int % 2**32))
                index.build(workers=1)
            case "build":
                index.build(workers=1)
            case "compact":
                index.compact()
            case "expire":
                index.expire()
            case "expire-now":
                index.expire(timedelta(0))
            case _:
                raise ValueError(action)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
