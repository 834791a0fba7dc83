"""Workers end with the process that they work for, even if it is killed and can tell nobody."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_index import IndexDefinition, TableIndex
from tests.conftest import create_table
from tests.processes import Process, descendants, is_alive, wait_for
from tests.shell import PROGRAM, catalog_options

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads of processes what Linux tells")

ROWS = 1_000_000
TASKS = 6
DEADLINE_SECONDS = 60.0
GONE_SECONDS = 15.0

_BUILD = (*PROGRAM, "build", "local.ns.t", "--json", "--engine", "local", "--workers", "2")
_WATCH = (*_BUILD, "--watch", "--interval", "0.2")

_NOTEBOOK = """
import sys, threading
from pyiceberg.catalog.sql import SqlCatalog
from puffin_index import TableIndex

properties = dict(option.split("=", 1) for option in sys.argv[2::2])
index = TableIndex.open(SqlCatalog("local", **properties), "ns.t")
# The thread that starts a build ends long before the build.
starter = threading.Thread(target=lambda: index.build_async(workers=2))
starter.start()
threading.Event().wait()
"""

_IDLE_AND_FORKED = """
import os, time
from puffin_index.jobs.worker_pool import worker_pool

pool = worker_pool(2, {})
print(pool.submit(os.getpid).result(), flush=True)
if os.fork() == 0:
    # Whatever the parent has opened is open here as well.
    time.sleep(60)
    os._exit(0)
time.sleep(60)
"""


@pytest.fixture
def table(local_catalog: SqlCatalog) -> None:
    """A table whose build takes some seconds."""
    data = pa.table({"k": pa.array(range(ROWS), pa.int64())})
    created = create_table(local_catalog, "t", data, 250_000)
    for _ in range(1, TASKS):
        created.append(data)
    TableIndex.create(local_catalog, "ns.t", IndexDefinition.of(bitmap=["k"], bsi=["k"], bloom=["k"]))


def workers_of(pid: int) -> list[Process]:
    return [process for process in descendants(pid) if "popen_loky_posix" in process.command]


@pytest.mark.one_of(10)
@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("segments", [0, 1], ids=["starting", "building"])
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(_BUILD, id="build"),
        pytest.param(_WATCH, id="watch"),
        pytest.param((sys.executable, "-c", _NOTEBOOK), id="build_async"),
    ],
)
def test_a_build_that_is_killed_leaves_no_process(tmp_path: Path, command: Sequence[str], segments: int) -> None:
    line = [*command, *catalog_options(tmp_path)]
    builder = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert wait_for(lambda: len(workers_of(builder.pid)) == 2, DEADLINE_SECONDS)
        assert wait_for(lambda: len(list(tmp_path.glob("**/*.puffin"))) >= segments, DEADLINE_SECONDS)
        family = descendants(builder.pid)
    finally:
        builder.send_signal(signal.SIGKILL)
        builder.wait()

    assert len([process for process in family if "popen_loky_posix" in process.command]) == 2
    assert wait_for(lambda: not any(map(is_alive, family)), GONE_SECONDS), [p for p in family if is_alive(p)]
    assert wait_for(lambda: not [*Path("/dev/shm").glob(f"sem.loky-{builder.pid}-*")], GONE_SECONDS)


def test_idle_workers_end_as_well_whoever_else_has_inherited_the_files_of_their_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", _IDLE_AND_FORKED], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout:
        assert int(parent.stdout.readline()) > 0
        workers = workers_of(parent.pid)
        others = [process for process in descendants(parent.pid) if process not in workers]
        parent.send_signal(signal.SIGKILL)
        parent.wait()

    try:
        assert len(workers) == 2
        assert wait_for(lambda: not any(map(is_alive, workers)), GONE_SECONDS)
    finally:
        for process in filter(is_alive, others):
            os.kill(process.pid, signal.SIGKILL)
