"""The jar of the hook: built once for its sources and its release, by however many processes."""

import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from planner.spark import build_jar
from planner.spark.build_jar import RELEASES, JarError, built_jar, installed_release, ready_jar

_RELEASE = RELEASES[-1]


@pytest.fixture(autouse=True)
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only source of a hook in another folder."""
    monkeypatch.setattr(build_jar, "_HERE", tmp_path)
    path = tmp_path / "java" / "one" / "One.java"
    path.parent.mkdir(parents=True)
    path.write_text("package one; class One { int number = 1; }")
    return path


def built() -> Path:
    return built_jar(_RELEASE, lambda _: [])


def test_a_jar_is_built_once_for_its_sources(source: Path) -> None:
    assert ready_jar(_RELEASE) is None
    jar = built()
    assert jar.name == f"puffin-index-spark-{_RELEASE}.jar"
    assert "one/One.class" in zipfile.ZipFile(jar).namelist()
    whole, first = jar.read_bytes(), jar.stat().st_ino
    assert (built(), jar.stat().st_ino) == (jar, first)

    for damaged in (b"", whole[:100], whole[:-1]):
        jar.write_bytes(damaged)
        assert ready_jar(_RELEASE) is None
    other = jar.with_name(f"puffin-index-spark-{RELEASES[0]}.jar")
    other.write_bytes(whole)
    assert ready_jar(RELEASES[0]) is None
    with zipfile.ZipFile(other, "w") as content:
        content.writestr("one/One.class", b"")
    assert ready_jar(RELEASES[0]) is None
    other.unlink()

    jar.write_bytes(whole)
    assert ready_jar(_RELEASE) == jar
    source.write_text("package one; class One { int number = 2; }")
    assert ready_jar(_RELEASE) is None

    with ThreadPoolExecutor(2) as pool:
        assert {future.result() for future in [pool.submit(built) for _ in range(2)]} == {jar}
    assert ready_jar(_RELEASE) == jar
    assert [path.name for path in jar.parent.iterdir()] == [jar.name]


def test_what_is_missing_is_said_with_releases(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JarError, match=r"no jar of the hook for Spark 3\.3_2\.12, only for 4\.1_2\.13, .*3\.5_2\.12"):
        built_jar("3.3_2.12", lambda _: [])
    (tmp_path / "jars").write_text("a file")
    with pytest.raises(JarError, match=r"the hook's jar cannot be written: .*jars"):
        built()
    source.write_text("class One {")
    with pytest.raises(JarError, match=r"does not compile: (?s:.)*One\.java"):
        built()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(
        JarError,
        match=r"no javac in .*/bin, which is a runtime, to compile it: install .*4\.1_2\.13, 4\.0_2\.13, .*3\.5_2\.12",
    ):
        built()


def test_the_installed_release_is_told_by_the_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(JarError, match=r"no Spark in .*/jars: install pyspark or set SPARK_HOME"):
        installed_release()
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.12-3.5.2-vendor-1.jar").touch()
    assert installed_release() == "3.5_2.12"


def test_the_file_runs_by_itself() -> None:
    command = [sys.executable, "-I", build_jar.__file__, "2.4_2.11"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("there is no jar of the hook for Spark 2.4_2.11, only for ")
