"""Servers, jobs in Java and a cluster with the plugin: unchanged SQL and DataFrames of any client use the index."""

import json
import os
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.connect.session import SparkSession as ConnectSession

import planner
from puffin_index.errors import UnsupportedError
from ssb_bench.stores.server import free_port, wait_for
from tests.processes import run_python
from tests.spark.plugin.programs import READY, SETUP, SPARK_HOME, Program, SqlShell, running, spark_settings

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

COUNT = "SELECT count(*) FROM lake.ns.t WHERE k = 7"
INDEX = ("CREATE INDEX i ON lake.ns.t USING bsi (k)", "CALL puffin.system.build('lake.ns.t')")
JOIN = "SELECT t.id, t.s FROM lake.ns.t JOIN (SELECT explode(array(7L, -1L)) AS k) keys ON t.k = keys.k"
MERGE = (
    "MERGE INTO lake.ns.t USING (SELECT 7L AS k) s ON t.k = s.k AND t.k = 7 "
    "WHEN MATCHED THEN UPDATE SET s = concat(t.s, '!')"
)
PAGED = (
    "CREATE TABLE lake.ns.paged (id BIGINT, k BIGINT, s STRING) USING iceberg",
    "INSERT INTO lake.ns.paged "
    "SELECT id, id * 7919 % 120000, sha2(CAST(id AS STRING), 512) FROM RANGE(0, 120000, 1, 1)",
    "CREATE INDEX i ON lake.ns.paged USING bitmap (k)",
    "CALL puffin.system.build('lake.ns.paged')",
)
"""A table of one row group with six pages."""
BY_PAGES = "lake.ns.paged: 1 of 1 row groups kept, 1 of 6 pages, "
WAITING = {"spark.puffin-index.start-milliseconds": "60000"}
_JOB = """
import org.apache.spark.sql.*;

public class Job {
  public static void main(String[] statements) {
    SparkSession spark = SparkSession.builder().getOrCreate();
    for (String statement : statements) {
      for (Row row : spark.sql(statement).collectAsList()) {
        System.out.println(row);
      }
    }
    // The application is not stopped: the JVM must end nevertheless.
  }
}
"""

