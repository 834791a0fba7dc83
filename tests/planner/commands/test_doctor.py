"""`puffin-index doctor` where all is well, and on real things that are broken."""

import json
import os
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from pyiceberg.catalog.sql import SqlCatalog

from planner.commands.main import main
from planner.spark import build_jar
from planner.spark.build_jar import SOURCES_DIGEST, digest_of, installed_release
from puffin_index import TableIndex
from ssb_bench.stores.server import free_port
from tests.puffin_index.indexed_table import indexed
from tests.shell import PROGRAM, catalog_options


@pytest.fixture(autouse=True)
def own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a Java 17 kit and PyIceberg's configuration in a folder of the test, and nothing else set."""
    for name in list(os.environ):
        if name.startswith(("PYICEBERG_", "SPARK_", "PYSPARK_", "PUFFIN_INDEX_", "AWS_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(program(tmp_path / "jdk/bin/javac", "true").parents[1]))
    program(tmp_path / "jdk/bin/java", "echo 'openjdk version \"17.0.9\" 2026-01-01' >&2")
    return tmp_path


def program(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def doctor(*arguments: str, prefix: Sequence[str] | None = None, **variables: str) -> list[tuple[str, str, str]]:
    """What the command finds: state, thing and text. With a prefix or variables, a new process runs it."""
    options = ["doctor", "--json", *arguments]
    if prefix is None and not variables:
        result = CliRunner().invoke(main, options)
        output, code = result.stdout, result.exit_code
    else:
        command = [*(prefix or ()), *PROGRAM, *options]
        done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
        output, code = done.stdout, done.returncode
    found = [(one["state"], one["about"], one["text"]) for one in json.loads(output)["findings"]]
    assert code == any(state == "problem" for state, _, _ in found), found
    return found


def of(about: str, found: list[tuple[str, str, str]]) -> list[tuple[str, str]]:
    return [(state, text) for state, thing, text in found if thing == about]


def test_a_sound_installation_has_its_versions_in_a_line_each() -> None:
    result = CliRunner().invoke(main, ["doctor"])

    assert all(line.startswith(("ok ", "warning ")) for line in result.stdout.splitlines())
    assert result.exit_code == 0
    java, spark = f"{os.environ['JAVA_HOME']}/bin/java is 17.0.9, a JDK", f"Spark here is {installed_release()}"
    for said in ("puffin-index 0.", f"Python {sys.version.split()[0]}", "pyiceberg 0.", "pyroaring ", java, spark):
        assert said in result.stdout


def test_packages_that_do_not_fit_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = ["unheard-of>=2", "numpy>=99", "other>=3; extra == 'bench'"]
    lines = ["Metadata-Version: 2.1", "Name: puffin-index", "Version: 1", *(f"Requires-Dist: {one}" for one in needed)]
    (tmp_path / "puffin_index-1.dist-info").mkdir()
    (tmp_path / "puffin_index-1.dist-info" / "METADATA").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)

    assert [text for state, text in of("versions", doctor()) if state == "problem"] == [
        "unheard-of is missing, needed is >=2",
        f"numpy {np.__version__}, needed is >=99",
    ]


def test_the_java_that_spark_would_take_is_run(own_machine: Path) -> None:
    java = own_machine / "jdk/bin/java"
    program(java, "echo 'java version \"1.8.0_392\"' >&2")
    assert of("Java", doctor())[0][0] == "problem"

    program(java, "echo 'openjdk version \"21.0.1\" 2026-01-01' >&2").with_name("javac").unlink()
    assert of("Java", doctor()) == [("ok", f"{java} is 21.0.1, a runtime without javac")]

    java.unlink()
    ((state, text),) = of("Java", doctor())
    assert (state, text.startswith(f"{own_machine}/jdk: has no java: for Spark, install Java 17")) == ("problem", True)


def test_of_spark_only_what_is_here_is_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert {thing for _, thing, _ in doctor()} == {"versions"}

    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-4.9.0.jar").touch()
    ((state, text),) = of("jar of the hook", doctor())
    assert (state, f"Spark here is 4.9_2.13, in {tmp_path}; " in text) == ("problem", True)


def test_the_jar_is_that_of_the_installed_spark_and_of_these_sources(
    own_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, copy = installed_release(), own_machine / "copy"
    shutil.copytree(Path(build_jar.__file__).parent, copy, ignore=shutil.ignore_patterns("jars"))
    monkeypatch.setattr(build_jar, "_HERE", copy)
    jar = write_jar(copy / f"jars/puffin-index-spark-{release}.jar", "of other sources")
    assert of("jar of the hook", doctor())[0][0] == "warning"

    (own_machine / "jdk/bin/javac").unlink()
    assert of("jar of the hook", doctor())[0][0] == "problem"

    write_jar(jar, digest_of(release))
    assert of("jar of the hook", doctor())[0][0] == "ok"


def write_jar(file: Path, digest: str) -> Path:
    file.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(file, "w") as content:
        content.writestr(SOURCES_DIGEST, digest)
    return file


def test_the_pythons_of_executors_and_of_the_plugin_are_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = program(tmp_path / "bare", f'exec {os.path.realpath(sys.executable)} -I "$@"')
    jar = write_jar(tmp_path / "puffin-index-spark.jar", digest_of(installed_release()))
    old = write_jar(tmp_path / "puffin-index-spark-old.jar", "old")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))

    def states(jar: Path, python: object) -> list[str]:
        (tmp_path / "spark-defaults.conf").write_text(
            "# spark.plugins  commented.out\nspark.plugins\tio.puffinindex.spark.PuffinIndexPlugin\n"
            f"spark.jars=/other.jar,file:{jar}\nspark.puffin-index.python   {python}\n"
        )
        return [state for state, _ in of("settings of Spark", doctor())]

    assert "does not have it" in of("settings of Spark", doctor())[1][1]
    assert states(jar, sys.executable) == ["ok", "ok"]
    assert states(old, sys.executable) == ["ok", "ok", "warning"]
    assert states(jar, "/nowhere/python") == ["ok", "warning"]
    assert states(jar, bare) == ["ok", "problem"]
    monkeypatch.setenv("PYSPARK_PYTHON", str(bare))
    assert states(jar, sys.executable) == ["problem", "ok"]
    assert f"{bare}, says ModuleNotFoundError: " in of("settings of Spark", doctor())[0][1]


@pytest.mark.usefixtures("local_catalog")
def test_a_catalog_in_trouble_hides_no_other_one_and_no_secret_is_shown(tmp_path: Path) -> None:
    refused = f"127.0.0.1:{free_port()}"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        properties = {
            "LOST__URI": f"sqlite:///{tmp_path}/lost.db",
            "SILENT__URI": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "REFUSED__URI": f"http://me:s3cr3t@{refused}",
            "REFUSED__WAREHOUSE": "w?sig=s3cr3t",
            "IMPOSSIBLE__URI": f"gopher://me:s3cr3t@{refused}/?token=s3cr3t",
            "LOCAL__URI": f"sqlite:///{tmp_path}/catalog.db",
        }
        found = doctor("--seconds", "3", **{f"PYICEBERG_CATALOG__{k}": v for k, v in properties.items()})

    states = {thing.split()[1]: state for state, thing, _ in found if thing.startswith("catalog ")}
    assert states == dict.fromkeys(("lost", "silent", "refused", "impossible"), "problem") | {"local": "ok"}
    assert of("catalog silent", found)[0][1].startswith("no answer in 3 s")
    assert of("catalog local", found)[0][1] == "answers, with 1 namespaces"
    assert "s3cr3t" not in str(found)


def test_a_configuration_that_cannot_be_read_is_not_quoted(tmp_path: Path) -> None:
    (tmp_path / ".pyiceberg.yaml").write_text("catalog:\n  local:\n    token: [s3cr3t\n  :")

    result = CliRunner().invoke(main, ["doctor"])

    assert result.exit_code == 1
    assert ("PyIceberg cannot read its configuration" in result.output, "s3cr3t" in result.output) == (True, False)


def ask(folder: Path, *arguments: str, table: str = "local.ns.t") -> list[tuple[str, str]]:
    return of("table", doctor(table, *catalog_options(folder), *arguments))


def files(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_table_is_read_step_by_step_and_not_changed(local_catalog: SqlCatalog, tmp_path: Path) -> None:
    index = indexed(local_catalog, 1)
    before = files(tmp_path)

    sound = ask(tmp_path)
    written = ask(tmp_path, "--write")

    assert [state for state, _ in sound] == ["ok"] * 4
    assert "1 of 1 data files" in sound[1][1]
    assert "index table ns.t__puffin_index and 1 of 1 segments can be read" in sound[2][1]
    assert written[:3] == sound[:3]
    assert written[3][1].startswith("a file was written to ")
    assert files(tmp_path) == before

    index.data_table.append(index.data_table.scan().to_arrow())
    assert ask(tmp_path)[-1] == ("warning", "1 data files have no index: `puffin-index build` indexes them")


@pytest.mark.parametrize(("folder", "steps"), [("data", 1), ("_segments", 2)])
def test_files_that_are_missing_are_named(folder: str, steps: int, local_catalog: SqlCatalog, tmp_path: Path) -> None:
    index = indexed(local_catalog, 1)
    location = index.data_table.location() if folder == "data" else index.index_table.location()
    shutil.rmtree(f"{location.removeprefix('file://')}/{folder}")

    found = ask(tmp_path)

    assert [state for state, _ in found] == ["ok"] * steps + ["problem"]
    assert f"file not found: {location}/{folder}/" in found[-1][1]


def test_a_table_that_is_not_there_is_named_with_the_nearest(local_catalog: SqlCatalog, tmp_path: Path) -> None:
    indexed(local_catalog, 0)

    ((state, text),) = ask(tmp_path, table="local.ns.tt")
    assert (state, "there is no table ns.tt in catalog 'local'; did you mean 'ns.t'?" in text) == ("problem", True)
    assert "'t' is not a table name" in ask(tmp_path, table="t")[0][1]
    assert "no table *** in" in ask(tmp_path, "--catalog-property", "token=ns.tt", table="local.ns.tt")[0][1]
    TableIndex.open(local_catalog, "ns.t").drop()
    assert ask(tmp_path)[-1][0] == "warning"


def test_a_location_that_must_not_be_written_is_told_if_asked(local_catalog: SqlCatalog, tmp_path: Path) -> None:
    index = indexed(local_catalog, 1)
    folder = Path(index.index_table.location().removeprefix("file://")) / "_segments"
    folder.chmod(0o555)
    # Root writes everywhere, unless it gives that up.
    as_others = ["setpriv", "--bounding-set=-dac_override", "--"] if os.geteuid() == 0 else []

    try:
        answers = doctor("local.ns.t", *catalog_options(tmp_path), "--write", prefix=as_others)
    finally:
        folder.chmod(0o755)

    *before, (state, text) = of("table", answers)
    assert ([state for state, _ in before], state) == (["ok"] * 3, "problem")
    assert all(said in text for said in (str(folder), "Permission denied"))
