"""All blocks of the README and of the users' pages run as they stand, in the order of the pages, from an empty folder.

`make nightly` runs them with the wheel, in an environment that is not activated, and those of the start twice.
"""

import json
import re
import sys
from pathlib import Path

import pytest

from ssb_bench.spark_runs.jars import SPARK_RELEASE, session_jars
from tests.conftest import is_nightly
from tests.documents import RUN_PAGES, blocks_of
from tests.wheel_environment import ROOT, build_wheel, make_environment, run

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(SPARK_RELEASE != "4.1", reason="the pages are about the newest release"),
]

_ANOTHER_PYTHON = """
import os, sys
from puffin_index.errors import BuildError

os.environ["PYSPARK_PYTHON"] = spark.sparkContext.pythonExec = sys._base_executable
try:
    TableIndex.create(catalog, "sales.orders", IndexDefinition.of(bitmap=["amount"])).build(spark)
except BuildError as error:
    print(f"refused: {error}")
"""
_PACKAGES = re.compile(r'"spark\.jars\.packages",\s+"[^"]+"')


def _blocks(lake: Path) -> list[tuple[str, str, str]]:
    """Pages, languages and texts. The SQL page is left out, whose outputs `test_sql_page.py` compares."""
    return [
        (page, block.language, block.text.replace("/tmp/lake", str(lake)))
        for page in RUN_PAGES
        for block in blocks_of(page)
        if block.is_run and page != "docs/sql.md"
    ]


def test_every_block_runs_as_it_stands(tmp_path: Path) -> None:
    for name in ("bin", "home", "empty"):
        (tmp_path / name).mkdir()
    blocks = _blocks(tmp_path / "lake")
    if is_nightly():
        python = make_environment(tmp_path / "environment", build_wheel(tmp_path / "dist"))
        again = [block for block in blocks if block[0] == "docs/start.md"]
        blocks = [*again, *blocks, ("", "python", _ANOTHER_PYTHON)]
    else:
        python = Path(sys.executable)
        jars = ",".join(map(str, session_jars()))
        blocks = [(page, language, _PACKAGES.sub(f'"spark.jars", "{jars}"', text)) for page, language, text in blocks]
    (tmp_path / "bin" / "puffin-index").symlink_to(python.parent / "puffin-index")

    ran = run(
        python,
        ROOT / "tests" / "run_blocks.py",
        cwd=tmp_path / "empty",
        environment={"HOME": str(tmp_path / "home"), "COLUMNS": "120"},
        path=tmp_path / "bin",
        entered=json.dumps(blocks),
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    kept, of = map(int, re.findall(r"(\d+) of (\d+) row groups kept", ran.stdout)[0])
    assert 0 < kept < of
    assert ran.stdout.replace(" ", "").count("|989775|4711|s25|") >= 2
    assert "complete" in (tmp_path / "home" / ".bashrc").read_text()
    refused = r"^refused: the Python of Spark's executors \(\S+\) lacks 'puffin_index': install"
    assert bool(re.search(refused, ran.stdout, re.MULTILINE)) == is_nightly()