_CONTEXT_FIRST = """
import json, os, sys, time
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from tests.processes import descendants

def is_there():
    return any("planner.spark.sidecar" in process.command for process in descendants(os.getpid()))

SparkContext(conf=SparkConf().setMaster("local[1]").setAll(json.loads(sys.argv[1]).items()))
time.sleep(2)
before = is_there()
SparkSession.builder.getOrCreate()
end = time.monotonic() + 60
while not is_there() and time.monotonic() < end:
    time.sleep(0.1)
print(before, is_there())
"""


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Program, str]]:
    """A Connect server, and its address."""
    home, port = tmp_path_factory.mktemp("connect"), free_port()
    own = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
    main = ("--master", "local[2]", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer")
    with running("spark-submit", home, spark_settings(home, own), *main, "spark-internal") as program:
        wait_for(port)
        program.wait_until_said(READY)
        yield program, f"sc://127.0.0.1:{port}"


@pytest.fixture
def remote(connect: tuple[Program, str]) -> Iterator[ConnectSession]:
    session = ConnectSession.builder.remote(connect[1]).create()
    yield session
    session.stop()


def test_connect_sessions_use_the_index(connect: tuple[Program, str], remote: ConnectSession) -> None:
    for statement in (*SETUP, *INDEX):
        remote.sql(statement).collect()

    assert remote.sql(COUNT).collect() == [(1,)]
    assert "PuffinIndexAnswer" in str(remote.sql(f"EXPLAIN {COUNT}").collect()[0][0])
    frame = remote.table("lake.ns.t")
    assert frame.where("k = 7").select("id", "s").collect() == [(1753, "n3")]
    connect[0].wait_until_said("lake.ns.t: 1 of 4 row groups kept")
    assert frame.where("k = -7").count() == 0
    assert remote.sql(JOIN).collect() == [(1753, "n3")]
    remote.sql(MERGE).collect()
    assert frame.where("k = 7").select("s").collect() == [("n3!",)]
    (status,) = remote.sql("CALL puffin.system.status('lake.ns.t')").collect()
    assert (status["data_files"], status["indexed_data_files"]) == (2, 1)


def test_connect_sessions_read_pages(connect: tuple[Program, str], remote: ConnectSession) -> None:
    for statement in PAGED:
        remote.sql(statement).collect()

    assert [row.id for row in remote.table("lake.ns.paged").where("k = 7919").select("id", "s").collect()] == [1]
    connect[0].wait_until_said(BY_PAGES)
    assert "FewRowsFile" not in connect[0].said()


def test_what_needs_a_jvm_says_what_to_do_instead(remote: ConnectSession) -> None:
    for use in (planner.enable, planner.disable, planner.reports):
        with pytest.raises(UnsupportedError, match=r"no JVM here, as is so with Spark Connect: .*spark-conf"):
            use(remote)


def threads_and_kilobytes(pid: int) -> tuple[int, int]:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return int(fields["Threads"]), int(fields["VmRSS"].split()[0])


def test_many_sessions_leave_nothing_behind(connect: tuple[Program, str], remote: ConnectSession) -> None:
    program, address = connect
    remote.sql(COUNT).collect()
    sidecar = program.sidecar().pid

    def come_and_go(sessions: int) -> tuple[int, int]:
        for _ in range(sessions):
            session = ConnectSession.builder.remote(address).create()
            assert session.sql(COUNT).collect() == [(1,)]
            session.stop()
        return threads_and_kilobytes(sidecar)

    # A thread of the JVM that is connected with Python has a thread there.
    (threads, kilobytes), (threads_later, kilobytes_later) = come_and_go(50), come_and_go(100)

    assert threads_later <= threads + 2
    assert kilobytes_later <= kilobytes + 5_000


def test_jdbc_clients_use_the_index(tmp_path: Path) -> None:
    port = free_port()
    own = {
        "spark.hadoop.hive.server2.thrift.port": str(port),
        "spark.hadoop.hive.server2.thrift.bind.host": "127.0.0.1",
        **WAITING,
    }
    main = ("--master", "local[2]", "--class", "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2")

    def beeline(*statements: str) -> list[str]:
        options = ("-u", f"jdbc:hive2://127.0.0.1:{port}", "-n", "me", "--outputformat=tsv2", "--showHeader=false")
        told = [text for statement in statements for text in ("-e", statement)]
        command = [SPARK_HOME / "bin" / "beeline", *options, "--silent=true", *told]
        environment = {**os.environ, "SPARK_HOME": str(SPARK_HOME)}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        # Its prompts stand before the results, and it says what it is told.
        lines = [line.rpartition("> ")[2] for line in done.stdout.splitlines()]
        return [line for line in lines if line and not line.endswith(";")]

    with running("spark-submit", tmp_path, spark_settings(tmp_path, own), *main, "spark-internal") as program:
        wait_for(port)
        beeline(*SETUP, *INDEX)

        lines = beeline(COUNT, f"EXPLAIN {COUNT}", "SELECT id, s FROM lake.ns.t WHERE k = 7", JOIN, MERGE)

        assert lines[0] == "1"
        assert any("PuffinIndexAnswer" in line for line in lines)
        assert lines[-2:] == ["1753\tn3"] * 2
        program.wait_until_said("lake.ns.t: 1 of 4 row groups kept")
        assert beeline("SELECT s FROM lake.ns.t WHERE k = 7") == ["n3!"]
        assert beeline("CALL puffin.system.status('lake.ns.t')")[0].split("\t")[3:5] == ["2", "1"]


def test_a_job_in_java_uses_the_index_and_ends(tmp_path: Path) -> None:
    source = tmp_path / "Job.java"
    source.write_text(_JOB, encoding="utf-8")
    javac = Path(os.environ["JAVA_HOME"], "bin", "javac") if "JAVA_HOME" in os.environ else "javac"
    subprocess.run([javac, "-proc:none", "-cp", f"{SPARK_HOME / 'jars'}/*", "-d", tmp_path, source], check=True)
    jar = tmp_path / "job.jar"
    with zipfile.ZipFile(jar, "w") as opened:
        opened.write(tmp_path / "Job.class", "Job.class")
    statements = (*SETUP, *INDEX, MERGE, COUNT, f"EXPLAIN {COUNT}", "SELECT s FROM lake.ns.t WHERE k = 7")
    main = ("--master", "local[2]", "--class", "Job", str(jar), *statements)

    with running("spark-submit", tmp_path, spark_settings(tmp_path, WAITING), *main) as program:
        assert program.process.wait(120) == 0, program.said()[-5_000:]

        lines = program.printed().splitlines()
        assert (lines[-1], "[1]" in lines) == ("[n3!]", True), lines
        assert any("PuffinIndexAnswer" in line for line in lines)


def test_a_cluster_of_two_workers(tmp_path: Path) -> None:
    port, deploy = free_port(), "org.apache.spark.deploy"
    url, here = f"spark://127.0.0.1:{port}", ("--host", "127.0.0.1", "--webui-port", "0")
    worker = (f"{deploy}.worker.Worker", *here, "--cores", "1", "--memory", "1g", url)
    own = {**WAITING, "spark.executor.memory": "700m", "spark.cores.max": "2"}
    with (
        running("spark-class", tmp_path, {}, f"{deploy}.master.Master", *here, "--port", str(port)),
        running("spark-class", tmp_path, {}, *worker),
        running("spark-class", tmp_path, {}, *worker),
        running("spark-sql", tmp_path, spark_settings(tmp_path, own), "--master", url) as program,
    ):
        shell = SqlShell(program)
        for statement in (*SETUP, *INDEX, *PAGED):
            shell(statement)

        assert shell("SELECT id FROM lake.ns.paged WHERE k = 7919 AND s > ''") == ["1"]
        program.wait_until_said(BY_PAGES)
        assert shell(COUNT) == ["1"]
        assert "PuffinIndexAnswer" in " ".join(shell(f"EXPLAIN {COUNT}"))
        assert shell(JOIN) == ["1753\tn3"]
        shell(MERGE)
        assert shell("SELECT s FROM lake.ns.t WHERE k = 7") == ["n3!"]
        assert "1 of 4 row groups kept" in program.said()


def test_nothing_starts_before_there_is_a_session_unless_statements_wait(tmp_path: Path) -> None:
    settings = spark_settings(tmp_path)

    assert run_python(_CONTEXT_FIRST, json.dumps(settings)).stdout.split() == ["False", "True"]
    assert run_python(_CONTEXT_FIRST, json.dumps(settings | WAITING)).stdout.split() == ["True", "True"]


@pytest.mark.parametrize(("python", "reason"), [("/nowhere/python", "does not start"), ("false", "ended with code 1")])
def test_a_python_that_does_not_do_is_named_once(tmp_path: Path, python: str, reason: str) -> None:
    settings = {**spark_settings(tmp_path), **WAITING, "spark.puffin-index.python": python}
    with running("spark-sql", tmp_path, settings, "--master", "local[1]", "-e", "SELECT 41 + 1") as program:
        assert program.process.wait(60) == 0
        assert program.printed().splitlines() == ["42"]
        assert program.said().count(f"no index is used: {python} {reason}") == 1
