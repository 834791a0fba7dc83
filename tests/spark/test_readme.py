"""The README's way from nothing to a query, and the blocks of the other pages, run as they stand from an empty folder.

They run with the wheel in an environment that is not activated: the `python3` of the path has no packages.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ssb_bench.spark_runs.jars import SPARK_RELEASE
from tests.conftest import amount
from tests.wheel_environment import ROOT, build_wheel, make_environment, run

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(SPARK_RELEASE != "4.1", reason="the README is about the newest release"),
]

PAGES = ("README.md", "docs/advice.md", "docs/planner.md", "docs/operations.md")
"""Each goes on where the one before ends; `make test` runs the first."""

_BLOCK = re.compile(r"^```([a-z]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_COMMANDS = ("puffin-index ", "_PUFFIN_INDEX_COMPLETE")
_PLACEHOLDERS = ("--watch", "00000-0-f3c1.parquet", "/var/log/spark-events", "s3://logs")
"""A command that never ends, and names of files that a reader puts in."""

_ANOTHER_PYTHON = """
import os, sys
from puffin_index.errors import BuildError

os.environ["PYSPARK_PYTHON"] = spark.sparkContext.pythonExec = sys._base_executable
try:
    TableIndex.create(catalog, "sales.orders", IndexDefinition.of(bloom=["id"])).build(spark)
except BuildError as error:
    print(f"refused: {error}")
"""


def _blocks(lake: Path) -> Iterator[tuple[str, str]]:
    """The languages and texts of all blocks that somebody can run; examples of formats and outputs are left out."""
    for page in PAGES[: amount(1, len(PAGES))]:
        for language, text in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
            lines = [line for line in text.splitlines() if not any(name in line for name in _PLACEHOLDERS)]
            is_run = language in ("python", "yaml") or text.startswith((*_COMMANDS, "ALTER TABLE"))
            if is_run and lines:
                yield language, "\n".join(lines).replace("/tmp/lake", str(lake))


@pytest.mark.nightly
def test_every_block_runs_as_it_stands(tmp_path: Path) -> None:
    python = make_environment(tmp_path / "environment", build_wheel(tmp_path / "dist"))
    for name in ("bin", "home", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin" / "puffin-index").symlink_to(python.parent / "puffin-index")
    blocks = [*_blocks(tmp_path / "lake")]
    (script,) = (block for block in blocks if "SparkSession.builder" in block[1])
    blocks.insert(blocks.index(script), script)  # a script that was started again
    blocks.append(("python", _ANOTHER_PYTHON))
    environment = {"HOME": str(tmp_path / "home"), "COLUMNS": "120"}

    ran = run(
        python,
        ROOT / "tests" / "run_blocks.py",
        cwd=tmp_path / "empty",
        environment=environment,
        path=tmp_path / "bin",
        entered=json.dumps(blocks),
    )

    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    assert re.search(
        r"^refused: the Python of Spark's executors \(\S+\) lacks 'puffin_index': install", ran.stdout, re.MULTILINE
    )
    assert len(blocks) >= amount(6, 14)
    kept, of = map(int, re.findall(r"(\d+) of (\d+) row groups kept", ran.stdout)[0])
    assert ran.stdout.replace(" ", "").count("|4711|") >= 2
    assert 0 < kept < of
    assert re.search(r"^\d+ rows *$", ran.stdout, re.MULTILINE)
    if len(PAGES) == amount(1, len(PAGES)):
        assert "complete" in (tmp_path / "home" / ".bashrc").read_text()
