"""Java archives are fetched once, whole, and checked, from a Maven repository on this disk by the Ivy of PySpark."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tenacity import stop_after_attempt

from ssb_bench.data.layout import BenchError
from ssb_bench.spark_runs import jars

pytestmark = pytest.mark.spark

_CONTENT = os.urandom(1 << 20)
_SETTINGS = """<ivysettings><settings defaultResolver="disk"/><resolvers><filesystem name="disk" m2compatible="true">
  <artifact pattern="{0}/[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"/>
</filesystem></resolvers></ivysettings>
"""
_FETCH = """
import sys
from pathlib import Path
from ssb_bench.spark_runs import jars

jars._LOCKED, jars._CLONE = map(Path, sys.argv[1:3])
print(*jars.local_jars("one", "two"), sep="\\n")
"""


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is taken for a clone; the archive `one` and the runner of `two` are in a repository."""
    lines = ["# a remark"]
    for artifact, ending in (("one", ""), ("two", "-runner")):
        folder = tmp_path / "repository" / "org" / "example" / artifact / "1.0"
        folder.mkdir(parents=True)
        (folder / f"{artifact}-1.0{ending}.jar").write_bytes(_CONTENT)
        coordinate = f"org.example:{artifact}:1.0{ending.replace('-', ':')}"
        lines.append(f"{coordinate} {hashlib.sha256(_CONTENT).hexdigest()}")
    (tmp_path / "settings.xml").write_text(_SETTINGS.format(tmp_path / "repository"), encoding="utf-8")
    (tmp_path / "jars.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setenv("IVY_SETTINGS", str(tmp_path / "settings.xml"))
    monkeypatch.setattr(jars, "_LOCKED", tmp_path / "jars.txt")
    monkeypatch.setattr(jars, "_CLONE", tmp_path)
    monkeypatch.setattr(jars._fetch.retry, "stop", stop_after_attempt(1))
    return tmp_path


def test_of_two_processes_one_fetches(clone: Path) -> None:
    command = [sys.executable, "-c", _FETCH, clone / "jars.txt", clone]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=120) for process in both]

    files = [clone / ".jars" / name for name in ("one-1.0.jar", "two-1.0-runner.jar")]
    assert [process.returncode for process in both] == [0, 0], said
    assert {output for output, _ in said} == {"".join(f"{file}\n" for file in files)}
    assert sorted("".join(errors for _, errors in said).split()) == ["fetching"] * 2 + [file.name for file in files]
    assert all(file.read_bytes() == _CONTENT for file in files)
    assert {path.name for path in (clone / ".jars").iterdir()} == {"lock", *(file.name for file in files)}


def test_an_archive_that_is_there_stays_when_the_next_one_is_missing(clone: Path) -> None:
    (clone / "repository" / "org" / "example" / "two" / "1.0" / "two-1.0-runner.jar").unlink()

    with pytest.raises(
        BenchError,
        match=r"two-1.0-runner.jar \(org.example:two:1.0:runner\) cannot be fetched.*\.jars\. Ivy says: .*not found",
    ):
        jars.local_jars("one", "two")

    assert {path.name for path in (clone / ".jars").iterdir()} == {"lock", "one-1.0.jar"}


def test_an_archive_with_another_checksum_is_refused(clone: Path) -> None:
    (clone / "jars.txt").write_text(f"org.example:one:1.0 {'0' * 64}", encoding="utf-8")

    with pytest.raises(BenchError, match=r"one-1\.0\.jar has the SHA-256 .* says 000"):
        jars.local_jars("one")

    assert [path.name for path in (clone / ".jars").iterdir()] == ["lock"]


def test_an_archive_that_is_not_listed_is_named() -> None:
    with pytest.raises(BenchError, match=r"jars.txt has no archive of another world"):
        jars.local_jars("of another world")
