"""The statements of docs/sql.md run as they stand, and their outputs are those of the page."""

import os
import re
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from planner.spark.statements.procedures import PROCEDURES
from ssb_bench.spark_runs.jars import SPARK_RELEASE

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(SPARK_RELEASE != "4.1", reason="the page is about the newest release"),
]

PAGE = Path(__file__).parents[3] / "docs" / "sql.md"
STATEMENT = re.compile(r"```(sql|python)\n(.*?)\n```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)
VARIES = re.compile(r"bytes|reads|seconds|snapshot_id")
"""Columns whose values are examples."""


def shown(frame: DataFrame) -> str:
    return frame._show_string(1000, truncate=False)


def cells(output: str) -> list[list[str]]:
    """The rows of a shown table, values that vary left out."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in output.splitlines() if "|" in line]
    return [[cell for cell, name in zip(line, lines[0], strict=True) if not VARIES.search(name)] for line in lines]


def test_the_page_shows_what_spark_answers(enabled: SparkSession) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for language, statement, output in STATEMENT.findall(text):
        if language == "python":
            exec(statement, {"spark": enabled})
            continue
        frame = enabled.sql(statement)
        if not frame.columns:
            assert output == ""
            continue
        answer = shown(frame).rstrip("\n") + "\n"
        if "PUFFIN_INDEX_WRITE_PAGE" in os.environ:
            block = f"```sql\n{statement}\n```\n\n```text\n"
            text = text.replace(f"{block}{output}```", f"{block}{answer}```")
        else:
            assert cells(answer) == cells(output), statement
    if "PUFFIN_INDEX_WRITE_PAGE" in os.environ:
        PAGE.write_text(text, encoding="utf-8")


def test_the_page_has_every_procedure_with_its_parameters() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^### (\w+)$", text, re.MULTILINE) == list(PROCEDURES)
    for procedure in PROCEDURES.values():
        section = text.partition(f"### {procedure.name}\n")[2].partition("\n### ")[0]
        missing = [one.name for one in procedure.parameters if one.name not in section]
        assert missing == [], procedure.name
