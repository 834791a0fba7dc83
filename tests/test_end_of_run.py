"""A run of tests ends where what they share cannot be set up."""

import subprocess
import sys
from pathlib import Path

from tests.wheel_environment import ROOT

_TESTS = """
import pytest

@pytest.fixture(scope="session")
def shared():
    raise OSError("no such thing")

@pytest.mark.parametrize("number", range(50))
def test_of_what_is_shared(shared, number):
    pass
"""


def test_one_error_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_shared.py").write_text(_TESTS, encoding="utf-8")

    options = ["-p", "tests.conftest", "-n", "2", "--dist", "loadgroup"]
    command = [sys.executable, "-m", "pytest", *options, "test_shared.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode != 0
    assert "shared, which tests share, could not be set up" in done.stdout
    assert done.stdout.count("E       OSError: no such thing") == 1, done.stdout
