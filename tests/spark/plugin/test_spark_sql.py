"""`spark-sql` with the plugin: statements use the index, and go on without it when the Python process is gone."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ssb_bench.spark_runs.jars import SPARK_RELEASE
from tests.processes import is_alive, wait_for
from tests.spark.plugin.programs import READY, SETUP, SqlShell, running, spark_settings

pytestmark = pytest.mark.spark

HAS_CALL = not SPARK_RELEASE.startswith("3.")
COUNT = "SELECT count(*) FROM lake.ns.t WHERE k = 7"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, catalog_conf: dict[str, str]) -> Iterator[SqlShell]:
    """A shell in which `lake.ns.t` is indexed; its first statement waits for the Python process."""
    home = tmp_path_factory.mktemp("plugin")
    own = {"spark.puffin-index.start-milliseconds": "60000", "spark.puffin-index.silence-milliseconds": "3000"}
    settings = spark_settings(home, own | catalog_conf)
    with running("spark-sql", home, settings, "--master", "local[2]") as program:
        shell = SqlShell(program)
        for statement in SETUP:
            shell(statement)
        shell("CREATE INDEX i ON lake.ns.t USING bsi (k) OPTIONS (build = 'sync')")
        yield shell


def uses_index(shell: SqlShell) -> bool:
    """Whether a count, which must be right, is answered by the index."""
    assert shell(COUNT) == ["1"]
    return "PuffinIndexAnswer" in " ".join(shell(f"EXPLAIN {COUNT}"))


def test_statements_queries_joins_and_merge_use_the_index(shell: SqlShell) -> None:
    if HAS_CALL:
        (status,) = shell("CALL puffin.system.status('lake.ns.t')")
        assert status.split("\t")[3:7] == ["1", "1", "4", "4"]
    assert uses_index(shell)
    assert shell("SELECT id, s FROM lake.ns.t WHERE k = 7") == ["1753\tn3"]
    shell.program.wait_until_said("lake.ns.t: 1 of 4 row groups kept")
    join = "SELECT t.id, t.s FROM lake.ns.t JOIN (SELECT 7L AS k UNION ALL SELECT -1L) keys ON t.k = keys.k"
    assert shell(join) == ["1753\tn3"]
    merge = (
        "MERGE INTO lake.ns.t USING (SELECT 7L AS k) s ON t.k = s.k AND t.k = 7 WHEN MATCHED THEN UPDATE SET s = 'new'"
    )
    shell(merge)
    assert shell("SELECT id, s FROM lake.ns.t WHERE k = 7") == ["1753\tnew"]


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.nightly)])
def test_queries_go_on_at_once_and_a_new_process_plans_again(shell: SqlShell, number: signal.Signals) -> None:
    before = shell.program.said()
    ready, said = before.count("after its start"), before.count("it is started again")
    sidecar = shell.program.sidecar()
    assert uses_index(shell)

    os.kill(sidecar.pid, number)
    started = time.monotonic()
    assert shell(COUNT) == ["1"]

    # A process that hangs is waited for as long as the setting says.
    assert time.monotonic() - started < (3 if number == signal.SIGKILL else 7)
    assert not is_alive(sidecar)
    shell.program.wait_until_said(READY, ready + 1)
    assert uses_index(shell)
    assert not HAS_CALL or shell("CALL puffin.system.status('lake.ns.t')") != []
    assert shell.program.said().count("it is started again") == said + 1


def test_the_secret_is_in_no_process_list(shell: SqlShell) -> None:
    folder = Path(f"/proc/{shell.program.sidecar().pid}")
    shown = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
    assert b"GATEWAY" not in shown
    assert b"planner.spark.sidecar\0" in shown


def test_it_ends_with_a_jvm_that_is_killed(shell: SqlShell) -> None:
    sidecar = shell.program.sidecar()
    shell.program.process.kill()
    assert wait_for(lambda: not is_alive(sidecar), 5)
