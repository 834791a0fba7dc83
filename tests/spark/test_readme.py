"""The README's way from nothing to a query runs as it stands, in a folder of its own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ssb_bench.spark_runs.session import SPARK_RELEASE

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(SPARK_RELEASE != "4.1", reason="the README is about the newest release"),
]

README = Path(__file__).parents[2] / "README.md"


def _block(language: str, beginning: str) -> str:
    """The code block of the README that begins with a text."""
    blocks = re.findall(
        rf"```{language}\n({re.escape(beginning)}.*?)```", README.read_text(encoding="utf-8"), re.DOTALL
    )
    (block,) = blocks
    return str(block)


def test_the_way_from_nothing_to_a_query(tmp_path: Path) -> None:
    def moved(text: str) -> str:
        assert "/tmp/lake" in text
        return text.replace("/tmp/lake", str(tmp_path / "lake"))

    def run(*command: str) -> str:
        environment = os.environ | {"PYICEBERG_HOME": str(tmp_path), "PYSPARK_PYTHON": sys.executable, "COLUMNS": "120"}
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=300, env=environment, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    script = tmp_path / "first.py"
    script.write_text(moved(_block("python", "from pyspark.sql import SparkSession\n")))
    (tmp_path / ".pyiceberg.yaml").write_text(moved(_block("yaml", "catalog:\n")))

    shown = run(sys.executable, str(script))
    kept, of = map(int, re.findall(r"(\d+) of (\d+) row groups kept", shown)[0])
    assert "|4711|" in shown.replace(" ", "")
    assert 0 < kept < of
    for line in _block("", "puffin-index add").splitlines():
        program, *arguments = shlex.split(line)
        assert program == "puffin-index"
        answer = run(sys.executable, "-m", "puffin_index", *arguments)
    assert re.match(r"\d+ rows; 0 of", answer)
