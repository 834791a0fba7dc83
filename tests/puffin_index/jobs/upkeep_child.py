"""A process that looks after an index, and may kill itself at the n-th thing it does to files or catalog.

Each is forked from a server that has imported this module already: importing takes longer than what most of them do.
"""

import multiprocessing
import os
import resource
import signal
import uuid
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from puffin_index import TableIndex
from puffin_index.jobs.drop import drop_index
from tests.conftest import catalog_in
from tests.puffin_index.indexed_table import DEFINITION, rows

_P = ParamSpec("_P")
_R = TypeVar("_R")
ROOT = Path(__file__).parents[3]
multiprocessing.set_forkserver_preload([__name__])


class Child:
    """A process that does an action some times.

    Before its `kill_at`-th thing it kills itself, if not 0; its files grow to `most_bytes` at most, if not -1.
    """

    def __init__(self, folder: Path, action: str, kill_at: int = 0, *, repeat: int = 1, most_bytes: int = -1) -> None:
        # A pipe, as `most_bytes` would cut a file.
        pipe = folder / f"{uuid.uuid4().hex}.stderr"
        os.mkfifo(pipe)
        self._said = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self._process = multiprocessing.get_context("forkserver").Process(
            target=main, args=(pipe, folder, action, kill_at, repeat, most_bytes), daemon=True
        )
        self._process.start()

    def wait(self, seconds: float) -> tuple[int, str]:
        """Wait for the end; return the exit code, or the negative number of a signal, and what stands in stderr."""
        self._process.join(seconds)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
        with open(self._said, encoding="utf-8") as pipe:
            said = pipe.read()
        assert code is not None, said
        return code, said


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


def append_and_build(index: TableIndex) -> None:
    index.data_table.append(rows(uuid.uuid4().int % 2**32))
    index.build(workers=1)


_ON_THE_CATALOG: dict[str, Callable[[SqlCatalog], object]] = {
    "create": lambda catalog: TableIndex.create(catalog, "ns.t", DEFINITION),
    "drop": lambda catalog: drop_index(catalog, "ns.t"),
    "follow": lambda catalog: TableIndex.follow(catalog, "ns.h"),
    "adopt": lambda catalog: TableIndex.create(catalog, "ns.h", DEFINITION),
}
"""What is done where the index may not be there."""
_ON_THE_INDEX: dict[str, Callable[[TableIndex], object]] = {
    "append-and-build": append_and_build,
    "build": lambda index: index.build(workers=1),
    "compact": lambda index: index.compact(),
    "expire": lambda index: index.expire(),
    "expire-now": lambda index: index.expire(timedelta(0)),
}


def main(stderr: Path, folder: Path, action: str, kill_at: int, repeat: int, most_bytes: int) -> None:
    with stderr.open("wb") as pipe:
        os.dup2(pipe.fileno(), 2)
    if most_bytes >= 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    catalog = catalog_in(folder)
    if action in _ON_THE_CATALOG:
        run = partial(_ON_THE_CATALOG[action], catalog)
    else:
        run = partial(_ON_THE_INDEX[action], TableIndex.open(catalog, "ns.t"))
    if kill_at:
        _kill_at(kill_at)
    for _ in range(repeat):
        run()
