"""The wheel, tried from another directory in an environment without PySpark and the benchmark's packages."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_LEFT_OUT = ("pyspark", "py4j", "duckdb", "matplotlib", "tpchgen", "puffin_index", "_editable_impl", "__pycache__")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment with the wheel; nothing is downloaded: other packages are linked."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    found = folder / "venv" / "bin" / "python"
    packages = Path(_run(found, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(_LEFT_OUT):
            (packages / entry.name).symlink_to(entry)
    command = ["uv", "pip", "install", "--offline", "--no-deps", "--quiet", "--python", str(found), str(wheel)]
    subprocess.run([sys.executable, "-m", *command], check=True)
    return found


def _run(*command: object) -> subprocess.CompletedProcess[str]:
    # Without PYTHONPATH, which may name a checkout.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([*map(str, command)], capture_output=True, text=True, cwd="/", env=clean, check=False)


def test_the_wheel_has_all_that_is_not_python(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(
        ["git", "ls-files", "puffin_index", "planner", "ssb_bench"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(tracked.stdout.split()) <= names
    assert {"puffin_index/py.typed", "planner/py.typed"} <= names
    (license_file,) = (name for name in names if name.endswith("/licenses/LICENSE"))
    assert b"Apache License" in zipfile.ZipFile(wheel).read(license_file)
    metadata = zipfile.ZipFile(wheel).read(license_file.replace("licenses/LICENSE", "METADATA")).decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Typing :: Typed" in metadata
    assert "Project-URL: Puffin specification, https://iceberg.apache.org/puffin-spec/" in metadata


def test_a_plain_install_runs_and_says_its_version(python: Path) -> None:
    version = _run(python, "-c", "import puffin_index; print(puffin_index.__version__, puffin_index.__file__)").stdout
    number, file = version.split()
    assert Path(file).is_relative_to(python.parents[1])
    for command in ((python.parent / "puffin-index",), (python, "-m", "puffin_index")):
        assert _run(*command, "--version").stdout.endswith(f"version {number}\n")
        shown = _run(*command, "--help")
        assert (shown.returncode, "explain" in shown.stdout) == (0, True), shown.stderr


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("ssb-bench", "--help"), "error: {} is not installed: install puffin-index[bench]"),
        (
            ("python", "-c", "import planner; planner.enable(None)"),
            "pyspark is not installed: install puffin-index[spark]",
        ),
        (
            ("python", "-c", "import planner; planner.PuffinIndexSource"),
            "pyspark is not installed: install puffin-index[spark]",
        ),
    ],
)
def test_what_is_missing_is_named_with_what_to_install(python: Path, command: tuple[str, ...], sentence: str) -> None:
    done = _run(python.parent / command[0], *command[1:])
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert any(sentence.format(package) in last for package in ("pyspark", "py4j", "duckdb", "matplotlib")), done.stderr
